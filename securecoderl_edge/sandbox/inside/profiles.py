"""The layers around compilers and compiled programs, for the processes of `native`.

    compile  one tool of the toolchain runs: it reads the toolchain's headers and libraries, writes memory files only
    native   a compiled program runs: it reads the libraries that it is linked with, and writes no file
    emulate  an emulator runs a program for a microcontroller: it reads its libraries, and writes memory files only

All have seccomp, Landlock, no capabilities, no new privileges, limits, an environment without ours, and no children.
None can execute a file of the disk but itself and the dynamic linker. The process that they descend from has the
same layers, in a wider form. At level ``off`` there are limits only; no other level permits C.

`launch.c` puts the layers on and then becomes the tool or the program; here is what it is told.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from typing import Any

# AddressSanitizer looks there for the limits of the stack; each process sees itself.
OWN_MAPS = "/proc/self/maps"
OWN_FACTS = (OWN_MAPS, "/proc/self/cmdline", "/proc/self/environ")  # which it asks for at its start
# What each program opens at its start, most of it several times, by a text that lies in a library. To ask the notary
# about all of it would cost a program 3 % of its CPU time.
AT_THE_START = (*OWN_FACTS, "/etc/ld.so.cache")
MOST_TEXTS = 24  # a longer filter has jumps that are too long
UNLIMITED = (1 << 64) - 1
NO_LAYERS = struct.pack("Q24s", 0, b"") + struct.pack("QQ", 0, 0)
MOST_BYTES = 1 << 15  # that `launch.c` reads
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


class Profiles:
    """The layers of one level, built once and put on by the processes below.

    Args:
        level: ``full`` or ``off``.
        load: loads a sibling of this file.
        readable: folders and files of the toolchain. libraries: those that programs load. loader: the dynamic linker.
        tools: executable files of the toolchain. emulator: the one of them that reads no more than programs do.
    """

    def __init__(
        self,
        level: str,
        load: Any,
        readable: Sequence[str],
        libraries: Sequence[str],
        loader: str,
        tools: Sequence[str],
        place: int,
        emulator: str = "",
    ) -> None:
        self.level = level
        self.programs_may_fork = level == "off"
        self.lockdown: Any = load("lockdown")
        self._seccomp: Any = load("seccomp")
        self._death_signal: Any = self.lockdown.DeathSignal()
        self._layers: dict[str, bytes] = {}
        self._library: Any = load("library")
        self._readable, self._libraries, self._loader, self._tools = readable, libraries, loader, tools
        self._place, self._emulator = place, emulator
        self._load = load
        self.notary: Any = None

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
        if lockdown.can_listen():
            seen = [*self._libraries, *DEVICES, self._loader]
            most_threads = self._load("supervision").MOST_THREADS
            self.notary = self._load("notary").Notary(
                lockdown, self._seccomp, seen, OWN_FACTS, most_threads=most_threads
            )
        reports = self.notary is not None
        lockdown.prctl(lockdown.PR_SET_NO_NEW_PRIVS, 1)
        # Without the packages in folders of libraries; below, the layers of each process name whole folders.
        of_tools = self._library.of_libraries((*self._readable, *self._libraries))
        everything = (*self._library.of_python(), *of_tools, *DEVICES, "/proc")
        ruleset = lockdown.create_ruleset(everything, [*self._tools, self._loader])
        if ruleset is None:
            raise OSError("this kernel has no Landlock")
        lockdown.restrict_paths(ruleset)
        os.close(ruleset)
        lockdown.prctl(lockdown.PR_SET_DUMPABLE, 0)
        lockdown.empty_bounding_set()
        lockdown.drop_capabilities()
        lockdown.Filter(self._seccomp.supervisor_filter(native=True, reports=reports)).install()
        if self.notary is not None:
            self.notary.start(listens=False)
        for tool in self._tools:
            readable = self._libraries if tool == self._emulator else self._readable
            self._layers[tool] = self._files((*readable, *DEVICES), [tool, self._loader]) + self._filter(may_write=True)
        self.ask_less(b"")

    def ask_less(self, maps: bytes) -> None:
        """Let programs open what is `AT_THE_START` without asking the notary, whose places ``maps`` tells.

        It is the ``/proc/self/maps`` of a program. Addresses are not randomized, so all programs have the same
        libraries in the same places, with texts that cannot be written to. Where a program changes that, or a library
        lies elsewhere, only a note depends on it.
        """
        files = self._files((*self._libraries, *DEVICES, OWN_MAPS), [self._loader])
        unasked = texts_in(maps, AT_THE_START)[:MOST_TEXTS]
        self._layers[""] = files + self._filter(reports=self.notary is not None, unasked=unasked)

    def description(self, tool: str, streams: int, limits: Sequence[tuple[int, tuple[int, int]]]) -> bytes:
        """For `launch`, whose parent is this process: how it is to become a tool, or with "" a compiled program.

        Args:
            streams: the descriptors that it keeps, from 0. limits: arguments of ``setrlimit``.

        Raises:
            OSError: it is longer than `launch` reads, and the layers are at its end.
        """
        bounds = [struct.pack("QQQ", kind, *(each & UNLIMITED for each in pair)) for kind, pair in limits]
        notary = 0 if tool or self.notary is None else self.notary.pid
        head = struct.pack("QQQQQ", os.getpid(), self.programs_may_fork, streams, notary, len(bounds))
        whole = head + b"".join(bounds) + self._layers.get(tool, NO_LAYERS)
        if len(whole) > MOST_BYTES:
            raise OSError(f"the layers of {tool or 'programs'} have too many paths")
        return whole

    def _files(self, readable: Sequence[str], executable: Sequence[str]) -> bytes:
        attributes = self.lockdown.ruleset_attributes()
        rules = []
        for path in (*readable, *executable):
            name = os.fsencode(path) + b"\0"
            name += bytes(-len(name) % 8)
            rules.append(struct.pack("QQ", self.lockdown.rights_on(path, path in executable), len(name) // 8) + name)
        return struct.pack("Q24sQ", len(attributes), attributes, len(rules)) + b"".join(rules)

    def _filter(self, may_write: bool = False, reports: bool = False, unasked: Sequence[int] = ()) -> bytes:
        program, place = self._seccomp.native_filter_template(self._place, may_write, reports, unasked)
        return struct.pack("QQ", len(program) // 8, place) + bytes(program)

    def die_with(self, parent: int) -> None:
        """Bind the calling process to its parent's life."""
        self._death_signal.ask_for(parent)


def texts_in(maps: bytes, texts: Sequence[str]) -> list[int]:
    """Where texts, each with a zero byte behind it, lie in files that a process has mapped and cannot write to.

    Args:
        maps: its ``/proc/self/maps``. texts: what to look for in its files.
    """
    found = []
    for line in maps.splitlines():
        span, rights, offset, _, _, *path = line.split(maxsplit=5)
        if not path or not path[0].startswith(b"/") or rights[:1] != b"r" or b"w" in rights:
            continue
        start, end = (int(each, 16) for each in span.split(b"-"))
        try:
            with open(path[0], "rb") as file:
                file.seek(int(offset, 16))
                content = file.read(end - start)
        except OSError:
            continue  # a memory file, such as the program's own
        found += [
            start + match.start()
            for text in texts
            for match in re.finditer(re.escape(os.fsencode(text)) + b"\0", content)
        ]
    return found
