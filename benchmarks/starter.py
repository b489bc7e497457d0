"""Does reinforcement learning beat supervised training on the built-in problems, over several seeds?

    python benchmarks/starter.py --seeds 3 --samples 4 --json benchmarks/results/starter-table.json

For each seed: the `starter` recipe (SFT, binary, partial), then the base model, the SFT policy and the final policy on
``starter:eval`` with equal prompts and sampling seeds. Differences are paired by problem, intervals drawn over
problems and seeds. A run that is there already is used again, so the script may be interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from figures import publish

from securecoderl_edge.bench import BenchSettings, bench_problems, measure
from securecoderl_edge.config import to_table
from securecoderl_edge.evaluate import Evaluation
from securecoderl_edge.models import resolve_model
from securecoderl_edge.scorer import Scorer
from securecoderl_edge.settings import cap_steps, resolve
from securecoderl_edge.starter.families import LISTS, PLAIN_LISTS
from securecoderl_edge.stats import Interval, bootstrap_mean, rate_interval
from securecoderl_edge.stats_over_seeds import difference_over_seeds
from securecoderl_edge.summary import METRICS, Metric, by_problem, values_of
from securecoderl_edge.train import train

STAGES = ("base", "sft", "policy")


def run_seed(seed: int, folder: Path, overrides: Sequence[str], max_steps: int | None) -> tuple[Path, dict[str, float]]:
    """Train one seed; returns its run folder and the seconds of each phase, from the run's own metrics."""
    settings = resolve("starter", tuple(overrides), {"seed": seed})
    if max_steps:
        settings = cap_steps(settings, max_steps)
    run = train(settings, folder / f"seed-{seed}", log=say_row)
    seconds: dict[str, float] = {}
    for line in (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        seconds[row["phase"]] = seconds.get(row["phase"], 0.0) + row["seconds"]
    return run.path, {phase: round(spent, 1) for phase, spent in seconds.items()}


def evaluate_run(run: Path, scorer: Scorer, settings: BenchSettings) -> dict[str, Evaluation]:
    """The three models of a run on the evaluation problems; rows already measured are kept in ``run/bench``."""
    names = {"base": "nano", "sft": f"{run}:sft", "policy": str(run)}
    problems = bench_problems(settings)
    found = {}
    for stage in STAGES:
        found[stage] = measure(resolve_model(names[stage]), problems, scorer, settings, run / "bench" / "starter")
        say(f"{run.name} {stage}: {describe(found[stage])}")
    return found


def by_seed(evaluations: Sequence[Evaluation], metric: Metric) -> list[list[list[float]]]:
    """(seeds, problems, samples) values of one metric."""
    return [[values_of(metric, rows) for rows in by_problem(evaluation.rows).values()] for evaluation in evaluations]


def pooled(evaluations: Sequence[Evaluation], metric: Metric) -> Interval:
    """The metric over all seeds, the samples of one problem taken together."""
    seeds = by_seed(evaluations, metric)
    problems = [[value for values in column for value in values] for column in zip(*seeds, strict=True)]
    if metric.is_rate:
        return rate_interval([[value > 0 for value in values] for values in problems])
    return bootstrap_mean(problems)


def difference(first: Sequence[Evaluation], second: Sequence[Evaluation], metric: Metric) -> Interval | None:
    """Paired difference over problems and seeds; None where a problem has no value on one side."""
    tables = [by_seed(evaluations, metric) for evaluations in (first, second)]
    if not all(values for seeds in tables for problems in seeds for values in problems):
        return None
    return difference_over_seeds(*tables)


def rates_by_families(evaluations: dict[str, list[Evaluation]]) -> dict[str, dict[str, float]]:
    """All-P of each stage on the families that the recipe practises, on the other lists, and on the rest."""
    practised, lists = ({family.name for family in families} for families in (PLAIN_LISTS, LISTS))
    passed: dict[str, dict[str, list[float]]] = {}
    problems: dict[str, set[str]] = {}
    for stage, found in evaluations.items():
        for row in (row for evaluation in found for row in evaluation.rows):
            family = row["id"].split("/")[1]
            group = "practised" if family in practised else "other lists" if family in lists else "rest"
            passed.setdefault(group, {}).setdefault(stage, []).append(float(row["passed"] == row["total"]))
            problems.setdefault(group, set()).add(row["id"])
    return {
        group: {
            "problems": len(problems[group]),
            **{stage: round(sum(values) / len(values), 4) for stage, values in stages.items()},
        }
        for group, stages in passed.items()
    }


def record_of(interval: Interval | None) -> dict[str, float] | None:
    """Value and bounds, rounded to what the samples can say."""
    if interval is None:
        return None
    return {name: round(getattr(interval, name), 4) for name in ("value", "low", "high")}


def describe(evaluation: Evaluation) -> str:
    """The rates of one evaluation in a line."""
    metrics = evaluation.summary().metrics
    parts = [f"{name} {100 * metrics[name].value:.1f} %" for name in ("syntax_rate", "any_test_rate", "all_tests_rate")]
    return "  ".join([*parts, f"R {metrics['reward_gated'].value:.3f}"])


def print_table(evaluations: dict[str, list[Evaluation]], write: Callable[[str], object]) -> None:
    """One row a stage, then the differences, on stdout."""
    write(f"{'':14s}" + "".join(f"{metric.title:>24s}" for metric in METRICS) + "\n")
    for stage in STAGES:
        write(f"{stage:14s}" + "".join(cell(pooled(evaluations[stage], metric), metric) for metric in METRICS) + "\n")
    for first, second in (("base", "sft"), ("sft", "policy")):
        cells = [cell(difference(evaluations[first], evaluations[second], metric), metric) for metric in METRICS]
        write(f"{second} - {first}".ljust(14) + "".join(cells) + "\n")


def cell(interval: Interval | None, metric: Metric) -> str:
    if interval is None:
        return f"{'-':>24s}"
    scale, digits = (100, 1) if metric.is_rate else (1, 3)
    value, low, high = (getattr(interval, name) * scale for name in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]".rjust(24)


def say_row(row: dict[str, Any]) -> None:
    if row["step"] % 5 == 0 or row["step"] == row["steps"]:
        shown = {key: round(row[key], 3) for key in SHOWN if key in row}
        say(f"{row['phase']} {row['step']}/{row['steps']} {shown}")


SHOWN = (
    "loss/sft",
    "objective/reward",
    "objective/kl",
    "syntax_rate",
    "all_tests_rate",
    "truncated_rate",
    "seconds",
)


def say(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def main() -> None:
    """Parse the command line, train, evaluate, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds: 42, 43, ...")
    parser.add_argument("--samples", type=int, default=2, help="programs for each evaluation problem")
    parser.add_argument("--runs", type=Path, default=Path("runs/benchmark"), help="folder of the runs")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--quick", action="store_true", help="one seed, 2 updates a phase, 40 problems")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()

    seeds = [42] if arguments.quick else list(range(42, 42 + arguments.seeds))
    settings = BenchSettings(samples=arguments.samples, limit=40 if arguments.quick else None)
    folder = arguments.runs / "quick" if arguments.quick else arguments.runs
    evaluations: dict[str, list[Evaluation]] = {stage: [] for stage in STAGES}
    seconds = []
    started = time.monotonic()
    with Scorer() as scorer:
        for seed in seeds:
            run, spent = run_seed(seed, folder, arguments.overrides, 2 if arguments.quick else None)
            seconds.append(spent)
            for stage, evaluation in evaluate_run(run, scorer, settings).items():
                evaluations[stage].append(evaluation)
    print_table(evaluations, sys.stdout.write)
    families = rates_by_families(evaluations)
    for group, rates in families.items():
        shown = "  ".join(f"{stage} {100 * rates[stage]:.1f} %" for stage in STAGES)
        sys.stdout.write(f"All-P on {group} ({rates['problems']} problems): {shown}\n")
    all_tests = next(metric for metric in METRICS if metric.name == "all_tests_rate")
    gain = difference(evaluations["sft"], evaluations["policy"], all_tests)
    result = {
        "seeds": seeds,
        "problems": len(bench_problems(settings)),
        "samples": arguments.samples,
        "all_tests_gain": record_of(gain),
        "metrics": {
            stage: {metric.name: record_of(pooled(evaluations[stage], metric)) for metric in METRICS}
            for stage in STAGES
        },
        "differences": {
            metric.name: record_of(difference(evaluations["sft"], evaluations["policy"], metric)) for metric in METRICS
        },
        "all_tests_by_seed": {
            stage: [round(evaluation.summary().metrics["all_tests_rate"].value, 4) for evaluation in evaluations[stage]]
            for stage in STAGES
        },
        "all_tests_by_families": families,
        "train_seconds_by_seed": seconds,
        "wall_seconds": round(time.monotonic() - started, 1),
        "settings": to_table(resolve("starter", tuple(arguments.overrides), {})),
    }
    publish(result, arguments.json)


if __name__ == "__main__":
    main()
