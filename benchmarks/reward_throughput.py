"""What does a reward cost, and is it the right one? Against ``python file`` per test + py_compile + the bandit CLI.

    python benchmarks/reward_throughput.py --json benchmarks/results/reward-throughput.json

The same programs with five tests each go three ways in turn: our engine, our engine without lockdown
(``--sandbox off``), and the usual way, processes from the command line. One worker each; CPU time is that of
all processes involved, ours included, once they run. Programs that reach the time limit are left out: their
cost is the limit. Programs: those that CodeRL and people wrote for an APPS problem, where its folder is at
hand, and for each problem of ``starter`` its solution, the solution of another problem, and half of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from record import publish

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.sandbox import Execution, Limits
from securecoderl_edge.sandbox.security import Finding, Scan
from securecoderl_edge.scoring.reward import outcome
from securecoderl_edge.scoring.score import CheckedProgram, Score, make_score
from securecoderl_edge.scoring.scorer import Scorer

APPS = Path(__file__).parents[2] / "shared" / "data" / "apps" / "train" / "0001"
TESTS = 5
LIMITS = Limits(cpu_seconds=2, wall_seconds=10)
CHUNK = 12
Item = tuple[Problem, str]


def main() -> None:
    """Time the three ways in turn, chunk by chunk, and print costs and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--apps", type=Path, default=APPS, help="an APPS problem folder with gen_solutions.json")
    parser.add_argument("--programs", type=int, default=180, help="how many programs, CodeRL's first")
    parser.add_argument("--rounds", type=int, default=5, help="passes of our two engines; the usual way has one")
    parser.add_argument("--quick", action="store_true", help="24 programs, one round")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    count, rounds = (24, 1) if arguments.quick else (arguments.programs, arguments.rounds)
    with Scorer(1, LIMITS) as full, Scorer(1, LIMITS, sandbox="off") as bare:
        items, from_apps = choose_items(arguments.apps, count, full)
        ways: dict[str, Callable[[Sequence[Item]], list[Score]]] = {
            "ours": lambda chunk: [full.score(*item) for item in chunk],
            "without lockdown": lambda chunk: [bare.score(*item) for item in chunk],
            "usual way": lambda chunk: [score_by_commands(*item) for item in chunk],
        }
        ways["without lockdown"](items[:2])  # its processes start
        result = measure(ways, items, rounds, {"ours": full, "without lockdown": bare})
    publish({**result, "programs_of_apps": from_apps, "tests": TESTS}, arguments.json)


