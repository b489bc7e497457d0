"""What does a Ray cluster cost per program, and what do two workers give? Against the same scorer without Ray.

    python benchmarks/ray_scale.py --json benchmarks/results/ray-scale.json

The same programs are scored by one worker of this machine, by a cluster of one node with one core, and by one of two
such nodes, in turn. Only the time from the first finished batch to the last counts: the start of a cluster's workers
is a number of its own. With few programs (--quick), two workers look faster than they are: both have a batch when the
time begins. A machine needs three idle cores: two for the nodes, one for the head and this process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import publish

from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.scoring.cluster_scorer import open_scorer
from securecoderl_edge.scoring.scorer import Submission

WAYS = {"local": 0, "ray, 1 worker": 1, "ray, 2 workers": 2}


@dataclass(frozen=True)
class Pass:
    """One pass over all programs: seconds to the first batch; then wall seconds, and CPU of this process, of each."""

    start: float
    seconds: float
    driver: float


def main() -> None:
    """Time the three ways in turn, and print milliseconds per program, throughput and overhead."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--programs", type=int, default=4000, help="how many programs")
    parser.add_argument("--rounds", type=int, default=3, help="passes of each way")
    parser.add_argument("--quick", action="store_true", help="300 programs, one round")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    count, rounds = (300, 1) if arguments.quick else (arguments.programs, arguments.rounds)
    items = choose_items(count)
    found: dict[str, list[Pass]] = {name: [] for name in WAYS}
    rewards: dict[str, list[float]] = {}
    for turn in range(rounds):
        for name in WAYS if turn % 2 else reversed(WAYS):
            with cluster(WAYS[name]) if WAYS[name] else nullcontext("local") as engine:
                done, rewards[name] = measure(engine, items)
            found[name].append(done)
            sys.stderr.write(
                f"{name}: {done.seconds * 1000:.2f} ms per program, first batch after {done.start:.1f} s\n"
            )
    publish(summary(found, len({tuple(each) for each in rewards.values()}) == 1, count, rounds), arguments.json)


def choose_items(count: int) -> list[Submission]:
    """Reference solutions of the built-in problems, each with a comment that makes it a program of its own."""
    problems = load_problems("starter:eval")
    chosen = (problems[number % len(problems)] for number in range(count))
    return [Submission(each, f"{each.solutions[0]}\n# {number}\n", number) for number, each in enumerate(chosen)]


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """Start a Ray cluster of nodes with one core each; yields its name for ``--engine``."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.update(RAY_worker_niceness="0")  # that of the local scorer; by default workers give way to all others
    from ray.cluster_utils import Cluster

    options: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 10**8}
    running = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
    for _ in range(nodes - 1):
        running.add_node(**options)
    os.environ["RAY_ADDRESS"] = running.address
    try:
        yield "ray"
    finally:
        del os.environ["RAY_ADDRESS"]
        running.shutdown()


def measure(engine: str, items: list[Submission]) -> tuple[Pass, list[float]]:
    """Score all items; returns the rewards as well."""
    rewards: list[float] = []
    started = time.monotonic()
    with open_scorer(engine, 1) as scorer:
        for batch in scorer.in_batches(items):
            if not rewards:
                first, cpu, skipped = time.monotonic(), time.process_time(), len(batch)
            rewards += [score.reward for score, _ in batch]
        count = len(items) - skipped
        each, own = (time.monotonic() - first) / count, (time.process_time() - cpu) / count
    return Pass(first - started, each, own), rewards


def summary(found: dict[str, list[Pass]], is_equal: bool, count: int, rounds: int) -> dict[str, Any]:
    """Medians over rounds, and their ratios."""
    seconds = {name: statistics.median(each.seconds for each in turns) for name, turns in found.items()}
    starts = {name: statistics.median(each.start for each in turns) for name, turns in found.items()}
    driver = statistics.median(each.driver for each in found["ray, 2 workers"])
    local, one, two = (seconds[name] for name in WAYS)
    return {
        "overhead": round(one / local - 1, 4),
        "overhead_ms": round((one - local) * 1000, 3),
        "driver_cpu_ms": round(driver * 1000, 3),
        "speedup_of_two": round(one / two, 3),
        "programs_per_second": {name: round(1 / each, 1) for name, each in seconds.items()},
        "milliseconds": {name: round(each * 1000, 3) for name, each in seconds.items()},
        "first_batch_seconds": {name: round(start, 2) for name, start in starts.items()},
        "rewards_equal": is_equal,
        "programs": count,
        "rounds": rounds,
    }


if __name__ == "__main__":
    main()
