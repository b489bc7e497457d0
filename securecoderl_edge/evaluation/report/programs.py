"""Programs of a report: early and late ones of the same problems, of one run or of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from securecoderl_edge.evaluation.report.run_history import SAMPLES, Ends, Point, RunHistory

HELD_OUT, TRAINED, LATEST = "held out", "trained on", "latest"


@dataclass(frozen=True)
class ProblemPrograms:
    """Programs on one problem.

    Attributes:
        statement: None in runs of earlier versions.
        samples: name of the run and sample, by run, the early one first.
    """

    problem: str
    statement: str | None
    samples: tuple[tuple[str, Point], ...]


def choose_programs(histories: Sequence[RunHistory], names: Sequence[str]) -> tuple[str, list[ProblemPrograms]]:
    """Programs on at most `SAMPLES` problems, and of what kind they are; a result never decides which.

    `HELD_OUT`: evaluations sample the same problems each time. `TRAINED`: of runs without such samples, problems that
    were sampled both early and late, the farthest apart first. `LATEST`: if no problem was sampled twice, the latest
    samples. Problems that several runs have come first, then those of each run in turn.

    Args:
        names: of the runs.
    """
    for kind, courses in (
        (HELD_OUT, [_changed(history.held_out) for history in histories]),
        (TRAINED, [_far(history.trained) for history in histories]),
        (LATEST, [{str(point.row["id"]): (point, point) for point in history.last} for history in histories]),
    ):
        common = Counter(problem for course in courses for problem in course)
        if common:
            ranks = {problem: rank for course in reversed(courses) for rank, problem in enumerate(course)}
            chosen = sorted(common, key=lambda problem: (-common[problem], ranks[problem]))[:SAMPLES]
            return kind, [_programs(problem, courses, names) for problem in chosen]
    return LATEST, []


def _programs(problem: str, courses: Sequence[Ends], names: Sequence[str]) -> ProblemPrograms:
    samples = [
        (name, point)
        for name, course in zip(names, courses, strict=True)
        for number, point in enumerate(course.get(problem, ()))
        if number == 0 or point is not course[problem][0]
    ]
    statements = (point.row.get("statement") for _, point in samples)
    return ProblemPrograms(problem, next((each for each in statements if isinstance(each, str)), None), tuple(samples))


def _changed(ends: Ends) -> Ends:
    """Problems that were sampled at two times."""
    return {problem: (early, late) for problem, (early, late) in ends.items() if late.x > early.x}


def _far(ends: Ends) -> Ends:
    """Problems whose samples are more than half of the time apart, the farthest first."""
    times = [point.x for pair in ends.values() for point in pair]
    half = (max(times, default=0) - min(times, default=0)) / 2
    far = [(problem, pair) for problem, pair in ends.items() if pair[1].x - pair[0].x > half]
    return dict(sorted(far, key=lambda each: each[1][0].x - each[1][1].x))
