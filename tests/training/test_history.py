"""What a phase remembers of its problems: the lengths of hints, the weights of the curriculum, ReLIFT's list."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import asdict
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.training.settings import ReferenceSettings
from securecoderl_edge.training.update.history import (
    NO_HISTORY,
    Group,
    History,
    Shown,
    history_from_record,
    longest_hint,
    next_hint,
)
from securecoderl_edge.training.update.learner import draw_problems

HINTS = ReferenceSettings(hints=0.7, hint_step=0.2, hint_target=0.5, hint_anneal=0.5)
RELIFT = ReferenceSettings(relift_batch_size=2)
FOUR = [Problem(f"p{n}", "Add.") for n in range(4)]


def slow_hint(passed: list[float], tops: list[float]) -> list[float]:
    """The hints that one problem gets, written as the page says it."""
    asked, given = 0.0, []
    for share, top in zip(passed, tops, strict=True):
        used = top if asked > top else asked
        given.append(used)
        if share == 0:
            asked = used + HINTS.hint_step
            asked = HINTS.hints if asked > HINTS.hints else asked
        elif share > HINTS.hint_target:
            asked = used - HINTS.hint_step
            asked = 0.0 if asked < 0 else asked
        else:
            asked = used
    return given


def test_hints_are_those_of_a_slow_reference() -> None:
    numbers = random.Random(1)
    for _ in range(200):
        passed = [numbers.choice([0.0, 0.0, 0.125, 0.5, 0.625, 1.0]) for _ in range(12)]
        tops = [longest_hint(HINTS, step, 12) for step in range(1, 13)]
        history, given = NO_HISTORY, []
        for share, top in zip(passed, tops, strict=True):
            given.append(min(history.of("p").hint, top))
            history = history.after([Group("p", share, given[-1] > 0)], HINTS, top)
        assert given == pytest.approx(slow_hint(passed, tops), abs=1e-12)


def test_a_hint_grows_to_its_bound_and_shrinks_to_nothing() -> None:
    used, seen = 0.0, []
    for passed in (0.0,) * 5 + (1.0,) * 5:
        used = next_hint(used, passed, HINTS)
        seen.append(round(used, 6))
    assert seen == [0.2, 0.4, 0.6, 0.7, 0.7, 0.5, 0.3, 0.1, 0.0, 0.0]
    assert next_hint(0.4, 0.5, HINTS) == 0.4


def test_the_longest_hint_falls_evenly_to_nothing_over_its_part_of_the_phase() -> None:
    tops = [longest_hint(HINTS, step, 10) for step in range(1, 11)]
    assert tops == pytest.approx([0.7, 0.56, 0.42, 0.28, 0.14, 0, 0, 0, 0, 0])


def test_the_pass_rate_is_that_without_hints() -> None:
    history = NO_HISTORY.after([Group("p", 0.0)], HINTS, 0.7)
    hinted = history.after([Group("p", 1.0, hinted=True)], HINTS, 0.7)
    assert hinted.of("p").pass_rate == history.of("p").pass_rate == 0
    assert hinted.after([Group("p", 0.5)], HINTS, 0.7).of("p").pass_rate == 0.25


def test_a_problem_whose_next_hint_is_another_one_counts_as_unseen() -> None:
    failed = NO_HISTORY.after([Group("p", 0.0)], HINTS, 0.7)
    assert failed.of("p").weight == 1
    half = failed.after([Group("p", 0.5, hinted=True)], HINTS, 0.7)
    assert (half.of("p").expected, half.of("p").hint) == (0.5, 0.2)
    hopeless = NO_HISTORY.after([Group("p", 0.0)], HINTS, 0.0)
    assert (hopeless.of("p").expected, hopeless.of("p").hint) == (0.0, 0.0)
    bare = NO_HISTORY.after([Group("p", 0.0, has_reference=False)], HINTS, 0.7)
    assert (bare.of("p").expected, bare.of("p").hint) == (0.0, 0.0)


def test_problems_that_are_half_solved_or_unseen_weigh_most_and_none_weighs_nothing() -> None:
    weights = {rate: Shown(rate, rate).weight for rate in (0.0, 0.25, 0.5, 0.75, 1.0)}
    assert weights == pytest.approx({0.0: 0.1, 0.25: 0.775, 0.5: 1.0, 0.75: 0.775, 1.0: 0.1})
    assert Shown().weight == 1
    assert Shown(0.0, 0.5, hint=0.2).weight == 1, "with its hint it is half solved"


def test_problems_are_drawn_as_often_as_one_after_the_other_in_proportion_to_their_weights() -> None:
    weights = [1.0, 0.1, 0.5, 0.4]
    fast, slow, numbers = Counter[Any](), Counter[Any](), random.Random(2)
    for seed in range(6000):
        fast[tuple(int(each.id[1:]) for each in draw_problems(FOUR, weights, 2, seed))] += 1
        first = numbers.choices(range(4), weights)[0]
        left = [place for place in range(4) if place != first]
        slow[first, numbers.choices(left, [weights[place] for place in left])[0]] += 1
    assert len(fast) == 12
    for pair, count in slow.items():
        assert fast[pair] == pytest.approx(count, abs=5 * (2 * count) ** 0.5)


def test_more_problems_begin_with_those_that_fewer_have_and_none_comes_twice_before_all() -> None:
    drawn = draw_problems(FOUR, [1.0, 0.1, 0.5, 0.4], 10, 3)
    assert draw_problems(FOUR, [1.0, 0.1, 0.5, 0.4], 3, 3) == drawn[:3]
    assert Counter(each.id for each in drawn[:8]) == {each.id: 2 for each in FOUR}


def test_a_problem_that_comes_twice_in_an_update_moves_its_hint_once() -> None:
    once = NO_HISTORY.after([Group("p", 0.0)], HINTS, 0.7)
    twice = NO_HISTORY.after([Group("p", 0.0), Group("q", 1.0), Group("p", 0.0)], HINTS, 0.7)
    assert twice.of("p") == once.of("p")
    # Both groups had the same hint, so neither is judged by what the other has changed.
    mixed = once.after([Group("p", 0.0, hinted=True), Group("p", 1.0, hinted=True)], HINTS, 0.7)
    assert mixed == once.after([Group("p", 0.5, hinted=True)], HINTS, 0.7)
    assert NO_HISTORY.after([Group("p", 0.0), Group("p", 0.5)], RELIFT, 0.0).failed == ()


def test_a_failed_problem_waits_once_if_it_has_a_reference() -> None:
    groups = [Group("a", 0.0), Group("b", 0.125), Group("c", 0.0, has_reference=False), Group("d", 0.0, hinted=True)]
    history = NO_HISTORY.after(groups, RELIFT, 0.0).after([Group("a", 0.0)], RELIFT, 0.0)
    assert history.failed == ("a", "d")
    assert NO_HISTORY.after(groups, HINTS, 0.7).failed == ()


def test_a_history_is_read_as_it_was_written() -> None:
    history = History({"p": Shown(0.1 + 0.2, None, 1 / 3), "q": Shown(None, 1.0, 0.0)}, ("q",), 2, 345)
    assert history_from_record(json.loads(json.dumps(asdict(history)))) == history


@pytest.mark.parametrize(
    "lie",
    [
        {"problems": [1]},
        {"problems": {"p": {"pass_rate": 0.5, "expected": None}}},
        {"problems": {"p": {"pass_rate": 7.0, "expected": None, "hint": 0.0}}},
        {"problems": {"p": {"pass_rate": None, "expected": None, "hint": None}}},
        {"problems": {"p": {"pass_rate": None, "expected": "all", "hint": 0.0}}},
        {"failed": "p"},
        {"failed": [1]},
        {"relift_steps": -1},
        {"relift_tokens": 0.5},
    ],
)
def test_a_damaged_history_is_refused(lie: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        history_from_record({**asdict(NO_HISTORY), **lie})
