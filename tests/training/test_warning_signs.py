"""Warnings in training: what each sign is, how often it is reported, and that a resumed run repeats none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from securecoderl_edge.training import warning_signs
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.warning_signs import REPEAT, WINDOW, Watch

HEALTHY = {
    "all_tests_rate": 0.1, "scores": 64, "zero_variance_rate": 0.5, "truncated_rate": 0.1, "syntax_rate": 0.9,
    "sample_copy": 0.05, "constant_output": 0.2, "denied": 0.0, "tokens": 6400, "ignores_input": 0.01,
    "security_tests_rate": 0.2,
}  # fmt: skip


def course(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a phase, one for each change of a healthy one."""
    return [{"phase": "binary", "step": step, **HEALTHY, **each} for step, each in enumerate(changes, 1)]


def warnings(rows: Iterable[dict[str, Any]]) -> list[tuple[int, str]]:
    """The update of each warning, and its text."""
    watch = Watch()
    return [(row["step"], text) for row in rows for text in watch.after(row)]


def test_a_healthy_phase_gives_no_warning() -> None:
    assert warnings(course(*[{}] * 200)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"all_tests_rate": 0.0}, "none of 640 programs in 10 updates passed all tests. Stop with Ctrl-C"),
        ({"zero_variance_rate": 0.9}, "90% of groups had equal rewards in 10 updates"),
        ({"sample_copy": 0.3}, "30% of programs passed exactly the tests that the prompt shows, and 10% all tests"),
        ({"ignores_input": 0.03}, "3% of programs do not read their input, where the reference solutions do"),
        ({"truncated_rate": 0.6}, "60% of completions were truncated in 10 updates. Raise ppo.max_tokens"),
    ],
)
def test_a_sign_is_reported_after_ten_updates_with_it_and_what_to_do(change: dict[str, Any], words: str) -> None:
    ((step, text),) = warnings(course(*[change] * WINDOW))
    assert step == WINDOW
    assert text.startswith(f"warning: binary update 10: {words}")
    assert warnings(course(*[change] * (WINDOW - 1))) == []


def test_advice_is_only_what_the_phase_can_use() -> None:
    none, worse = [{"all_tests_rate": 0.0}] * WINDOW, [{"syntax_rate": 0.1}] * WINDOW
    of_rft = [text for _, text in warnings({**row, "phase": "rft"} for row in course(*none, *worse))]
    assert len(of_rft) == 2
    assert not any(name in text for text in of_rft for name in ("ppo.learning_rate", "ppo.kl"))
    assert "Lower rft.learning_rate" in of_rft[1]


@pytest.mark.parametrize(
    "change", [{"zero_variance_rate": 0.8}, {"truncated_rate": 0.5}, {"sample_copy": 0.1}, {"ignores_input": 0.02}]
)
def test_at_its_limit_a_sign_is_not_reported(change: dict[str, Any]) -> None:
    assert warnings(course(*[change] * 2 * WINDOW)) == []


def test_hard_coded_examples_are_fewer_than_solutions_where_the_policy_solves_problems() -> None:
    assert warnings(course(*[{"sample_copy": 0.3, "all_tests_rate": 0.4}] * WINDOW)) == []


def test_constant_outputs_are_reported_if_they_double() -> None:
    first, often, more = {"constant_output": 0.3}, {"constant_output": 0.6}, {"constant_output": 0.7}
    assert warnings(course(*[often] * 2 * WINDOW)) == warnings(course(*[first] * WINDOW, *[often] * WINDOW)) == []
    ((step, text),) = warnings(course(*[first] * WINDOW, *[more] * WINDOW))
    assert WINDOW < step <= 2 * WINDOW
    assert "of programs give the same output for different tests, after 30% at the start of the phase" in text


def test_attempts_that_the_sandbox_refuses_are_reported_if_they_double() -> None:
    first, few, often = {"denied": 0.04}, {"denied": 0.08}, {"denied": 0.1}
    assert warnings(course(*[few] * 2 * WINDOW)) == warnings(course(*[first] * WINDOW, *[few] * WINDOW)) == []
    ((step, text),) = warnings(course(*[first] * WINDOW, *[often] * WINDOW))
    assert WINDOW < step <= 2 * WINDOW
    assert "of programs tried what the sandbox refuses, such as writing files, after 4% at the start" in text


# A policy of 0.5 B parameters on SecCodePLT, rewarded by 0.6 R_func + 0.4 R_sec with security = "tests": programs that
# pass all tests, and of those that parse the ones that pass all security tests, in percent of 128 per update.
RETURNS_TRUE = """
    19/9 21/19 15/23 12/43 10/27 27/28 21/26 9/24 35/34 30/25 22/21 23/38 38/17 46/24 12/20 20/31 19/25 45/33
    30/30 31/29 62/28 38/27 31/22 30/22 45/16 40/18 48/15 41/23 37/15 55/6 42/13 69/27 76/6 81/18 55/7 63/9 59/6
    68/20 70/4 66/7 59/14 55/33 41/2 50/7 75/16 50/10 65/12 73/22 62/29 74/25 74/23 68/6 47/9 69/19 87/16 69/16
    92/12 74/5 56/18 58/6 80/18 48/12 51/9 56/16 77/13 59/17 77/1 81/6 54/9 64/4 67/16 67/10 63/25 73/9 68/25
    67/10 49/0 69/6 73/7 68/7 61/16 73/6 63/18 88/5 87/13 80/6 73/0 74/6 73/6 50/6 74/6 74/6 78/7 87/19 55/9
    87/0 80/13 75/12 69/12 85/0 80/13 81/12 74/0 68/6 87/0 81/12
"""


