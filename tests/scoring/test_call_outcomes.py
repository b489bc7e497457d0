"""Assertions: what stays outside the sandbox, and how values are judged."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.problems.assertions import assertions_of, translate
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.sandbox import Execution, Limits, SandboxPool, literal
from securecoderl_edge.sandbox.noting import noting
from securecoderl_edge.scoring.call_outcomes import call_of, judge
from securecoderl_edge.scoring.scorer import Scorer


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool(workers=1, limits=Limits(cpu_seconds=0.5)) as opened:
        yield opened


def answer(value: str | None, returncode: int = 0) -> Execution:
    return Execution(returncode, "", "", "", 0.0, value)


def verdict(sandbox: SandboxPool, program: str, assertion: str, source: str = "") -> str:
    check = translate(assertion, "f", "apps" if "apps" in source else "")
    return judge(sandbox.run(program, calls=[call_of(check)]).executions[0], check).verdict


FORMS = [
    "assert f(1)", "assert not f(1)", "assert f(1), 'message'", "assert f(1) == 2", "assert f(1) != None",
    "assert f(1) is True", "assert f(1) in (1, 2)", "assert 1 in [f(1)]", "assert str(f(1)) == '1'",
    "assert isinstance(f(1), bool)", "assert bool(f(1)) == True", "assert f(1) and f(2)", "assert f(1) == f(2) == 3",
    "assert f(1) != f(2)", "assert [f(1), f(2)] == [1, 2]", "assert (f(1) or 0) > 0", "x = 1\nassert f(x) or f(x + 1)",
    "assert all(f(n) for n in (1, 2))", "for n in (1, 2):\n    assert f(n) is n", "assert C().f(1) if 0 else f(1)",
    "def check(n):\n    assert f(n) == n + 1\ncheck(1)", "assert each_agrees([f(1), f(2)], [1, 2], 0)",
    "assert each_agrees([f(n) for n in (1, 2)], [1, 2], 0)", "assert (lambda value: value == 1)(f(1))",
    f"assert f('{'long' * 2000}')",
]  # fmt: skip


@pytest.mark.parametrize("assertion", FORMS)
def test_a_function_that_returns_nothing_has_printed_nothing_whatever_is_asserted(
    assertion: str, sandbox: SandboxPool
) -> None:
    """Else a program would be paid for an assertion that makes something of None."""
    found = verdict(sandbox, "def f(n): pass", assertion)
    # Some hold for None, as the author of the assertion wants.
    assert found == ("pass" if assertion in ("assert not f(1)",) else "silent")
    assert verdict(sandbox, "def f(n): return 0.5", assertion) in ("wrong", "pass")


def test_an_empty_function_earns_no_more_than_a_program_that_prints_nothing() -> None:
    problem = Problem("b", "Is it even?", "call", entry_point="is_even", assertions=tuple(BARE))
    with Scorer(1, Limits(cpu_seconds=0.5)) as scorer:
        empty, constant = (scorer.score(problem, f"def is_even(n): {body}") for body in ("pass", "return False"))
    assert (empty.stage, empty.r_func, empty.verdicts) == (2, 0.4, ("silent",) * 4)
    assert (constant.stage, constant.verdicts) == (3, ("wrong", "wrong", "wrong", "pass"))


BARE = ["assert is_even(2)", "assert not is_even(3) and is_even(2)", "assert is_even(2) == is_even(4) == True",
        "assert isinstance(is_even(2), bool)"]  # fmt: skip


def test_noting_changes_no_answer(sandbox: SandboxPool) -> None:
    program = (
        "def f(n, m=0):\n    return n if n < 2 else f(n - 1) + f(n - 2)\nclass Solution:\n    def f(self, n): return n"
    )
    holding = ["f(9) == 34", "f(n=9) == f(*[9]) == f(**{'n': 9})", "(y := f(9)) and y > 33", "f'{f(9)}' == '34'",
               "f.__name__ == 'f' and f(9)", "Solution().f(9) == 9", "max(map(f, (8, 9))) == 34",
               "'_sce_note' not in f.__code__.co_names and f(9)", "f(f(f(3))) == 1"]  # fmt: skip
    for expression in holding:
        assert verdict(sandbox, program, f"assert {expression}") == "pass", expression
        assert verdict(sandbox, program, f"assert {expression} and 1 != 2") == "pass", expression


@pytest.mark.parametrize("name", ["f", "f(1", "f'{", "assert f(1)", "\ud800f(1)", "f(" * 900 + ")" * 900])
def test_text_that_cannot_be_noted_stays_as_it_is(name: str) -> None:
    assert noting(name, "f", False) == name


@pytest.mark.parametrize(
    ("rule", "wrapped", "listed"),
    [("", "wrong", "wrong"), ("apps", "pass", "pass"), ("livecodebench", "wrong", "pass")],
)
def test_only_apps_takes_an_item_for_the_list_of_it(rule: str, wrapped: str, listed: str) -> None:
    check = translate("assert f() == [3]", "f", rule)
    assert judge(answer("3"), check).verdict == wrapped
    assert judge(answer("(3,)"), check).verdict == listed
    assert judge(answer("[3]"), check).verdict == "pass"
    assert judge(answer("[[3]]"), check).verdict == "wrong"


@pytest.mark.parametrize(
    ("assertion", "expression", "expected"),
    [
        ("assert f(1, 2) == 3", "f(1, 2)", 3),
        ("assert 3 == f(1, 2)", "f(1, 2)", 3),
        ("assert f('a') == ['b', {'c': (1,)}], 'message'", "f('a')", ["b", {"c": (1,)}]),
        ("assert sorted(f()) == [1]", "sorted(f())", [1]),
        ("assert f() == set([1, 2])", "f()", {1, 2}),
        ("assert f() == -1.5", "f()", -1.5),
        ("assert f() is None", "f()", None),
        ("assert abs(f(2) - 1.5) < 1e-6", "f(2)", 1.5),
        ("assert f(1)", "(lambda value: (value is None, not value))(f(1))", True),
        ("assert not f(1)", "(lambda value: (value is None, not value))(f(1))", False),
        ("assert f(1) != 2", "f(1)", 2),
        ("assert f(1) not in (1, 2)", "f(1)", (1, 2)),
        ("assert '<i>' in f(1)", "f(1)", "<i>"),
        ("assert '<i>' not in f(1)", "f(1)", "<i>"),
        ("assert f(1) in (1, 2)", "f(1)", (1, 2)),
        ("assert raises(f(1), (os.error, ValueError))", "f(1)", ("error", "ValueError")),
    ],
)
def test_the_expected_value_stays_outside(assertion: str, expression: str, expected: object) -> None:
    check = translate(assertion, "f")
    assert check.expression == expression
    assert check.expected == expected
    assert not call_of(check).is_assertion


@pytest.mark.parametrize(
    ("value", "assertion", "expected"),
    [
        ("'a<i>'", "assert '<i>' in f()", "pass"),
        ("'a'", "assert '<i>' in f()", "wrong"),
        ("'a'", "assert '<i>' not in f()", "pass"),
        ("'a<i>'", "assert '<i>' not in f()", "wrong"),
        ("None", "assert '<i>' not in f()", "silent"),
        ("['<i>']", "assert '<i>' not in f()", "wrong"),
        ("type('S', (str,), {'__contains__': lambda *_: False})('<i>')", "assert '<i>' not in f()", "wrong"),
        ("'a' * 30_000", "assert '<i>' not in f()", "pass"),
        ("2", "assert f() in (1, 2)", "pass"),
        ("3", "assert f() in (1, 2)", "wrong"),
        ("[]", "assert f() in {1, 2}", "wrong"),
        ("3", "assert f() not in (1, 2)", "pass"),
        ("2", "assert f() not in (1, 2)", "wrong"),
        ("2", "assert f() != 2", "wrong"),
        ("3", "assert f() != 2", "pass"),
        ("object()", "assert f() != 2", "pass"),  # no literal
        ("object()", "assert f() == 2", "wrong"),
        ("float('nan')", "assert f() != 0", "pass"),
        ("[None, object()]", "assert None in f()", "pass"),
        ("[object(), float('nan'), 3]", "assert 3 in f()", "pass"),
        ("{'a': __import__('datetime').date(2020, 1, 1)}", "assert 'a' in f()", "pass"),
        ("{frozenset((1, 2))}", "assert f() == {frozenset({1, 2})}", "pass"),
        ("frozenset((1, 2))", "assert f() not in {'a': 1}", "pass"),
        ("'x' * 5000", "assert f() not in ['', None]", "pass"),
        ("10 ** 5000", "assert f() not in [1, 2]", "pass"),
        ("'a' * 200_000", "assert 'b' not in f()", "pass"),
        ("set(range(60_000))", "assert 59_999 in f()", "pass"),
        ("(n for n in range(60_000))", "assert 7 in f()", "pass"),
        ("(n for n in range(60_000))", "assert 7 not in f()", "wrong"),
        # Of so many items, which may be endless, not all are searched.
        ("(n for n in range(60_000))", "assert 59_999 in f()", "wrong"),
        ("(n for n in range(60_000))", "assert 59_999 not in f()", "wrong"),
        ("__import__('itertools').repeat(1)", "assert 2 not in f()", "wrong"),
        ("map(str, range(8192))", "assert '8192' not in f()", "pass"),
        ("(lambda a: a.append(a) or a)([1])", "assert f() != 3", "pass"),
        ("(lambda a: a.append(a) or a)([1])", "assert f() == [1]", "wrong"),
    ],
)
def test_membership_is_judged_outside(sandbox: SandboxPool, value: str, assertion: str, expected: str) -> None:
    assert verdict(sandbox, f"def f(): return {value}", assertion) == expected


LIAR = """
class Liar(type):
    __mro__ = property(lambda _: (ValueError, OSError))
    def mro(cls): return [cls, *type.mro(cls)]
