"""A user's own reward function: ``FILE.py:NAME``, called as TRL calls reward functions.

    def name(prompts, completions, problem_id, problems, scores, **columns) -> list[float | None]

`own_reward_worker` runs it in a process of its own for training; `securecoderl_edge.integrations.trl` calls it in the
trainer's. The file is trusted: it runs with all rights of the user, unlike the programs that it judges.
"""

from __future__ import annotations

import ast
import hashlib
import math
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from subprocess import PIPE, Popen
from time import monotonic
from types import ModuleType
from typing import IO, Any

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import problem_to_record
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.system.processes import (
    child_environment,
    describe_end,
    module_command,
    read_message,
    write_message,
)
from securecoderl_edge.text import escape_controls

SECONDS = 600.0  # for one call, and for loading the file
_MOST_SHOWN = 200  # characters
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)

# What the function is called with.
COLUMNS = ("prompts", "completions", "problem_id", "problems", "scores")

Numbers = list[float | None]


class OwnRewardError(SceError):
    """The function cannot be loaded, or gave no reward; the message names it."""


@dataclass(frozen=True)
class OwnFunction:
    """A function in a file, as ``FILE.py:NAME`` names it."""

    file: Path
    name: str

    def __str__(self) -> str:
        return f"reward function {self.name} of {self.file}"

    def sha256(self) -> str:
        """The hash of the file.

        Raises:
            UsageError: there is no such file.
        """
        return hashlib.sha256(self._source()).hexdigest()

    def check(self) -> None:
        """Check, without executing the file, that it can have such a function, and that this takes `COLUMNS` by name.

        Raises:
            UsageError: there is no such file, it is no Python, nothing in it has this name, or a call would fail.
        """
        try:
            tree = ast.parse(self._source())
        except (SyntaxError, ValueError) as error:
            raise UsageError(f"{self.file} cannot be loaded: {self._in_words(error)}.") from None
        nodes = [*ast.walk(tree)]
        bound = {getattr(node, field, None) for node in nodes for field in ("name", "asname", "id")}
        if not bound & {self.name, "*"}:
            functions = ", ".join(each.name for each in nodes if isinstance(each, ast.FunctionDef))
            raise UsageError(f"{self.file} has no function {self.name}, but {functions or 'none at all'}.")
        defined = [each for each in tree.body if getattr(each, "name", None) == self.name]
        # Of another one, such as a decorated one, only a call shows what it takes.
        if len(defined) == 1 and isinstance(defined[0], _FUNCTION) and not defined[0].decorator_list:
            self._check_arguments(defined[0].args)

    def _check_arguments(self, known: ast.arguments) -> None:
        places = [*known.posonlyargs, *known.args]
        needed = {each.arg for each in places[: len(places) - len(known.defaults)]}
        needed |= {each.arg for each, value in zip(known.kwonlyargs, known.kw_defaults, strict=True) if value is None}
        by_name = {each.arg for each in (*known.args, *known.kwonlyargs)}
        given = f"It is called with {', '.join(COLUMNS)}, by name"
        if unknown := sorted(needed - by_name.intersection(COLUMNS)):
            raise UsageError(f"{self} needs {', '.join(unknown)}, which sce does not give. {given}.")
        if known.kwarg is None and (others := [each for each in COLUMNS if each not in by_name]):
            raise UsageError(f"{self} does not take {', '.join(others)}. {given}; **columns takes the rest.")

    def load(self, sha256: str = "") -> Callable[..., Any]:
        """Execute the file as a module, with the imports of a script, and return the function.

        Args:
            sha256: that the file must have.

        Raises:
            OwnRewardError: the file fails, has changed, or has no such function.
        """
        source = self._source()
        if sha256 and hashlib.sha256(source).hexdigest() != sha256:
            raise OwnRewardError(f"{self.file} has changed since the training began")
        folder = str(self.file.resolve().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        module = ModuleType(f"own_reward_{self.file.stem}")  # another name than that of a library
        module.__file__ = str(self.file.resolve())
        sys.modules[module.__name__] = module  # dataclasses look there
        try:
            exec(compile(source, str(self.file), "exec"), module.__dict__)  # the user's own file
        except (Exception, SystemExit) as error:
            raise OwnRewardError(f"{self.file} cannot be loaded: {self._in_words(error)}") from None
        function = getattr(module, self.name, None)
        if not callable(function):
            raise OwnRewardError(f"{self.file} has no function {self.name}. Name one: reward.function = FILE.py:NAME")
        return function  # type: ignore[no-any-return]

    def call(self, function: Callable[..., Any], columns: dict[str, Any]) -> Numbers:
        """The numbers of all completions.

        Raises:
            OwnRewardError: an exception, or something else than one finite number or None per completion.
        """
        try:
            answer = function(**columns)
            if hasattr(answer, "__await__"):
                import asyncio

                answer = asyncio.run(_awaited(answer))
            if hasattr(answer, "tolist"):  # an array or a tensor
                answer = answer.tolist()
        except (Exception, SystemExit) as error:
            raise OwnRewardError(f"{self} failed: {self._in_words(error)}") from None
        if not isinstance(answer, list | tuple):
            raise OwnRewardError(f"{self} returned {_kind(answer)}, not a list of numbers")
        count = len(columns["completions"])
        if len(answer) != count:
            raise OwnRewardError(f"{self} returned {len(answer)} numbers for {count} completions")
        return [self._number(value, place) for place, value in enumerate(answer)]

    def _number(self, value: Any, place: int) -> float | None:
        if value is None:
            return None
        if not isinstance(value, Real):
            raise OwnRewardError(f"{self} returned {_kind(value)} for completion {place}, not a number or None")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise OwnRewardError(f"{self} returned {number} for completion {place}. Return a finite number, or None")
        return number

    def _in_words(self, error: BaseException) -> str:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(self.file)]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
        text = escape_controls(" ".join(str(error).split()))[:_MOST_SHOWN]
        place = f" (line {line})" if line else ""
        return f"{type(error).__name__}{': ' if text else ''}{text}{place}"

    def _source(self) -> bytes:
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise UsageError(f"{self.file}: {error.strerror}. reward.function is FILE.py:NAME") from None