def test_attacks_that_succeed_more_often_while_more_tests_pass_are_reported() -> None:
    updates = [each.split("/") for each in RETURNS_TRUE.split()]
    rows = course(
        *({"scores": 128, "all_tests_rate": int(a) / 100, "security_tests_rate": int(b) / 100} for a, b in updates)
    )
    (first, text), *others = warnings(rows)
    assert 20 <= first <= 35, "a third of the training is over"
    assert "of programs pass all tests, after 20% at the start of the phase, but only" in text
    assert "withstand the attacks, after 26%" in text
    assert all("withstand the attacks" in text for _, text in others)


@pytest.mark.parametrize(
    "change",
    [
        {"all_tests_rate": 0.4},
        {"security_tests_rate": 0.1},
        {"all_tests_rate": 0.14, "security_tests_rate": 0.1},
        {"all_tests_rate": 0.4, "security_tests_rate": 0.16},
        {"all_tests_rate": 0.4, "security_tests_rate": 0.1, "scores": 29},
        {"all_tests_rate": 0.4, "security_tests_rate": None},
    ],
)
def test_attacks_are_not_reported_while_one_of_both_stays_or_programs_are_few(change: dict[str, Any]) -> None:
    before = {"scores": change.get("scores", 64)}
    assert warnings(course(*[before] * WINDOW, *[change] * 2 * WINDOW)) == []


def test_programs_that_get_short_and_pass_no_more_often_are_reported() -> None:
    first, longer, short = {}, {"tokens": 0.6 * 6400}, {"tokens": 0.5 * 6400}
    assert warnings(course(*[first] * WINDOW, *[longer] * WINDOW)) == []
    ((step, text),) = warnings(course(*[first] * WINDOW, *[short] * WINDOW))
    assert WINDOW < step <= 2 * WINDOW
    assert "of the tokens of the start of the phase, and 10% pass all tests, after 10%: the policy may" in text
    assert warnings(course(*[first] * WINDOW, *[{**short, "all_tests_rate": 0.5}] * WINDOW)) == []


def test_programs_that_parse_half_as_often_as_at_the_start_are_reported() -> None:
    first, half, less = {"syntax_rate": 0.8}, {"syntax_rate": 0.4}, {"syntax_rate": 0.3}
    assert warnings(course(*[first] * WINDOW, *[half] * WINDOW)) == []
    ((step, text),) = warnings(course(*[first] * WINDOW, *[less] * WINDOW))
    assert WINDOW < step <= 2 * WINDOW
    assert "of programs parse, after 80% at the start of the phase. Lower ppo.learning_rate" in text


def test_one_program_that_passes_ends_the_wait_for_it() -> None:
    none = {"all_tests_rate": 0.0}
    rows = course(*[none] * 9, {}, *[none] * 9, {}, *[none] * 10)
    assert [step for step, _ in warnings(rows)] == [30]


def test_small_batches_wait_until_enough_programs_have_failed() -> None:
    rows = course(*[{"all_tests_rate": 0.0, "scores": 2}] * 160)
    ((step, text),) = warnings(rows)
    assert step == warning_signs.PROGRAMS_WITHOUT_PASS / 2 == 150
    assert "none of 300 programs in 150 updates" in text


def test_a_sign_is_reported_once_in_fifty_updates_however_often_it_comes_and_goes() -> None:
    blinking = ([{"truncated_rate": 1.0}] * 10 + [{}] * 10) * 10
    steps = [step for step, _ in warnings(course(*blinking))]
    assert steps
    assert all(later - earlier >= REPEAT for earlier, later in pairwise(steps))
    lasting = [step for step, _ in warnings(course(*[{"truncated_rate": 1.0}] * 200))]
    assert lasting == [10, 60, 110, 160]


def test_numbers_that_are_missing_or_damaged_show_nothing() -> None:
    for value in (None, "1", True, float("nan"), -1.0, 10**400, [1.0]):
        assert warnings(course(*[dict.fromkeys(HEALTHY, value)] * 30)) == []
    unscored = course(*[{"all_tests_rate": 0.0}] * 20)
    for row in unscored:
        del row["all_tests_rate"], row["scores"]
    assert warnings(unscored) == []
    assert warnings({"phase": "sft", "step": step, "loss/sft": 1.0} for step in range(1, 30)) == []


def test_a_resumed_run_gives_the_warnings_of_an_uninterrupted_one(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from securecoderl_edge.training.phase import Stopped
    from securecoderl_edge.training.train import train

    monkeypatch.setattr(warning_signs, "WINDOW", 2)
    monkeypatch.setattr(warning_signs, "PROGRAMS_WITHOUT_PASS", 20)
    chosen = settings("binary.steps=5", "selection.problems=0", phases=("binary",))
    whole: list[str] = []
    train(chosen, tmp_path / "a" / "whole", say=whole.append)
    assert [line for line in whole if "none of 24 programs in 3 updates passed all tests" in line]
    parts: list[str] = []
    for updates in (1, 2, 5):
        asked = iter([False] * (updates - 1) + [True] * 9)
        try:
            train(chosen, tmp_path / "b" / "parts", say=parts.append, should_stop=asked.__next__)
        except Stopped:
            continue
    assert parts == whole
