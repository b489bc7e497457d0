"""The comparison of the laptop's base and policy, from rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import laptop_quality
import pytest

from securecoderl_edge.problems.problem import Problem


def problems(groups: Sequence[str]) -> list[Problem]:
    return [
        Problem(
            id=f"p{number}", kind="call", statement=f"task {number}", entry_point="f", assertions=("f()",), group=group
        )
        for number, group in enumerate(groups)
    ]


def rows(solved: Sequence[int], samples: int) -> dict[str, list[dict[str, Any]]]:
    """Of each problem, so many of its samples pass."""
    return {
        f"p{number}": [
            {"total": 2, "passed": 2 * (place < most), "verdicts": ["pass" if place < most else "wrong"] * 2,
             "has_base_tests": True, "completion_tokens": 10 * samples}
            for place in range(samples)
        ]
        for number, most in enumerate(solved)
    }  # fmt: skip


BASE, POLICY = [2, 4, 0, 3] * 5, [4, 4, 3, 6] * 5


def test_variants_of_a_problem_widen_the_intervals_of_the_comparison() -> None:
    alone = problems([f"g{number}" for number in range(20)])
    grouped = problems([f"g{number % 4}" for number in range(20)])
    found = laptop_quality.compare(rows(BASE, 8), rows(POLICY, 8), {"alone": alone, "grouped": grouped}, [])
    narrow, wide = (found[name]["plus_pass_at_1"] for name in ("alone", "grouped"))
    assert (found["alone"]["groups"], found["grouped"]["groups"]) == (20, 4)
    for name in ("base", "policy"):
        assert narrow[name] == wide[name]
    assert wide["difference"]["value"] == pytest.approx(narrow["difference"]["value"]) == pytest.approx(8 / 4 / 8)
    widths = [each["difference"]["high"] - each["difference"]["low"] for each in (narrow, wide)]
    assert widths[1] > 2 * widths[0]
    assert found["alone"]["tokens"] == {"base": 80.0, "policy": 80.0}


def test_greedy_answers_are_no_part_of_the_planned_family() -> None:
    sets = {"known": problems([f"g{number}" for number in range(20)])}
    greedy = [rows([number % 2 for number in range(20)], 1), rows([1] * 20, 1)]
    with_greedy = laptop_quality.compare(rows(BASE, 8), rows(POLICY, 8), sets, greedy)["known"]
    without = laptop_quality.compare(rows(BASE, 8), rows(POLICY, 8), sets, [])["known"]
    assert with_greedy["plus_greedy"]["difference"]["value"] == pytest.approx(0.5)
    assert "p_holm" not in with_greedy["plus_greedy"]
    assert {name: each for name, each in with_greedy.items() if not name.endswith("_greedy")} == without
    partly = laptop_quality.compare(rows(BASE, 8), rows(POLICY, 8), sets, [greedy[0], {}])["known"]
    assert partly == without
