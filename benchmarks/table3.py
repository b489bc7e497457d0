"""The four variants of the paper's Table 3 on the built-in problems, over several seeds.

    python benchmarks/table3.py --seeds 3 --samples 4 --json benchmarks/results/table3.json

One `sce train` each, printed before it runs: supervised only; then as many updates of PPO on the binary reward
(simple), on partial credit (fresh), or on the binary reward first (cont, the curriculum; sched, its gradual form). What
variants share is trained once. All are measured on ``starter:eval`` with equal prompts and sampling seeds. Differences
are paired by problem, intervals drawn over problems and seeds. Runs that are there are used again, so the script may be
interrupted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from figures import publish
from starter import cell, describe, difference, pooled, record_of, say

from securecoderl_edge.bench import BenchSettings, bench_problems, measure
from securecoderl_edge.evaluate import Evaluation
from securecoderl_edge.models import resolve_model
from securecoderl_edge.runs import Run
from securecoderl_edge.scorer import Scorer
from securecoderl_edge.summary import METRICS

UPDATES, LAST_UPDATES = 100, 10
VARIANTS = ("base", "sft", "simple", "fresh", "cont", "sched")


def commands(updates: int, last_updates: int) -> dict[str, list[str]]:
    """The arguments of ``sce train`` for each trained variant; all of PPO have as many updates."""
    first = updates - last_updates
    return {
        "sft": ["--phases", "sft"],
        "simple": ["--phases", "sft,binary", "--set", f"binary.steps={updates}"],
        "fresh": ["--phases", "sft,partial", "--set", f"partial.steps={updates}"],
        "cont": [
            "--phases", "sft,binary,partial", "--set", f"binary.steps={first}",
            "--set", f"partial.steps={last_updates}",
        ],
        "sched": ["--phases", "sft,scheduled", "--set", f"scheduled.steps={updates}"],
    }  # fmt: skip


def train(variant: str, seed: int, folder: Path, arguments: list[str]) -> tuple[Run, float]:
    """Train one variant, or go on with it; returns the run and the seconds that its own rows took."""
    out = folder / f"seed-{seed}" / variant
    command = ["sce", "train", *arguments, "--seed", str(seed), "--out", str(out)]
    say(" ".join(command))
    subprocess.run([sys.executable, "-m", "securecoderl_edge", *command[1:]], check=True)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return Run(out), sum(row["seconds"] for row in rows)


def main() -> None:
    """Parse the command line, train, evaluate, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds: 42, 43, ...")
    parser.add_argument("--samples", type=int, default=4, help="programs for each evaluation problem")
    parser.add_argument("--runs", type=Path, default=Path("runs/table3"), help="folder of the runs")
    parser.add_argument("--variant", action="append", choices=VARIANTS[1:], help="only these (repeat it)")
    parser.add_argument("--quick", action="store_true", help="one seed, 4 updates, 40 problems")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()

    seeds = [42] if arguments.quick else list(range(42, 42 + arguments.seeds))
    settings = BenchSettings(samples=arguments.samples, limit=40 if arguments.quick else None)
    folder = arguments.runs / "quick" if arguments.quick else arguments.runs
    wanted = commands(4, 2) if arguments.quick else commands(UPDATES, LAST_UPDATES)
    if arguments.variant:
        wanted = {name: words for name, words in wanted.items() if name in arguments.variant}
    started = time.monotonic()
    problems = bench_problems(settings)
    evaluations: dict[str, list[Evaluation]] = {name: [] for name in ("base", *wanted)}
    outcomes: dict[str, list[dict[str, Any]]] = {name: [] for name in wanted}
    with Scorer() as scorer:
        for seed in seeds:
            for name, words in {"base": [], **wanted}.items():
                model, log = "nano", folder / "bench-base"
                if name != "base":
                    run, seconds = train(name, seed, folder, words)
                    model, log = str(run.path), run.path / "bench" / "table3"
                    phases = [{"phase": phase, **facts} for phase, facts in run.outcomes()]
                    outcomes[name].append({"seed": seed, "seconds": round(seconds, 1), "phases": phases})
                evaluation = measure(resolve_model(model), problems, scorer, settings, log)
                evaluations[name].append(evaluation)
                say(f"seed {seed} {name}: {describe(evaluation)}")
    write = sys.stdout.write
    write(f"{'':14s}" + "".join(f"{metric.title:>24s}" for metric in METRICS) + "\n")
    for name, found in evaluations.items():
        write(f"{name:14s}" + "".join(cell(pooled(found, metric), metric) for metric in METRICS) + "\n")
    pairs = list(itertools.combinations(evaluations, 2))
    differences = {
        f"{second} - {first}": {
            metric.name: difference(evaluations[first], evaluations[second], metric) for metric in METRICS
        }
        for first, second in pairs
    }
    for title, intervals in differences.items():
        write(f"{title:14s}" + "".join(cell(intervals[metric.name], metric) for metric in METRICS) + "\n")
    result = {
        "seeds": seeds,
        "problems": len(problems),
        "samples": arguments.samples,
        "commands": {name: " ".join(["sce train", *words]) for name, words in wanted.items()},
        "metrics": {
            name: {metric.name: record_of(pooled(found, metric)) for metric in METRICS}
            for name, found in evaluations.items()
        },
        "differences": {
            title: {name: record_of(interval) for name, interval in intervals.items()}
            for title, intervals in differences.items()
        },
        "all_tests_by_seed": {
            name: [round(each.summary().metrics["all_tests_rate"].value, 4) for each in found]
            for name, found in evaluations.items()
        },
        "outcomes": outcomes,
        "wall_seconds": round(time.monotonic() - started, 1),
    }
    publish(result, arguments.json)


if __name__ == "__main__":
    main()
