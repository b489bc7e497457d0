"""What a phase remembers of its problems: the lengths of hints, ReLIFT's list."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from securecoderl_edge.training.settings import ReferenceSettings
from securecoderl_edge.training.update.history import (
    HINT_STEP,
    HINT_TARGET,
    NO_HISTORY,
    Group,
    History,
    history_from_record,
    longest_hint,
    next_hint,
)

HINTS = ReferenceSettings(hints=0.7)
RELIFT = ReferenceSettings(relift_batch_size=2)


def slow_hints(updates: list[list[tuple[str, float]]], tops: list[float]) -> list[list[float]]:
    """The hints that the problems of each update get, written as the page says it."""
    asked: dict[str, float] = {}
    unseen, given = 0.0, []
    for groups, top in zip(updates, tops, strict=True):
        here, total = [], 0.0
        for problem, _ in groups:
            wish = asked.get(problem, unseen)
            here.append(top if wish > top else wish)
        for (problem, share), used in zip(groups, here, strict=True):
            wish = used
            if share == 0:
                wish = used + HINT_STEP
                wish = HINTS.hints if wish > HINTS.hints else wish
            elif share > HINT_TARGET:
                wish = used - HINT_STEP
                wish = 0.0 if wish < 0 else wish
            asked[problem] = top if wish > top else wish
            total += asked[problem]
        unseen = total / len(groups)
        given.append(here)
    return given


def test_hints_are_those_of_a_slow_reference() -> None:
    numbers = random.Random(1)
    for _ in range(200):
        shares = [0.0, 0.0, 0.125, 0.5, 0.625, 1.0]
        updates = [[(name, numbers.choice(shares)) for name in numbers.sample("pqrstuvwxyz", 3)] for _ in range(12)]
        tops = [longest_hint(HINTS, step, 12) for step in range(1, 13)]
        history, given = NO_HISTORY, []
        for groups, top in zip(updates, tops, strict=True):
            given.append([min(history.hint_of(problem), top) for problem, _ in groups])
            history = history.after([Group(*each) for each in groups], HINTS, top)
        slow = slow_hints(updates, tops)
        assert [hint for each in given for hint in each] == pytest.approx([hint for each in slow for hint in each])


def test_a_new_problem_begins_with_the_mean_hint_of_the_last_update() -> None:
    history = NO_HISTORY.after([Group("p", 0.0), Group("q", 1.0), Group("bare", 0.0, has_reference=False)], HINTS, 0.7)
    assert [history.hint_of(name) for name in ("p", "q", "new")] == [HINT_STEP, 0.0, HINT_STEP / 2]
    assert history.after([Group("bare", 0.0, has_reference=False)], HINTS, 0.7) == history


def test_a_hint_grows_to_its_bound_and_shrinks_to_nothing() -> None:
    used, seen = 0.0, []
    for passed in (0.0,) * 5 + (1.0,) * 5:
        used = next_hint(used, passed, HINTS)
        seen.append(round(used, 6))
    assert seen == [0.25, 0.5, 0.7, 0.7, 0.7, 0.45, 0.2, 0.0, 0.0, 0.0]
    assert next_hint(0.4, 0.5, HINTS) == 0.4


def test_the_longest_hint_falls_evenly_to_nothing_over_its_part_of_the_phase() -> None:
    tops = [longest_hint(HINTS, step, 10) for step in range(1, 11)]
    assert tops == pytest.approx([0.7, 0.6125, 0.525, 0.4375, 0.35, 0.2625, 0.175, 0.0875, 0, 0])


def test_a_problem_without_a_reference_gets_no_hint() -> None:
    bare = NO_HISTORY.after([Group("p", 0.0, has_reference=False)], HINTS, 0.7)
    assert bare == NO_HISTORY


def test_a_problem_that_comes_twice_in_an_update_moves_its_hint_once() -> None:
    once = NO_HISTORY.after([Group("p", 0.0)], HINTS, 0.7)
    twice = NO_HISTORY.after([Group("p", 0.0), Group("q", 1.0), Group("p", 0.0)], HINTS, 0.7)
    assert (twice.hints, twice.level) == ({**once.hints, "q": 0.0}, HINT_STEP / 2)
    # Both groups had the same hint, so neither is judged by what the other has changed.
    mixed = once.after([Group("p", 0.0), Group("p", 1.0)], HINTS, 0.7)
    assert mixed == once.after([Group("p", 0.5)], HINTS, 0.7)
    assert NO_HISTORY.after([Group("p", 0.0), Group("p", 0.5)], RELIFT, 0.0).failed == ()


def test_a_failed_problem_waits_once_if_it_has_a_reference() -> None:
    groups = [Group("a", 0.0), Group("b", 0.125), Group("c", 0.0, has_reference=False), Group("d", 0.0)]
    history = NO_HISTORY.after(groups, RELIFT, 0.0).after([Group("a", 0.0)], RELIFT, 0.0)
    assert history.failed == ("a", "d")
    assert NO_HISTORY.after(groups, HINTS, 0.7).failed == ()


def test_a_history_is_read_as_it_was_written() -> None:
    history = History({"p": 0.1 + 0.2, "q": 0.0}, 1 / 3, ("q",), 2, 345)
    assert history_from_record(json.loads(json.dumps(asdict(history)))) == history


@pytest.mark.parametrize(
    "lie",
    [
        {"hints": [1]},
        {"hints": {"p": 7.0}},
        {"hints": {"p": None}},
        {"hints": {"p": "all"}},
        {"level": None},
        {"level": 2.0},
        {"failed": "p"},
        {"failed": [1]},
        {"relift_steps": -1},
        {"relift_tokens": 0.5},
    ],
)
def test_a_damaged_history_is_refused(lie: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        history_from_record({**asdict(NO_HISTORY), **lie})