class E(Exception, metaclass=Liar): pass
def f(): raise E
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("def f(): raise ValueError", "pass"),
        ("def f(): return '9'.encode('ascii').decode('utf-16')", "pass"),  # a subclass
        ("class Z(ValueError): pass\ndef f(): raise Z", "pass"),
        ("def f(): raise KeyError", "crash"),
        ("def f(): return 1", "wrong"),
        ("def f(): return ('ValueError',)", "wrong"),
        ("def f(): return ValueError", "wrong"),
        ("def f(): pass", "silent"),
        ("def f(): return '=ValueError'", "wrong"),
        ("raise ValueError", "crash"),
        ("import os\ndef f(): os._exit(1)", "crash"),
        ("def f():\n    while True: pass", "timeout"),
        (LIAR, "crash"),
    ],
)
def test_an_expected_exception(sandbox: SandboxPool, program: str, expected: str) -> None:
    assert verdict(sandbox, program, "assert raises(f(), ValueError)") == expected


def test_an_exit_is_an_exception_too(sandbox: SandboxPool) -> None:
    for leaves in ("raise SystemExit", "exit(3)", "import sys; sys.exit(0)"):
        assert verdict(sandbox, f"def f(): {leaves}", "assert raises(f(), SystemExit)") == "pass"
        assert verdict(sandbox, f"def f(): {leaves}", "assert raises(f(), ValueError)") == "crash"


