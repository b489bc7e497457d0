"""Which update of a phase is kept."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.selection import (
    HeldOutResult,
    choose,
    hold_out,
    result_from_record,
)
from securecoderl_edge.training.settings import SelectionSettings

# Without near-duplicates.
PROBLEMS = [
    Problem(f"p{n}", f"{'abcdefghij'[n // 10]}{'klmnopqrst'[n % 10]}", tests=(Test("1", "2"),)) for n in range(100)
]
BY_REWARD = SelectionSettings(samples=1, metric="reward")


def held(count: int, hold_out: str = "groups") -> SelectionSettings:
    return SelectionSettings(problems=count, hold_out=hold_out)


def in_groups(*sizes: int) -> list[Problem]:
    """Problems of groups of these sizes."""
    return [
        Problem(f"g{group}-{n}", f"{'abcdefghijklmnopqrstuvwxyz'[group] * 9}{n}", group=f"g{group}")
        for group, size in enumerate(sizes)
        for n in range(size)
    ]


def evaluation(step: int, *rewards: float) -> HeldOutResult:
    return HeldOutResult(step, rewards, tuple(reward == 1 for reward in rewards), 0.9)


def chosen(evaluations: list[HeldOutResult], selection: SelectionSettings = BY_REWARD) -> tuple[HeldOutResult, str]:
    return choose(evaluations, selection, PROBLEMS[: len(evaluations[0].rewards) // selection.samples])


@pytest.mark.parametrize("way", ["groups", "problems"])
def test_held_out_problems_are_never_trained_on(way: str) -> None:
    trained, evaluated = hold_out(PROBLEMS, held(8, way), 42)
    assert len(evaluated) == 8
    assert not {problem.id for problem in trained} & {problem.id for problem in evaluated}


def test_single_problems_leave_all_others_in_training() -> None:
    """The rule of the committed studies."""
    trained, evaluated = hold_out(PROBLEMS, held(8, "problems"), 42)
    assert sorted(problem.id for problem in [*trained, *evaluated]) == sorted(problem.id for problem in PROBLEMS)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=26), st.integers(0, 40), st.integers(0, 3))
def test_no_variant_of_a_held_out_problem_is_trained_on(sizes: list[int], count: int, seed: int) -> None:
    problems = in_groups(*sizes)
    trained, evaluated = hold_out(problems, held(count), seed)
    groups = {problem.group for problem in evaluated}
    assert not {problem.group for problem in trained} & groups
    assert len(evaluated) <= count
    assert len(problems) - len(trained) <= len(problems) / 10
    # Each group is evaluated once before another one is twice.
    each = [sum(problem.group == group for problem in evaluated) for group in groups]
    whole = {group: sum(problem.group == group for problem in problems) for group in groups}
    assert all(n == whole[group] or n >= max(each) - 1 for n, group in zip(each, groups, strict=True))


def test_near_duplicates_stay_together_without_a_group() -> None:
    words = [f"word{'abcdefghij'[n % 10]}{'klmnopqrst'[n // 10]}" for n in range(100)]
    base = [" ".join(words[(7 * n + step * (n + 1)) % 100] for step in range(12)) for n in range(30)]
    problems = [Problem(f"{n}-{copy}", f"{text}{' please' * copy}") for n, text in enumerate(base) for copy in range(2)]
    trained, evaluated = hold_out(problems, held(3), 1)
    assert len(evaluated) == 3
    assert not {problem.id.split("-")[0] for problem in trained} & {problem.id.split("-")[0] for problem in evaluated}


def test_families_of_built_in_problems_are_held_out_whole() -> None:
    problems = load_problems("starter:security-train")
    trained, evaluated = hold_out(problems, held(32), 42)
    assert evaluated
    assert not {problem.tags for problem in trained} & {problem.tags for problem in evaluated}


def test_a_group_that_is_more_than_a_tenth_stays_in_training() -> None:
    trained, evaluated = hold_out(in_groups(30, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), held(32), 42)
    assert sum(problem.group == "g0" for problem in trained) == 30
    assert len(evaluated) == 4
    assert hold_out(in_groups(10, 10, 10), held(32), 42)[1] == []


@pytest.mark.parametrize("way", ["groups", "problems"])
def test_the_same_seed_holds_out_the_same_problems_and_another_seed_others(way: str) -> None:
    found = [hold_out(PROBLEMS, held(8, way), seed)[1] for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("way", ["groups", "problems"])
def test_fewer_held_out_problems_are_among_the_more(way: str) -> None:
    for problems in (PROBLEMS, in_groups(3, 2, 5, 4, 3, 1, 2, 6, 4, 3, 2, 5)):
        few, more = (hold_out(problems, held(count, way), 3)[1] for count in (2, 4))
        assert {each.id for each in few} <= {each.id for each in more}


@pytest.mark.parametrize(("count", "wanted", "number"), [(100, 32, 10), (9, 32, 0), (100, 0, 0), (100, 3, 3)])
def test_at_most_a_tenth_of_the_problems_is_held_out(count: int, wanted: int, number: int) -> None:
    for way in ("groups", "problems"):
        assert len(hold_out(PROBLEMS[:count], held(wanted, way), 42)[1]) == number


def test_an_earlier_step_is_kept_only_if_it_did_better_by_more_than_chance() -> None:
    last = evaluation(20, 0.5, 0.5, 0.5, 0.5)
    clearly = evaluation(10, 0.7, 0.7, 0.7, 0.8)
    noisy = evaluation(10, 1.0, 0.0, 1.0, 0.2)
    assert chosen([evaluation(0, 0.1, 0.1, 0.1, 0.1), clearly, last])[0] is clearly
    kept, why = chosen([noisy, last])
    assert kept is last
    assert "step 10 is not significantly better" in why
    assert "the start of the phase" in chosen([evaluation(0, 0.9, 0.9, 0.9, 0.8), last])[1]


def test_the_default_wants_two_standard_errors() -> None:
    """The mean difference is 0.25, its standard error 0.144: 1.7 of them."""
    better, last = evaluation(1, 1.0, 0.5, 1.0, 0.5), evaluation(2, 0.5, 0.5, 0.5, 0.5)
    assert SelectionSettings().standard_errors == 2
    assert chosen([better, last])[0] is last
    assert chosen([better, last], replace(BY_REWARD, standard_errors=1.7))[0] is better


@given(st.integers(2, 40), st.integers(0, 39), st.floats(0.0001, 1))
def test_one_problem_that_changed_is_no_more_than_its_own_error(count: int, place: int, gain: float) -> None:
    """Its mean difference and the standard error of that are the same number, but for rounding."""
    last = [0.0] * count
    better = [*last]
    better[place % count] = gain
    kept, why = chosen([evaluation(0, *better), evaluation(1, *last)], replace(BY_REWARD, standard_errors=1.0))
    assert kept.step == 1
    assert f"{gain / count:.2g} more than at the last step" in why


def test_a_policy_that_did_not_change_is_seldom_rejected_for_an_earlier_one() -> None:
    """24 problems with two samples each, of which a tenth passes, and four earlier evaluations: the best is luck."""
    rng, rejected = random.Random(0), dict.fromkeys((1.0, 2.0), 0)
    for _ in range(300):
        rates = [rng.betavariate(0.5, 4.5) for _ in range(24)]
        made = [
            evaluation(step, *(float(rng.random() < rate) for rate in rates for _ in range(2))) for step in range(5)
        ]
        for errors in rejected:
            rule = SelectionSettings(samples=2, standard_errors=errors)
            rejected[errors] += chosen(made, rule)[0].step != 4
    assert rejected[2.0] < 0.15 * 300 < 0.3 * 300 < rejected[1.0]


def test_the_metric_decides_and_passing_all_tests_is_the_default() -> None:
    """Partial credit fell, but more programs pass."""
    first = evaluation(1, *[0.9] * 12)
    last = evaluation(2, *[1.0] * 6, *[0.0] * 6)
    for metric, kept in (("reward", first), ("all_tests", last)):
        assert chosen([first, last], replace(BY_REWARD, metric=metric))[0] is kept
    assert SelectionSettings().metric == "all_tests"


def test_selection_can_be_switched_off_and_still_evaluates() -> None:
    first, last = evaluation(1, *[1.0] * 8), evaluation(2, *[0.0] * 8)
    kept, why = chosen([first, last], replace(BY_REWARD, metric="none"))
    assert kept is last
    assert "selection.metric is none" in why


def test_samples_of_a_problem_are_no_independent_evidence() -> None:
    """Four samples of one easy problem and four of a hard one are two observations, not eight."""
    first = evaluation(1, *[1.0] * 4, *[0.5] * 4)
    last = evaluation(2, *[0.0] * 4, *[0.6] * 4)
    one = replace(BY_REWARD, standard_errors=1.0)
    assert chosen([first, last], one)[0] is first
    assert chosen([first, last], replace(one, samples=4))[0] is last


def test_problems_of_a_group_are_no_independent_evidence() -> None:
    first, last = evaluation(1, *[1.0] * 4, *[0.5] * 4), evaluation(2, *[0.0] * 4, *[0.6] * 4)
    one = replace(BY_REWARD, standard_errors=1.0)
    assert choose([first, last], one, in_groups(4, 4))[0] is last
    assert choose([first, last], replace(one, hold_out="problems"), in_groups(4, 4))[0] is first


def test_one_held_out_group_does_not_tell_steps_apart() -> None:
    kept, why = choose([evaluation(1, 1.0, 1.0), evaluation(2, 0.0, 0.0)], BY_REWARD, in_groups(2))
    assert kept.step == 2
    assert "one held-out group" in why


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6))
def test_what_is_kept_is_no_worse_than_the_last_step(rewards: list[list[float]]) -> None:
    every = [evaluation(step, *values) for step, values in enumerate(rewards)]
    kept, why = chosen(every)
    assert kept in every
    assert kept.reward >= every[-1].reward
    assert why


@pytest.mark.parametrize("recipe", ["starter", "starter-c", "smollm2"])
def test_recipes_with_committed_studies_keep_the_rule_of_these(recipe: str) -> None:
    rule = resolve(recipe, (), {}).selection
    assert (rule.hold_out, rule.metric, rule.standard_errors) == ("problems", "reward", 1.0)


def test_an_evaluation_survives_its_record() -> None:
    one = replace(evaluation(3, 0.25, 1.0), groups=("a", "a"))
    record = json.loads(json.dumps(one.to_record("binary")))
    assert record["all_tests_rate"] == 0.5
    assert result_from_record(record) == one
    del record["groups"]  # as it was written before
    assert result_from_record(record) == replace(one, groups=())
    with pytest.raises(ValueError, match="without rewards"):
        result_from_record({"step": 1, "rewards": [], "solved": []})
    with pytest.raises(ValueError, match="without rewards"):
        result_from_record(one.to_record("binary") | {"rewards": [float("nan")]})
