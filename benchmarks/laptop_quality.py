"""How good are models that fit a laptop, and what does choosing by execution add? The plan is in `laptop.md`.

    sce data import HumanEvalPlus.jsonl.gz --out humaneval-plus.jsonl
    sce bench MODEL --problems humaneval-plus.jsonl --protocol evalplus --temperature 0 --out greedy
    sce bench MODEL --problems humaneval-plus.jsonl --protocol evalplus --temperature 0.8 --samples 8 --out eight
    python benchmarks/laptop_quality.py choose MODEL --problems humaneval-plus.jsonl --greedy greedy --eight eight \\
        --json FILE
    python benchmarks/laptop_quality.py compare BASE POLICY --problems humaneval-plus.jsonl mbpp-plus.jsonl \\
        --greedy greedy --eight eight --json FILE

``choose`` takes one of the eight programs as `sce generate` does, by what it is given: no test, the examples in the
prompt, or all tests of the benchmark, and judges it on the tests. The model writes inputs for the comparison of
programs, so it is loaded. ``compare`` is base against policy, from their eight answers; its files of problems are one
family of comparisons. Greedy answers, of the files that have them, were not planned, and are not in it. Intervals and
tests are over groups of near-duplicates.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from record import publish

from securecoderl_edge.generation.answering import Answerer
from securecoderl_edge.generation.answers import Answer, check
from securecoderl_edge.generation.inputs import prompt_problem
from securecoderl_edge.problems.groups import group_labels
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.runtimes.opening import RuntimeSettings, opened
from securecoderl_edge.runtimes.protocol import Completion, Sampling
from securecoderl_edge.runtimes.spec import resolve_model
from securecoderl_edge.scoring.cluster_intervals import difference_over_seeds, merged
from securecoderl_edge.scoring.intervals import exchange_test, holm, paired_difference, pass_at_k, rate_interval
from securecoderl_edge.scoring.metrics import Row, by_problem, passes_all_tests, passes_base_tests
from securecoderl_edge.scoring.scorer import Scorer

SAMPLES, SEED = 8, 42
JUDGES: dict[str, Callable[[Row], Any]] = {"base": passes_base_tests, "plus": passes_all_tests}
GROUP = 16  # problems whose inputs are written together

Rows = Mapping[str, Sequence[Row]]


def rows_in(folder: Path, model: str) -> dict[str, list[Row]]:
    """The rows of a model in a folder of `sce bench --out`, by problem."""
    files = folder.glob(f"{model}-{'?' * 10}/rows.jsonl")  # a name may begin as another one does
    return by_problem([json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()])


def without_tests(problem: Problem) -> Problem:
    """What is known of a problem without any test: the prompt, and the function that it asks for."""
    return replace(problem, assertions=(), solutions=())


def with_examples(problem: Problem) -> Problem:
    """The problem with the examples in its prompt as tests, as `sce generate` finds them."""
    text = problem.starter_code or problem.statement
    found = prompt_problem(text)
    assertions = found.assertions if found.entry_point == problem.entry_point else ()
    return replace(without_tests(problem), assertions=assertions)


GIVEN: dict[str, Callable[[Problem], Problem]] = {
    "no_test": without_tests, "examples": with_examples, "all_tests": lambda problem: problem
}  # fmt: skip


def chosen(answers: Sequence[Answer], eight: Rows) -> list[Row]:
    """The rows of the best candidates."""
    return [eight[answer.problem.id][int(answer.best.completion.prompt_tokens)] for answer in answers]


def candidates(rows: Sequence[Row]) -> list[tuple[Completion, str]]:
    """The programs of a problem with what ranks them. The place of a row stands for its prompt tokens."""
    return [
        (Completion(row["completion"], (), (row["mean_logprob"],), row["finish"], place, ()), row["program"])
        for place, row in enumerate(rows)
    ]


def judged(rows: Sequence[Row]) -> dict[str, list[list[float]]]:
    """The outcomes of one row for each problem, on the benchmark's own tests and on all."""
    return {name: [[float(bool(judge(row)))] for row in rows] for name, judge in JUDGES.items()}