def test_a_program_cannot_see_that_an_exception_is_expected(sandbox: SandboxPool) -> None:
    """It sees the frames that call it, and those hold the request."""
    program = """
import sys
def f():
    frame, seen = sys._getframe(1), {}
    while frame is not None:
        seen = {**frame.f_locals, **seen}
        frame = frame.f_back
    return repr(seen.get("request"))
"""
    checks = [translate(assertion, "f") for assertion in ("assert raises(f(), ValueError)", "assert f() == 1")]
    one, other = sandbox.run(program, calls=[call_of(check) for check in checks]).executions
    assert one.value is not None
    assert "'expression': '_sce_note(f())'" in one.value
    assert one.value == other.value


def test_statements_before_an_assertion_become_its_setup() -> None:
    check = translate("import math\none = 1\nassert f(one) == 3", "f")
    assert check.setup == "import math\none = 1"
    assert check.expression == "f(one)"


@pytest.mark.parametrize(
    "assertion",
    [
        "for i in range(3):\n    assert f(i) == i",
        "assert f(1) == g(2)",
        "assert f(1) is not None",  # holds for objects, which have no literal
        "assert 1 < f(1) < 3",
        "assert f(1) == 1 and f(2) == 2",
        "assert f(1) == 1\nassert f(2) == 2",
        "assert f(1) is 5",
        "assert f(1) in 5",
        "this is no Python",
        "",
    ],
)
def test_other_forms_run_whole(assertion: str) -> None:
    check = translate(assertion, "f")
    assert check.comparison == "whole"
    assert call_of(check).is_assertion
    assert check.expression == assertion


