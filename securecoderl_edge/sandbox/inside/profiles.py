"""The layers around compilers and compiled programs, for the processes of `native`.

    compile  one tool of the toolchain runs: it reads the toolchain's headers and libraries, writes memory files only
    native   a compiled program runs: it reads the libraries that it is linked with, and writes no file

Both have seccomp, Landlock, no capabilities, no new privileges, limits, an environment of their own, and no children.
Neither can execute a file of the disk but itself and the dynamic linker. The process that they descend from has the
same layers, in a wider form. At level ``off`` there are limits only; no other level permits C.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

# AddressSanitizer looks there for the limits of the stack; each process sees itself.
OWN_MAPS = "/proc/self/maps"
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


class Profiles:
    """The layers of one level, built once and put on by the processes below.

    Args:
        level: ``full`` or ``off``.
        load: loads a sibling of this file.
        readable: folders and files of the toolchain. libraries: those that programs load. loader: the dynamic linker.
        tools: executable files of the toolchain.
    """

    def __init__(
        self,
        level: str,
        load: Any,
        readable: Sequence[str],
        libraries: Sequence[str],
        loader: str,
        tools: Sequence[str],
    ) -> None:
        self.level = level
        self.programs_may_fork = level == "off"
        self.lockdown: Any = load("lockdown")
        self._seccomp: Any = load("seccomp")
        self._death_signal: Any = self.lockdown.DeathSignal()
        self._readable, self._libraries, self._loader, self._tools = readable, libraries, loader, tools

    def build(self) -> None:
        """Confine the calling process, from which all others descend.

        Raises:
            OSError: the level is none for C programs, or the kernel or the container refuses.
        """
        if self.level == "off":
            return
        if self.level != "full":
            raise OSError(f"C programs need Landlock (level full), which level {self.level} does not have")
        lockdown = self.lockdown
        lockdown.prctl(lockdown.PR_SET_NO_NEW_PRIVS, 1)
        python = (os.path.dirname(os.__file__), os.path.join(sys.base_prefix, "lib"))
        everything = (*python, *self._readable, *self._libraries, *DEVICES, "/proc")
        self._restrict(everything, [*self._tools, self._loader])
        lockdown.prctl(lockdown.PR_SET_DUMPABLE, 0)
        lockdown.empty_bounding_set()
        lockdown.drop_capabilities()
        lockdown.Filter(self._seccomp.supervisor_filter(native=True)).install()
        # Made once: what a process does before it becomes another program, it does on pages that it has to copy first.
        self._seals = [lockdown.Seal(*self._seccomp.native_filter_template(may_write)) for may_write in (False, True)]
        readable = (*self._readable, *DEVICES)
        self._rulesets = {tool: lockdown.create_ruleset(readable, [tool, self._loader]) for tool in self._tools}

    def take_files(self, tool: str) -> None:
        """In a process that is about to become a tool of the toolchain, or with "" a compiled program: Landlock."""
        if self.level == "off":
            return
        if tool:
            self.lockdown.restrict_paths(self._rulesets[tool])
        else:
            self._restrict((*self._libraries, *DEVICES, OWN_MAPS), [self._loader])

    def seal(self, parent: int, may_write: bool) -> None:
        """In such a process, when nothing but becoming it is left to do: the last layer."""
        if self.level == "off":
            os.setpgid(0, 0)
            self.die_with(parent)
        else:
            self._seals[may_write].put_on(parent)

    def die_with(self, parent: int) -> None:
        """Bind the calling process to its parent's life."""
        self._death_signal.ask_for(parent)

    def _restrict(self, readable: Sequence[str], executable: Sequence[str]) -> None:
        ruleset = self.lockdown.create_ruleset(readable, executable)
        if ruleset is None:
            raise OSError("this kernel has no Landlock")
        self.lockdown.restrict_paths(ruleset)
        os.close(ruleset)
