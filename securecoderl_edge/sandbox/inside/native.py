"""The zygote of C programs: as `zygote`, whose loop and protocol it has, but a box compiles with gcc.

    sce --socket--> zygote --fork--> box --fork, exec--> cc1, as, ld     profile *compile*, one after the other
                                         --fork, exec--> analyzers       profile *compile*, of a program that compiles
                                         --fork, exec--> the program     profile *native*, once for each test

Run as ``python OPTIONS native.py SOCKET LEVEL TOOLCHAIN LIMITS``, with a toolchain (see `toolchain`) and the CPU
seconds and bytes of memory of a compilation as JSON. Source, assembly, object file and program are memory files of
limited size, so there is no folder to write to and none to clean up.

The box trusts no tool: it looks for inline assembly in what the compiler wrote, which the sanitizers could not see
into, and for names of the sanitizers in what the assembler wrote. The zygote compiles and runs a program first; so one
that is ready has shown that the toolchain works. With analyzers the box sends ``analyzed JSON`` before the endings of
tests: for each a list of [RULE, LINE], or null if it failed.

This file imports the standard library and, by path, its siblings; the package is not there.
"""

from __future__ import annotations

import gc
import importlib.machinery
import json
import os
import resource
import signal
import sys
from _socket import socket
from base64 import b64decode
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

_path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "zygote.py")
zygote = ModuleType("zygote")
zygote.__file__ = _path
importlib.machinery.SourceFileLoader("zygote", _path).exec_module(zygote)
messages, supervision, testprocess = zygote.messages, zygote.supervision, zygote.testprocess
analyses, elf, memfiles, profiles = map(zygote.sibling, ("analyses", "elf", "memfiles", "profiles"))
content_of, memory_file = memfiles.content_of, memfiles.memory_file

STEPS = ("compile", "assemble", "link", "emulate")
MOST_STREAMS = 8
MOST_FILE_BYTES = 32 << 20  # of assembly, an object file or a program
LONGEST_ERROR = 500
TOOL_WALL_FACTOR = 10.0  # a tool waits for nothing; a busy machine may make it wait for a core
LOOK_SECONDS = 0.01  # at the memory of a program
# The first program of a zygote. It needs the sanitizers' libraries, and memory from them.
TRIAL = b"#include <stdlib.h>\nint main(void) { free(malloc(9)); return 42; }\n"
# With what the program has in memory, as the C library lays it out.
TELLING_TRIAL = b"""#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int each; maps && (each = getc(maps)) != EOF;) putchar(each);
    free(malloc(9));
    return 42;
}
"""
TRIAL_STATUS = 42
# What gcc writes before inline assembly, also before that of an empty text.
ASSEMBLY_MARK = b"#APP\n"


class Refused(Exception):
    """The program does not compile; the text is the reason."""


