"""Microcontrollers as targets of problems in C: budgets, and the tools that build programs for them and emulate them.

A target has a toolchain as this machine has one (`toolchain`), and an emulator. The board that it emulates has UARTs
for output and no semihosting, with which a program could ask the emulator for files of this machine.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages import toolchain
from securecoderl_edge.languages.toolchain import OUTPUT, Toolchain, find_toolchain

INSTALL_HINT = (
    "install a cross-compiler and the emulator (on Debian and Ubuntu: apt-get install gcc-arm-none-eabi "
    "libnewlib-arm-none-eabi qemu-system-arm)"
)
# Small, without unwinding; the lines about call frames (-g1) tell how much stack each function uses.
_FLAGS = (
    "-std=c11", "-Wall", "-Wextra", "-Os", "-g1", "-ffunction-sections", "-fdata-sections",
    "-fdiagnostics-color=never", "-fmax-errors=5", "-fno-diagnostics-show-caret",
)  # fmt: skip
# Of the emulator, in this order: output, error output, status, program, input.
_FILES = tuple(f"/proc/self/fd/{number}" for number in range(3, 8))
# 16 MiB for translated code, of which a program can make any amount.
_EMULATION = (
    "-accel", "tcg,thread=single,tb-size=16", "-nodefaults", "-no-user-config", "-nic", "none", "-display", "none",
    "-no-reboot", *(word for file in _FILES[:3] for word in ("-serial", f"file:{file}")), "-kernel", _FILES[3],
    "-device", f"loader,file={_FILES[4]},addr=0x21000000,force-raw=on",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A microcontroller: its name in records, in prompts, and the options of compiler and emulator."""

    name: str
    title: str
    compiler: tuple[str, ...]
    machine: tuple[str, ...]


CORTEX_M3 = Target(
    name="cortex-m3",
    title="ARM Cortex-M3",
    compiler=("-mcpu=cortex-m3", "-mthumb"),
    machine=("-machine", "mps2-an385", "-cpu", "cortex-m3"),
)
TARGETS = {target.name: target for target in (CORTEX_M3,)}
TARGET_NAMES = tuple(TARGETS)


@dataclass(frozen=True)
class Footprint:
    """Properties of the machine code of an answer, without its driver and the C library.

    Attributes:
        code_bytes: instructions, constants and initial values (``text`` and ``data`` of ``size``).
        stack_bytes: of its deepest chain of calls; None if that has no bound (recursion, arrays of variable size).
        heap: whether it calls a function that allocates. float: a floating-point routine.
        recursion: whether its calls have a cycle; one through a pointer may reach any function whose address is used.
    """

    code_bytes: int
    stack_bytes: int | None
    heap: bool
    float: bool
    recursion: bool

    def __str__(self) -> str:
        stack = "no bound on the stack" if self.stack_bytes is None else f"{self.stack_bytes} bytes of stack"
        used = [name if getattr(self, flag) else f"no {name}" for flag, name in _FLAG_NAMES.items()]
        return ", ".join((f"{self.code_bytes} bytes of code", stack, *used))


def footprint_of(record: object) -> Footprint:
    """The `Footprint` of a decoded JSON object.

    Raises:
        ValueError: not one.
    """
    if not isinstance(record, dict) or record.keys() != {field.name for field in fields(Footprint)}:
        raise ValueError("not a footprint")
    sizes = (record["code_bytes"], 0 if record["stack_bytes"] is None else record["stack_bytes"])
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError("a size of a footprint is not a number")
    if not all(isinstance(record[flag], bool) for flag in _FLAG_NAMES):
        raise ValueError("a footprint without its flags")
    return Footprint(**record)


