"""What programs may read of Python and of shared libraries: no installed package is among it.

Landlock's rules only add. A rule for a folder holds for all below it, so folders with packages in them cannot be named:
their other entries are, one by one. Covers: ``site-packages`` and ``dist-packages`` of this Python, of a
distribution's and of others in the same place, the wheels inside ``ensurepip``, and what other languages install in
``lib``. Does not cover: whether a path exists. What is installed while a zygote runs cannot be read either.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import FileFinder

PACKAGES = frozenset(("site-packages", "dist-packages"))
WHEELS = "ensurepip", "_bundled"
# Folders of a ``lib`` that libraries read: of an architecture, and data of the C library, OpenSSL, curses and Tcl.
_OF_LIBRARIES = re.compile(r".*-linux-.*|locale|gconv|ssl|engines-.*|ossl-modules|terminfo|t(cl|k)[0-9.]+")
_LIBRARY = re.compile(r"lib(|32|64|x32)")


def of_python() -> list[str]:
    """The standard library of this interpreter without packages, and the libraries next to it."""
    home = os.path.realpath(os.path.dirname(os.__file__))
    parts = [path for path in _entries(home) if os.path.basename(path) not in (*PACKAGES, WHEELS[0])]
    parts += [path for path in _entries(os.path.join(home, WHEELS[0])) if os.path.basename(path) != WHEELS[1]]
    return [*parts, *of_libraries([os.path.join(sys.base_prefix, "lib")])]


def of_libraries(paths: Sequence[str]) -> list[str]:
    """The paths, with what libraries read of it in place of each folder that is the ``lib`` of a system or a Python."""
    parts: dict[str, None] = {}
    for path in dict.fromkeys(map(os.path.realpath, paths)):
        if _LIBRARY.fullmatch(os.path.basename(path)):
            parts.update(dict.fromkeys(each for each in _entries(path) if _is_of_libraries(each)))
        else:
            parts[path] = None
    return list(parts)


def remember_listing() -> None:
    """Let imports find the standard library though its folder can no longer be listed.

    A rule that permits listing it would permit listing its packages.
    """
    for folder in (os.path.dirname(os.__file__), os.path.join(os.path.dirname(os.__file__), WHEELS[0])):
        for hook in sys.path_hooks:
            with suppress(ImportError):
                finder = hook(folder)
                if type(finder) is FileFinder:
                    finder._fill_cache()  # type: ignore[attr-defined]
                    finder.__class__ = _Listed
                    sys.path_importer_cache[folder] = finder


class _Listed(FileFinder):
    """Finds modules in a folder as it was listed once."""

    def _fill_cache(self) -> None:
        """Keep the names, though the folder seems to have changed."""


def _entries(folder: str) -> Iterator[str]:
    """The files and folders in a folder; a link would make readable what is elsewhere."""
    try:
        with os.scandir(folder) as entries:
            found = sorted((each.name, each.path) for each in entries if not each.is_symlink())
    except OSError:
        return  # not on this system
    for _, path in found:
        yield path


def _is_of_libraries(path: str) -> bool:
    return not os.path.isdir(path) or _OF_LIBRARIES.fullmatch(os.path.basename(path)) is not None
