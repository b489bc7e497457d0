"""Files that are written atomically (under a temporary name, then renamed), and readers for them; standard input."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import io
import json
import os
import platform
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, BinaryIO

from securecoderl_edge.errors import SceError

_ABANDONED_SECONDS = 600
_REPLACED = "-replaced"
_LONGEST_NAME = 40
# A temporary name, as this module and tempfile write it: of which target, by which process of which machine.
_TEMPORARY = re.compile(
    rf"\.(?P<target>.{{1,{_LONGEST_NAME}}})\.tmp-(?P<process>[0-9]{{1,9}})-(?:(?P<machine>[0-9a-f]{{6}})-)?[0-9a-z_]{{8}}"
    rf"(?P<replaced>{_REPLACED})?",
    re.DOTALL,
)


def standard_input() -> BinaryIO:
    """The bytes of standard input; none where a process was started without one."""
    return sys.stdin.buffer if sys.stdin else io.BytesIO()


@contextmanager
def temporary_beside(path: Path, replace_folder: bool = False) -> Iterator[Path]:
    """Yield a temporary path in ``path``'s folder; rename it to ``path`` on success, else delete it.

    The block may create a file or a folder there. A link at ``path`` stays; its target is replaced. What killed
    processes of this machine left in the folder is deleted first.

    Args:
        replace_folder: also replace a folder at ``path``, once the new one is on disk.

    Raises:
        SceError: the system refuses to create, write or rename the file (no space, no permission), or another that
            the block opens; or ``path`` is a device, a pipe or a socket.
    """
    target = Path(os.path.realpath(path))
    if not target.name:
        raise SceError(f"cannot write {path}: not a file name")
    temporary = target.with_name(f"{temporary_prefix(target)}{secrets.token_hex(4)}")
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            raise SceError(f"cannot write {path}: not a regular file")
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_those_of_killed(target.parent)
        try:
            yield temporary
        except OSError as error:
            if error.filename is None or temporary.name in str(error.filename):
                raise
            raise SceError(f"{error.filename}: {error.strerror}") from error  # another file, that the block reads
        # On disk before it gets its name: after a power cut the name must not refer to a partial file.
        for written in [*temporary.rglob("*"), temporary]:
            sync(written)
        _put(temporary, target, replace_folder)
        sync(target.parent)
    except OSError as error:
        # numpy reports a short write without the system's reason for it.
        raise SceError(f"cannot write {path}: {error.strerror or f'is the disk full? ({error})'}") from error
    finally:
        _remove(temporary)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around writes to a file in place: the system names no file when it refuses them.

    Raises:
        SceError: the system refuses a write (no space), or to open the file.
    """
    try:
        yield
    except OSError as error:
        raise SceError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[str]]:
    """Open ``path`` for writing UTF-8 text; it appears, flushed to disk, only when the block succeeds."""
    with temporary_beside(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as out:
        yield out


def remove_abandoned(path: Path) -> None:
    """Delete files that `temporary_beside` left for ``path`` when its process was killed; an export's are large.

    Those of other machines, or from before a restart, stay for ten minutes after their last change: a folder can be
    shared, and a process id is valid on one machine only.
    """
    target = Path(os.path.realpath(path))
    _remove_those_of_killed(target.parent)
    for left in target.parent.glob(f"{glob.escape(_stem(target))}*"):
        named = _TEMPORARY.fullmatch(left.name)
        if named is None or _runs(int(named["process"])):
            continue
        with suppress(OSError):
            latest = max(each.lstat().st_mtime for each in (left, *left.rglob("*")))
            if time.time() - latest > _ABANDONED_SECONDS:
                _put_back_or_remove(left, target, named)


def _remove_those_of_killed(folder: Path) -> None:
    """Delete what processes of this machine that have ended left in a folder, whatever they were writing."""
    names = []
    with suppress(OSError), os.scandir(folder) as entries:  # a folder that cannot be listed may be written to
        names = [each.name for each in entries if each.name.startswith(".") and ".tmp-" in each.name]
    for name in names:
        named = _TEMPORARY.fullmatch(name)
        if named is None or named["machine"] != _machine() or _runs(int(named["process"])):
            continue
        if named["replaced"] and len(named["target"]) == _LONGEST_NAME:
            continue  # which may be cut: `remove_abandoned` knows what it was
        with suppress(OSError):
            _put_back_or_remove(folder / name, folder / named["target"], named)


def _put_back_or_remove(left: Path, target: Path, named: re.Match[str]) -> None:
    if named["replaced"] and not target.exists():
        left.rename(target)  # the process was killed before the new folder got its name
    else:
        _remove(left)


@lru_cache
def _machine() -> str:
    """Where a process id is valid: this machine since it started, and this container."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        place = f"{started} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        place = platform.node()
    return hashlib.sha256(place.encode()).hexdigest()[:6]


def _put(temporary: Path, target: Path, replace_folder: bool) -> None:
    """Rename ``temporary`` to ``target``; an old folder of that name is deleted afterwards, or restored on failure."""
    if not (replace_folder and temporary.is_dir() and target.is_dir()):
        os.replace(temporary, target)
        return
    replaced = temporary.with_name(f"{temporary.name}{_REPLACED}")
    os.replace(target, replaced)
    try:
        os.replace(temporary, target)
    except OSError:
        os.replace(replaced, target)
        raise
    _remove(replaced)


def temporary_prefix(path: Path) -> str:
    """The prefix of this process's temporary names next to ``path``, by which `remove_abandoned` finds them."""
    return f"{_stem(path)}{os.getpid()}-{_machine()}-"


def _stem(target: Path) -> str:
    """The prefix of temporary names next to ``target``; cut, since the name itself may have the maximum length."""
    return f".{target.name[:_LONGEST_NAME]}.tmp-"


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def remove_leftovers(folder: Path) -> None:
    """Delete files that killed processes left from `temporary_beside`, in a folder that nobody else writes to."""
    for path in folder.glob(".*.tmp-*"):
        _remove(path)


@contextmanager
def locked(folder: Path, busy: str = "") -> Iterator[None]:
    """Lock a folder for one process; the lock ends with the process.

    A folder that somebody else made can hold links in place of files, which writing would follow out of it.

    Args:
        busy: what to say if another process holds it.

    Raises:
        SceError: another process holds it, or a file in it is a link.
    """
    for path in folder.iterdir():
        if path.is_symlink() and not path.is_dir():
            raise SceError(f"{path} is a link; remove it, or choose another folder")
    with open_lock(folder) as lock:
        if not take_lock(lock):
            raise SceError(busy or f"another process is using {folder}; wait until it ends, or choose another --out")
        yield


def open_lock(folder: Path) -> IO[str]:
    """The file of a folder that `take_lock` locks; errors as those of ``open``, also if it is a link."""
    return open(folder / ".lock", "a", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o666))


def take_lock(file: IO[Any]) -> bool:
    """Lock an open file until it is closed; False if another process holds it, True if locks are not supported."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        SceError: the file is missing or is not a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SceError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise SceError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise SceError(f"{path}: expected a JSON object")
    return value


def read_json_if_there(path: Path) -> dict[str, Any]:
    """`read_json`, or an empty object if the file does not exist."""
    return read_json(path) if path.is_file() else {}


def sha256_of(path: Path) -> str:
    """Hex digest of a file's content.

    Raises:
        SceError: it is not a regular file (a device or a pipe would never end), or cannot be read.
    """
    if path.exists() and not path.is_file():
        raise SceError(f"{path}: not a regular file")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None


def known_sha256(path: Path) -> str:
    """`sha256_of` a large file, computed once per process while the file does not change; errors are the same."""
    try:
        status = path.stat()
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None
    return _sha256_once(path, status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache
def _sha256_once(path: Path, size: int, changed: int, inode: int) -> str:
    return sha256_of(path)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):  # renamed, or never made
            path.unlink()
