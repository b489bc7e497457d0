"""Files as numbered pieces for a machine that can be reached in small transfers only, in both directions.

    python3 pieces.py collect FROM INTO    keep the pieces that lie in FROM; unpack all once the last one is there

The pieces are those of one tar archive. The name of each says to which archive it belongs, its number, how many there
are, and its SHA-256: so each is checked alone, in any order. Standard library only: it runs where nothing is installed.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"pack-([0-9a-f]{12})-(\d{3,})-of-(\d{3,})-([0-9a-f]{64})")
_MIB = 2**20


@dataclass(frozen=True)
class Piece:
    """One piece, as its name says."""

    path: Path
    archive: str
    number: int
    count: int
    sha256: str


class Damaged(Exception):
    """A piece that is not what its name says, or pieces that do not belong together."""


def piece_size(text: str) -> float:
    """The size of pieces on a command line, in MiB.

    Raises:
        ValueError: it is too small: there would be too many.
    """
    mib = float(text)
    if not 0.01 <= mib <= 1e6:
        raise ValueError
    return mib


def pieces_in(folder: Path) -> list[Piece]:
    """The pieces in a folder by archive and number."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if match := _NAME.fullmatch(path.name):
            archive, number, count, sha256 = match.groups()
            found.append(Piece(path, archive, int(number), int(count), sha256))
    return found


def write_pieces(files: Iterable[tuple[str, Path | bytes]], folder: Path, mib: float) -> list[Piece]:
    """Write files as pieces of at most ``mib`` MiB; other pieces in the folder go once all are written.

    Equal files give equal pieces: names are sorted, and owners, times and modes are left out.

    Args:
        files: the name of each in the archive, and the file or its content.
    """
    folder.mkdir(parents=True, exist_ok=True)
    writer = _Splitter(folder, int(mib * _MIB))
    with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted(files, key=lambda file: file[0]):
            entry = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
            else:
                entry.size = content.stat().st_size
                with content.open("rb") as opened:
                    archive.addfile(entry, opened)
    return writer.finish()


class _Splitter(io.RawIOBase):
    """A stream that cuts what is written to it into files."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most, self._parts = folder, most, list[tuple[Path, str]]()
        self._old = [piece.path for piece in pieces_in(folder)]
        self._next()

    def _next(self) -> None:
        self._path = self._folder / f"part-{len(self._parts) + 1:03d}.tmp"
        self._out, self._size, self._sum = self._path.open("wb"), 0, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        left = memoryview(data)
        while left:
            if self._size == self._most:
                self._end()
                self._next()
            now = left[: self._most - self._size]
            self._out.write(now)
            self._sum.update(now)
            self._size += len(now)
            left = left[len(now) :]
        return len(data)

    def _end(self) -> None:
        self._out.close()
        self._parts.append((self._path, self._sum.hexdigest()))

    def finish(self) -> list[Piece]:
        self._end()
        archive = hashlib.sha256("".join(digest for _, digest in self._parts).encode()).hexdigest()[:12]
        kept = []
        for number, (path, digest) in enumerate(self._parts, start=1):
            name = f"pack-{archive}-{number:03d}-of-{len(self._parts):03d}-{digest}"
            kept.append(path.replace(self._folder / name))
        for path in set(self._old) - set(kept):
            path.unlink()
        return pieces_in(self._folder)


def check(piece: Piece) -> None:
    """Compare a piece with its name.

    Raises:
        Damaged: they differ.
    """
    digest = hashlib.sha256()
    with piece.path.open("rb") as opened:
        while block := opened.read(_MIB):
            digest.update(block)
    if digest.hexdigest() != piece.sha256:
        raise Damaged(f"{piece.path.name}: damaged on its way; send it again")


def missing(pieces: list[Piece]) -> list[int]:
    """The numbers of the pieces that an archive still needs."""
    return sorted(set(range(1, pieces[0].count + 1)) - {piece.number for piece in pieces})


def require_one_archive(pieces: list[Piece]) -> None:
    """Check that pieces belong together; `Damaged` if not."""
    archives = sorted({piece.archive for piece in pieces})
    if len(archives) > 1:
        raise Damaged(
            f"{pieces[0].path.parent}: pieces of {len(archives)} archives ({', '.join(archives)}); "
            "delete those of the earlier one"
        )


def collect(source: Path, into: Path) -> str:
    """Keep the pieces in ``source``, and unpack their archive into ``into``/tree once it is complete.

    Pieces of another archive, which came before, are removed. Files in the tree that the archive has not stay.

    Returns:
        What is still missing, as a sentence.

    Raises:
        Damaged: a piece is not what its name says, or they are of several archives; those before it are kept.
    """
    kept = into / "pieces"
    kept.mkdir(parents=True, exist_ok=True)
    arrived = pieces_in(source)
    require_one_archive(arrived)
    for piece in arrived:
        check(piece)
        shutil.copyfile(piece.path, kept / "piece.tmp")
        (kept / "piece.tmp").replace(kept / piece.path.name)
    for piece in pieces_in(kept):
        if arrived and piece.archive != arrived[0].archive:
            piece.path.unlink()
    pieces = pieces_in(kept)
    if not pieces:
        return "no piece has arrived"
    if numbers := missing(pieces):
        return f"{len(pieces)} of {pieces[0].count} pieces are here; missing: {', '.join(map(str, numbers))}"
    unpack(pieces, into / "tree")
    for piece in pieces:
        piece.path.unlink()
    return f"all {len(pieces)} pieces are unpacked in {into / 'tree'}"


def unpack(pieces: list[Piece], tree: Path) -> None:
    """Unpack an archive; names that lead out of ``tree`` are refused.

    Raises:
        Damaged: a piece is missing, or is not what its name says; or the archive is none, or has such a name.
    """
    require_one_archive(pieces)
    for piece in pieces:
        check(piece)
    if numbers := missing(pieces):
        raise Damaged(f"missing pieces: {', '.join(map(str, numbers))}")
    try:
        with (
            _Joined([piece.path for piece in pieces]) as joined,
            tarfile.open(fileobj=joined, mode="r|") as archive,
        ):
            archive.extractall(tree, filter="data")
    except tarfile.TarError as error:
        raise Damaged(f"the pieces are not an archive that may be unpacked: {error}") from None


class _Joined(io.RawIOBase):
    """Files read one after the other."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = iter(paths)
        self._now: io.BufferedReader | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        got = b""
        while len(got) < size:
            if self._now is None:
                path = next(self._paths, None)
                if path is None:
                    break
                self._now = path.open("rb")
            block = self._now.read(size - len(got))
            if not block:
                self._now.close()
                self._now = None
            got += block
        return got

    def close(self) -> None:
        if self._now is not None:
            self._now.close()
        super().close()


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "collect":
        sys.exit((__doc__ or "").split("\n\n")[1].strip())
    try:
        print(collect(Path(sys.argv[2]), Path(sys.argv[3])))
    except (Damaged, OSError) as error:
        sys.exit(str(error))
