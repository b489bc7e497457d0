"""Are the tests of a problem worth training on? Programs that do not solve it, and mutants of its reference, run them.

RL finds whatever tests accept: a policy trained on tasks with one expected value wrote ``return True``. A problem is
*weak* if a cheap program (`cheap_programs`) passes all its tests; security tests do not count, since R_func ignores
them. A mutant of the first reference that passes *survives* if it passes all tests and security tests as well. Some
mutants compute the same as the reference, so a few survivors are no fault.

Problems in C get no mutants, and the limits of a target do not count. A problem without a reference that passes has no
mutants, and is tried with a bare function.
"""

from __future__ import annotations

import ast
import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.mutants import mutants
from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.languages.targets import NO_BUDGET
from securecoderl_edge.problems.assertions import assertions_of
from securecoderl_edge.problems.cheap_programs import cheap_programs
from securecoderl_edge.problems.problem import Problem, with_few_tests
from securecoderl_edge.scoring.results import results_on
from securecoderl_edge.scoring.scorer import Submission

if TYPE_CHECKING:
    from securecoderl_edge.scoring.reference_solutions import Passed
    from securecoderl_edge.scoring.score import Score
    from securecoderl_edge.scoring.scorer import Scorer

MUTANTS = 20
# CPU seconds of a test; many mutants loop without end, and a constant takes none.
_LEAST_SECONDS, _TIMES = 0.25, 5
_FEW = 1  # the tests that all programs run; those that pass them run all


@dataclass
class Strength:
    """How well the tests of one problem tell programs apart.

    Attributes:
        passing: what the cheap programs do that pass all tests.
        mutants: number of mutants that ran; survivors: the faults of those that no test notices.
    """

    id: str
    passing: list[str] = field(default_factory=list)
    mutants: int = 0
    survivors: list[str] = field(default_factory=list)

    @property
    def is_weak(self) -> bool:
        """Whether a cheap program passes all tests."""
        return bool(self.passing)

    def to_record(self) -> dict[str, Any]:
        """Its JSON object."""
        rate = round(len(self.survivors) / self.mutants, 4) if self.mutants else None
        return {
            "id": self.id,
            "passing": self.passing,
            "mutants": self.mutants,
            "survival": rate,
            "survivors": self.survivors,
        }


@dataclass(frozen=True)
class StrengthReport:
    """The strength of the tests of each problem, in the order of the file."""

    problems: tuple[Strength, ...]

    @property
    def weak(self) -> tuple[Strength, ...]:
        """The weak problems."""
        return tuple(each for each in self.problems if each.is_weak)

    @property
    def survival(self) -> float:
        """The part of all mutants that survives, 0 to 1; 0 without mutants."""
        return sum(len(each.survivors) for each in self.problems) / max(1, sum(each.mutants for each in self.problems))

    def kinds(self) -> dict[str, int]:
        """Numbers of weak problems by the first cheap program that passes, the most frequent first."""
        return dict(Counter(each.passing[0] for each in self.weak).most_common())

    def to_record(self) -> dict[str, Any]:
        """The JSON object under ``strength`` of ``sce data check --strength --json``."""
        rates = [len(each.survivors) / each.mutants for each in self.problems if each.mutants]
        return {
            "weak": len(self.weak),
            "passing": self.kinds(),
            "mutants": sum(each.mutants for each in self.problems),
            "survival": round(self.survival, 4),
            "median_survival": round(statistics.median(rates), 4) if rates else None,
            "problems": [each.to_record() for each in self.problems],
        }


