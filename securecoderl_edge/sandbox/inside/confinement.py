"""The layers of isolation of each level, for the zygote, the box and the test process.

    full         seccomp in two layers, Landlock, no capabilities, no new privileges
    no-landlock  the same without Landlock; instead a test process can open nothing at all
    macos        a Seatbelt profile (the mechanism of sandbox-exec); written from its documentation, untested
    off          only rlimits: programs can do everything that this user can

All levels have rlimits, empty environments, and supervision from outside. At all levels the box imports the
modules of the standard library that the program names, once for all of its tests. This file is loaded by path in an
interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import importlib
import opcode
import os
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

READABLE = (
    "/usr/lib", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/localtime", "/etc/ld.so.cache",
    "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random",
)  # fmt: skip
# Parts of the names of modules that do something when they are imported: run a command, read files of the user, start a
# process, print a poem, open a window; and tests. `tests/sandbox/test_named_imports.py` tries all others out.
NEVER_IMPORTED = frozenset(
    ("__main__", "_ios_support", "_pyrepl", "antigravity", "idlelib", "test", "tests", "this", "turtle", "turtledemo")
)
MOST_IMPORTS = 64
# Imported late by functions of modules that are there, which a test without Landlock could not.
LATE_IMPORTS = (
    "_strptime", "encodings.ascii", "encodings.cp1252", "encodings.idna", "encodings.latin_1",
    "encodings.utf_16", "encodings.utf_32", "encodings.utf_8_sig",
)  # fmt: skip

_IMPORT_NAME, _IMPORT_FROM, _EXTENDED_ARG = (
    opcode.opmap[name] for name in ("IMPORT_NAME", "IMPORT_FROM", "EXTENDED_ARG")
)
# What the compiler puts between the names of one import statement.
_AFTER_IMPORT = frozenset(
    (
        _IMPORT_FROM,
        _EXTENDED_ARG,
        *(opcode.opmap[f"STORE_{scope}"] for scope in ("NAME", "FAST", "GLOBAL", "DEREF")),
    )
)


class Confinement:
    """The layers of one level, built once in the zygote and put on by the processes below it.

    Args:
        level: ``full``, ``no-landlock``, ``macos`` or ``off``.
        load: loads a sibling of this file.
    """

    def __init__(self, level: str, load: Any) -> None:
        self.level = level
        self._lockdown: Any = load("lockdown") if sys.platform == "linux" else None
        self._death_signal: Any = self._lockdown.DeathSignal() if self._lockdown else None
        self._seatbelt: Any = load("seatbelt") if level == "macos" else None
        self._seccomp: Any = load("seccomp") if level in ("full", "no-landlock") else None
        self._library: Any = load("library")
        self._load = load
        self.notary: Any = None
        self.fork: Any = None  # of the zygote and of boxes, if not as everybody forks
        self._seal: Any = None
        # Whether a test process can have children that must be looked for when it ends.
        self.programs_may_fork = self._seccomp is None

    def build(self) -> None:
        """Prepare what is shared by all test processes, and confine the zygote itself.

        Raises:
            OSError: the kernel or the container refuses.
        """
        library = [os.path.dirname(os.__file__), os.path.join(sys.base_prefix, "lib")]
        if self._seatbelt is not None:
            self._profile = self._seatbelt.profile(library)
        if self._seccomp is None:
            return
        is_full = self.level == "full"
        readable = [*self._library.of_python(), *self._library.of_libraries(READABLE)]
        if self._lockdown.can_listen():
            self.fork = self._lockdown.fork_with(self._seccomp.FORK_OF_A_BOX)
            # To list the folders of the library, as an import may, is no attempt.
            self.notary = self._load("notary").Notary(
                self._lockdown,
                self._seccomp,
                readable,
                harmless=library,
                most_threads=self._load("supervision").MOST_THREADS,
                may_open=is_full,
            )
        self._lockdown.prctl(self._lockdown.PR_SET_NO_NEW_PRIVS, 1)
        if is_full:
            ruleset = self._lockdown.create_ruleset(readable)
            if ruleset is None:
                raise OSError("this kernel has no Landlock")
            self._library.remember_listing()
            # Here, once: a box copies a ruleset of so many rules in 80 microseconds, and inherits it for nothing.
            self._lockdown.restrict_paths(ruleset)
            os.close(ruleset)
        if self.level == "no-landlock":
            for name in LATE_IMPORTS:
                _import(name)
        has_reports = self.notary is not None
        # Programs must not read this memory through /proc, nor through a debugger.
        self._lockdown.prctl(self._lockdown.PR_SET_DUMPABLE, 0)
        self._lockdown.drop_capabilities()
        self._lockdown.Filter(self._seccomp.supervisor_filter(reports=has_reports)).install()
        if self.notary is not None:
            self.notary.start(listens=True)
        template = self._seccomp.program_filter_template(may_open=is_full, reports=has_reports)
        self._seal = self._lockdown.Seal(*template, self.notary.pid if has_reports else 0)

    def begin_box(self, zygote: int) -> None:
        """In the box, before it reads anything."""
        self.die_with(zygote)
        if self.notary is not None:
            self.notary.begin()

    def enter_box(self, code: CodeType) -> None:
        """In the box, whose tests inherit all of it: import what the program names."""
        import_named_modules(code)

    def seal(self, parent: int) -> None:
        """In a test process, when nothing but the program is left to do: the last layer."""
        if self._seal is not None:
            self._seal.put_on(parent)
            return
        os.setpgid(0, 0)
        self.die_with(parent)
        if self._seatbelt is not None:
            self._seatbelt.install(self._profile)

    def die_with(self, parent: int) -> None:
        """Bind the calling process to its parent's life, where the system can."""
        if self._death_signal is not None:
            self._death_signal.ask_for(parent)