@pytest.mark.parametrize(
    ("program", "assertion", "expected"),
    [
        ("def f(x): return x + 1", "assert f(1) == 2", "pass"),
        ("def f(x): return x", "assert f(1) == 2", "wrong"),
        ("def f(x): pass", "assert f(1) == 2", "silent"),
        ("def f(x): pass", "assert f(1) is None", "pass"),
        ("def f(x): return 1 // 0", "assert f(1) == 2", "crash"),
        ("def g(x): return 2", "assert f(1) == 2", "crash"),
        ("def f(x): return 2\nraise SystemExit(0)", "assert f(1) == 2", "pass"),  # but see test_own_errors
        ("import os\ndef f(x): os._exit(0)", "assert f(1) == 2", "crash"),
        ("import os\ndef f(x): os._exit(0)", "assert f(1) != 2", "crash"),
        ("def f(x): return 1", "assert f(1) is True", "wrong"),
        ("def f(x): return True", "assert f(1) == 1", "pass"),
        ("def f(x): return 2.0", "assert f(1) == 2", "pass"),
        ("from decimal import Decimal\ndef f(x): return Decimal(2)", "assert f(1) == 2", "pass"),
        ("def f(x): return [1, 2]", "assert f(1) == (1, 2)", "wrong"),
        ("def f(x): return 1.5000001", "assert abs(f(1) - 1.5) < 1e-6", "pass"),
        ("def f(x): return 1.51", "assert abs(f(1) - 1.5) < 1e-6", "wrong"),
        ("def f(x): return 'x'", "assert abs(f(1) - 1.5) < 1e-6", "wrong"),
        ("def f(x): return x > 0", "for i in range(-3, 4):\n    assert f(i) == (i > 0)", "pass"),
        ("def f(x): return True", "for i in range(-3, 4):\n    assert f(i) == (i > 0)", "wrong"),
        ("def f(x): return [x][1]", "for i in range(3):\n    assert f(i) == i", "crash"),
        ("def f(x):\n    while True: x", "assert f(1) != 3", "timeout"),
    ],
)
def test_each_outcome_has_its_verdict(sandbox: SandboxPool, program: str, assertion: str, expected: str) -> None:
    assert verdict(sandbox, program, assertion) == expected


@pytest.mark.parametrize(
    "program",
    [
        "class Equal:\n    def __eq__(self, other): return True\ndef f(x): return Equal()",
        "class Equal(int):\n    def __eq__(self, other): return True\ndef f(x): return Equal(1)",
        "class Two:\n    def __repr__(self): return '2'\ndef f(x): return Two()",
        "import builtins\nbuiltins.AssertionError = type('A', (Exception,), {})\ndef f(x): return 1",
    ],
)
def test_a_program_that_redefines_equality_does_not_pass(sandbox: SandboxPool, program: str) -> None:
    assert verdict(sandbox, program, "assert f(1) == 2") != "pass"


def test_a_program_cannot_find_the_expected_value(sandbox: SandboxPool) -> None:
    program = """
import gc, sys
def f(x):
    frame, seen = sys._getframe(), []
    while frame:
        seen += [repr(value) for value in frame.f_locals.values() if value is not seen]
        frame = frame.f_back
    return any("".join(map(str, [86, 75, 309])) in text for text in seen + [repr(gc.get_objects())])
"""
    check = translate("assert f(1) == 8675309", "f")
    assert sandbox.run(program, calls=[call_of(check)]).executions[0].value == "False"


def test_a_tuple_equals_a_list_only_for_apps(sandbox: SandboxPool) -> None:
    program = "def f(x): return (1, (2,))"
    assert verdict(sandbox, program, "assert f(1) == [1, [2]]", source="apps") == "pass"
    assert verdict(sandbox, program, "assert f(1) == [1, [2]]") == "wrong"


def test_an_expected_list_of_one_may_be_its_item_only_for_apps(sandbox: SandboxPool) -> None:
    for program, own in (("def f(x): return 5", "wrong"), ("def f(x): return [5]", "pass")):
        assert verdict(sandbox, program, "assert f(1) == [5]", source="apps-plus") == "pass"
        assert verdict(sandbox, program, "assert f(1) == [5]") == own
    assert verdict(sandbox, "def f(x): return 5", "assert f(1) == [5, 6]", source="apps") == "wrong"