def choose(model: str, problems: Sequence[Problem], greedy: Rows, eight: Rows) -> dict[str, Any]:
    """The choice of one program by what is given, minus the greedy answer."""
    first = judged([greedy[problem.id][0] for problem in problems])
    found: dict[str, Any] = {"greedy": _rates(first)}
    differences, p_values = {}, {}
    runtime_settings = RuntimeSettings(device="cpu")
    with Scorer() as scorer, opened(resolve_model(model), runtime_settings) as (runtime, format):
        answerer = Answerer(runtime, scorer, SAMPLES, Sampling(seed=SEED), format)
        for name, given in GIVEN.items():
            asked = [given(problem) for problem in problems]
            answers: list[Answer] = []
            for start in range(0, len(asked), GROUP):
                group = asked[start : start + GROUP]
                programs = [candidates(eight[problem.id]) for problem in group]
                answers += answerer.compare(check(scorer, group, programs))
            best = judged(chosen(answers, eight))
            found[name] = {
                **_rates(best),
                "tested": sum(problem.test_count > 0 for problem in asked),
                "compared": sum(answer.inputs > 0 for answer in answers),
                "input_tokens": sum(answer.input_tokens for answer in answers),
            }
            for judge in JUDGES:
                found[name][f"minus_greedy_{judge}"] = asdict(paired_difference(first[judge], best[judge]))
            differences[name] = (first["base"], best["base"])
    planned = ["examples", "no_test"]
    for name, adjusted in zip(planned, holm([exchange_test(*differences[each]) for each in planned]), strict=True):
        p_values[name] = adjusted
    mean = {
        name: [[float(bool(judge(row))) for row in eight[each.id]] for each in problems]
        for name, judge in JUDGES.items()
    }
    return {**found, "one_of_eight": _rates(mean), "p_holm": p_values, "problems": len(problems), "model": model}


def compare(base: Rows, policy: Rows, sets: Mapping[str, Sequence[Problem]], greedy: Sequence[Rows]) -> dict[str, Any]:
    """Pass@1 and pass@8 of a policy minus those of its base on each set, paired by problem, corrected together.

    Args:
        greedy: the rows of both, perhaps of fewer sets.
    """
    found: dict[str, Any] = {}
    planned = []
    for name, problems in sets.items():
        groups = group_labels(problems)
        found[name] = {"problems": len(problems), "groups": len(set(groups)), "tokens": _tokens(base, policy, problems)}
        for tests, judge in JUDGES.items():
            for k in (1, SAMPLES):
                found[name][f"{tests}_pass_at_{k}"] = one = _compared((base, policy), problems, groups, judge, k)
                planned.append(one)
            if greedy and all(each.id in rows for rows in greedy for each in problems):
                found[name][f"{tests}_greedy"] = _compared(greedy, problems, groups, judge, 1)
    for one, adjusted in zip(planned, holm([each["p"] for each in planned]), strict=True):
        one["p_holm"] = adjusted
    return found


def _compared(
    sides: Sequence[Rows], problems: Sequence[Problem], groups: Sequence[str], judge: Callable[[Row], Any], k: int
) -> dict[str, Any]:
    of_problems = [[[_pass_at(rows[each.id], judge, k)] for each in problems] for rows in sides]
    before, after = (merged(side, groups) for side in of_problems)
    rates = [sum(each[0] for each in side) / len(problems) for side in of_problems]
    return {
        "base": rates[0],
        "policy": rates[1],
        "difference": asdict(difference_over_seeds([before], [after])),
        "p": exchange_test(before, after),
    }


def _tokens(base: Rows, policy: Rows, problems: Sequence[Problem]) -> dict[str, float]:
    """The mean length of an answer."""
    return {
        name: round(fmean(row["completion_tokens"] for each in problems for row in rows[each.id]), 1)
        for name, rows in (("base", base), ("policy", policy))
    }


def _pass_at(rows: Sequence[Row], judge: Callable[[Row], Any], k: int) -> float:
    return pass_at_k(len(rows), sum(bool(judge(row)) for row in rows), k)


def _rates(outcomes: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, Any]:
    return {
        name: asdict(rate_interval([[bool(each) for each in samples] for samples in groups]))
        for name, groups in outcomes.items()
    }


def main() -> None:
    """Read rows, choose or compare, publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("choose", "compare"))
    parser.add_argument("models", nargs="+", help="the model; to compare, base and policy")
    parser.add_argument("--problems", nargs="+", required=True, help="files of problems")
    parser.add_argument("--greedy", type=Path, help="folder of the greedy answers")
    parser.add_argument("--eight", type=Path, required=True, help="folder of eight answers per problem")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    eight = [rows_in(arguments.eight, model) for model in arguments.models]
    sets = {
        Path(file).stem: [
            each for each in load_problems(file) if all(len(rows.get(each.id, ())) == SAMPLES for rows in eight)
        ]
        for file in arguments.problems
    }
    if arguments.what == "choose":
        (model,), (problems,) = arguments.models, sets.values()
        result = choose(model, problems, rows_in(arguments.greedy, model), eight[0])
    else:
        base, policy = eight
        greedy = [rows_in(arguments.greedy, model) for model in arguments.models] if arguments.greedy else []
        result = {**compare(base, policy, sets, greedy), "models": arguments.models}
    publish(result, arguments.json)


if __name__ == "__main__":
    main()
