"""Failures that a user can act on: two short sentences at most, with the exit code that the command line returns."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

# What CUDA and ROCm say, their drivers and their libraries.
_DEVICE_FAILED = re.compile(r"\b(CUDA|HIP|cuDNN|MIOpen|cusolver)( driver| NVRTC)? error\b|Triton Error|NVML_SUCCESS")


class SceError(Exception):
    """Something outside the program is wrong; the message names the problem, its place and the fix. Exit code 1."""

    exit_code = 1


class UsageError(SceError):
    """The request itself cannot be served: an unknown name, options that contradict each other. Exit code 2."""

    exit_code = 2


class MissingExtra(SceError):
    """A command needs an optional dependency that is not installed.

    Args:
        package: the import name that is missing; or several with "and".
        extra: the extra of this project that brings it; or several with commas.
        note: ends the message.
    """

    def __init__(self, package: str, extra: str, note: str = "") -> None:
        verb = "are" if " and " in package else "is"
        super().__init__(f"{package} {verb} not installed; run: {install_command(extra)} {note}".rstrip())


def missing_extras(needed: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The extras of which a package is not installed, each with the first such package; nothing is imported.

    Args:
        needed: the packages of each extra.
    """
    missing = {extra: [each for each in packages if find_spec(each) is None] for extra, packages in needed.items()}
    return {extra: packages[0] for extra, packages in missing.items() if packages}


def check_extras(needed: Mapping[str, Sequence[str]], note: str = "") -> None:
    """As `missing_extras`.

    Raises:
        MissingExtra: some are missing; it names all of them, and ends with ``note``.
    """
    if missing := missing_extras(needed):
        raise MissingExtra(" and ".join(missing.values()), ",".join(missing), note)


def install_command(extra: str = "") -> str:
    """The command line that installs this project with an extra, from its checkout if it runs from one."""
    checkout = Path(__file__).parents[1]
    if (checkout / "constraints.txt").is_file():
        place = f"'.[{extra}]'" if extra else "."
        enter = "" if Path.cwd() == checkout else f"cd {shlex.quote(str(checkout))} && "
        return f"{enter}pip install -c constraints.txt -e {place}"
    return f"pip install 'securecoderl-edge[{extra}]'" if extra else "pip install securecoderl-edge"


def not_utf8(what: object, error: UnicodeDecodeError) -> SceError:
    """The error for a file, or any other input, that is not UTF-8 text."""
    return SceError(f"{what}: not UTF-8 text ({error.reason} at byte {error.start})")


@contextmanager
def needs(package: str, extra: str, note: str = "") -> Iterator[None]:
    """Around the imports of an optional dependency; arguments as those of `MissingExtra`.

    Raises:
        MissingExtra: the package, or one that it needs, is not installed.
        SceError: the package is installed but cannot be imported.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or package, extra, note) from None
    except ImportError as error:
        raise SceError(f"{package} is installed but cannot be imported: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its class name if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def is_device_failure(error: Exception) -> bool:
    """Whether a GPU, or its driver, failed. Then this process can compute nothing more on it, nor read from it."""
    is_torchs = type(error).__name__ == "AcceleratorError"  # a class that older versions of torch do not have
    return isinstance(error, RuntimeError) and (is_torchs or bool(_DEVICE_FAILED.search(str(error))))
