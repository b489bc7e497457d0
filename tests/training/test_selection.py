"""Which update of a phase is kept."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.training.selection import (
    HeldOutResult,
    choose,
    hold_out,
    result_from_record,
)

PROBLEMS = [Problem(f"p{n}", "s", tests=(Test("1", "2"),)) for n in range(100)]


def evaluation(step: int, *rewards: float) -> HeldOutResult:
    return HeldOutResult(step, rewards, 0.5, 0.9)


def test_held_out_problems_are_never_trained_on_and_none_is_lost() -> None:
    trained, held = hold_out(PROBLEMS, 8, 42)
    assert len(held) == 8
    assert sorted(problem.id for problem in [*trained, *held]) == sorted(problem.id for problem in PROBLEMS)


def test_the_same_seed_holds_out_the_same_problems_and_another_seed_others() -> None:
    held = [hold_out(PROBLEMS, 8, seed)[1] for seed in (1, 1, 2)]
    assert held[0] == held[1] != held[2]


def test_fewer_held_out_problems_are_among_the_more() -> None:
    few, more = (hold_out(PROBLEMS, count, 3)[1] for count in (4, 9))
    assert set(few) < set(more)


@pytest.mark.parametrize(("count", "wanted", "held"), [(100, 32, 10), (9, 32, 0), (100, 0, 0), (100, 3, 3)])
def test_at_most_a_tenth_of_the_problems_is_held_out(count: int, wanted: int, held: int) -> None:
    assert len(hold_out(PROBLEMS[:count], wanted, 42)[1]) == held


def test_an_earlier_step_is_kept_only_if_it_did_better_by_more_than_chance() -> None:
    last = evaluation(20, 0.5, 0.5, 0.5, 0.5)
    clearly = evaluation(10, 0.7, 0.7, 0.7, 0.8)
    hardly = evaluation(10, 1.0, 0.0, 1.0, 0.2)
    assert choose([evaluation(0, 0.1, 0.1, 0.1, 0.1), clearly, last], 1)[0] is clearly
    kept, why = choose([hardly, last], 1)
    assert kept is last
    assert "step 10 is not significantly better" in why
    assert "the start of the phase" in choose([evaluation(0, 0.9, 0.9, 0.9, 0.8), last], 1)[1]


def test_samples_of_a_problem_are_no_independent_evidence() -> None:
    """Four samples of one easy problem and four of a hard one are two observations, not eight."""
    first, last = evaluation(1, *[1.0] * 4, *[0.0] * 4), evaluation(2, *[0.0] * 4, *[0.8] * 4)
    assert choose([first, last], 1)[0] is last
    first = evaluation(1, *[1.0] * 4, *[0.5] * 4)
    last = evaluation(2, *[0.0] * 4, *[0.6] * 4)
    assert choose([first, last], 1)[0] is first
    assert choose([first, last], 4)[0] is last


def test_one_held_out_problem_does_not_tell_steps_apart() -> None:
    kept, why = choose([evaluation(1, 1.0, 1.0), evaluation(2, 0.0, 0.0)], 2)
    assert kept.step == 2
    assert "one held-out problem" in why


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6))
def test_what_is_kept_is_no_worse_than_the_last_step(rewards: list[list[float]]) -> None:
    every = [evaluation(step, *values) for step, values in enumerate(rewards)]
    kept, why = choose(every, 1)
    assert kept in every
    assert kept.reward >= every[-1].reward
    assert why


def test_an_evaluation_survives_its_record() -> None:
    one = evaluation(3, 0.25, 1.0)
    assert result_from_record(one.to_record("binary")) == one
    with pytest.raises(ValueError, match="without rewards"):
        result_from_record({"step": 1, "rewards": []})
    with pytest.raises(ValueError, match="without rewards"):
        result_from_record(one.to_record("binary") | {"rewards": [float("nan")]})
