"""Gain of eight samples and a few tests: pass rate of one sample, and of the best of eight.

    python benchmarks/best_of.py --model nano --json benchmarks/results/best-of.json
    python benchmarks/best_of.py --model nano --policy runs/starter

Problems of ``starter:eval``, eight samples each. ``sce generate -n 8`` chooses by the tests that it is given; what it
has chosen is judged on all of a problem's tests. Given all of them, the best of eight solves what any sample solves.
Given one, or those that the statement shows, it may choose a program that fails the others. Given none, it chooses by
parsing, Bandit and log-probability.

With a policy: does training give more than sampling more? One answer of the policy is compared with the best of eight
of the base model by the shown tests. An answer of the policy needs fewer tokens, but training has sampled some before:
``break_even_problems`` is how many problems later both have sampled as many.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import publish

from securecoderl_edge.evaluation.bench import BenchSettings, bench_problems
from securecoderl_edge.evaluation.evaluate import EvaluationPlan, evaluate
from securecoderl_edge.problems.leakage import is_visible
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.styles import choose_format
from securecoderl_edge.runs import Run
from securecoderl_edge.runtimes.opening import open_runtime
from securecoderl_edge.runtimes.spec import resolve_model
from securecoderl_edge.scoring.intervals import Interval, paired_difference, rate_interval
from securecoderl_edge.scoring.metrics import by_problem, passes_all_tests
from securecoderl_edge.scoring.scorer import Scorer

SAMPLES = 8
Row = Mapping[str, Any]
# The tests of a problem, by their numbers, that decide between its samples.
GIVEN: dict[str, Callable[[Problem], Sequence[int]]] = {
    "all_tests": lambda problem: range(problem.test_count),
    "shown_tests": lambda problem: shown_tests(problem),
    "one_test": lambda problem: range(1),
    "no_test": lambda problem: (),
}


def shown_tests(problem: Problem) -> list[int]:
    """The numbers of the tests that the statement shows."""
    tests: Sequence[Test | str] = problem.tests if problem.kind == "stdin" else problem.assertions
    return [number for number, test in enumerate(tests) if is_visible(problem, test)]


def chosen(rows: Sequence[Row], given: Sequence[int]) -> Row:
    """The one that `sce generate` shows: accepted first, then by reward, then by how sure the model was."""

    def rank(row: Row) -> tuple[bool, float, float, float]:
        # A program that does not parse has no verdicts.
        passed = sum(list(row["verdicts"][number : number + 1]) == ["pass"] for number in given)
        is_program = row["stage"] > 0 and bool(row["program"].strip())
        is_accepted = is_program and row["severity"] == 0 and passed == len(given)
        return (
            is_accepted,
            passed / max(1, len(given)),
            float(is_program) - row["severity"],
            row["mean_logprob"],
        )

    return max(rows, key=rank)


@dataclass(frozen=True)
class Measured:
    """One model: whether each sample of each problem passes all tests, and the chosen one; and what it cost.

    Attributes:
        best: by the names of `GIVEN`. cost: by samples per problem.
    """

    one: list[list[float]]
    best: dict[str, list[list[float]]]
    cost: dict[int, dict[str, float]]

    def record(self) -> dict[str, Any]:
        """For the result file."""
        made: dict[str, Any] = {"pass_at_1": as_record(_rate(self.one))}
        for name, best in self.best.items():
            made[f"best_of_{SAMPLES}_{name}"] = as_record(_rate(best))
            made[f"gain_{name}"] = as_record(paired_difference(self.one, best))
        return {**made, "cost": self.cost}


def measure(model: str, problems: Sequence[Problem], settings: BenchSettings, scorer: Scorer) -> Measured:
    """Sample, score and choose."""
    spec, cost, rows = resolve_model(model), {}, list[Row]()
    with contextlib.closing(open_runtime(spec)) as runtime:
        style = choose_format("auto", spec.prompt_style or runtime.prompt_style, runtime.chat_template)
        for samples in (1, SAMPLES):
            plan = EvaluationPlan(samples, settings.sampling(), style)
            before, started = runtime.usage(), time.monotonic()
            rows = list(evaluate(runtime, problems, scorer, plan).rows)
            spent = runtime.usage().decode_tokens - before.decode_tokens
            cost[samples] = {"seconds": round(time.monotonic() - started, 1), "tokens": spent}
    groups = by_problem(rows)
    best = {
        name: [[float(passes_all_tests(chosen(groups[problem.id], given(problem))))] for problem in problems]
        for name, given in GIVEN.items()
    }
    one = [[float(passes_all_tests(row)) for row in groups[problem.id]] for problem in problems]
    return Measured(one, best, cost)


def against_policy(base: Measured, policy: Measured, run: Run | None) -> dict[str, Any]:
    """One answer of the policy against the best of several of the base, and the tokens of both."""
    by_shown, count = base.best["shown_tests"], len(base.one)
    per_problem = {"base": base.cost[SAMPLES]["tokens"] / count, "policy": policy.cost[1]["tokens"] / count}
    made: dict[str, Any] = {
        "policy": policy.record(),
        "policy_one_minus_base_best": as_record(paired_difference(by_shown, policy.one)),
        "policy_best_minus_base_best": as_record(paired_difference(by_shown, policy.best["shown_tests"])),
        "tokens_per_problem": {name: round(tokens, 1) for name, tokens in per_problem.items()},
    }
    if run is not None and (outcomes := run.outcomes()) and all("tokens_sampled" in each for _, each in outcomes):
        made["tokens_sampled_in_training"] = sampled = sum(each["tokens_sampled"] for _, each in outcomes)
        if (saved := per_problem["base"] - per_problem["policy"]) > 0:
            made["break_even_problems"] = round(sampled / saved)
    return made


def _rate(groups: list[list[float]]) -> Interval:
    return rate_interval([[bool(each) for each in group] for group in groups])


def as_record(interval: Interval) -> dict[str, float]:
    """Rounded, for the result file."""
    return {name: round(getattr(interval, name), 4) for name in ("value", "low", "high")}


def main() -> None:
    """Sample, score, choose, publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="nano", help="as for sce bench")
    parser.add_argument("--policy", help="a run that was trained from the model, to compare with it")
    parser.add_argument("--problems", default="starter:eval", help="as for sce bench")
    parser.add_argument("--limit", type=int, help="only the first N problems")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    settings = BenchSettings(problems=arguments.problems, limit=arguments.limit)
    problems = bench_problems(settings)
    with Scorer() as scorer:
        base = measure(arguments.model, problems, settings, scorer)
        measured = {**base.record(), "problems": len(problems), "model": resolve_model(arguments.model).label}
        measured["problems_that_show_tests"] = sum(bool(shown_tests(problem)) for problem in problems)
        if arguments.policy is not None:
            policy = measure(arguments.policy, problems, settings, scorer)
            measured |= against_policy(base, policy, resolve_model(arguments.policy).run())
    publish(measured, arguments.json)


if __name__ == "__main__":
    main()