async def _awaited(answer: Any) -> Any:
    return await answer


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def own_function(text: str) -> OwnFunction:
    """The function that ``FILE.py:NAME`` names.

    Raises:
        UsageError: the text does not have that form.
    """
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise UsageError(f"reward.function {text}: expected FILE.py:NAME, such as rewards.py:brevity")
    return OwnFunction(Path(file), name)


def columns_of(
    prompts: Sequence[Any], completions: Sequence[str], problems: Sequence[Problem], scores: Sequence[Score]
) -> dict[str, Any]:
    """What the function is called with, one entry per completion; all of it is JSON."""
    ids, records = [each.id for each in problems], [problem_to_record(each) for each in problems]
    values = (list(prompts), list(completions), ids, records, [score.to_record() for score in scores])
    return dict(zip(COLUMNS, values, strict=True))


def mixed(ours: float, own: float | None, weight: float) -> float:
    """(1 - w) R + w f: the reward with the function's number, where None counts as 0."""
    return (1 - weight) * ours + weight * (own or 0.0)


class OwnReward:
    """The function in a process of its own, which keeps its state between calls. Use it as a context manager.

    Args:
        sha256: of the file.
        tell: gets a message when the function prints something, once.

    Raises:
        OwnRewardError: the file cannot be loaded.
    """

    def __init__(self, function: OwnFunction, sha256: str, tell: Callable[[str], None]) -> None:
        self.function, self._tell, self._has_printed = function, tell, False
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = Popen(
            module_command("securecoderl_edge.scoring.own_reward_worker"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=self._output,
            start_new_session=True,  # Ctrl-C is for us alone
            # The order of sets would make a resumed run differ.
            env=child_environment() | {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"},
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="own-reward")
        try:
            self._ask({"file": str(function.file), "name": function.name, "sha256": sha256}, "is not loaded")
        except BaseException:
            self.close()
            raise

    def numbers(self, columns: dict[str, Any]) -> Numbers:
        """What the function returns for `columns_of`.

        Raises:
            OwnRewardError: as `OwnFunction.call`, or the process ended or gave no answer in `SECONDS`.
        """
        if not columns["completions"]:
            return []
        numbers: Numbers = self._ask(columns, "has given no answer")["numbers"]
        return numbers

    def _ask(self, message: dict[str, Any], late: str) -> dict[str, Any]:
        """The answer to a message; ``late`` says what is missing after `SECONDS`."""
        answer = self._answer_in_time(self._thread.submit(self._exchange, message), late)
        printed = self._take_output()
        if answer is None:
            end = describe_end(self._process.wait())
            raise OwnRewardError(f"{self.function} ended its process with {end}{_quoted(printed[-1:], ' after ')}")
        if "error" in answer:
            raise OwnRewardError(answer["error"])
        if printed and not self._has_printed:
            self._has_printed = True
            self._tell(f"{self.function} prints{_quoted(printed[:1], ' ')}; its output is not shown")
        return answer

    def _answer_in_time(self, future: Future[dict[str, Any] | None], late: str) -> dict[str, Any] | None:
        end = monotonic() + SECONDS
        while not future.done():
            wait([future], timeout=0.5)  # in short turns, see `result_of`
            if monotonic() > end and not future.done():
                self._process.kill()
                raise OwnRewardError(f"{self.function} {late} within {SECONDS:g} s")
        return future.result()

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any] | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_message(self._process.stdin, message)
            return read_message(self._process.stdout)
        except (OSError, ValueError):  # it is dead, or was stopped
            return None

    def _take_output(self) -> list[str]:
        """The lines that the process printed since the last call, as it wrote them to a file whose place we share."""
        size = os.fstat(self._output.fileno()).st_size
        head = os.pread(self._output.fileno(), 4096, 0)
        tail = os.pread(self._output.fileno(), 4096, max(len(head), size - 4096))
        self._output.seek(0)
        self._output.truncate()
        lines = [line for part in (head, tail) for line in part.decode("utf-8", "replace").splitlines()]
        return [line.strip() for line in lines if line.strip()]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._thread.shutdown(wait=True)
        for stream in (self._process.stdin, self._process.stdout, self._output):
            if stream is not None:
                with suppress(BrokenPipeError):  # part of a message was left
                    stream.close()

    def __enter__(self) -> OwnReward:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _quoted(lines: Sequence[str], before: str) -> str:
    """The first of some lines in quotes; nothing without one."""
    return f"{before}{escape_controls(lines[0])[:_MOST_SHOWN]!r}" if lines else ""
