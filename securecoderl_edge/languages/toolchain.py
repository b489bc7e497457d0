"""The C compiler of this machine: the commands that gcc would run, and the files that they read.

The sandbox runs the compiler, the assembler and the linker themselves: without the driver there are two processes fewer
per program, and none of them has to start another. gcc tells the commands itself (``-###``), and sees no program then.
"""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.weaknesses import NULL_HINT, SANITIZERS

# __NO_INLINE__ is what gcc defines without optimization, so for analyzers; a program must not learn which one it is.
FLAGS = (
    "-std=c11", "-Wall", "-Wextra", "-O1", "-D__NO_INLINE__", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all", "-fdiagnostics-color=never", "-fmax-errors=5", "-fno-diagnostics-show-caret",
)  # fmt: skip
# Of the libraries that every C program may use; the standard library links itself.
LIBRARIES = ("-lm",)
# The exit status of a program that a sanitizer stops, the second one for a fault of medium severity. It decides that
# there is a finding, so a program can only accuse itself with it.
SANITIZER_STATUS, MEDIUM_STATUS = 197, 196
# Files of a step, as descriptors: the output, the input of the assembler and of the linker, and the guard.
OUTPUT, INPUT, EXTRA = "/proc/self/fd/3", "/proc/self/fd/4", "/proc/self/fd/5"
PLACE = 500
# What the compiler alone may call to make memory addressable.
_OF_THE_COMPILER = (
    "__asan_handle_no_return", "__asan_unpoison_stack_memory", "__asan_allocas_unpoison", "__asan_unregister_globals",
)  # fmt: skip
# Words by which a program could tell the compiler to leave the sanitizers out, or them to look away. Poisoned, they are
# errors.
POISONED = _OF_THE_COMPILER + tuple(
    spelling
    for word in (
        "no_sanitize", "no_sanitize_address", "no_address_safety_analysis", "no_sanitize_undefined",
        "no_sanitize_thread", "no_sanitize_coverage",
    )
    for spelling in (word, f"__{word}__")
)  # fmt: skip
INSTALL_HINT = "install gcc with its sanitizers (on Debian and Ubuntu: apt-get install gcc libc6-dev)"
_NOT_NEEDED = ("-plugin", "--build-id", "-fuse-ld=", "-lubsan", "-L")
_LINKERS = ("ld.gold", "ld.bfd", "ld")  # the fastest first: gold needs a quarter of the time


@dataclass(frozen=True)
class Analyzer:
    """A static analyzer of programs in C; `analyzers` finds those of this machine.

    Attributes:
        name: in records and errors.
        version: as it prints it.
        command: the first word a path. It reads the program from standard input and has a header as `INPUT`,
            the descriptors of a compilation and no others, for which a program could ask.
        readable: folders that it may read.
    """

    name: str
    version: str
    command: tuple[str, ...]
    readable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Toolchain:
    """The steps from a C program to an executable file.

    Attributes:
        version: of the compiler, as it prints it.
        compile, assemble, link: commands, the first word a path. The compiler reads standard input and `INPUT`, a
            header; the linker links `INPUT` with `EXTRA`, the guard.
        readable: folders and files that they may read. libraries: that a compiled program may read, to be loaded.
        loader: the dynamic linker, which executable files name as their interpreter.
        header: its text. guard: its object file, in base64.
        place: the descriptor of the file that a process is about to become; above those that it may open itself.
        launcher: the program that becomes the tools and the programs (`launch.c`), in base64.
        emulate: the command that runs a program for a target (`targets`); empty where programs run themselves.
        analyzers: static analyzers that read each program, see `find_analyzers`.
    """

    version: str
    compile: tuple[str, ...]
    assemble: tuple[str, ...]
    link: tuple[str, ...]
    readable: tuple[str, ...]
    libraries: tuple[str, ...]
    loader: str
    header: str
    guard: str
    place: int
    launcher: str
    emulate: tuple[str, ...] = ()
    analyzers: tuple[Analyzer, ...] = ()

    @property
    def linker(self) -> str:
        """The name of the linker: ``ld.gold`` is the fastest."""
        return Path(self.link[0]).name