@dataclass(frozen=True)
class TargetBudget:
    """Limits on a `Footprint`: the most bytes, None for any number; and whether heap, float and recursion may occur."""

    code_bytes: int | None = None
    stack_bytes: int | None = None
    heap: bool = True
    float: bool = True
    recursion: bool = True

    def broken_by(self, footprint: Footprint) -> tuple[str, ...]:
        """Each limit that a program breaks, in words."""
        broken = []
        if self.code_bytes is not None and footprint.code_bytes > self.code_bytes:
            broken.append(f"{footprint.code_bytes} bytes of code, limit {self.code_bytes}")
        stack, limit = footprint.stack_bytes, self.stack_bytes
        if limit is not None and stack is None:
            broken.append(f"no bound on the stack, limit {limit} bytes")
        elif limit is not None and stack is not None and stack > limit:
            broken.append(f"{stack} bytes of stack, limit {limit}")
        broken += [name for flag, name in _FLAG_NAMES.items() if getattr(footprint, flag) and not getattr(self, flag)]
        return tuple(broken)

    def to_record(self) -> dict[str, Any]:
        """The limits that differ from the defaults, as in a problem record."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    def __str__(self) -> str:
        limits = [
            f"at most {value} bytes of {name}"
            for value, name in ((self.code_bytes, "code"), (self.stack_bytes, "stack"))
            if value is not None
        ]
        return ", ".join(limits + [f"no {name}" for flag, name in _FLAG_NAMES.items() if not getattr(self, flag)])


NO_BUDGET = TargetBudget()
_FLAG_NAMES = {"heap": "heap", "float": "floating point", "recursion": "recursion"}
_BYTES = ("code_bytes", "stack_bytes")


def budget_of(record: object) -> TargetBudget:
    """The budget in a decoded JSON object.

    Raises:
        ValueError: not an object of known limits with their types.
    """
    known = [field.name for field in fields(TargetBudget)]
    if not isinstance(record, dict) or not record.keys() <= set(known):
        raise ValueError(f'"budget" must be an object of {", ".join(known)}')
    for name, value in record.items():
        if name in _BYTES and (type(value) is not int or value < 0):
            raise ValueError(f'"budget": "{name}" must be a number of bytes')
        if name in _FLAG_NAMES and not isinstance(value, bool):
            raise ValueError(f'"budget": "{name}" must be true or false')
    return TargetBudget(**record)


@cache
def find_target_toolchain(name: str) -> Toolchain:
    """The tools of a target on this machine.

    Raises:
        SceError: one is missing, or the compiler's commands are not as expected.
    """
    target, native = TARGETS[name], find_toolchain()
    tools = {tool: shutil.which(tool) for tool in ("arm-none-eabi-gcc", "arm-none-eabi-ld", "qemu-system-arm")}
    missing = ", ".join(tool for tool, path in tools.items() if path is None)
    if missing:
        raise SceError(f"cannot run programs for {name}: missing {missing}; {INSTALL_HINT}")
    gcc, linker, emulator = (str(path) for path in tools.values())
    options = (*target.compiler, *_FLAGS)
    commands = toolchain.commands_of(gcc, *options, "-x", "c", "-c", "-", "-o", "out")
    libraries = [toolchain.output_of(gcc, *options, f"-print-file-name={each}")[0] for each in ("libc.a", "libgcc.a")]
    if [Path(words[0]).name for words in commands] != ["cc1", "as"] or not all(map(os.path.isabs, libraries)):
        raise SceError(f"cannot run programs for {name}: {gcc} has no compiler, assembler or newlib; {INSTALL_HINT}")
    compiler, assembler = commands
    assembler[0] = os.path.realpath(assembler[0])
    script = str(Path(__file__).with_name("board.ld"))
    folders = toolchain.existing([os.path.dirname(each) for each in libraries])
    inputs = (toolchain.INPUT, toolchain.EXTRA)
    linked = (*(f"-L{each}" for each in folders), "--start-group", "-lgcc", "-lc", "-lm", "--end-group")
    return Toolchain(
        version=toolchain.output_of(gcc, "--version")[0],
        compile=(*toolchain.with_output(compiler), "-include", toolchain.INPUT),
        assemble=(*toolchain.with_output(assembler)[:-1], toolchain.INPUT),
        link=(linker, "-o", OUTPUT, "-T", script, "--gc-sections", *inputs, *linked),
        readable=toolchain.existing([*toolchain.include_folders(gcc), *folders, *native.libraries, script]),
        libraries=native.libraries,
        loader=native.loader,
        header="",
        guard=toolchain.built(gcc, "board.c", *target.compiler, "-c"),
        place=native.place,
        launcher=native.launcher,
        emulate=(emulator, *target.machine, *_EMULATION),
    )
