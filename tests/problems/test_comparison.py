"""When outputs agree, by the rules of graders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.problems.comparison import (
    EXACT,
    Rule,
    first_difference,
    rule_from_record,
    rule_of_source,
    same_output,
)

RULES = ("exact", "tokens", "numbers", "apps", "code_contests", "livecodebench")
# printed, expected, the rules by which they agree
PAIRS: list[tuple[str, str, str]] = [
    ("5\n", "5", "exact tokens numbers apps code_contests livecodebench"),
    ("5 \n\n", "5", "exact tokens numbers apps code_contests livecodebench"),
    ("\n  5", "5", "tokens numbers apps code_contests livecodebench"),
    ("1\n\n2", "1\n2", "tokens numbers apps code_contests"),
    ("1 2\n3", "1\n2 3", "tokens numbers code_contests"),
    ("1  2", "1 2", "tokens numbers apps code_contests livecodebench"),
    ("0.3333333333333333", "0.333333", "numbers apps code_contests"),
    ("0.33", "0.333333", ""),
    ("1.0", "1", "numbers apps code_contests livecodebench"),
    ("1e3", "1000", "numbers apps code_contests livecodebench"),
    ("100000.5", "100000", "numbers apps"),
    ("0.00002", "0.00001", "numbers"),
    ("a 1.0", "a 1", "numbers code_contests"),
    ("a  b", "a b", "tokens numbers apps code_contests"),
    ("Infinity", "inf", "livecodebench"),
    ("100002.0", "100000", ""),
    ("YES", "Yes", "tokens numbers code_contests"),
    ("Alice", "alice", "code_contests"),
    ("nan", "nan", "exact tokens numbers apps code_contests livecodebench"),
    ("inf", "1e400", ""),
    ("1_0", "10", "livecodebench"),  # a decimal for Python
    ("٣", "3", "livecodebench"),
    ("1 2", "1 2 3", ""),
    ("1 2 3", "1 2", ""),
    ("", "5", ""),
    ("0x10", "16", ""),
    ("0.000001", "0", "numbers code_contests"),
    ("a\r\nb\r\n", "a\nb", "exact tokens numbers apps code_contests livecodebench"),
    ("9" * 300, "9" * 299 + "8", ""),
    ("1000000006", "1000000007", ""),
    ("+7", "7", "numbers apps code_contests livecodebench"),
    ("9" * 6000, "9" * 5999 + "8", ""),
]


@pytest.mark.parametrize(("printed", "expected", "rules"), PAIRS)
def test_outputs_agree_by_the_rules_that_a_grader_has(printed: str, expected: str, rules: str) -> None:
    assert {rule for rule in RULES if same_output(printed, expected, Rule(rule))} == set(rules.split())


@given(st.text(), st.sampled_from(RULES))
def test_an_output_agrees_with_itself(text: str, rule: str) -> None:
    assert same_output(text, text, Rule(rule))
    assert same_output(f"{text}\n", text, Rule(rule))


@pytest.mark.parametrize(
    ("source", "rule"),
    [("apps", "apps"), ("APPS+", "apps"), ("code_contests", "code_contests"), ("open-r1/codeforces", "code_contests"),
     ("code-contests", "code_contests"), ("deepmind/CodeContests", "code_contests"),
     ("live_code_bench", "livecodebench"), ("livecodebench", "livecodebench"), ("", "exact"), ("mine", "exact"),
     ("mobile apps", "exact"),
     ("open-r1", "apps"), ("codeparrot/apps", "apps"), ("apps/introductory", "apps")],
)  # fmt: skip
def test_the_source_of_a_problem_names_its_rule(source: str, rule: str) -> None:
    assert rule_of_source(source).name == rule


@pytest.mark.parametrize("value", ["exact", "tokens", "numbers", "apps", {"tolerance": 1e-3}, {"tolerance": 0}])
def test_a_rule_comes_back_from_a_record(value: object) -> None:
    assert rule_from_record(rule_from_record(value).to_record()) == rule_from_record(value)


@pytest.mark.parametrize("value", ["near", 1, None, [], {}, {"tolerance": -1}, {"tolerance": "1"}, {"tolerance": True}])
def test_other_rules_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="compare"):
        rule_from_record(value)


def test_a_tolerance_is_absolute_or_relative() -> None:
    loose = Rule("numbers", 0.1)
    assert same_output("10.9", "10", loose)
    assert same_output("0.05", "0", loose)
    assert not same_output("11.2", "10", loose)
    assert not same_output("10.9", "10", EXACT)


@pytest.mark.parametrize(
    ("printed", "expected", "rule", "difference"),
    [
        ("1\n 2\n", "1\n2", "exact", ("line 2", " 2", "2")),
        ("1\n", "1\n2", "exact", ("line 2", None, "2")),
        ("1\n2 YES\n3", "1 2\nyes 4", "tokens", ("word 4", "3", "4")),
        ("0.33333333 7", "0.333333 8", "numbers", ("word 2", "7", "8")),
        ("\n 0.33333333\n\n7 7\n", "0.333333\n7 8", "apps", ("line 2", "7 7", "7 8")),
        ("Alice\nBob", "ALICE eve", "code_contests", ("word 2", "Bob", "eve")),
        (" 1.0\n2 3", "1\n2", "livecodebench", ("line 2", "2 3", "2")),
        ("1 2 3", "1 2", "tokens", ("word 3", "3", None)),
    ],
)
def test_the_first_difference_is_one_by_the_rule(
    printed: str, expected: str, rule: str, difference: tuple[str, str | None, str | None]
) -> None:
    assert first_difference(printed, expected, Rule(rule)) == difference


@given(st.text("12. \nyY"), st.text("12. \nyY"), st.sampled_from(RULES))
def test_outputs_agree_or_have_a_difference(printed: str, expected: str, rule: str) -> None:
    assert same_output(printed, expected, Rule(rule)) == (first_difference(printed, expected, Rule(rule)) is None)