def measure(
    ways: dict[str, Callable[[Sequence[Item]], list[Score]]],
    items: list[Item],
    rounds: int,
    scorers: dict[str, Scorer],
) -> dict[str, Any]:
    """Run every way over all items and compare cost and rewards."""
    costs: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in ways}
    rewards: dict[str, list[float]] = {name: [] for name in ways}
    overheads = []
    for turn in range(rounds):
        for name in ways:
            costs[name].append([])
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            # In turn, the first one changing, so that a disturbance or a warm cache favours nobody.
            names = [name for name in ways if turn == 0 or name != "usual way"]
            for name in names if (turn + start // CHUNK) % 2 else reversed(names):
                wall, cpu = time.monotonic(), cpu_seconds(scorers.get(name))
                scores = ways[name](chunk)
                costs[name][turn].append((cpu_seconds(scorers.get(name)) - cpu, time.monotonic() - wall))
                if turn == 0:
                    rewards[name] += [score.reward for score in scores]
        overheads.append(total(costs["ours"][turn], 0) / total(costs["without lockdown"][turn], 0) - 1)
    table = {name: per_program([turn for turn in rows if turn], len(items)) for name, rows in costs.items()}
    for name, row in table.items():
        sys.stdout.write(f"{name:18s} {row['cpu_ms']:8.2f} ms CPU  {row['wall_ms']:8.2f} ms wall a program\n")
    ours, usual = table["ours"], table["usual way"]
    parts = split(ways["ours"], items, scorers["ours"])
    for name, milliseconds in parts.items():
        sys.stdout.write(f"  ours: {name:20s} {milliseconds:8.2f} ms CPU\n")
    equal = sum(len({round(value, 9) for value in values}) == 1 for values in zip(*rewards.values(), strict=True))
    return {
        "cpu_ratio": round(usual["cpu_ms"] / ours["cpu_ms"], 2),
        "wall_ratio": round(usual["wall_ms"] / ours["wall_ms"], 2),
        "lockdown_overhead": round(statistics.median(overheads), 4),
        "rewards_equal": equal,
        "programs": len(items),
        "rounds": rounds,
        "milliseconds": table,
        "parts_cpu_ms": parts,
    }


def split(way: Callable[[Sequence[Item]], list[Score]], items: list[Item], scorer: Scorer) -> dict[str, float]:
    """Milliseconds of CPU a program by process, over one more pass."""
    sandbox, scanner = scorer.pids()

    def now() -> dict[str, float]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        zygote, children = ticks(sandbox, 11, 13), ticks(sandbox, 13, 15)
        return {
            "sce itself": own.ru_utime + own.ru_stime,
            "zygote": zygote,
            "boxes and tests": children,
            "Bandit": ticks(scanner, 11, 13),
        }

    before = now()
    way(items)
    return {name: round((after - before[name]) * 1000 / len(items), 2) for name, after in now().items()}


def ticks(pid: int, first: int, last: int) -> float:
    """Seconds in a range of fields of ``/proc/PID/stat``, counted from the one after the name."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return sum(map(int, fields[first:last])) / os.sysconf("SC_CLK_TCK")


def per_program(rounds: list[list[tuple[float, float]]], programs: int) -> dict[str, float]:
    """Milliseconds of CPU and wall time a program; the median over rounds."""
    return {
        name: round(statistics.median(total(rows, column) for rows in rounds) * 1000 / programs, 3)
        for column, name in enumerate(("cpu_ms", "wall_ms"))
    }


def total(rows: list[tuple[float, float]], column: int) -> float:
    """The sum of one column."""
    return sum(row[column] for row in rows)


def choose_items(apps: Path, count: int, scorer: Scorer) -> tuple[list[Item], int]:
    """Programs with five tests each, none of which reaches the time limit; and how many are from APPS."""
    items: list[Item] = []
    if (apps / "gen_solutions.json").is_file():
        texts = json.loads((apps / "solutions.json").read_text(encoding="utf-8"))
        texts += [each["code"] for each in json.loads((apps / "gen_solutions.json").read_text(encoding="utf-8"))]
        cases = json.loads((apps / "input_output.json").read_text(encoding="utf-8"))
        problem = Problem(f"apps/{apps.name}", "", tests=five(list(map(Test, cases["inputs"], cases["outputs"]))))
        items += [(problem, text) for text in texts]
    from_apps = len(items)
    problems = [each for split in ("eval", "security", "hard") for each in load_problems(f"starter:{split}")]
    for problem, other in zip(problems, [*problems[7:], *problems[:7]], strict=True):
        own = Problem(problem.id, "", tests=five(list(problem.tests)))
        text = problem.solutions[0]
        items += [(own, text), (own, other.solutions[0]), (own, text[: len(text) // 2])]
    kept = [item for item in items[: count + 12] if "timeout" not in scorer.score(*item).verdicts]
    return kept[:count], min(from_apps, count)


def five(tests: list[Test]) -> tuple[Test, ...]:
    """Five tests, the given ones again from the first where there are fewer."""
    return tuple(tests[number % len(tests)] for number in range(TESTS))


def score_by_commands(problem: Problem, program: str) -> Score:
    """The usual way: the file's own interpreter for each test, py_compile and bandit from the command line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "solution.py"
        path.write_text(program, encoding="utf-8")
        compiled = subprocess.run([sys.executable, "-m", "py_compile", str(path)], capture_output=True)
        if compiled.returncode:
            return make_score(CheckedProgram(problem.id, 0, program, None, TESTS, Scan()))
        runs = [run_file(path, test.input) for test in problem.tests]
        outcomes = [outcome(run, test.output) for run, test in zip(runs, problem.tests, strict=True)]
        scan = scan_file(path)
    return make_score(CheckedProgram(problem.id, 0, program, outcomes, TESTS, scan))


def run_file(path: Path, stdin: str) -> Execution:
    """One test."""
    try:
        run = subprocess.run(
            [sys.executable, str(path)], input=stdin.encode(), capture_output=True, timeout=LIMITS.wall_seconds
        )
    except subprocess.TimeoutExpired:
        return Execution(-9, "wall", "", "", 0.0)
    return Execution(run.returncode, "", run.stdout.decode("utf-8", "replace"), "", 0.0)


def scan_file(path: Path) -> Scan:
    """Bandit's report on one file."""
    command = [sys.executable, "-m", "bandit", "-q", "--ignore-nosec", "-f", "json", str(path)]
    report = json.loads(subprocess.run(command, capture_output=True).stdout)
    found = report["results"]
    return Scan(
        tuple(
            Finding(
                each["test_id"],
                each["issue_cwe"]["id"],
                each["issue_severity"],
                each["issue_confidence"],
                each["line_number"],
            )
            for each in found
        ),
        failed=bool(report["errors"]),
    )


def cpu_seconds(scorer: Scorer | None) -> float:
    """Of this process, of its children that have ended, and of a scorer's processes with all below them."""
    own = sum(time for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) for time in resource.getrusage(who)[:2])
    if scorer is None:
        return own
    # User and system time, their own and of children that they waited for.
    return own + sum(ticks(pid, 11, 15) for pid in scorer.pids())


if __name__ == "__main__":
    main()