@pytest.mark.parametrize(
    ("digits", "returned", "expected"),
    [(5000, "9", "pass"), (5000, "8", "wrong"), (90_000, "9", "pass"), (90_000, "8", "wrong")],
)
def test_long_integers_are_compared(sandbox: SandboxPool, digits: int, returned: str, expected: str) -> None:
    program = f"def f(x): return x // 10 * 10 + {returned}"
    assert verdict(sandbox, program, f"assert f({'9' * digits}) == {'9' * digits}") == expected


def test_apps_solutions_get_the_names_they_presume(sandbox: SandboxPool) -> None:
    problem = Problem("a", "s", "call", entry_point="f", assertions=("assert f([3, 1]) == 1",), source="apps")
    check = assertions_of(problem)[0]
    run = sandbox.run("def f(x: List[int]): return heapq.nsmallest(1, x)[0]", calls=[call_of(check)])
    assert judge(run.executions[0], check).verdict == "pass"


@pytest.mark.parametrize(
    "value",
    [
        "[" * 5000 + "]" * 5000,
        "-" * 100_000 + "1",
        "9" * 5000,
        "'" * 7,
        "2 if True else 2",
        "__import__('os')",
        "x",
    ],
)
def test_hostile_values_are_wrong_and_harmless(value: str) -> None:
    check = translate("assert f() == 2", "f")
    assert judge(answer(value), check).verdict == "wrong"


@pytest.mark.parametrize("value", ["[5]", "{}", "''", "'aaa'", "()", "(True,)", "(1, 2, 3)", "{1: 1}", "5", "range(9)"])
@pytest.mark.parametrize("form", ["assert f()", "assert not f()"])
def test_no_value_that_a_program_wrote_itself_ends_the_judge(form: str, value: str) -> None:
    assert judge(answer(value), translate(form, "f")).verdict in ("wrong", "silent")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(), inner, max_size=3)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_every_builtin_value_survives_the_way_out_of_the_sandbox(value: object) -> None:
    check = replace(translate("assert f() == 2", "f"), expected=value)
    assert judge(answer(literal(value)), check).verdict == "pass"


@pytest.mark.parametrize(
    ("assertion", "program", "expected"),
    [
        ("assert abs(f(1) - 0.5) < 1e-6", "def f(x): return 10**400", "wrong"),
        ("assert abs(f(1) - 0.5) < 1e-6", "def f(x): return float('nan')", "wrong"),
        (f"assert f(1) == 0x{'f' * 5000}", "def f(x): return 1", "wrong"),
        (f"assert f(1) == 0x{'f' * 5000}", "def f(x): return 2**20000 - 1", "pass"),
        ("assert f(1) == 2", "def f(x): return 10**5000", "wrong"),
        ("assert f(1) == 2", "from decimal import *\ndef f(x): return Decimal(2)", "pass"),
        ("assert f(1) == 10**30", "from decimal import *\ndef f(x): return Decimal(10) ** 30", "pass"),
        ("assert f(1) == float('inf')", "from decimal import *\ndef f(x): return Decimal('Infinity')", "pass"),
        ("assert f(1) == 1e999", "from decimal import *\ndef f(x): return Decimal('Infinity')", "pass"),
        ("assert f(1) == 2", "from decimal import *\ndef f(x): return Decimal('NaN')", "wrong"),
        ("assert f(1) == 2", "from decimal import *\ndef f(x): return Decimal('1e999999999')", "wrong"),
        ("assert f(1) == 0.5", "from fractions import *\ndef f(x): return Fraction(1, 2)", "pass"),
    ],
)
def test_numbers_beyond_any_limit_are_compared_all_the_same(
    sandbox: SandboxPool, assertion: str, program: str, expected: str
) -> None:
    assert verdict(sandbox, program, assertion) == expected


def test_a_program_that_stops_listening_ends_itself_and_not_its_supervisor(sandbox: SandboxPool) -> None:
    """It says that it is ready and has closed the end where the supervisor answers."""
    program = """
        import os, time
        os.close(4)
        os.write(3, b"r")
        time.sleep(0.3)
    """
    call = call_of(translate("assert f() == 1", "f"))
    for execution in sandbox.run(textwrap.dedent(program), calls=[call, call]).executions:
        assert execution.returncode == 1
        assert "Bad file descriptor" in execution.stderr


