"""Files that are either whole or absent: written under a temporary name, then renamed."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from securecoderl_edge.errors import SceError


@contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """Yield a temporary path in ``path``'s folder; rename it to ``path`` on success, else delete it.

    The block may make a file or a folder of it. A link at ``path`` stays; what it points to is replaced.

    Raises:
        SceError: the system refuses to create, write or rename the file (no space, no permission), or
            ``path`` is a device, a pipe or a socket.
    """
    target = Path(os.path.realpath(path))
    if not target.name:
        raise SceError(f"cannot write {path}: it names no file")
    # Cut, because the name itself may be as long as the system permits.
    temporary = target.with_name(f".{target.name[:40]}.tmp-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            raise SceError(f"cannot write {path}: it is no regular file")
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        # numpy reports a short write without the system's reason for it.
        raise SceError(f"cannot write {path}: {error.strerror or f'is the disk full? ({error})'}") from error
    finally:
        _remove(temporary)


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[str]]:
    """Open ``path`` for writing UTF-8 text; it appears, flushed to disk, only when the block succeeds."""
    with temporary_beside(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):  # renamed, or never made
            path.unlink()
