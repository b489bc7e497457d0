"""Do Bandit and security tests tell a vulnerable program from its patched twin? On SecCodePLT, by CWE.

    python benchmarks/security_pairs.py --data secodeplt.json.gz --json benchmarks/results/security-pairs.json

Bandit tells a pair apart if it has a medium or high finding in the vulnerable program and none in the patched one.
Tests do if the patched program passes all tests and security tests in the sandbox, and the vulnerable one fails a
security test. All pairs count that are Python; one without usable tests counts against the tests.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from record import publish

from securecoderl_edge.evaluation.tables import Table, to_markdown
from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.problems.datasets.importing import import_problems
from securecoderl_edge.problems.datasets.record_files import read_records
from securecoderl_edge.problems.datasets.secodeplt import programs_of
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.sandbox.security import SecurityScanner
from securecoderl_edge.scoring.reference_solutions import reference_outputs
from securecoderl_edge.scoring.scorer import Scorer

QUICK_PAIRS = 40
CPU_SECONDS = 1.0


@dataclass(frozen=True)
class Pair:
    """Two programs for one task; ``place`` is the number of their record."""

    place: str
    cwe: str
    patched: str
    vulnerable: str


@dataclass(frozen=True)
class Tested:
    """What the tests found.

    Attributes:
        told: places of the pairs that they tell apart.
        wrong: why not, by the number of pairs.
        seconds: CPU time of each test of the patched programs.
    """

    told: set[str]
    wrong: Counter[str]
    seconds: list[float]


def main() -> None:
    """Scan and run all pairs, and count those that are told apart."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="SecCodePLT as JSON, JSONL or Parquet")
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK_PAIRS} pairs")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    pairs = read_pairs(arguments.data)[: QUICK_PAIRS if arguments.quick else None]
    places = {pair.place for pair in pairs}
    with reference_outputs() as evaluate:
        imported = import_problems(arguments.data, "secodeplt", evaluate=evaluate)
        problems = [each for each in imported.problems if place_of(each) in places]
    by_bandit, tested = told_by_bandit(pairs), told_by_tests(problems)

    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        told = {"bandit": pair.place in by_bandit, "tests": pair.place in tested.told}
        told |= {"either": any(told.values()), "both": all(told.values())}
        for of in (pair.cwe, "all"):
            counts[of].update(["pairs", *(name for name, is_told in told.items() if is_told)])
    columns = ("pairs", "bandit", "tests", "either", "both")
    rows = [(f"CWE-{of}", *(str(counts[of][name]) for name in columns)) for of in sorted(counts, key=rank)]
    sys.stdout.write(to_markdown(Table(("CWE", *columns), tuple(rows))))
    publish(
        {
            "told_apart": {of: {name: counts[of][name] for name in columns} for of in sorted(counts, key=rank)},
            "dropped": {why: each.count for why, each in imported.tally.dropped.items()},
            "with_tests": len(problems),
            "groups": len({each.group for each in problems}),
            "eval_in_patched": count_patched(pairs, "B307"),
            "tests_fail": dict(tested.wrong.most_common()),
            "median_cpu_ms": round(1000 * statistics.median(tested.seconds), 2),
        },
        arguments.json,
    )


def rank(cwe: str) -> tuple[bool, int]:
    """CWEs by number, and before them ``all``."""
    return (False, 0) if cwe == "all" else (True, int(cwe))


def read_pairs(data: Path) -> list[Pair]:
    """All pairs of programs that are Python."""
    pairs = []
    for number, record in enumerate(read_records(data)):
        patched, vulnerable = programs_of(record.value)
        if parse(patched) is not None and parse(vulnerable) is not None:
            place = str(record.value.get("index", number))
            pairs.append(Pair(place, record.value["CWE_ID"], patched, vulnerable))
    return pairs


def place_of(problem: Problem) -> str:
    """The number of its record."""
    return problem.id.rpartition("/")[2]


def told_by_bandit(pairs: Sequence[Pair]) -> set[str]:
    """Places of the pairs that Bandit tells apart."""
    with SecurityScanner() as scanner:
        return {
            pair.place
            for pair in pairs
            if scanner.scan(pair.vulnerable).serious and not scanner.scan(pair.patched).serious
        }


def count_patched(pairs: Sequence[Pair], rule: str) -> int:
    """The number of patched programs in which a rule of Bandit fires."""
    with SecurityScanner() as scanner:
        return sum(any(each.test_id == rule for each in scanner.scan(pair.patched).findings) for pair in pairs)


def told_by_tests(problems: Sequence[Problem]) -> Tested:
    """Run both programs of each problem."""
    found = Tested(set(), Counter(), [])
    with Scorer(limits=Limits(cpu_seconds=CPU_SECONDS, wall_seconds=10 * CPU_SECONDS)) as scorer:
        for problem in problems:
            futures = [
                scorer.inspect_async(problem, program) for program in (*problem.solutions, *problem.insecure_solutions)
            ]
            (patched, run), (vulnerable, _) = (future.result() for future in futures)
            found.seconds.extend(each.cpu_seconds for each in run.executions)
            if patched.passed < patched.total:
                found.wrong["the patched program fails a test"] += 1
            elif patched.failed_security:
                found.wrong["the patched program fails a security test"] += 1
            elif not vulnerable.failed_security:
                found.wrong["the vulnerable program passes the security tests"] += 1
            else:
                found.told.add(place_of(problem))
    return found


if __name__ == "__main__":
    main()
