"""Models, exports and runs that take seconds to make and that many tests read.

Each is made once per test run, by the worker that needs it first. Tests must not change them: a test that wants to
writes into a copy. Whether they kept to it is checked when a worker ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path


class Once:
    """The folder of things that are made once; all workers of a test run have the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def __call__(self, name: str, make: Callable[[Path], object]) -> Path:
        """The file or folder ``name``, which does not exist when ``make`` is called with it."""
        made, digest = self._folder / name, self._folder / f"{name}.sha256"
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not digest.is_file():
                shutil.rmtree(made, ignore_errors=True)  # of a worker that failed half-way
                make(made)
                unfinished = digest.with_suffix(".new")
                unfinished.write_text(_digest(made))
                unfinished.rename(digest)  # another worker may be looking
        return made

    def changed(self) -> list[str]:
        """The names of those that are no longer as they were made."""
        return [
            digest.stem
            for digest in sorted(self._folder.glob("*.sha256"))
            if digest.read_text() != _digest(digest.with_suffix(""))
        ]


def _digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted([folder, *folder.rglob("*")]):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()
