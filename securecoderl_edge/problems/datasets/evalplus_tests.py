"""The tests of HumanEval+ and MBPP+: batches of inputs, with what the reference solution returns for them.

A problem has hundreds of inputs, and training and evaluation use the first five tests of a problem. So one test is a
batch: one for the base inputs, and at most four for the others. A program passes all tests if it passes all inputs.
Where EvalPlus accepts other outputs than those of the reference solution, so do these tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from securecoderl_edge.languages.python_source import literal
from securecoderl_edge.problems.datasets.evalplus_inputs import source_of
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally

HUMANEVAL_PLUS, MBPP_PLUS = "humaneval-plus", "mbpp-plus"
_PLUS_BATCHES = 4
# Characters of a batch: its inputs are source text, and its outputs must fit into what the sandbox returns.
_MOST_INPUT, _MOST_OUTPUT = 1 << 20, 3 << 18

# Problems of MBPP+ whose outputs are compared as sets, or only with None.
_AS_SETS = {
    "similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum", "intersection_array",
    "find_dissimilar", "Diff",
}  # fmt: skip
_NOT_NONE = {"check_str", "text_match_three", "text_starta_endb"}


@dataclass(frozen=True)
class EvalplusTask:
    """One problem of EvalPlus.

    Attributes:
        reference: a program that defines ``entry_point``.
        base, plus: lists of arguments.
        tolerance: the absolute one, of floats.
    """

    id: str
    statement: str
    entry_point: str
    reference: str
    starter_code: str
    base: list[list[Any]]
    plus: list[list[Any]]
    tolerance: float


@dataclass(frozen=True)
class ReferenceOutput:
    """What an expression gave in the sandbox.

    Attributes:
        value: Python literal text; None if there is none.
        fault: why there is none, in words.
        is_too_long: it is longer than the sandbox returns.
    """

    value: str | None
    fault: str = ""
    is_too_long: bool = False
    cpu_seconds: float = 0.0


# (program, entry point, expression) -> its value after the program has run, in the sandbox.
Evaluate = Callable[[str, str, str], ReferenceOutput]


def tests_of(task: EvalplusTask, tally: Tally, evaluate: Evaluate) -> tuple[tuple[str, ...], float, bool]:
    """The assertions of a problem, the CPU seconds of the slowest, and whether the first has all base inputs.

    Raises:
        DropRecord: the reference solution fails, or no test is left.
    """
    tests, slowest, has_base = [], 0.0, False
    for inputs, most in ((task.base, 1), (task.plus, _PLUS_BATCHES)):
        for batch in _batches(inputs, most, task.id, tally):
            kept, expected, seconds = _expected(task, batch, tally, evaluate)
            slowest = max(slowest, seconds)
            if kept:
                tests.append(_assertion(task, kept, expected))
                has_base = has_base or kept == task.base
    if not tests:
        raise DropRecord("no usable tests")
    return tuple(tests), slowest, has_base


def _batches(inputs: list[list[Any]], most: int, where: str, tally: Tally) -> list[list[list[Any]]]:
    """At most ``most`` runs of inputs of about the same length as text."""
    sizes = [len(source_of(arguments)) for arguments in inputs]
    room = max(1, min(_MOST_INPUT, -(-sum(sizes) // most)))
    batches: list[list[list[Any]]] = [[]]
    filled = 0
    for arguments, size in zip(inputs, sizes, strict=True):
        if filled >= room and len(batches) < most:
            batches.append([])
            filled = 0
        if filled + size > _MOST_INPUT:
            tally.drop_test(where, "inputs longer than a test can hold")
        else:
            batches[-1].append(arguments)
            filled += size
    return [batch for batch in batches if batch]


def _expected(
    task: EvalplusTask, batch: list[list[Any]], tally: Tally, evaluate: Evaluate
) -> tuple[list[list[Any]], list[Any], float]:
    """The inputs with usable outputs, the outputs, and the CPU seconds.

    Raises:
        DropRecord: the reference solution fails.
    """
    outputs, _, seconds = _outputs(task, batch, evaluate)
    if outputs is not None:
        return batch, outputs, seconds
    kept, expected, room, total = [], [], _MOST_OUTPUT, 0.0
    for arguments in batch:
        outputs, length, seconds = _outputs(task, [arguments], evaluate)
        total += seconds
        if outputs is None or length > room:
            tally.drop_test(task.id, "an output that is not a Python literal, or longer than a test can hold")
            continue
        kept.append(arguments)
        expected += outputs
        room -= length
    return kept, expected, total


def _outputs(task: EvalplusTask, batch: list[list[Any]], evaluate: Evaluate) -> tuple[list[Any] | None, int, float]:
    """The outputs (None: too long, or not literals), their length as text, and the CPU seconds."""
    answer = evaluate(task.reference, task.entry_point, _expression(task, batch))
    if answer.value is None:
        if not answer.is_too_long:
            raise DropRecord(f"canonical_solution {answer.fault}")
        return None, 0, answer.cpu_seconds
    try:
        found = literal(answer.value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        found = None
    is_whole = isinstance(found, list) and len(found) == len(batch)
    return found if is_whole else None, len(answer.value), answer.cpu_seconds


def _expression(task: EvalplusTask, batch: list[list[Any]]) -> str:
    """What a test evaluates: the outputs for a batch, in the form in which they are compared."""
    inputs, call = source_of(batch), f"{task.entry_point}(*a)"
    if task.id.startswith(HUMANEVAL_PLUS) and task.entry_point == "find_zero":
        # Any root is right: the value of the polynomial there is compared with 0.
        return f"[float(sum(c * x ** n for n, c in enumerate(a[0]))) for a in {inputs} for x in [{call}]]"
    if task.id.startswith(MBPP_PLUS):
        if task.entry_point in _AS_SETS:
            return f"[set({call}) for a in {inputs}]"
        if task.entry_point in _NOT_NONE:
            return f"[r if isinstance(r, bool) else r is not None for a in {inputs} for r in [{call}]]"
        if task.entry_point == "are_equivalent":  # EvalPlus accepts every answer
            return f"[({call}, True)[1] for a in {inputs}]"
    return f"[{call} for a in {inputs}]"


def _assertion(task: EvalplusTask, batch: list[list[Any]], expected: list[Any]) -> str:
    also = ""
    if task.id.startswith(HUMANEVAL_PLUS) and task.entry_point == "find_zero":
        expected = [0.0] * len(batch)
    elif task.id.startswith(MBPP_PLUS) and task.entry_point in _SECOND_READINGS:
        second = _SECOND_READINGS[task.entry_point]
        pairs = zip(batch, expected, strict=True)
        also = f", {source_of([_or_else(second, arguments, output) for arguments, output in pairs])}"
    return f"assert each_agrees({_expression(task, batch)}, {source_of(expected)}, {task.tolerance!r}{also})"


def _or_else(function: Callable[..., Any], arguments: list[Any], otherwise: Any) -> Any:
    try:
        return function(*arguments)
    except (TypeError, ValueError, OverflowError):
        return otherwise


def _pyramid_surface(base: float, height: float) -> int:
    """The surface of a square pyramid whose ``height`` is that of its apex over the base."""
    return round(base * base + 2 * base * math.hypot(base / 2, height))


def _digit_distance(first: int, second: int) -> int:
    """The sum of the differences of digits, the shorter number filled with zeros."""
    width = max(len(str(first)), len(str(second)))
    pairs = zip(str(first).zfill(width), str(second).zfill(width), strict=True)
    return sum(abs(int(one) - int(other)) for one, other in pairs)


# Second outputs that EvalPlus accepts: these statements of MBPP can be read in two ways.
_SECOND_READINGS: dict[str, Callable[..., Any]] = {
    "sum_div": lambda number: 0,
    "surface_Area": _pyramid_surface,
    "digit_distance_nums": _digit_distance,
}
