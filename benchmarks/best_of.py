"""Gain of eight samples and a few tests: pass rate of one sample, and of the best of eight.

    python benchmarks/best_of.py --model nano --json benchmarks/results/best-of.json

Problems of ``starter:eval``, eight samples each. ``sce generate -n 8`` chooses by the tests that it is given; what it
has chosen is judged on all of a problem's tests. Given all of them, the best of eight solves what any sample solves.
Given one, it may choose a program that fails the others. Given none, it chooses by parsing, Bandit and log-probability.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from record import publish

from securecoderl_edge.evaluation.bench import BenchSettings, bench_problems
from securecoderl_edge.evaluation.evaluate import EvaluationPlan, evaluate
from securecoderl_edge.problems.groups import groups_by_id
from securecoderl_edge.prompts.styles import choose_format
from securecoderl_edge.runtimes.opening import open_runtime
from securecoderl_edge.runtimes.spec import resolve_model
from securecoderl_edge.scoring.cluster_intervals import difference_over_seeds, merged, rate_over_groups
from securecoderl_edge.scoring.intervals import Interval
from securecoderl_edge.scoring.metrics import by_problem, passes_all_tests
from securecoderl_edge.scoring.scorer import Scorer

SAMPLES = 8
GIVEN = {"all_tests": None, "one_test": 1, "no_test": 0}

Row = Mapping[str, Any]


def chosen(rows: Sequence[Row], given: int | None) -> Row:
    """The one that `sce generate` shows: accepted first, then by reward, then by how sure the model was."""

    def rank(row: Row) -> tuple[bool, float, float, float]:
        verdicts = row["verdicts"][:given] if given is not None else row["verdicts"]
        passed = sum(verdict == "pass" for verdict in verdicts)
        is_program = row["stage"] > 0 and bool(row["program"].strip())
        is_accepted = is_program and row["severity"] == 0 and passed == len(verdicts)
        return (
            is_accepted,
            passed / max(1, len(verdicts)),
            float(is_program) - row["severity"],
            row["mean_logprob"],
        )

    return max(rows, key=rank)


def as_record(interval: Interval) -> dict[str, float]:
    """Rounded, for the result file; intervals are over groups of variants."""
    return {name: round(getattr(interval, name), 4) for name in ("value", "low", "high")}


def main() -> None:
    """Sample, score, choose, publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="nano", help="as for sce bench")
    parser.add_argument("--problems", default="starter:eval", help="as for sce bench")
    parser.add_argument("--limit", type=int, help="only the first N problems")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    settings = BenchSettings(problems=arguments.problems, limit=arguments.limit)
    problems, spec, seconds = bench_problems(settings), resolve_model(arguments.model), {}
    rows: list[Row] = []
    with Scorer() as scorer, contextlib.closing(open_runtime(spec)) as runtime:
        style = choose_format("auto", spec.prompt_style or runtime.prompt_style, runtime.chat_template)
        for samples in (1, SAMPLES):
            plan = EvaluationPlan(samples, settings.sampling(), style)
            before, started = runtime.usage(), time.monotonic()
            rows = list(evaluate(runtime, problems, scorer, plan).rows)
            spent = runtime.usage().decode_tokens - before.decode_tokens
            seconds[samples] = {"seconds": round(time.monotonic() - started, 1), "tokens": spent}
    of_problems, known = by_problem(rows), groups_by_id(problems)
    labels = [known[problem] for problem in of_problems]
    one = [[passes_all_tests(row) for row in samples] for samples in of_problems.values()]
    measured: dict[str, Any] = {"pass_at_1": as_record(rate_over_groups(one, labels))}
    for name, given in GIVEN.items():
        best = [[passes_all_tests(chosen(samples, given))] for samples in of_problems.values()]
        measured[f"best_of_8_{name}"] = as_record(rate_over_groups(best, labels))
        sides = ([merged([list(map(float, each)) for each in side], labels)] for side in (one, best))
        measured[f"gain_{name}"] = as_record(difference_over_seeds(*sides))
    counts = {"problems": len(labels), "groups": len(set(labels))}
    publish({**measured, "cost": seconds, **counts, "model": spec.label}, arguments.json)


if __name__ == "__main__":
    main()
