"""Python test files in the sandbox: each test is one verdict, and its failure has a message."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from securecoderl_edge.problems.assertions import assertions_of
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.test_file import read_test_file
from securecoderl_edge.scoring.call_outcomes import call_of
from securecoderl_edge.scoring.explain import about_failure
from securecoderl_edge.scoring.scorer import Scorer

MODULE = '''"""A module with names that are builtins elsewhere."""


def compile(text):
    return text


exec = globals = None


def total(prices):
    return sum(prices)


class Cart:
    def add(self, price):
        if price < 0:
            raise ValueError("negative price")


if __name__ == "__main__":
    raise SystemExit("as a program")
'''


def verdicts_of(scorer: Scorer, tmp_path: Path, tests: str, module: str = MODULE) -> tuple[dict[str, str], str]:
    """The verdict of each test, and the explanation."""
    (tmp_path / "test_money.py").write_text(tests)
    file = read_test_file(tmp_path / "test_money.py", tmp_path / "shop" / "money.py")
    problem = Problem("edit", "", kind="call", assertions=file.tests, test_file=file)
    score = scorer.score(problem, module)
    return dict(zip(file.tests, score.verdicts, strict=True)), "\n".join(about_failure(scorer, problem, score))


def test_the_tests_of_a_long_file_share_its_text(tmp_path: Path) -> None:
    tests = "".join(f"def test_{number}(): pass\n" for number in range(500))
    (tmp_path / "test_money.py").write_text(f"import money\n#{'x' * 1_000_000}\n{tests}")
    file = read_test_file(tmp_path / "test_money.py", tmp_path / "money.py")
    problem = Problem("edit", "", kind="call", assertions=file.tests, test_file=file)
    tracemalloc.start()
    try:
        calls = [call_of(each, file) for each in assertions_of(problem)]
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(calls) == 500
    assert most < 1_000_000  # with a text for each: half a gigabyte


def test_each_test_has_its_verdict_and_the_message_of_its_assertion(scorer: Scorer, tmp_path: Path) -> None:
    tests = (
        "import pytest\nfrom shop import money\nfrom money import total\nimport shop.money\n\n\n"
        "def test_right():\n    assert total([1, 2]) == 3\n\n\n"
        "def test_same_module():\n    assert money is shop.money and money.total is total\n\n\n"
        "def test_sides():\n    assert total([1, 2]) == 4\n\n\n"
        "def test_message():\n    assert not total([1]), 'not empty'\n\n\n"
        "@pytest.mark.parametrize('prices, want', [([], 0), pytest.param([1], 2, id='one')])\n"
        "def test_cases(prices, want):\n    assert total(prices) == want\n\n\n"
        "def test_crash():\n    total(3)\n\n\n"
        "def test_no_error():\n    with pytest.raises(ValueError, match='neg'):\n        money.Cart().add(1)\n\n\n"
        "def test_error():\n    with pytest.raises(ValueError, match='neg') as caught:\n        money.Cart().add(-1)\n"
        "    assert caught.value.args == ('negative price',)\n\n\n"
        "def test_fail():\n    pytest.fail('on purpose')\n\n\n"
        "def test_leaves():\n    raise SystemExit(0)\n"
    )
    verdicts, why = verdicts_of(scorer, tmp_path, tests)
    passing = {"test_right", "test_same_module", "test_error"}
    crashing = {"test_crash", "test_leaves"}
    assert verdicts == {
        name: "pass" if name in passing else "crash" if name in crashing else "wrong" for name in verdicts
    }
    assert (
        "wrong: test_sides\n  test_money.py:16: assert total([1, 2]) == 4\n  AssertionError: 3 is not as expected: 4\n"
        in why
    )
    assert "AssertionError: not empty\n" in why
    assert "wrong: test_cases\n  with prices=[1], want=2\n" in why
    assert 'File "money.py", line 12, in total\n  TypeError: ' in why
    assert "AssertionError: did not raise <class 'ValueError'>\n" in why
    assert "AssertionError: on purpose" in why


def test_further_forms_of_pytest_work(scorer: Scorer, tmp_path: Path) -> None:
    tests = (
        "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nimport importlib\nimport pytest\n"
        "money = importlib.import_module('money')\n"
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n\n\n"
        "def test_name():\n    assert money.__name__ == 'money' and numpy is None and __name__ == 'test_money'\n\n\n"
        "def test_call():\n    caught = pytest.raises(ValueError, money.Cart().add, price=-1)\n"
        "    assert caught.match('negative')\n\n\n"
        "def test_call_wrong():\n    pytest.raises(ValueError, money.Cart().add, 1)\n\n\n"
        "@pytest.mark.parametrize(('a',), [(2,), pytest.param(3, marks=[])])\n"
        "def test_unpacked(a):\n    assert a in (2, 3)\n\n\n"
        "@pytest.mark.parametrize(argnames='a', argvalues=[(2,)])\n"
        "def test_packed(a):\n    assert a == (2,)\n"
    )
    verdicts, why = verdicts_of(scorer, tmp_path, tests)
    assert list(verdicts.values()) == ["pass", "pass", "wrong", "pass", "pass"], why


def test_testcases_run_with_their_setup(scorer: Scorer, tmp_path: Path) -> None:
    tests = (
        "import unittest\nimport money\n\n\nclass Money(unittest.TestCase):\n"
        "    @classmethod\n    def setUpClass(cls):\n        cls.one = 1\n"
        "    def setUp(self):\n        self.prices = [self.one]\n"
        "    def test_right(self):\n        self.assertEqual(money.total(self.prices), 1)\n"
        "    def test_wrong(self):\n        self.assertEqual(money.total(self.prices), 2)\n"
        "    def test_crash(self):\n        money.total(None)\n\n\n"
        "class TestCart:\n    def setup_method(self):\n        self.cart = money.Cart()\n"
        "    def test_add(self):\n        assert self.cart.add(1) is None\n"
    )
    verdicts, why = verdicts_of(scorer, tmp_path, tests)
    assert list(verdicts.values()) == ["pass", "wrong", "crash", "pass"]
    assert "AssertionError: 1 != 2" in why


@pytest.mark.parametrize(("left", "right", "holds"), [
    ("0.1 + 0.2", "0.3", True), ("1", "1.1", False), ("[0.3]", "[0.1 + 0.2]", True), ("[1]", "[1, 2]", False),
    ("{'a': 0.3}", "{'a': 0.1 + 0.2}", True), ("'a'", "'a'", True), ("None", "1", False), ("1", "None", False),
    ("105", "100, abs=5", True), ("106", "100, abs=5", False), ("101", "100, rel=0.02", True), ("2", "0", False),
    ("float('nan')", "1", False), ("float('inf')", "float('inf')", True),
    ("5", "float('inf')", False), ("-float('inf')", "float('inf')", False), ("float('nan')", "float('nan')", False),
])  # fmt: skip
def test_approx_is_that_of_pytest(scorer: Scorer, tmp_path: Path, left: str, right: str, holds: bool) -> None:
    test = f"import money\nfrom pytest import approx\n\n\ndef test_it():\n    assert {left} == approx({right})\n"
    assert eval(f"{left} == approx({right})", {"approx": pytest.approx}) is holds
    assert verdicts_of(scorer, tmp_path, test)[0]["test_it"] == ("pass" if holds else "wrong")


def test_a_name_that_the_file_does_not_import_is_missing_as_outside(scorer: Scorer, tmp_path: Path) -> None:
    module = "def total(prices: List[int]):\n    return 0\n"
    verdicts, why = verdicts_of(scorer, tmp_path, "import money\n\n\ndef test_it():\n    money.total([])\n", module)
    assert verdicts == {"test_it": "crash"}
    assert "NameError: name 'List' is not defined" in why


def test_a_file_that_fails_when_it_is_imported_does_not_pass(scorer: Scorer, tmp_path: Path) -> None:
    module = "def total(prices):\n    return 0\n\n\n1 / 0\n"
    tests = "import money\n\n\ndef test_a():\n    assert money.total([]) == 0\n\n\ndef test_b():\n    pass\n"
    verdicts, why = verdicts_of(scorer, tmp_path, tests, module)
    assert list(verdicts.values()) == ["pass", "own_error"]
    assert "ZeroDivisionError" in why


def test_a_program_that_ends_before_its_tests_does_not_pass(scorer: Scorer, tmp_path: Path) -> None:
    tests = "import money\n\n\ndef test_a():\n    assert money.total([]) == 1\n"
    for module in ("import os\nos._exit(0)\n", "raise SystemExit(0)\n", "while True: pass\n"):
        verdict = verdicts_of(scorer, tmp_path, tests, module)[0]["test_a"]
        assert verdict in ("crash", "timeout")
