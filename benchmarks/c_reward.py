"""What does the reward of a C program cost? Against gcc and five runs from a shell, in turn, in one run.

    python benchmarks/c_reward.py --json benchmarks/results/c-reward.json

The same programs with five tests each go two ways: our engine, and ``sh`` that calls gcc with the same flags and
starts the program five times. "Without leaks" leaves out the search for leaks at exit, as our engine does. One worker;
CPU time is that of all processes involved, ours included, once they run. Static analyzers are off: `c_analyzers` has
their cost.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from record import publish
from reward_throughput import cpu_seconds

from securecoderl_edge.languages.toolchain import FLAGS, LIBRARIES, find_toolchain
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.scorer import Scorer

TESTS = tuple(Test(f"5\n{n} {n + 1} 3 {n * n} 1\n", f"{n}") for n in range(5))
HEAD = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    int count, *numbers;
    if (scanf("%d", &count) != 1) return 1;
    numbers = malloc(count * sizeof *numbers);
    for (int n = 0; n < count; n++) if (scanf("%d", &numbers[n]) != 1) return 1;
"""
BODIES = (
    """
    long sum = 0;
    for (int n = 0; n < count; n++) sum += numbers[n];
    printf("%ld\\n", sum);
""",
    """
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && numbers[j - 1] > numbers[j]; j--) {
            int kept = numbers[j];
            numbers[j] = numbers[j - 1];
            numbers[j - 1] = kept;
        }
    for (int n = 0; n < count; n++) printf("%d ", numbers[n]);
""",
    """
    unsigned crc = ~0u;
    for (int n = 0; n < count; n++) {
        crc ^= (unsigned)numbers[n];
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    }
    printf("%08x\\n", ~crc);
""",
    """
    char text[256] = "";
    for (int n = 0; n < count; n++) {
        char digits[16];
        snprintf(digits, sizeof digits, "%d;", numbers[n]);
        strncat(text, digits, 15);
    }
    puts(text);
""",
)
PROGRAMS = [f"{HEAD}{body}    free(numbers);\n    return 0;\n}}\n" for body in BODIES]


def main() -> None:
    """Time the ways in turn and print costs and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="passes over the programs")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    problem = Problem("benchmark", "", tests=TESTS, language="c")
    with (
        Scorer(1, Limits(cpu_seconds=2, wall_seconds=10), analyzers="off") as scorer,
        tempfile.TemporaryDirectory() as name,
    ):
        scorer.score(problem, PROGRAMS[0])  # its processes start
        folder = Path(name)
        for number, test in enumerate(TESTS):
            (folder / f"{number}.txt").write_text(test.input)

        def ours(program: str) -> None:
            assert scorer.score(problem, program).stage >= 3

        ways: dict[str, Callable[[str], None]] = {
            "ours": ours,
            "shell": lambda program: by_shell(folder, program, ""),
            "shell without leaks": lambda program: by_shell(folder, program, "detect_leaks=0"),
        }
        costs: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(arguments.rounds):
            for way in ways if turn % 2 else reversed(ways):
                before = cpu_seconds(scorer)
                for program in PROGRAMS:
                    ways[way](program)
                costs[way].append((cpu_seconds(scorer) - before) / len(PROGRAMS))
    milliseconds = {way: round(statistics.median(each) * 1000, 2) for way, each in costs.items()}
    for way, cost in milliseconds.items():
        sys.stdout.write(f"{way:20s} {cost:8.2f} ms CPU per program\n")
    toolchain = find_toolchain()
    result = {
        "cpu_ratio": round(milliseconds["shell"] / milliseconds["ours"], 2),
        "cpu_ratio_without_leaks": round(milliseconds["shell without leaks"] / milliseconds["ours"], 2),
        "milliseconds": milliseconds,
        "programs": len(PROGRAMS),
        "tests": len(TESTS),
        "rounds": arguments.rounds,
        "compiler": toolchain.version,
        "linker": toolchain.linker,
        "load": round(os.getloadavg()[0], 2),
        "time": time.strftime("%Y-%m-%d"),
    }
    publish(result, arguments.json)


def by_shell(folder: Path, program: str, options: str) -> None:
    """Compile with gcc and run the program on each input, as a script would."""
    (folder / "solution.c").write_text(program)
    compile = shlex.join(["gcc", *FLAGS, "solution.c", *LIBRARIES, "-o", "solution"])
    runs = "; ".join(f"./solution < {number}.txt > {number}.out" for number in range(len(TESTS)))
    environment = {"PATH": os.environ["PATH"], "ASAN_OPTIONS": options}
    subprocess.run(["sh", "-c", f"{compile} && {{ {runs}; }}"], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