VALUES = (
    "{'a': 1, 'b': 2}.keys()", "{'a': 1}.items()", "{'a': [1]}.items()", "{'a': 1}.values()", "OrderedDict(a=1).keys()",
    "Counter('aab')", "range(3)", "range(0)", "iter([1, 2])", "(n for n in (1, 2))", "map(int, '12')", "zip('a', (1,))",
    "reversed([1, 2])", "enumerate('a')", "deque([1, 2])", "UserList([1, 2])", "UserDict(a=1)", "UserString('ab')",
    "ChainMap({'a': 1})", "bytearray(b'ab')", "memoryview(b'ab')", "MappingProxyType({'a': 1})", "frozenset({1, 2})",
    "[range(2), {'a': 1}.keys()]", "({'a': 1}.items(),)", "array('i', [1, 2])", "7 ** 6000", "[10 ** 5000]",
    "None", "0", "''", "[]", "True", "'x'", "[None]",
)  # fmt: skip
CHECKS = (
    "f() == {'a', 'b'}", "f() == ['a', 'b']", "f() == {('a', 1)}", "f() == [('a', 1)]", "f() == [1, 2]",
    "f() == {1, 2}",
    "f() == {'a': 1}", "f() == 'ab'", "f() == b'ab'", "f() == []", "f() == [0, 1, 2]", "f() == {'a': 2, 'b': 1}",
    "1 in f()", "'a' in f()", "('a', 1) in f()", "('a', [1]) in f()", "1.5 in f()", "1 not in f()", "f() is None",
    "f() == None", "f() != [1, 2]", "f()", "not f()", f"f() == {hex(7**6000)}", "f() in ([1, 2], {1, 2})",
)  # fmt: skip
NAMES = (
    "from array import array\nfrom collections import *\nfrom collections import ChainMap, UserDict\n"
    "from types import MappingProxyType\n"
)


@pytest.mark.parametrize("value", VALUES)
def test_an_assertion_has_the_verdict_that_python_gives_it(sandbox: SandboxPool, value: str) -> None:
    program = f"{NAMES}def f():\n    return {value}\n"
    checks = [translate(f"assert {check}", "f") for check in CHECKS]
    run = sandbox.run(program, calls=[call_of(check) for check in checks])
    for text, check, execution in zip(CHECKS, checks, run.executions, strict=True):
        names: dict[str, Any] = {}
        exec(program, names)
        try:
            holds = bool(eval(text, names))
        except TypeError:
            holds = False
        assert (judge(execution, check).verdict == "pass") == holds, text


@pytest.mark.parametrize(
    ("value", "assertion", "expected"),
    [
        ("None", "assert f()", "silent"),
        ("None", "assert not f()", "pass"),
        ("0", "assert f()", "wrong"),
        ("itertools.count()", "assert 70_000 in f()", "wrong"),  # what is endless is searched up to a limit
        ("itertools.count()", "assert 2 in f()", "pass"),
        ("range(10 ** 18)", "assert 10 ** 17 in f()", "pass"),
        ("range(10 ** 18)", "assert 1.5 in f()", "wrong"),
        (
            "type('I', (), {'__iter__': lambda self: self, '__next__': lambda self: 1 / 0})()",
            "assert f() == 1",
            "crash",
        ),
    ],
)
def test_none_is_no_output_and_values_without_end_have_one(
    sandbox: SandboxPool, value: str, assertion: str, expected: str
) -> None:
    assert verdict(sandbox, f"import itertools\ndef f():\n    return {value}\n", assertion) == expected


def test_a_test_uses_what_the_prompt_imports(sandbox: SandboxPool) -> None:
    problem = Problem(
        "p", "Root.", "call", entry_point="f", starter_code="import math, os.path as path\n\ndef f(x):\n",
        assertions=("assert math.isclose(f(4), 2)", "assert f(4) == math.sqrt(4)", "assert path.sep and f(4) == 2"),
    )  # fmt: skip
    for program in ("def f(x):\n    return x ** 0.5\n", "import math\ndef f(x):\n    return math.sqrt(x)\n"):
        for check in assertions_of(problem):
            assert judge(sandbox.run(program, calls=[call_of(check)]).executions[0], check).verdict == "pass"


def test_a_name_of_the_program_hides_what_the_prompt_imports(sandbox: SandboxPool) -> None:
    problem = Problem(
        "p", "Root.", "call", entry_point="f", starter_code="import math\ndef f(x):\n",
        assertions=("assert f(math) == 3",),
    )  # fmt: skip
    (check,) = assertions_of(problem)
    program = "math = 3\ndef f(x):\n    return x\n"
    assert judge(sandbox.run(program, calls=[call_of(check)]).executions[0], check).verdict == "pass"
