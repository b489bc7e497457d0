"""Literals that were made to be slow to evaluate are no Python, wherever they stand."""

from __future__ import annotations

import ast

import pytest

from securecoderl_edge.languages import hash_floods
from securecoderl_edge.languages.python_source import literal, parse
from securecoderl_edge.problems.assertions import translate

PRIME = (1 << 61) - 1
NUMBERS = [str(number * PRIME) for number in range(1, 2_000)]
FLOODS = {
    "set": f"{{{', '.join(NUMBERS)}}}",
    "set of tuples": f"{{{', '.join(f'({number}, 1)' for number in NUMBERS)}}}",
    "set of complex numbers": f"{{{', '.join(f'{-1000003 * number}+{number}j' for number in range(1, 2_000))}}}",
    "dictionary": f"{{{', '.join(f'{number}: 1' for number in NUMBERS)}}}",
    "set of a list": f"set([{', '.join(NUMBERS)}])",
    "frozenset of a tuple": f"frozenset(({', '.join(NUMBERS)}))",
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_literal_of_many_items_with_one_hash_is_no_python(name: str) -> None:
    assert parse(f"x = {FLOODS[name]}") is None
    assert parse(f"def f(x):\n    return [x, {FLOODS[name]}]") is None
    assert translate(f"assert f(1) == {FLOODS[name]}").comparison == "whole"
    if not name.endswith(("list", "tuple")):
        with pytest.raises(ValueError, match="same hash"):
            literal(f"[{FLOODS[name]}]")


@pytest.mark.parametrize(
    "text",
    [
        f"{{{', '.join(map(str, range(10_000)))}}}",
        f"{{{', '.join(['1'] * 20_000)}}}",
        f"{{{', '.join(f'{number!r}: [x{number}, {{}}]' for number in range(3_000))}, **x}}",
        f"[{', '.join(NUMBERS)}]",
        f"set([{', '.join(f'f({number})' for number in NUMBERS)}])",
        f"{{{', '.join(NUMBERS[:60])}, {', '.join(map(str, range(9_000)))}}}",
    ],
)
def test_other_long_literals_are_python(text: str) -> None:
    assert parse(text) is not None


@pytest.mark.parametrize("around", ["{{{}, {}}}", "{{({}, 1), {}}}"])
def test_nothing_is_evaluated_that_has_a_set_in_it(around: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set within a set is no item, but to find that out takes the time of making it, at each of its places."""
    evaluated: list[ast.AST] = []
    monkeypatch.setattr(hash_floods.ast, "literal_eval", lambda node: evaluated.append(node) or 1)
    text = FLOODS["set"]
    for _ in range(20):
        text = around.format(text, ", ".join(map(str, range(70))))
    assert parse(text) is not None
    assert evaluated
    assert not any(isinstance(part, ast.Set) for node in evaluated for part in ast.walk(node))
