"""Problems whose tests are worth training on: more tests, one example, then cheap programs and mutants against them.

Work is done in chunks, which are kept in a folder: an interrupted run resumes.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from securecoderl_edge.problems.assertions import assertions_of
from securecoderl_edge.problems.problem import Problem, with_few_tests
from securecoderl_edge.problems.problem_file import (
    MAX_TESTS,
    digest_of_problems,
    problem_from_record,
    problem_to_record,
)
from securecoderl_edge.problems.shown_example import with_one_example
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.augment import LEAST_OUTPUTS, augment_all
from securecoderl_edge.scoring.reference_solutions import check_problems
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.scoring.strength import Strength, measure_strength
from securecoderl_edge.system.files import write_atomically

CHUNK = 20
WORKERS = 1
LIMITS = Limits(cpu_seconds=1, wall_seconds=10)  # as in docs/guides/security-tests.md
NEW_TESTS = 6
MUTANTS = 8
KEPT = "kept"


@dataclass(frozen=True)
class Rule:
    """What the tests of a set must show.

    Attributes:
        wanted: with fewer hidden tests or too few outputs, more are made from the reference.
        hidden: the fewest tests that the statement does not show; the first ones count, as in training.
        outputs: the fewest different outputs among them.
        with_example: the statement shows one example, which is no test.
        mutants: of a reference, at most.
        surviving: the largest part of them that may pass all tests: some compute the same as the reference.
    """

    wanted: int = MAX_TESTS
    hidden: int = MAX_TESTS
    outputs: int = LEAST_OUTPUTS
    with_example: bool = True
    mutants: int = MUTANTS
    surviving: float = 0.25


@dataclass
class Outcome:
    """What became of problems.

    Attributes:
        problems: those that are kept.
        counts: `KEPT`, and why others are left out.
        finished: whether all of them were looked at.
    """

    problems: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    mutants: int = 0
    survivors: int = 0
    finished: bool = True

    def to_record(self) -> dict[str, Any]:
        """Its counts."""
        return {
            "outcomes": dict(self.counts.most_common()),
            "mutants": self.mutants,
            "surviving": self.survivors,
            "finished": self.finished,
        }


def strengthened(
    problems: Sequence[Problem], rule: Rule, folder: Path, has_time: Callable[[], bool] = lambda: True
) -> Outcome:
    """The problems that fulfil a rule, whose references pass, and whose tests no cheap program and few mutants pass.

    Args:
        folder: of the finished chunks.
        has_time: whether to begin another chunk.
    """
    outcome = Outcome()
    for start in range(0, len(problems), CHUNK):
        chunk = problems[start : start + CHUNK]
        rows = _kept(chunk, rule, folder, has_time)
        if rows is None:
            outcome.finished = False
            outcome.counts["not looked at yet"] += len(chunk)
            continue
        for row in rows:
            outcome.counts[row["outcome"]] += 1
            outcome.mutants += row.get("mutants", 0)
            outcome.survivors += row.get("survivors", 0)
            if row["outcome"] == KEPT:
                outcome.problems.append(problem_from_record(row["problem"], 1 << 30))
    return outcome


def _kept(
    chunk: Sequence[Problem], rule: Rule, folder: Path, has_time: Callable[[], bool]
) -> list[dict[str, Any]] | None:
    name = hashlib.sha256(f"{digest_of_problems(chunk)} {rule} {NEW_TESTS}".encode()).hexdigest()[:20]
    file = folder / f"{name}.json"
    if not file.is_file():
        if not has_time():
            return None
        rows = list(_looked_at(chunk, rule))
        folder.mkdir(parents=True, exist_ok=True)
        with write_atomically(file) as out:
            out.write(json.dumps(rows))
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _looked_at(chunk: Sequence[Problem], rule: Rule) -> Iterator[dict[str, Any]]:
    """The outcome for each problem, with its record if it is kept."""
    with Scorer(WORKERS, LIMITS) as scorer:
        asked = replace(rule, hidden=rule.wanted)
        few = [each for each in chunk if rule.wanted and fault_of(_presented(each, rule), asked)]
        done = {each.problem.id: each for each in augment_all(few, scorer, NEW_TESTS, threads=WORKERS)}
        ready, faults = dict[str, Problem](), dict[str, str]()
        for problem in chunk:
            more = done[problem.id].problem if problem.id in done else problem
            ready[problem.id] = _presented(more, rule)
            fault = fault_of(ready[problem.id], rule)
            if fault:
                refusal = done[problem.id].refusal if problem.id in done else ""
                faults[problem.id] = f"{fault}{f': {refusal}' if refusal else ''}"
        tried = [with_few_tests(problem, MAX_TESTS) for name, problem in ready.items() if name not in faults]
        report = check_problems(tried, scorer)
        passing = [problem for problem in tried if problem.id in report.passing]
        strength = {each.id: each for each in measure_strength(passing, report.passing, scorer, rule.mutants).problems}
    failed = {each.id: f"reference: {each.kind}" for each in report.failed}
    for problem in chunk:
        row: dict[str, Any] = {"id": problem.id}
        found = strength.get(problem.id)
        why = (
            faults.get(problem.id)
            or failed.get(problem.id)
            or ("no reference" if found is None else weakness(found, rule))
        )
        if found is not None:
            row |= {"mutants": found.mutants, "survivors": len(found.survivors)}
        if not why:
            row["problem"] = problem_to_record(report.checked(ready[problem.id]))
        yield row | {"outcome": why or KEPT}


def _presented(problem: Problem, rule: Rule) -> Problem:
    """As a model sees it, the tests with the rarest outputs first."""
    return varied(with_one_example(problem) if rule.with_example else problem)


def varied(problem: Problem) -> Problem:
    """The problem with its tests in an order in which an output comes again only after all others came once."""
    seen: Counter[str] = Counter()
    rounds = []
    for output in outputs_of(problem):
        rounds.append(seen[output])
        seen[output] += 1
    order = sorted(range(len(rounds)), key=lambda place: rounds[place])
    if problem.kind == "stdin":
        return replace(problem, tests=tuple(problem.tests[place] for place in order))
    return replace(problem, assertions=tuple(problem.assertions[place] for place in order))


def outputs_of(problem: Problem) -> list[str]:
    """What each test expects, as a text."""
    if problem.kind == "stdin":
        return [test.output.strip() for test in problem.tests]
    return [f"{each.comparison} {each.negated} {each.expected!r}" for each in assertions_of(problem)]


def fault_of(problem: Problem, rule: Rule) -> str:
    """What a rule misses in the tests of a problem; nothing if they fulfil it."""
    if problem.test_count < rule.hidden:
        return f"fewer than {rule.hidden} hidden tests"
    if len(set(outputs_of(with_few_tests(problem, MAX_TESTS)))) < rule.outputs:
        return f"fewer than {rule.outputs} outputs"
    return ""


def weakness(found: Strength, rule: Rule) -> str:
    """Why tests are too weak; nothing if they are not."""
    if found.is_weak:
        return "weak: a cheap program passes"
    if len(found.survivors) > rule.surviving * found.mutants:
        return "weak: mutants pass"
    return ""
