"""Static analyzers of C programs on this machine, each optional: ``gcc -fanalyzer`` and cppcheck.

Each reads a program in the sandbox and reports rules and lines (`inside/analyses`); `weaknesses` has those that count.
Flawfinder is not used: eight of its rules fire on safe programs (`benchmarks/c_analyzers.py`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages import toolchain
from securecoderl_edge.languages.toolchain import Analyzer

AnalyzerChoice = Literal["auto", "off"]
ANALYZER_CHOICES = ("auto", "off")
GCC, CPPCHECK = "gcc -fanalyzer", "cppcheck"
INSTALL_HINTS = {
    GCC: "install gcc 10 or newer, up to 14",
    CPPCHECK: "apt-get install cppcheck",
}
# Without optimization, which removes what the analyzer would find. Warnings in system headers are wanted: a program can
# claim that its text is one. Two macros tell that this is not the compilation that runs; they are as they are there.
_GCC_OPTIONS = (
    "-std=c11", "-O0", "-fanalyzer", "-Wformat", "-Wformat-security", "-Wsystem-headers", "-fdiagnostics-format=json",
    "-fdiagnostics-path-format=none", "-D__OPTIMIZE__=1", "-D__SANITIZE_ADDRESS__=1",
)  # fmt: skip
_CPPCHECK_OPTIONS = (
    "--quiet", "--std=c11", "--language=c", "--enable=warning,portability,information", "--template={id} {line} {file}",
    "--template-location=",
)  # fmt: skip
OFF_HINT = "leave static analyzers out with --analyzers off (reward.analyzers)"
# Where distributions keep what cppcheck knows of the C library.
_CPPCHECK_FOLDERS = ("/usr/lib/*/cppcheck", "/usr/share/cppcheck", "/usr/share/Cppcheck", "/usr/local/share/Cppcheck")


@cache
def find_analyzers() -> tuple[Analyzer, ...]:
    """The analyzers that are installed, in the order in which they run.

    Raises:
        SceError: one is installed, but does not start.
    """
    return tuple(each for each in (_gcc(), _cppcheck()) if each is not None)


def analyzer_versions() -> dict[str, str]:
    """The version of each analyzer that is installed; results of different versions do not compare."""
    return {each.name: each.version for each in find_analyzers()}


def absent_analyzers() -> dict[str, str]:
    """What installs each analyzer that is not there."""
    versions = analyzer_versions()
    return {name: hint for name, hint in INSTALL_HINTS.items() if name not in versions}


def _gcc() -> Analyzer | None:
    """gcc, if it has an analyzer and tells its findings as JSON."""
    gcc = shutil.which("gcc")
    if gcc is None or not _is_json(toolchain.output_of(gcc, *_GCC_OPTIONS, "-x", "c", "-S", "-", "-o", "/dev/null")):
        return None
    commands = toolchain.commands_of(gcc, *_GCC_OPTIONS, "-x", "c", "-S", "-", "-o", "out")
    if [Path(words[0]).name for words in commands] != ["cc1"]:
        return None
    command = (*toolchain.with_output(commands[0]), "-include", toolchain.INPUT)
    return Analyzer(GCC, toolchain.output_of(gcc, "--version")[0], command)


def _is_json(lines: Sequence[str]) -> bool:
    try:
        return isinstance(json.loads("\n".join(lines)), list)
    except ValueError:
        return False


def _cppcheck() -> Analyzer | None:
    path = shutil.which("cppcheck")
    if path is None:
        return None
    own = Path(path).resolve()
    folders = [str(each) for pattern in _CPPCHECK_FOLDERS for each in Path("/").glob(pattern[1:])]
    readable = toolchain.existing([*folders, str(own.with_name("cfg"))])
    command = (str(own), *_CPPCHECK_OPTIONS, "/proc/self/fd/0")  # it reads files only
    return Analyzer(CPPCHECK, _version_of_cppcheck(path), command, readable)


def _version_of_cppcheck(path: str) -> str:
    """An analyzer that is broken is no analyzer that is missing: without it, programs would look safer than before."""
    try:
        version = toolchain.output_of(path, "--version")[0]
    except OSError as error:
        version = error.strerror or str(error)
    if not version.startswith("Cppcheck "):
        raise SceError(f"cppcheck is installed but does not start ({version}); reinstall it, or {OFF_HINT}")
    return version
