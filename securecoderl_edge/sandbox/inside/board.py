"""The zygote of programs for a microcontroller: as `native`, with a cross-compiler and an emulator.

    sce --socket--> zygote --fork--> box --fork, exec--> cc1, as, ld     profile *compile*, one after the other
                                         --fork, exec--> the emulator    profile *emulate*, once for each test

A program cannot ask for files of this machine: the board has no semihosting, only UARTs, whose other ends are memory
files. The emulator is confined all the same, for a program that finds a fault in it.

A source is a line of JSON, [BYTES, FUNCTION], a program of so many bytes, and its driver, if it has one. The box
measures the program (`footprint`), which must define the function, if there is one, and compiles the driver apart: a
macro of the program puts no code there. The box sends ``measured JSON`` before the endings of tests.

This file imports the standard library and, by path, its siblings; the package is not there.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import re
import struct
from functools import partial
from types import ModuleType
from typing import Any

_path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "native.py")
native = ModuleType("native")
native.__file__ = _path
importlib.machinery.SourceFileLoader("native", _path).exec_module(native)
footprint, memfiles = native.zygote.sibling("footprint"), native.memfiles

# What gcc writes before inline assembly in a function.
ASSEMBLY_MARK = re.compile(rb'^@ \d+ "', re.MULTILINE)
# The exit status of a program that ends the emulator without one of its own, such as by a reset.
NO_STATUS = 134
STREAMS = 8
# Of the linker: the guard, and the driver of programs that have one.
_GUARD, _DRIVER = "/proc/self/fd/5", "/proc/self/fd/6"


class Board(native.Native):  # type: ignore[misc, name-defined]
    """A cross-toolchain and an emulator, and the layers around them."""

    trial = b'[%d, ""]\n' % len(native.TRIAL) + native.TRIAL

    def __init__(self, level: str, toolchain: dict[str, Any]) -> None:
        super().__init__(level, toolchain)
        words = list(self._commands["link"])
        words.insert(words.index(_GUARD) + 1, _DRIVER)
        self._commands["link with a driver"] = words

    def program(self, source: int, limits: Any) -> int:
        """As `Native.program`; sets `measured`."""
        head, _, text = memfiles.content_of(source).partition(b"\n")
        length, function = json.loads(head)
        assembly, object_file = self._translated(text[:length], limits)
        content = memfiles.content_of(object_file)
        try:
            found = footprint.footprint(memfiles.content_of(assembly).decode("utf-8", "replace"), content)
            is_defined = not function or footprint.defines(content, function)
        except ValueError as error:
            raise native.Refused(f"its size and calls cannot be found out: {error}") from None
        if not is_defined:
            raise native.Refused(f"it must define {function} as a function that other files can call")
        self.measured = json.dumps(found)
        ours = [assembly, object_file]
        if driver := text[length:]:
            ours += self._translated(driver, limits)
            linked = self._step("link with a driver", limits, [object_file, self._guard, ours[-1]])
        else:
            linked = self._step("link", limits, [object_file, self._guard])
        for each in ours:
            os.close(each)
        descriptor: int = memfiles.executable(linked)
        return descriptor

    def _translated(self, text: bytes, limits: Any) -> tuple[int, int]:
        """Descriptors of the assembly and of the object file of a program."""
        source = memfiles.memory_file(text)
        assembly = self._step("compile", limits, [source, self._header])
        os.close(source)
        if ASSEMBLY_MARK.search(memfiles.content_of(assembly)):
            raise native.Refused("inline assembly is not C11, and its size and calls cannot be found out")
        return assembly, self._step("assemble", limits, [assembly])

    def test(self, limits: list[Any]) -> int:
        """A descriptor of what `launch` is told of each test of a program."""
        descriptor: int = memfiles.memory_file(self.layers.description(self._emulator, STREAMS, limits))
        return descriptor

    def start_test(self, program: int, streams: list[int], description: int) -> int:
        """Start the emulator with the program; its process id."""
        stdin, stdout, stderr = streams
        text = memfiles.content_of(stdin)
        given = memfiles.memory_file(struct.pack("<I", len(text)) + text)
        own_messages, self._status = memfiles.memory_file(), memfiles.memory_file()
        files = [self._nothing, own_messages, own_messages, stdout, stderr, self._status, program, given]
        pid: int = self._start(self._tools[self._emulator], self._commands["emulate"], files, description)
        os.close(given)
        os.close(own_messages)
        return pid

    def status_of(self, status: int) -> int:
        """The status that the program sent, if the emulator ended as it does at a reset."""
        sent = memfiles.content_of(self._status)
        os.close(self._status)
        return (sent[0] if len(sent) == 1 else NO_STATUS) << 8 if status == 0 else status


if __name__ == "__main__":
    native.zygote.serve(partial(native.prepare, kind=Board), native.box)
