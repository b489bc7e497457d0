"""Jobs for the sandbox and their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.targets import Footprint
from securecoderl_edge.sandbox.denied import Denied

if TYPE_CHECKING:
    from securecoderl_edge.sandbox.security import Scan

StoppedBy = Literal["", "cpu", "wall", "output", "memory", "threads"]


@dataclass(frozen=True)
class FunctionCall:
    """One test of a function, evaluated after the program has run as the module ``solution``.

    Attributes:
        expression: text to evaluate; with ``is_assertion``, statements to execute that raise
            ``AssertionError`` when the answer is wrong.
        setup: statements to execute before, such as the imports that an assertion needs.
        entry_point: the function; when only a class ``Solution`` has it, an instance's method takes its name.
        prelude: names defined for the program beforehand: ``typing``, or ``contest`` for those that APPS solutions
            expect.
        file: of a test file its name, its text, and the names by which it imports the program; ``expression`` is then
            the name of a test in it. Thousands of calls share them.
    """

    expression: str
    is_assertion: bool = False
    setup: str = ""
    entry_point: str = ""
    prelude: Literal["", "typing", "contest"] = "typing"
    file: tuple[str, str, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Execution:
    """One test run, as seen from outside the process that ran the program.

    Attributes:
        returncode: exit status, or minus the signal number.
        stopped_by: the limit that was hit; ``memory`` and ``threads`` also if an unhandled Python error about it ended
            the program.
        stdout: at most ``Limits.output_bytes``, decoded as UTF-8 with replacement characters.
        stderr: its last 2 KiB.
        value: for a `FunctionCall`, the value as Python literal text (``True`` or ``False`` for an assertion that
            held or did not); None when the program ended before there was one.
        raised: for a `FunctionCall`, the names of the classes of the exception that the expression raised, the most
            specific first; empty if it raised none.
        on_target: whether it ran on the emulated board of a target.
        own_error: for a `FunctionCall`, whether statements of the program itself failed before it.
        returns_none: for a `FunctionCall`, whether its entry point returned None each time that the expression called
            it.
    """

    returncode: int
    stopped_by: StoppedBy
    stdout: str
    stderr: str
    cpu_seconds: float
    value: str | None = None
    raised: tuple[str, ...] = ()
    on_target: bool = False
    own_error: bool = False
    returns_none: bool = False

    @property
    def clean(self) -> bool:
        """Exited with 0 within all limits."""
        return self.returncode == 0 and not self.stopped_by


@dataclass(frozen=True)
class ProgramRun:
    """A program compiled once and run on each test; ``executions`` is empty when it does not parse.

    ``error`` is the compiler's complaint; ``footprint`` is that of a program for a target; ``analysis`` is what static
    analyzers found in the text, if they were asked; ``denied`` is what the program tried in vain, None if nobody took
    notes.
    """

    parses: bool
    error: str = ""
    executions: tuple[Execution, ...] = ()
    footprint: Footprint | None = None
    analysis: Scan | None = None
    denied: tuple[Denied, ...] | None = None


@dataclass(frozen=True)
class SandboxJob:
    """A job for a worker: a program and its inputs or its calls.

    Attributes:
        is_cancelled: whether nobody needs the result any more.
        language: of the program; for a program in C that is built for a target, the target.
        driver: for a target, text in C that is compiled apart and linked with the program, which alone is measured.
        entry_point: for a target, a function that the program must define.
        is_part: whether a text in C is to be analyzed only, without tests: what else it needs may be in other files.
    """

    program: str
    stdins: Sequence[str] = ()
    calls: Sequence[FunctionCall] = ()
    is_cancelled: Callable[[], bool] = lambda: False
    language: str = PYTHON.name
    driver: str = ""
    entry_point: str = ""
    is_part: bool = False


class WorkerLost(Exception):
    """The zygote died or does not answer, for a reason unrelated to the program."""


class BoxLost(Exception):
    """The process that compiles a program and supervises its tests was killed, which a program cannot do.

    ``parses`` is true if it had compiled the program before.
    """

    def __init__(self, why: str, parses: bool) -> None:
        super().__init__(why)
        self.parses = parses
