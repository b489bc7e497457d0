"""Failures that a user can act on: one sentence each, with the exit code that the command line returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class SceError(Exception):
    """Something outside the program is wrong; the message says what, where and what to do. Exit code 1."""

    exit_code = 1


class UsageError(SceError):
    """The request itself cannot be served: an unknown name, options that contradict each other. Exit code 2."""

    exit_code = 2


class MissingExtra(SceError):
    """A command needs an optional dependency that is not installed.

    Args:
        package: the import name that is missing.
        extra: the extra of this project that brings it.
    """

    def __init__(self, package: str, extra: str, note: str = "") -> None:
        hint = f"{package} is not installed; run: pip install 'securecoderl-edge[{extra}]'"
        super().__init__(f"{hint} {note}".rstrip())


def not_utf8(what: object, error: UnicodeDecodeError) -> SceError:
    """The error of a file, or of something else that is read, that is no UTF-8 text."""
    return SceError(f"{what}: not UTF-8 text ({error.reason} at byte {error.start})")


@contextmanager
def needs(package: str, extra: str, note: str = "") -> Iterator[None]:
    """Around the imports of an optional dependency; arguments as those of `MissingExtra`.

    Raises:
        MissingExtra: it, or something that it needs, is not installed.
        SceError: it is installed and does not load.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or package, extra, note) from None
    except ImportError as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise SceError(f"{package} is installed, but does not load: {reason}") from None


def first_line(error: Exception) -> str:
    """What an exception of a library says, without the rest; its name where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
