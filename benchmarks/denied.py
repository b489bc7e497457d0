"""What do notes of refused attempts cost, and are there any of programs that try nothing?

    python benchmarks/denied.py cost --json benchmarks/results/denied-cost.json
    python benchmarks/denied.py cost BEFORE . --json reward-cost.json
    python benchmarks/denied.py references PROBLEMS... --json benchmarks/results/denied.json

``cost`` compares two source trees, without any this one without notes and with them: one worker of each runs the same
program with five tests, in Python and in C, in turn, so that a busy machine slows both. Costs are CPU times of sce's
process and of all below it. The ratio is that of the sums, its interval from 2,000 resamples of pairs of turns. (BEFORE
is a tree of an earlier commit: ``git worktree add BEFORE COMMIT``.) ``references`` runs the reference solution of up to
1,000 problems, drawn at random, and names those that leave a note.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from record import publish

PROGRAMS = {
    "python": """
from collections import Counter
count, numbers = int(input()), list(map(int, input().split()))
best = max(sum(numbers[first:last]) for first in range(count) for last in range(first + 1, count + 1))
print(best, Counter(numbers).most_common(1))
""",
    "c": "\n".join(
        (
            "#include <stdio.h>",
            "int main(void) {",
            "int count, numbers[64], best = 0;",
            'scanf("%d", &count);',
            'for (int place = 0; place < count; place++) scanf("%d", numbers + place);',
            "for (int first = 0; first < count; first++)",
            "for (int last = first, sum = 0; last < count; last++) if ((sum += numbers[last]) > best) best = sum;",
            'printf("%d\\n", best); }',
        )
    ),
}
TREE = Path(__file__).parents[1]
TESTS = 5
INPUTS = [f"20\n{' '.join(str(place * step % 17 - 5) for place in range(20))}\n" for step in range(1, TESTS + 1)]
AT_ONCE = {"python": 10, "c": 2}
PROBLEMS = 1000


def main() -> None:
    """Compare two trees, or run references."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("cost", "references", "serve"))
    parser.add_argument("arguments", nargs="*", help="two trees, or files of problems")
    parser.add_argument("--turns", type=int, default=200, help="of each tree and language")
    parser.add_argument("--level", default="auto", help="of the sandbox")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    if arguments.what == "serve":
        serve(arguments.arguments[0], arguments.level)
        return
    if arguments.what == "references":
        publish(references(arguments.arguments, arguments.level), arguments.json)
        return
    with tempfile.TemporaryDirectory() as folder:
        trees = arguments.arguments or [_without_notes(Path(folder)), str(TREE)]
        publish(cost(trees, arguments.level, arguments.turns), arguments.json)


def _without_notes(folder: Path) -> str:
    """A copy of this tree in which nobody can listen to refused calls."""
    shutil.copytree(TREE / "securecoderl_edge", folder / "securecoderl_edge")
    with (folder / "securecoderl_edge" / "sandbox" / "inside" / "lockdown.py").open("a") as file:
        file.write("\n\ndef can_listen() -> bool:\n    return False\n")
    return str(folder)


def cost(trees: Sequence[str], level: str, turns: int) -> dict[str, Any]:
    """CPU milliseconds of a program in each tree, and the ratio of the second to the first."""
    found: dict[str, Any] = {"tests": TESTS, "turns": turns}
    for language, count in AT_ONCE.items():
        command = [sys.executable, "-B", str(Path(__file__).resolve()), "serve", language, "--level", level]
        servers = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": tree},
                text=True,
            )
            for tree in map(os.path.abspath, trees)
        ]
        costs: list[list[float]] = [[], []]
        for turn in range(turns):
            for place in (0, 1) if turn % 2 else (1, 0):
                costs[place].append(_ask(servers[place], count))
        for server in servers:
            server.communicate()
        pairs, draw = list(zip(*costs, strict=True)), random.Random(0)
        ratios = sorted(_ratio(draw.choices(pairs, k=turns)) for _ in range(2000))
        first, second = map(statistics.mean, costs)
        found[language] = {
            "cpu_ms": [1e3 * first, 1e3 * second],
            "ratio": _ratio(pairs),
            "interval": [ratios[50], ratios[-51]],
        }
    return found


def _ask(server: subprocess.Popen[str], count: int) -> float:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{count}\n")
    server.stdin.flush()
    return float(server.stdout.readline()) / count


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return sum(second for _, second in pairs) / sum(first for first, _ in pairs)


def serve(language: str, level: str) -> None:
    """Run the program as often as a line of standard input says, and print the CPU seconds of that."""
    from securecoderl_edge.sandbox import Limits, SandboxPool

    with SandboxPool(1, Limits(cpu_seconds=2, wall_seconds=10), level) as pool:
        pool.run(PROGRAMS[language], INPUTS, language=language)
        (zygote,) = pool.idle_pids()
        for line in sys.stdin:
            before = _cpu_seconds(zygote)
            for _ in range(int(line)):
                assert all(each.clean for each in pool.run(PROGRAMS[language], INPUTS, language=language).executions)
            print(_cpu_seconds(zygote) - before, flush=True)


def _cpu_seconds(zygote: int) -> float:
    """Of this process, the zygote, what has ended below it, and what stays there."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    words = Path(f"/proc/{zygote}/stat").read_text().rpartition(")")[2].split()
    ended = (int(words[13]) + int(words[14])) / os.sysconf("SC_CLK_TCK")
    staying = [str(zygote), *Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()]
    running = sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in staying)
    return own.ru_utime + own.ru_stime + ended + running / 1e9


def references(files: Sequence[str], level: str) -> dict[str, Any]:
    """The notes of reference solutions."""
    from securecoderl_edge.problems.sources import load_problems
    from securecoderl_edge.scoring.scorer import Scorer

    problems = [each for file in files for each in load_problems(file) if each.solutions]
    random.Random(0).shuffle(problems)
    noted = {}
    with Scorer(1, sandbox=level) as scorer:
        for problem in problems[:PROBLEMS]:
            score = scorer.score(problem, problem.solutions[0])
            if score.denied is None:
                raise SystemExit("nobody takes notes here")
            if score.denied:
                noted[problem.id] = json.loads(json.dumps(score.to_record()["denied"]))
    return {"references": len(problems[:PROBLEMS]), "with_notes": noted, "level": level}


if __name__ == "__main__":
    main()
