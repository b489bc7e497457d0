"""Judging a program's output costs little, whatever it writes: with quadratic work these tests would take hours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.problems.assertions import Assertion, translate
from securecoderl_edge.problems.comparison import Rule, first_difference, same_output
from securecoderl_edge.sandbox import Execution, literal
from securecoderl_edge.scoring.call_outcomes import judge
from securecoderl_edge.scoring.reward import prints

RULES = ("exact", "tokens", "numbers", "apps", "code_contests", "livecodebench")
MEBIBYTE = (1 << 20) - 5
FLOODS = {
    "newlines": "\n" * MEBIBYTE,
    "spaces": " " * MEBIBYTE,
    "zero width": "\u200b" * (MEBIBYTE // 3),
    "lines": "a\n" * (MEBIBYTE // 2),
    "words": "a " * (MEBIBYTE // 2),
    "numbers": "1 " * (MEBIBYTE // 2),
    "one word": "1" * MEBIBYTE,
    "blank inside": f"5{chr(10) * MEBIBYTE}7",
    "space at the ends of lines": " \n" * (MEBIBYTE // 2),
    "not UTF-8": "\ufffd" * MEBIBYTE,
    "many letters": "".join(map(chr, range(0x4E00, 0x9000))) * 20,
}
PRIME = 2**61 - 1  # the hashes of its multiples are 0
TEXTS = st.text(st.sampled_from("12ab.\n \t\u2028\x0b-e"), max_size=12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_output_is_another_output(name: str, rule: str) -> None:
    flood = FLOODS[name]
    for _ in range(20):
        assert not same_output(flood, "5\n8\n", Rule(rule))
    assert same_output(flood, flood, Rule(rule))


@pytest.mark.parametrize("name", FLOODS)
def test_floods_are_printed_or_not(name: str) -> None:
    blank = ("newlines", "spaces", "zero width", "space at the ends of lines")
    assert all(prints(FLOODS[name]) == (name not in blank) for _ in range(20))


@given(TEXTS, TEXTS, st.sampled_from(RULES))
def test_outputs_agree_where_no_part_differs(printed: str, expected: str, rule: str) -> None:
    assert same_output(printed, expected, Rule(rule)) == (first_difference(printed, expected, Rule(rule)) is None)


def numbers(count: int, factor: int = 1) -> str:
    return ", ".join(str(factor * number) for number in range(count))


VALUES = {
    "set of one hash": f"{{{numbers(42_000, PRIME)}}}",
    "fewer of one hash": f"{{{numbers(19_000, PRIME)}}}",
    "keys of one hash": "{" + ", ".join(f"{PRIME * number}: 0" for number in range(30_000)) + "}",
    "half of one hash": f"{{{numbers(19_000, PRIME)}, {numbers(19_001)}}}",
    "frozenset of one hash": f"{{frozenset({{{numbers(19_000, PRIME)}}})}}",
    "tuples of one hash": "{" + ", ".join(f"({PRIME * number},)" for number in range(19_000)) + "}",
    "keys of a view": f"dict_keys([{numbers(19_000, PRIME)}])",
    "items of a view": "dict_items([" + ", ".join(f"({PRIME * number}, 0)" for number in range(9_000)) + "])",
    "deep": "[" * 200_000 + "]" * 200_000,
    "signs": "-" * 400_000 + "1",
    "sum": "+".join(["1"] * 200_000),
    "texts": " ".join(["'a'"] * 200_000),
    "digits": "9" * 800_000,
    "many items": f"[{numbers(150_000)}]",
    "bytes of a number": "bytearray(10 ** 12)",
    "bytes of a large number": "bytearray(999999999999)",
    "items of a range": "items(range(10 ** 15))",
    "items of a long range": "items(range(999999999999999))",
    "keys of a range": "dict_keys(range(999999999999999))",
    "set of a range": "frozenset(range(999999999999999))",
    "nothing": "bytearray()",
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_was_made_to_be_slow_is_another_value(name: str) -> None:
    returned = Execution(0, "", "", "", 0.0, VALUES[name])
    long = list(range(20_000))
    for expected in (set(long), long, dict.fromkeys(long), frozenset(long), {frozenset(long)}):
        assert judge(returned, Assertion("f()", comparison="equal", expected=expected)).verdict == "wrong"
    assert judge(returned, translate("assert 'x' in f()", "f")).verdict == "wrong"
    assert judge(returned, translate("assert 7.5 not in f()", "f")).verdict in ("pass", "wrong")


@pytest.mark.parametrize(
    "value",
    [
        set(range(5_000)), {-1, -2}, {PRIME * number for number in range(50)}, frozenset({1, 2}),
        {frozenset(range(99))},
        dict.fromkeys(range(3_000)).keys(), {1: {2: {3}}}, [1] * 9_000, {1.0}, {True: {"a"}}, {(1, (2,)): {b"a"}},
        bytearray(b"ab"), set(), {}, "a, " * 3_000,
    ],
    ids=range(15),
)  # fmt: skip
def test_an_equal_value_is_equal(value: object) -> None:
    expected = set(value) if isinstance(value, type({}.keys())) else value
    returned = Execution(0, "", "", "", 0.0, literal(value))
    assert judge(returned, Assertion("f()", comparison="equal", expected=expected)).verdict == "pass"
