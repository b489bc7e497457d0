"""Programs that do not solve a problem, and which of them are made."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securecoderl_edge.problems.cheap_programs import cheap_programs
from securecoderl_edge.problems.problem import Problem, Test


def call(*assertions: str, name: str = "f", **fields: str) -> Problem:
    return Problem("p", "Write it.", "call", entry_point=name, assertions=assertions, **fields)


def names(problem: Problem, reference: str = "") -> set[str]:
    return {each.name for each in cheap_programs(problem, reference)}


@pytest.mark.parametrize(
    ("assertions", "name"),
    [
        (["assert f(1) == 7"], "return 7"),
        (["assert f(1) is True"], "return True"),
        (["assert f(1)", "assert f(2)"], "return 1"),
        (["assert not f(1)"], "return ''"),
        (["assert f(1) != 3"], "return False"),
        (["assert f(1) in ('a', 'b')"], "return 'b'"),
        (["assert f(1) not in ('', 0)"], "return True"),
        (["assert 'a' in f(1)", "assert 'b' in f(2)"], "return 'a\\nb'"),
        (["assert 3 in f(1)", "assert 4 in f(2)"], "return [3, 4]"),
        (["assert '<i>' not in f('<i>')"], "return ''"),
        (["assert abs(f(1) - 1.0) < 0.2", "assert abs(f(2) - 1.3) < 0.2"], "return 1.15"),
        (["assert f(1) == set([1, 2])"], "return {1, 2}"),
        (["assert each_agrees([f(1), f(2)], [5, 5], 0)"], "return 5"),
        (["assert sorted(f(1)) == [1, 2]"], "return [1, 2]"),
        (["x = f(1)\nassert x == 4 and x > 0"], "return 4"),
        (["assert raises(f(1), ValueError)"], "raise ValueError"),
        (
            ["assert raises(f(1), ValueError)", "assert raises(f(2), KeyError)"],
            "raise type('Error', (ValueError, KeyError), {})",
        ),
        (["assert f(4) == 4"], "return argument 1"),
    ],
)
def test_what_each_form_of_assertion_accepts_is_tried(assertions: list[str], name: str) -> None:
    assert name in names(call(*assertions))


def test_a_constant_that_a_test_rules_out_is_not_made() -> None:
    made = names(call("assert f(1) == 7", "assert f(2) == 8"))
    assert not [each for each in made if each.startswith(("return 7", "return 8", "return True"))]


@pytest.mark.parametrize(
    "texts", [["assert f(1) == 2", "assert raises(f(2), ValueError)"], ["assert f(1) == 2", "assert f(2) is True"]]
)
def test_no_constant_is_made_where_none_can_pass(texts: list[str]) -> None:
    assert not [each for each in names(call(*texts)) if each.startswith("return") and "argument" not in each]


def test_the_reference_lends_helpers_and_methods_but_no_demo() -> None:
    reference = (
        "from math import inf\nclass Stack:\n    def __init__(self, size):\n        self.size = size\n"
        "    def pop(self): return self.size\nprint(Stack(3).pop())"
    )
    (made,) = [
        each
        for each in cheap_programs(call("assert Stack(2).pop() == 2", name="Stack"), reference)
        if each.name == "return 2"
    ]
    assert "from math import inf" in made.program
    assert "print" not in made.program
    assert "def pop(self):\n        return 2" in made.program
    assert "def __init__(self, size):\n        pass" in made.program


def test_an_error_of_the_tests_own_is_defined() -> None:
    problem = call("class Refused(Exception): pass\nassert raises(f(1), Refused)")
    (made,) = [each for each in cheap_programs(problem) if each.name == "raise Refused"]
    assert made.program.startswith("class Refused(Exception): pass")


def test_outputs_are_printed_if_all_tests_agree_on_one_or_a_checker_may() -> None:
    same = Problem("p", "s", tests=(Test("1\n", "YES\n"), Test("2\n", "yes\n")), source="code_contests")
    assert "print 'YES'" in names(same)
    differ = Problem("p", "s", tests=(Test("1\n", "1\n"), Test("2\n", "2\n")))
    assert names(differ) == {"print the input"}
    checked = Problem("p", "s", tests=differ.tests, checker="def check(*_): return True")
    assert {"print nothing", "print '1'", "print '2'", "print 'YES'"} <= names(checked)


def test_programs_in_c_print_the_same_or_return_numbers_and_parameters() -> None:
    quotes = Problem("p", "s", tests=(Test("1\n", 'a "b" \\ ä\n'),), language="c")
    (made,) = [each for each in cheap_programs(quotes) if each.name.startswith("print 'a")]
    assert '"\\141\\040\\042' in made.program
    driven = Problem(
        "p", "s", tests=(Test("1\n", "42\n"),), language="c", entry_point="twice",
        starter_code="#include <stdint.h>\nint32_t twice(int32_t n, const int *all);\n", driver="int main(void) {}",
    )  # fmt: skip
    made_names = names(driven)
    assert {"return 42", "return 0", "return n", "return all"} <= made_names
    (program,) = [each.program for each in cheap_programs(driven) if each.name == "return 42"]
    assert "int32_t twice(int32_t n, const int *all) { return 42; }" in program


HASHABLE = st.none() | st.booleans() | st.integers(-99, 99) | st.text("ab'\\n", max_size=4) | st.binary(max_size=3)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(HASHABLE, inner, max_size=2),
    max_leaves=5,
) | st.sets(HASHABLE, min_size=1, max_size=3)
FORMS = (
    "assert f({at}) == {value}",
    "assert {value} == f({at})",
    "assert f({at}) in [{value}, {at}, 'other']",
    "x = {at}\nassert f(x) == {value}",
    "assert [f({at})] == [{value}]",
    "result = f({at})\nassert result == {value} and True",
)


@settings(max_examples=150, deadline=None)
@given(value=VALUES, forms=st.lists(st.sampled_from(FORMS), min_size=1, max_size=4))
def test_a_constant_that_satisfies_all_tests_is_always_tried(value: Any, forms: list[str]) -> None:
    texts = [form.format(at=at, value=repr(value)) for at, form in enumerate(forms)]
    assert any(holds(each.program, texts) for each in cheap_programs(call(*texts)))


def holds(program: str, assertions: list[str]) -> bool:
    """Whether a program of ours passes, run right here."""
    for text in assertions:
        names: dict[str, Any] = {}
        try:
            exec(f"{program}\n{text}", names)
        except Exception:
            return False
    return True


@pytest.mark.parametrize(
    "problem",
    [
        Problem(
            "p", "s", tests=(Test("1", "1"),), language="c", entry_point="f", driver="x", starter_code="a " * 20_000
        ),
        call(f"assert g({'f(' * 100_000!r}) == 1"),
    ],
    ids=["a prototype", "an assertion"],
)
def test_long_texts_are_looked_at_in_one_pass(problem: Problem) -> None:
    """A test that hangs here says that the time grows with the square of the length."""
    assert "return 7" not in names(problem)


def test_of_thousands_of_accepted_values_a_few_are_tried() -> None:
    texts = [f"assert f({start}) in {list(range(start, start + 8000))}" for start in (0, 8000)]
    started = time.process_time()
    assert not {"return 0", "return 1", "return 8000"} & set(names(call(*texts)))
    assert time.process_time() - started < 3  # with each of them: minutes


def test_numbers_beyond_all_floats_have_no_mean() -> None:
    assert f"return {16**500}" not in names(call(f"assert abs(f(1) - {16**500}) < 1", "assert abs(f(2) - 1) < 1"))


def test_constants_that_a_list_of_values_rules_out_are_not_made() -> None:
    def constants(*assertions: str) -> set[str]:
        return {name for name in names(call(*assertions)) if not name.startswith("return argument")}

    assert constants("assert each_agrees([f(1)], [2], 0.0)", "assert each_agrees([f(3)], [4], 0.0)") == set()
    assert constants("assert each_agrees([f(1), f(3)], [2, 4], 0.0)") == set()
    assert "return 2" in constants("assert each_agrees([f(1), f(3)], [2, 2], 0.0)")
    # What is made of the result may be anything.
    assert "return 2" in constants("assert each_agrees([str(f(1))], ['2'], 0.0)", "assert f(1) == 2")