def import_named_modules(code: CodeType) -> None:
    """Import what the import statements of a program name in the standard library, the first `MOST_IMPORTS` of them.

    A module that is named only at run time, or that does something when it is imported, is left to the test.
    """
    seen: set[str] = set()
    for name, members in _import_statements(code):
        if not only_defines(name):
            continue
        if name not in seen and len(seen) < MOST_IMPORTS:
            seen.add(name)
            if name not in sys.modules:
                _import(name)
        module = sys.modules.get(name)
        if module is None or not hasattr(module, "__path__"):
            continue
        for member in members:
            full_name = f"{name}.{member}"
            is_new = full_name not in seen and len(seen) < MOST_IMPORTS
            if is_new and not member.startswith("_") and only_defines(full_name) and not hasattr(module, member):
                seen.add(full_name)
                _import(full_name)


def only_defines(name: str) -> bool:
    """Whether a module is of the standard library and does nothing when it is imported but to define names."""
    parts = name.split(".")
    return parts[0] in sys.stdlib_module_names and NEVER_IMPORTED.isdisjoint(parts)


def _import_statements(code: CodeType) -> Iterator[tuple[str, list[str]]]:
    """(module, names taken from it) of each import in a program, functions and classes included."""
    waiting = [code]
    while waiting:
        current = waiting.pop()
        waiting += [constant for constant in current.co_consts if isinstance(constant, CodeType)]
        # Two bytes an instruction; looking for one opcode in a slice is quick even for a program of megabytes.
        opcodes, arguments = current.co_code[::2], current.co_code[1::2]
        place = opcodes.find(_IMPORT_NAME)
        while place >= 0:
            name = _name_at(current, opcodes, arguments, place)
            members = []
            place += 1
            while place < len(opcodes) and opcodes[place] in _AFTER_IMPORT:
                if opcodes[place] == _IMPORT_FROM:
                    members.append(_name_at(current, opcodes, arguments, place))
                place += 1
            yield name, members
            place = opcodes.find(_IMPORT_NAME, place)


def _name_at(code: CodeType, opcodes: bytes, arguments: bytes, place: int) -> str:
    index, shift, before = arguments[place], 8, place - 1
    while before >= 0 and opcodes[before] == _EXTENDED_ARG:
        index |= arguments[before] << shift
        shift, before = shift + 8, before - 1
    return code.co_names[index] if index < len(code.co_names) else ""


def _import(name: str) -> None:
    with contextlib.suppress(BaseException):  # whatever a module thinks of this, the program is to hear it, not we
        importlib.import_module(name)