class Native:
    """A toolchain, the layers around it and its programs, the compiled guard and the launcher.

    Attributes:
        measured: of the program that was compiled last, as JSON; nothing if this is not a `board`.
        is_suspect: whether that program could hide its faults, so that the absence of reports shows nothing.
        analyzers: the command of each, by its name.
    """

    fork = None  # as of `Confinement`
    trial = TELLING_TRIAL
    measured = ""
    is_suspect = False

    def __init__(self, level: str, toolchain: dict[str, Any]) -> None:
        self._commands = {name: toolchain[name] for name in STEPS if toolchain[name]}
        self.analyzers = {each["name"]: each["command"] for each in toolchain["analyzers"]}
        tools = [words[0] for words in (*self.analyzers.values(), *self._commands.values())]
        given = {name: toolchain[name] for name in ("libraries", "loader", "place")}
        more = [path for each in toolchain["analyzers"] for path in each["readable"]]
        given["readable"] = [*toolchain["readable"], *more]
        self._emulator = tools[-1] if toolchain["emulate"] else ""
        self.layers = profiles.Profiles(level, zygote.sibling, tools=tools, emulator=self._emulator, **given)
        while os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) < MOST_STREAMS:
            pass  # the descriptors that processes get their streams at are nobody else's
        self._nothing = memory_file()
        self._header, self._guard, launcher = map(
            memory_file, (toolchain["header"].encode(), *(b64decode(toolchain[name]) for name in ("guard", "launcher")))
        )
        for shared in (self._nothing, self._header, self._guard):
            memfiles.seal(shared)  # the tools of all programs read them
        self._launcher = f"/proc/self/fd/{memfiles.executable(launcher)}"
        self._place = toolchain["place"]
        self._tools = {tool: os.open(tool, os.O_RDONLY | os.O_CLOEXEC) for tool in tools}

    def build(self, control: int, cpu: float, memory: int) -> None:
        """Confine this process, then try the toolchain out.

        Raises:
            OSError: the kernel refuses, or the toolchain does not work.
        """
        self.layers.build()
        source = memory_file(self.trial)
        try:
            program = self.program(source, ToolLimits(control, cpu, memory))
        except Refused as refused:
            raise OSError(f"gcc does not work in the sandbox: {refused}") from None
        for name in self.analyzers:
            try:
                self._findings(name, source, ToolLimits(control, cpu, memory))
            except ValueError as error:
                raise OSError(
                    f"{name} does not work in the sandbox ({error}); leave it out with --analyzers off"
                ) from None
        os.close(source)
        output, errors = memory_file(), memory_file()
        # The places of libraries depend on the limit of the stack.
        limits = [each for each in testprocess.resource_limits(cpu, memory, 0) if each[0] == resource.RLIMIT_STACK]
        pid = self.start_test(program, [self._nothing, output, errors], self.test(limits))
        status = self.status_of(os.waitpid(pid, 0)[1])
        os.close(program)
        told = content_of(output)
        os.close(output)
        if os.waitstatus_to_exitcode(status) != TRIAL_STATUS:
            complaint = memfiles.beginning(errors, LONGEST_ERROR)
            raise OSError(f"a compiled program does not run in the sandbox ({status}): {complaint}")
        os.close(errors)
        if self.notary is not None:
            self.layers.ask_less(told)

    def program(self, source: int, limits: ToolLimits) -> int:
        """A descriptor of the executable file of a C program.

        Raises:
            Refused: the text does not compile, or takes too much to do so.
        """
        object_file = self.part(source, limits)
        linked = self._step("link", limits, [object_file, self._guard])
        os.close(object_file)
        executable: int = memfiles.executable(linked)
        return executable

    def part(self, source: int, limits: ToolLimits) -> int:
        """A descriptor of the object file of a text in C, which need not be a whole program. Errors as of `program`."""
        assembly = self._step("compile", limits, [source, self._header])
        if ASSEMBLY_MARK in content_of(assembly):
            raise Refused("inline assembly is not C11, and the sanitizers cannot see into it")
        object_file = self._step("assemble", limits, [assembly])
        try:
            content = content_of(object_file)
            name = elf.forbidden_symbol(content)
            self.is_suspect = elf.can_hide_faults(content)
        except ValueError as error:
            raise Refused(f"the assembler wrote no object file: {error}") from None
        if name:
            raise Refused(f"{name} belongs to the sanitizers; a program must not define or call it")
        os.close(assembly)
        return object_file

    def _step(self, name: str, limits: ToolLimits, inputs: list[int]) -> int:
        """Run one tool; a descriptor of its output."""
        if name != "compile":  # which reads standard input
            inputs = [self._nothing, *inputs]
        returncode, stopped_by, output, said = self._run(self._commands[name], limits, inputs)
        complaint = memfiles.beginning(said, LONGEST_ERROR)
        os.close(said)
        if returncode == 0 and stopped_by == "-":
            return output
        os.close(output)
        if stopped_by != "-" or returncode == -signal.SIGXCPU:
            raise Refused("compiling took too long")
        if returncode == -signal.SIGXFSZ:
            raise Refused("compiling it makes too large a file")
        raise Refused(complaint.replace("<stdin>", "solution.c") or f"{name}: status {returncode}")

    def _run(self, words: Sequence[str], limits: ToolLimits, inputs: list[int]) -> tuple[int, str, int, int]:
        """Run one tool; its exit code, the limit that stopped it, and descriptors of its output and of what it said."""
        output, said = memory_file(), memory_file()
        streams = [inputs[0], said, said, output, *inputs[1:]]
        description = memory_file(self.layers.description(words[0], len(streams), limits.resources()))
        pid = self._start(self._tools[words[0]], words, streams, description)
        os.close(description)
        status, stopped_by, seconds = limits.supervisor().wait(pid).split()
        limits.cpu -= float(seconds)
        returncode = os.waitstatus_to_exitcode(int(status))
        if stopped_by == "-" and returncode == -signal.SIGKILL:
            os.kill(os.getpid(), signal.SIGKILL)  # somebody else killed it: sce tries again
        return returncode, stopped_by, output, said

    def analysis(self, source: int, control: int, cpu: float, memory: int) -> str:
        """The findings of each analyzer in a program, as JSON; each has the CPU seconds and bytes given.

        A program that could hide its faults has one analysis more, which failed.
        """
        reports: list[list[tuple[str, int]] | None] = [None] if self.is_suspect else []
        for name in self.analyzers:
            try:
                reports.append(self._findings(name, source, ToolLimits(control, cpu, memory)))
            except ValueError:
                reports.append(None)
        return json.dumps(reports)

    def _findings(self, name: str, source: int, limits: ToolLimits) -> list[tuple[str, int]]:
        """What one analyzer finds; ValueError if it fails, or something keeps it from reading the program."""
        header = memory_file(analyses.header(content_of(source)))
        os.lseek(source, 0, os.SEEK_SET)  # the compiler has read it
        returncode, stopped_by, output, said = self._run(self.analyzers[name], limits, [source, header])
        report = os.pread(said, analyses.MOST_REPORT_BYTES + 1, 0)
        for descriptor in (header, output, said):
            os.close(descriptor)
        if returncode != 0 or stopped_by != "-":
            raise ValueError(f"status {returncode}: {report[:LONGEST_ERROR].decode('utf-8', 'replace')}")
        return list(analyses.findings(name, report))

    def test(self, limits: list[Any]) -> int:
        """A descriptor of what `launch` is told of each test of a program."""
        descriptor: int = memory_file(self.layers.description("", 3, limits))
        return descriptor

    def start_test(self, program: int, streams: list[int], description: int) -> int:
        """Start the program; its process id."""
        return self._start(program, ["solution"], streams, description, self.notary)

    @property
    def notary(self) -> Any:
        """As of `Confinement`."""
        return self.layers.notary

    def status_of(self, status: int) -> int:
        """The wait status of a program, from that of its process."""
        return status

    def _start(self, file: int, words: Sequence[str], streams: list[int], description: int, notary: Any = None) -> int:
        copies = [*enumerate(streams), (self._place, file), (self._place + 1, description)]
        copies += [(self._place + 2, notary.way)] if notary is not None else []
        actions = [(os.POSIX_SPAWN_DUP2, descriptor, target) for target, descriptor in copies]
        ignored = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT]  # by an interpreter, or whoever started it
        return os.posix_spawn(
            self._launcher, ["launch", *words], zygote.ENVIRONMENT, file_actions=actions, setsigdef=ignored
        )


