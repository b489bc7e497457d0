"""Judging a program's output costs little, whatever it writes: with quadratic work these tests would take hours."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.problems.assertions import Assertion, translate
from securecoderl_edge.problems.comparison import Rule, first_difference, same_output
from securecoderl_edge.sandbox import Execution, FunctionCall, Limits, literal
from securecoderl_edge.sandbox.exchange import Exchange
from securecoderl_edge.sandbox.inside.testprocess import RAISED
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
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.builds(pow, st.just(-7), st.just(5_001)), st.text(),
    st.floats(allow_nan=False), st.complex_numbers(allow_nan=False, allow_infinity=False), st.binary(),
    st.text("'\"\\\n\x00{[,(:\ud800"),
)  # fmt: skip
HASHABLE = st.recursive(
    PLAIN, lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=3)), max_leaves=9
)
VALUES_OF_PROGRAMS = st.recursive(
    HASHABLE | st.sets(HASHABLE, max_size=3) | st.builds(range, st.integers(), st.integers()) | st.builds(bytearray),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(HASHABLE, inner, max_size=3)
    ),
)
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
    "comparisons": "1<" * 400_000 + "1",
    "of sets": "{1}<" * 200_000 + "1",
    "or": "1or " * 250_000 + "1",
    "in": "1in " * 250_000 + "1",
    "calls": "range" + "()" * 400_000,
    "places": "range" + "[0]" * 300_000,
    "conditions": f"[1for x in[1]{'if 1 ' * 200_000}]",
    "lists in lists": f"[{', '.join(['[' * 150 + ']' * 150] * 3_000)}]",
    "lists of nothing": "[],[]," * 150_000,
    "formatted": "f'{1}'" * 170_000,
    "escapes": "'\\q' " * 200_000,
    "escaped quotes": "'" + "\\'" * 400_000,
    "escaped quotes of bytes": 'b"' + '\\"' * 400_000,
    "names": "<".join(f"a{number}" for number in range(130_000)),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_was_made_to_be_slow_is_another_value(name: str) -> None:
    returned = Execution(0, "", "", "", 0.0, VALUES[name])
    long = list(range(20_000))
    for expected in (set(long), long, dict.fromkeys(long), frozenset(long), {frozenset(long)}):
        assert judge(returned, Assertion("f()", comparison="equal", expected=expected)).verdict == "wrong"
    assert judge(returned, translate("assert 'x' in f()", "f")).verdict == "wrong"
    assert judge(returned, translate("assert 7.5 not in f()", "f")).verdict in ("pass", "wrong")


def test_of_the_classes_of_an_exception_few_are_kept() -> None:
    exchange = Exchange("", FunctionCall("f()"), Limits())
    value = exchange.files()[4]
    os.pwrite(value, RAISED.encode() + b"ab\n" * 300_000, 0)
    raised = exchange.execution("0", "-", "0.0", is_read=True).raised
    assert set(raised) == {"ab"}
    assert len(raised) < 100


@pytest.mark.parametrize(
    "text", ["1or 2", "'\\q'", "b'\\u1'", "[1if 2else 3]", "1is 2", "0o1in {2}", "(1)(2)", "'a' 'b'", "1 ,2"]
)
def test_a_text_that_is_no_literal_prints_no_warning(text: str, recwarn: pytest.WarningsRecorder) -> None:
    """A program can write any text instead of a value; the parser warns of some, on the standard error of `sce`."""
    for assertion in ("assert f() == 1", "assert f() == 'ab'", "assert 'ab' in f()", "assert f() in [1, 2]"):
        assert judge(Execution(0, "", "", "", 0.0, text), translate(assertion, "f")).verdict == "wrong"
    assert list(recwarn) == []


@given(VALUES_OF_PROGRAMS)
def test_every_value_is_read_as_it_was(value: object) -> None:
    returned = Execution(0, "", "", "", 0.0, literal(value))
    assert judge(returned, Assertion("f()", comparison="equal", expected=value)).verdict == "pass"


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
