"""What each level takes away from the zygote, the box and the test process.

    full         seccomp in two layers, Landlock, no capabilities, no new privileges
    no-landlock  the same without Landlock; instead a test process can open nothing at all
    macos        a Seatbelt profile (the mechanism of sandbox-exec); written from its documentation, never run
    off          nothing but rlimits: programs can do whatever this user can

All levels have rlimits, empty environments, and supervision from outside. At all levels the box imports the
modules of the standard library that the program names, once for all of its tests. This file is loaded by path in an
interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import CodeType, ModuleType
from typing import Any

READABLE = (
    "/usr/lib", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/localtime", "/etc/ld.so.cache",
    "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random",
)  # fmt: skip
# These do something when they are imported: open a browser, print a poem, open a window.
NEVER_IMPORTED = frozenset(("antigravity", "idlelib", "this", "turtle", "turtledemo"))


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
        self._ruleset: int | None = None

    @property
    def programs_may_fork(self) -> bool:
        """Whether a test process can have children that must be looked for when it ends."""
        return self._seccomp is None

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
        self._lockdown.prctl(self._lockdown.PR_SET_NO_NEW_PRIVS, 1)
        if self.level == "full":
            self._ruleset = self._lockdown.create_ruleset([*library, *READABLE])
            if self._ruleset is None:
                raise OSError("this kernel has no Landlock")
        template, self._pid_offsets = self._seccomp.program_filter_template(may_open=self.level == "full")
        self._filter = self._lockdown.Filter(template)
        # Programs must not read this memory through /proc, nor through a debugger.
        self._lockdown.prctl(self._lockdown.PR_SET_DUMPABLE, 0)
        self._lockdown.drop_capabilities()
        self._lockdown.Filter(self._seccomp.supervisor_filter()).install()

    def enter_box(self, code: CodeType) -> None:
        """In the box, whose tests inherit all of it: take the file system away, import what the program names."""
        if self._ruleset is not None:
            self._lockdown.restrict_paths(self._ruleset)
        import_named_modules(code)

    def seal(self, parent: int) -> None:
        """In a test process, when nothing but the program is left to do: the last layer."""
        if self.programs_may_fork:
            os.setpgid(0, 0)
        self.die_with(parent)
        if self._seccomp is not None:
            self._filter.replace(self._pid_offsets, os.getpid())
            self._filter.install()
        elif self._seatbelt is not None:
            self._seatbelt.install(self._profile)

    def die_with(self, parent: int) -> None:
        """Bind the calling process to its parent's life, where the system can."""
        if self._death_signal is not None:
            self._death_signal.ask_for(parent)


def import_named_modules(code: CodeType) -> None:
    """Import every module of the standard library whose name occurs in a program, as if it were imported there.

    A name that is no import costs a little time; a module that is named only at run time is left to the test.
    """
    names = set(_names_in(code))
    packages: list[ModuleType] = []
    for name in sorted(names):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names and top not in NEVER_IMPORTED:
            module = _import(name)
            if module is not None and hasattr(module, "__path__"):
                packages.append(module)
    for package in packages:
        for name in sorted(names):
            if not name.startswith("_") and not hasattr(package, name):
                _import(f"{package.__name__}.{name}")  # `from package import name`


def _names_in(code: CodeType) -> list[str]:
    names: list[str] = []
    waiting = [code]
    while waiting:
        current = waiting.pop()
        names += current.co_names
        waiting += [constant for constant in current.co_consts if isinstance(constant, CodeType)]
    return names


def _import(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except BaseException:  # whatever a module thinks of being imported here, the program is to hear of it, not we
        return None
