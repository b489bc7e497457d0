"""What does a target cost in the reward of a C program? With and without it, in turn, in one run.

    python benchmarks/target_reward.py --json benchmarks/results/target-reward.json

The programs and tests are those of `c_reward.py`; each passes all tests or prints. "Build" is compiling, measuring and
linking alone. CPU time is that of all processes involved, ours included, once they run; of a test it is that of its
process, which on the target is the emulator. Static analyzers are off: they read each program once, whether
there is a target or not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

from c_reward import PROGRAMS, TESTS
from record import publish
from reward_throughput import cpu_seconds

from securecoderl_edge.languages.targets import CORTEX_M3, find_target_toolchain
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.scorer import Scorer

NATIVE, TARGET, BUILD = "native", "native and target", "native and build for the target"


def main() -> None:
    """Time the ways in turn and print costs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="passes over the programs")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    with Scorer(1, Limits(cpu_seconds=2, wall_seconds=60), analyzers="off") as scorer:
        cases = [(program, problems_of(scorer, program)) for program in PROGRAMS]
        costs: dict[str, list[float]] = {way: [] for way in (NATIVE, TARGET, BUILD)}
        tests: dict[str, list[float]] = {NATIVE: [], TARGET: []}
        for turn in range(arguments.rounds):
            for way in costs if turn % 2 else reversed(costs):
                before = cpu_seconds(scorer)
                for program, problems in cases:
                    _, run = scorer.inspect(problems[way], program)
                    if way in tests:
                        tests[way] += [each.cpu_seconds for each in run.executions]
                costs[way].append((cpu_seconds(scorer) - before) / len(cases))
    milliseconds = {way: round(statistics.median(each) * 1000, 1) for way, each in costs.items()}
    per_test = {way: round(statistics.median(each) * 1000, 1) for way, each in tests.items()}
    for way, cost in milliseconds.items():
        sys.stdout.write(f"{way:34s} {cost:7.1f} ms CPU per program of {len(TESTS)} tests\n")
    emulated = round(per_test[TARGET] - per_test[NATIVE], 1)
    sys.stdout.write(f"per test: {per_test[NATIVE]} ms natively, {emulated} ms in the emulator\n")
    result = {
        "milliseconds": milliseconds,
        "build_milliseconds": round(milliseconds[BUILD] - milliseconds[NATIVE], 1),
        "test_milliseconds": {"native": per_test[NATIVE], "emulator": emulated},
        "programs": len(PROGRAMS),
        "tests": len(TESTS),
        "rounds": arguments.rounds,
        "target": CORTEX_M3.name,
        "compiler": find_target_toolchain(CORTEX_M3.name).version,
        "load": round(os.getloadavg()[0], 2),
        "time": time.strftime("%Y-%m-%d"),
    }
    publish(result, arguments.json)


def problems_of(scorer: Scorer, program: str) -> dict[str, Problem]:
    """Problems whose tests the program passes, natively or on the target; for a build alone it passes none."""
    inputs = tuple(test.input for test in TESTS)
    asked = Problem("benchmark", "", tests=TESTS, language="c")
    printed = [each.stdout for each in scorer.inspect(asked, program)[1].executions]
    native = replace(asked, tests=tuple(map(Test, inputs, printed)))
    target = replace(native, target=CORTEX_M3.name)
    assert scorer.score(target, program).passes_all_tests
    fails = tuple(Test(text, "another output") for text in inputs)
    return {NATIVE: native, TARGET: target, BUILD: replace(target, tests=fails)}


if __name__ == "__main__":
    main()