class ToolLimits:
    """The limits of the tools that make one program; they share the CPU time."""

    def __init__(self, control: int, cpu: float, memory: int) -> None:
        self._control, self.cpu, self._memory = control, cpu, memory

    def supervisor(self) -> Any:
        """Of the next tool."""
        cpu = max(self.cpu, 0.01)
        return supervision.Supervisor(self._control, cpu, cpu * TOOL_WALL_FACTOR, self._memory)

    def resources(self) -> list[Any]:
        """Arguments of ``setrlimit``."""
        limits: list[Any] = testprocess.resource_limits(self.cpu, self._memory, MOST_FILE_BYTES)
        return limits


def prepare(level: str, kind: type[Native] = Native) -> Native:
    """Confine this process, and try the toolchain out.

    Raises:
        OSError: the system refuses a layer, or the toolchain does not work.
    """
    zygote.settle()
    native = kind(level, json.loads(sys.argv[3]))
    native.build(int(sys.argv[1]), *json.loads(sys.argv[4]))
    gc.collect()
    gc.disable()
    gc.freeze()
    return native


def box(parent: int, request: str, files: list[int], control: socket, native: Native) -> NoReturn:
    """Compile one program and run its tests; the process ends here."""
    try:
        native.layers.die_with(parent)
        cpu, wall, memory, output, compile_cpu, compile_memory, *batch = request.split()[1:]
        source = files.pop(0)
        testprocess.set_limit(resource.RLIMIT_CPU, zygote.BOX_CPU_SECONDS, keep_hard=True)
        tools = control.fileno(), float(compile_cpu), int(compile_memory)
        try:
            build = native.part if batch[0] == messages.PART else native.program
            program = build(source, ToolLimits(*tools))
        except Refused as refused:
            # A reason can have names of the program in it, which can be as long as it likes.
            messages.send(control, f"refused {str(refused)[:LONGEST_ERROR]}")
            os._exit(0)
        if native.analyzers or native.is_suspect:
            messages.send(control, f"analyzed {native.analysis(source, *tools)}")
        if native.measured:
            messages.send(control, f"measured {native.measured}")
        os.ftruncate(source, 0)
        os.close(source)
        resources = testprocess.resource_limits(float(cpu), int(memory), int(output))
        # Sanitizers reserve far more addresses than memory.
        resources = [(kind, bounds) for kind, bounds in resources if kind != resource.RLIMIT_AS]
        supervisor = supervision.Supervisor(
            control.fileno(), float(cpu), float(wall), int(memory), LOOK_SECONDS, is_resident=True
        )
        _run_tests(native, program, batch, files, native.test(resources), supervisor, control)
        os._exit(0)
    finally:
        os._exit(1)


def _run_tests(
    native: Native,
    program: int,
    batch: list[str],
    files: list[int],
    description: int,
    supervisor: Any,
    control: socket,
) -> None:
    """Run the tests of this message and of those that follow it."""
    while batch:
        last, *tests = batch
        answer = "endings"
        for _ in tests:
            own, files = files[:3], files[3:]
            pid = native.start_test(program, own, description)
            status, *others = supervisor.wait(pid).split()
            answer += " ".join(("", str(native.status_of(int(status))), *others))
            if native.layers.programs_may_fork:
                supervision.end_group(pid)
            for descriptor in own:
                os.close(descriptor)
        messages.send(control, answer)
        if last != "0":
            return
        request, files = messages.receive(control)
        batch = request.split()[1:]


if __name__ == "__main__":
    zygote.serve(prepare, box)