@cache
def find_toolchain() -> Toolchain:
    """The C toolchain of this machine.

    Raises:
        SceError: there is no gcc, or it has no AddressSanitizer, or its commands are not as expected.
    """
    gcc = shutil.which("gcc")
    if gcc is None:
        raise SceError(f"cannot run C programs: gcc is missing; {INSTALL_HINT}")
    commands = commands_of(gcc, *FLAGS, "-x", "c", "-", *LIBRARIES, "-o", "out")
    names = [Path(words[0]).name for words in commands]
    if names != ["cc1", "as", "collect2"]:
        raise SceError(f"cannot run C programs: {gcc} runs {', '.join(names) or 'nothing'}, not cc1, as, collect2")
    compiler, assembler, collector = commands
    asan, libc = (output_of(gcc, f"-print-file-name={name}")[0] for name in ("libasan.so", "libc.so.6"))
    linker = next((found for name in _LINKERS if (found := shutil.which(name))), None)
    assembler[0] = shutil.which(assembler[0]) or ""
    if not (os.path.isabs(asan) and os.path.isabs(libc) and linker and assembler[0]):
        raise SceError(f"cannot run C programs: {gcc} has no AddressSanitizer, assembler or linker; {INSTALL_HINT}")
    link = [INPUT if word == assembler[assembler.index("-o") + 1] else word for word in collector]
    link.insert(link.index(INPUT) + 1, EXTRA)
    loader = link[link.index("-dynamic-linker") + 1]
    own = [os.path.dirname(os.path.realpath(library)) for library in (asan, libc)]
    folders = existing([*own, *(os.path.dirname(word) for word in link if word.endswith(".o"))])
    return Toolchain(
        version=output_of(gcc, "--version")[0],
        compile=(*with_output(compiler), "-include", INPUT),
        assemble=(*with_output(assembler)[:-1], INPUT),
        link=(linker, *with_output(list(_plain(link[1:]))), "-nostdlib", *(f"-L{folder}" for folder in folders)),
        readable=existing([*include_folders(gcc), *folders, "/etc/ld.so.cache"]),
        libraries=existing([*own, "/etc/ld.so.cache"]),
        loader=os.path.realpath(loader),
        header="".join(f"#pragma GCC poison {word}\n" for word in POISONED),
        guard=built(gcc, "guard.c", "-c", "-fPIC", *_severities()),
        place=PLACE,
        launcher=built(gcc, "launch.c", "-static", "-no-pie", "-nostdlib", f"-DEXECUTABLE={PLACE}"),
    )


def _severities() -> list[str]:
    """What the guard knows of faults, as macros."""
    medium = " ".join(kind for kind, weakness in SANITIZERS.items() if weakness.severity == "MEDIUM")
    macros = {
        "SANITIZER_STATUS": SANITIZER_STATUS,
        "MEDIUM_STATUS": MEDIUM_STATUS,
        "MEDIUM_KINDS": f'" {medium} "',
        "NULL_HINT": f'"{NULL_HINT}"',
    }
    return [f"-D{name}={value}" for name, value in macros.items()]


def built(gcc: str, source: str, *options: str) -> str:
    """One of our files in C, compiled, in base64.

    Raises:
        SceError: gcc fails.
    """
    with tempfile.TemporaryDirectory(prefix="sce-") as folder:
        built = Path(folder) / "built"
        own = ("-std=c11", "-O1", "-ffreestanding", "-fno-stack-protector", "-fno-asynchronous-unwind-tables")
        told = output_of(gcc, *own, *options, str(Path(__file__).with_name(source)), "-o", str(built))
        if not built.exists():
            raise SceError(f"cannot run C programs: {gcc} does not compile {source} ({told[0]}); {INSTALL_HINT}")
        return base64.b64encode(built.read_bytes()).decode()


def commands_of(gcc: str, *options: str) -> list[list[str]]:
    """The commands that a compiler would run, as words."""
    return [shlex.split(line) for line in output_of(gcc, "-###", *options) if line.startswith(" ")]


def output_of(*command: str) -> list[str]:
    """What a command prints, as lines; gcc prints commands and folders on standard error."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        check=False,
    )
    return done.stdout.splitlines() or [""]


def include_folders(gcc: str) -> list[str]:
    """Where a compiler looks for ``#include <...>``."""
    lines = output_of(gcc, "-x", "c", "-E", "-v", "-")
    begin = next((place for place, line in enumerate(lines) if line.startswith("#include <...>")), len(lines))
    folders = []
    for line in lines[begin + 1 :]:
        if not line.startswith(" "):
            break
        folders.append(line.strip())
    return folders


def with_output(words: list[str]) -> list[str]:
    """A command that writes to `OUTPUT`."""
    place = words.index("-o") + 1
    return [*words[:place], OUTPUT, *words[place + 1 :]]


def _plain(words: list[str]) -> Iterator[str]:
    """The linker's words without plugins, folders, a build id, and libubsan, which the guard stands in for."""
    is_file_of_plugin = False
    for word in words:
        if not is_file_of_plugin and not word.startswith(_NOT_NEEDED):
            yield word
        is_file_of_plugin = word == "-plugin"


def existing(paths: list[str]) -> tuple[str, ...]:
    """Without links and repetitions: what a rule of Landlock is made for."""
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path)))