def measure_strength(
    problems: Sequence[Problem],
    passing: Mapping[str, Passed],
    scorer: Scorer,
    most: int = MUTANTS,
    seed: int = 0,
    on_progress: Callable[[int], None] = lambda count: None,
) -> StrengthReport:
    """Run cheap programs and mutants on the tests of each problem, in the sandbox.

    Args:
        passing: the solutions that pass, by problem, see `check_problems`.
        most: mutants of a problem.
        seed: of the choice among mutants.
        on_progress: called with the number of problems that are done.
    """
    found = {problem.id: Strength(problem.id) for problem in problems}
    tried = {problem.id: _bounded(problem, passing.get(problem.id)) for problem in problems}
    references = {name: passed.solutions[0] for name, passed in passing.items() if tried[name].language == PYTHON.name}
    returned = _returned(list(tried.values()), references, scorer)
    passed_few = [
        (tried[problem.id], name, score.program)
        for problem, name, score in _scored(scorer, _cheap(tried.values(), references, returned))
        if score.passes_all_tests
    ]
    for problem, name, score in _scored(scorer, passed_few):
        if score.passes_all_tests:
            found[problem.id].passing.append(name)
    alive: list[tuple[Problem, str, str]] = []
    last = ""
    for problem, change, score in _scored(scorer, _mutated(tried.values(), references, most, seed)):
        if problem.id != last:
            on_progress(1)
        last = problem.id
        found[problem.id].mutants += 1
        if score.passes_all_tests:
            alive.append((tried[problem.id], change, score.program))
    with_attacks = {problem.id: problem for problem in problems}
    whole = (
        (replace(each, security_tests=with_attacks[each.id].security_tests), change, program)
        for each, change, program in alive
    )
    for problem, change, score in _scored(scorer, whole):
        if score.passes_all_tests and not score.failed_security:
            found[problem.id].survivors.append(change)
    return StrengthReport(tuple(found.values()))


def _bounded(problem: Problem, passed: Passed | None) -> Problem:
    """The problem as cheap programs and mutants run it: its tests alone, with little time."""
    limit = None if passed is None else max(_LEAST_SECONDS, _TIMES * passed.cpu_seconds)
    return replace(problem, security_tests=(), target="", budget=NO_BUDGET, time_limit_s=limit)


def _cheap(
    problems: Iterable[Problem], references: Mapping[str, str], returned: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Problem, str, str]]:
    for problem in problems:
        few = with_few_tests(problem, _FEW)
        for each in cheap_programs(problem, references.get(problem.id, ""), returned.get(problem.id, ())):
            yield few, each.name, each.program


def _mutated(
    problems: Iterable[Problem], references: Mapping[str, str], most: int, seed: int
) -> Iterator[tuple[Problem, str, str]]:
    for problem in problems:
        few = with_few_tests(problem, _FEW)
        for each in mutants(references.get(problem.id, ""), problem.entry_point or "", most, seed):
            yield few, each.change, each.program


def _scored(scorer: Scorer, programs: Iterable[tuple[Problem, str, str]]) -> Iterator[tuple[Problem, str, Score]]:
    """Problem, name and score of each program, given as problem, name and text."""
    asked, handed_out = itertools.tee(programs)
    for batch in scorer.in_batches(Submission(problem, program) for problem, _, program in handed_out):
        for (score, _), (problem, name, _) in zip(batch, asked, strict=False):  # `asked` waits for the next batch
            yield problem, name, score


def _returned(problems: Sequence[Problem], references: Mapping[str, str], scorer: Scorer) -> dict[str, tuple[str, ...]]:
    """What references return for calls of which a test compares only a part, or something made of it."""
    calls = {}
    for problem in problems:
        if problem.kind == "call" and problem.id in references and problem.test_file is None:
            inner = [call for each in assertions_of(problem) if (call := _call_within(each.expression, problem))]
            if inner:
                calls[problem.id] = problem, list(dict.fromkeys(inner))
    return {
        name: tuple(filter(None, results_on(scorer, problem, inner, [references[name]])[references[name]]))
        for name, (problem, inner) in calls.items()
    }


def _call_within(expression: str, problem: Problem) -> str:
    """The call of the function with literals in an expression that is more than it; empty if there is none."""
    tree = parse(expression)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == problem.entry_point:
            is_all = isinstance(tree, ast.Module) and isinstance(tree.body[0], ast.Expr) and tree.body[0].value is node
            return "" if is_all else ast.unparse(node)
    return ""
