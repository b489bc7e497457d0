"""Are the tests of problem sets worth training on, before and after `sce data augment`?

    sce data import secodeplt.json.gz --out secodeplt.jsonl
    sce data import apps-functions.parquet --out apps-functions.jsonl
    python benchmarks/test_strength.py secodeplt.jsonl mbpp:all humaneval:test apps-functions.jsonl --folder strength
        --json benchmarks/results/test-strength.json

For each set: problems whose reference passes; of these the weak ones, by the cheap program that passes; the fraction of
mutants that survive; the same after augmentation, with the reasons of the refusals. Work is done in chunks that are
kept in --folder, so that an interrupted measurement resumes. ``same_expected``: problems of which all tests expect the
same, the count in the pilot.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from record import publish

from securecoderl_edge.problems.assertions import assertions_of
from securecoderl_edge.problems.problem import Problem, with_few_tests
from securecoderl_edge.problems.problem_file import MAX_TESTS, problem_digest, problem_from_record, problem_to_record
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.augment import augment_all
from securecoderl_edge.scoring.reference_solutions import check_problems
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.scoring.strength import MUTANTS, measure_strength

CHUNK = 50
LIMITS = Limits(cpu_seconds=1, wall_seconds=10)  # as in docs/guides/security-tests.md


def main() -> None:
    """Measure each set, print and save the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sets", nargs="+", help="problem files, or built-in sets")
    parser.add_argument("--mutants", type=int, default=MUTANTS, help="per problem")
    parser.add_argument("--before", action="store_true", help="without augmentation")
    parser.add_argument("--workers", type=int, help="programs at the same time (default: one per core)")
    parser.add_argument("--folder", type=Path, required=True, help="folder for finished chunks")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    results = {}
    for name in arguments.sets:
        problems = load_problems(name, sys.maxsize)
        chunks = [problems[start : start + CHUNK] for start in range(0, len(problems), CHUNK)]
        options = arguments.mutants, arguments.before, arguments.workers
        rows = [measured(chunk, arguments.folder, *options) for chunk in chunks]
        results[Path(name).stem] = summary(rows)
        sys.stdout.write(f"{name}: {json.dumps(results[Path(name).stem])}\n")
        sys.stdout.flush()
    publish({"sets": results}, arguments.json, keep_earlier=True)


def measured(
    problems: Sequence[Problem], folder: Path, mutants: int, is_before: bool, workers: int | None = None
) -> dict[str, Any]:
    """The rows of one chunk."""
    name = f"{problem_digest(problems[0])}-{len(problems)}"
    before = kept(folder / f"{name}-before-{mutants}.json", lambda: strength(problems, mutants, workers))
    if is_before:
        return {"before": before}
    passing = [problem for problem in problems if problem.id in set(before["passing"])]
    row = kept(folder / f"{name}-augment.json", lambda: augmented(passing, workers))
    # As from a file, which training reads.
    better = [problem_from_record(record, sys.maxsize) for record in row["problems"]]
    after = kept(folder / f"{name}-after-{mutants}.json", lambda: strength(better, mutants, workers))
    return {**row, "before": before, "after": after}


def kept(file: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is measured, or was measured before."""
    if not file.is_file():
        row = measure()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(row), encoding="utf-8")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def augmented(problems: Sequence[Problem], workers: int | None) -> dict[str, Any]:
    """The problems with more tests, as records, and the refusals."""
    row: dict[str, Any] = {}
    with timed(row, "augment"), Scorer(workers, LIMITS) as scorer:
        done = augment_all(problems, scorer, threads=workers)
    return row | {
        "added": sum(each.added for each in done),
        "augmented": sum(each.added > 0 for each in done),
        "refused": Counter(each.refusal for each in done if each.refusal),
        "problems": [problem_to_record(each.problem) for each in done],
    }


def strength(problems: Sequence[Problem], mutants: int, workers: int | None) -> dict[str, Any]:
    """The weak problems among those whose reference passes, and how their mutants fare."""
    few = [with_few_tests(problem, MAX_TESTS) for problem in problems]
    row: dict[str, Any] = {"problems": len(few)}
    with timed(row, "strength"), Scorer(workers, LIMITS) as scorer:
        report = check_problems(few, scorer)
        passing = [problem for problem in few if problem.id in report.passing or not problem.solutions]
        found = measure_strength(passing, report.passing, scorer, mutants)
    row["passing"] = [problem.id for problem in passing]
    row["same_expected"] = sum(expects_one(problem) for problem in passing)
    row["weak"] = {each.id: each.passing[0] for each in found.weak}
    row["rates"] = [[len(each.survivors), each.mutants] for each in found.problems if each.mutants]
    return row


def expects_one(problem: Problem) -> bool:
    """Whether all tests expect the same."""
    if problem.kind == "stdin":
        return len({test.output.strip() for test in problem.tests}) == 1
    return len({(each.comparison, repr(each.expected)) for each in assertions_of(problem)}) == 1


class timed:
    """Adds the CPU seconds of a block, those of the sandbox included, and its wall time to a row."""

    def __init__(self, row: dict[str, Any], name: str) -> None:
        self._row, self._name = row, name

    def __enter__(self) -> None:
        self._began = time.monotonic(), cpu_seconds()

    def __exit__(self, *_: object) -> None:
        self._row[f"{self._name}_seconds"] = time.monotonic() - self._began[0]
        self._row[f"{self._name}_cpu_seconds"] = cpu_seconds() - self._began[1]


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The counts of a set."""
    counts = {"problems": sum(row["before"]["problems"] for row in rows), "before": totals([r["before"] for r in rows])}
    if not all("after" in row for row in rows):
        return counts
    refused: Counter[str] = Counter()
    for row in rows:
        refused.update(row["refused"])
    return counts | {
        "augmented": sum(row["augmented"] for row in rows),
        "tests_added": sum(row["added"] for row in rows),
        "refused": dict(refused.most_common()),
        "augment_cpu_seconds": round(sum(row["augment_cpu_seconds"] for row in rows), 1),
        "after": totals([row["after"] for row in rows]),
    }


def totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sums over the chunks of a set."""
    kinds = Counter(name for row in rows for name in row["weak"].values())
    rates = [survived / made for row in rows for survived, made in row["rates"]]
    made = sum(made for row in rows for _, made in row["rates"])
    count = sum(row["problems"] for row in rows)
    return {
        "passing": sum(len(row["passing"]) for row in rows),
        "same_expected": sum(row["same_expected"] for row in rows),
        "weak": sum(kinds.values()),
        "weak_by": dict(kinds.most_common(8)),
        "mutants": made,
        "survival": round(sum(survived for row in rows for survived, _ in row["rates"]) / max(1, made), 4),
        "median_survival": round(median(rates), 4) if rates else None,
        "cpu_seconds": round(sum(row["strength_cpu_seconds"] for row in rows), 1),
        "problems_per_cpu_second": round(count / max(1e-9, sum(row["strength_cpu_seconds"] for row in rows)), 2),
        "problems_per_second": round(count / max(1e-9, sum(row["strength_seconds"] for row in rows)), 2),
    }


if __name__ == "__main__":
    main()
