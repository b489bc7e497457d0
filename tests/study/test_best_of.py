"""The benchmark of the best of several samples: which tests may choose, and when training has sampled as much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from best_of import GIVEN, Measured, against_policy, chosen, shown_tests

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.runs import Run

CASES = (Test("9\n", "18\n"), Test("21\n", "42\n"))
PROBLEM = Problem("p", "Double. For 2 print 4.\nInput: 21\nOutput: 42", tests=CASES)


def a_row(*verdicts: str, stage: int = 3, severity: float = 0, sure: float = -1.0) -> dict[str, Any]:
    return {
        "verdicts": verdicts,
        "stage": stage,
        "severity": severity,
        "program": "p",
        "mean_logprob": sure,
        "passed": verdicts.count("pass"),
        "total": 2,
    }


def test_only_tests_in_the_statement_are_shown() -> None:
    assert shown_tests(PROBLEM) == [1]
    call = Problem("c", "assert f(1) == 2", "call", entry_point="f", assertions=("assert f(3) == 4", "assert f(1)==2"))
    assert shown_tests(call) == [1]


def test_the_best_is_chosen_by_the_given_tests_alone() -> None:
    hidden, shown, none = a_row("pass", "wrong", sure=-0.1), a_row("wrong", "pass"), a_row(stage=0, sure=0)
    rows = [none, hidden, shown]
    assert chosen(rows, GIVEN["shown_tests"](PROBLEM)) is shown
    assert chosen(rows, GIVEN["one_test"](PROBLEM)) is hidden
    assert chosen(rows, GIVEN["no_test"](PROBLEM)) is hidden, "the surer one of those that parse"
    both = a_row("pass", "pass", sure=-9)
    assert chosen([*rows, both], GIVEN["all_tests"](PROBLEM)) is both
    assert chosen([a_row("pass", "pass", severity=0.5), shown], [1]) is shown, "a finding is not accepted"


def test_training_is_as_dear_as_sampling_after_the_problems_that_save_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(one: float, best: float, tokens: tuple[int, int]) -> Measured:
        cost = {1: {"seconds": 1.0, "tokens": tokens[0]}, 8: {"seconds": 1.0, "tokens": tokens[1]}}
        return Measured([1, 2, 3, 4], [[one] * 8] * 4, dict.fromkeys(GIVEN, [[best]] * 4), cost)

    outcomes = [("sft", {"tokens_sampled": 0}), ("binary", {"tokens_sampled": 9000})]
    monkeypatch.setattr(Run, "outcomes", lambda run: outcomes)
    # Four problems: 200 tokens each for the best of eight, 20 for an answer of the policy.
    made = against_policy(measured(0, 1, (100, 800)), measured(1, 1, (80, 700)), Run(tmp_path))
    assert made["tokens_per_problem"] == {"base": 200, "policy": 20}
    assert made["break_even_problems"] == 9000 / 180
    assert made["policy_one_minus_base_best"]["value"] == 0
    assert made["policy"]["pass_at_1"]["value"] == 1
    outcomes[0] = ("sft", {})
    assert "tokens_sampled_in_training" not in against_policy(
        measured(0, 1, (1, 8)), measured(1, 1, (1, 8)), Run(tmp_path)
    ), "an older run has no counts"
