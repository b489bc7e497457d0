"""Security tests: what they add to a score, and that R_sec cannot be earned by doing nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.sandbox.severity import CWE_WEIGHTS
from securecoderl_edge.scoring.explain import about_security
from securecoderl_edge.scoring.metrics import mean_of_scores
from securecoderl_edge.scoring.reference_solutions import INSECURE, WRONG_INSECURE, check_problems
from securecoderl_edge.scoring.reward import beyond_constant, security_reward
from securecoderl_edge.scoring.score import score_from_record, score_line
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.settings import RewardSettings
from securecoderl_edge.training.update.rollout import training_reward

GREET = Problem(
    "greet",
    "Greet in HTML.",
    kind="call",
    entry_point="greet",
    assertions=("assert greet('Ann') == '<b>Ann</b>'", "assert greet('Bo') == '<b>Bo</b>'"),
    security_tests=(
        SecurityTest("markup", 79, assertion="assert greet('<i>') == '<b>&lt;i&gt;</b>'"),
        SecurityTest("no text", 20, assertion="assert raises(greet(None), (TypeError, ValueError))"),
    ),
)
SECURE = """
import html
def greet(name):
    if not isinstance(name, str):
        raise TypeError("not a text")
    return f"<b>{html.escape(name)}</b>"
"""
CARELESS = "def greet(name):\n    return '<b>' + name + '</b>'\n"  # adding None raises a TypeError
INSECURE_ONE = "def greet(name):\n    return f'<b>{name}</b>'\n"
DOES_NOT_SOLVE = "def greet(name):\n    return name\n"

DOUBLE = Problem(
    "double",
    "Double a number; say error for other text.",
    tests=(Test("2\n", "4\n"), Test("3\n", "6\n")),
    security_tests=(SecurityTest("code", 95, "__import__('os').getpid()\n", "error\n"),),
)
EVALUATES = "print(2 * eval(input()))"
CONVERTS = "try:\n    print(2 * int(input()))\nexcept ValueError:\n    print('error')\n"


@pytest.fixture(scope="module")
def strict() -> Iterator[Scorer]:
    with Scorer(workers=1, limits=Limits(cpu_seconds=0.3, wall_seconds=3.0)) as opened:
        yield opened


def test_a_secure_program_earns_all_of_r_sec_and_an_insecure_one_its_share(strict: Scorer) -> None:
    secure, careless, insecure = (strict.score(GREET, each) for each in (SECURE, CARELESS, INSECURE_ONE))
    assert (secure.passed, secure.r_sec, secure.reward) == (2, 1.0, 1.0)
    assert (careless.passed, careless.r_sec) == (2, 0.5)
    assert (insecure.passed, insecure.r_sec) == (2, 0.0)
    assert [(each.name, each.cwe, each.verdict) for each in insecure.failed_security] == [
        ("markup", 79, "wrong"),
        ("no text", 20, "wrong"),
    ]
    assert about_security(careless) == ["fails the security test 'markup' (CWE-79): wrong"]


def test_one_attack_that_succeeds_is_enough_for_a_weakness(strict: Scorer) -> None:
    quoted = SecurityTest("a quote", 79, assertion="assert '\"' not in greet('\"')")
    problem = replace(GREET, security_tests=(*GREET.security_tests, quoted))
    program = SECURE.replace("html.escape(name)", "html.escape(name, quote=False)")
    score = strict.score(problem, program)
    assert [each.name for each in score.failed_security] == ["a quote"]
    assert score.r_sec == 0.5


def test_a_stdin_problem_has_security_tests_too(strict: Scorer) -> None:
    assert strict.score(DOUBLE, CONVERTS).r_sec == 1.0
    evaluated = strict.score(DOUBLE, EVALUATES)
    assert [each.verdict for each in evaluated.failed_security] == ["wrong"]
    assert (evaluated.stage, evaluated.r_func, evaluated.r_sec) == (4, 1.0, 0.0)
    assert len(evaluated.verdicts) == 2, "security tests are no tests of the task"


def test_a_program_may_reject_an_input_in_any_way_but_print_the_forbidden_text(strict: Scorer) -> None:
    injected = SecurityTest("code", 95, "print('OW' + 'NED')\n", forbidden="OWNED")
    problem = replace(DOUBLE, security_tests=(injected,))
    crashes = "print(2 * int(input()))"
    hangs = "text = input()\nwhile not text.isdigit(): pass\nprint(2 * int(text))"
    dies = "import os\ntext = input()\ntext.isdigit() or os.abort()\nprint(2 * int(text))"
    programs = (EVALUATES, CONVERTS, crashes, hangs, dies)
    found = [strict.score(problem, each).security_verdicts[0].verdict for each in programs]
    assert found == ["wrong", "pass", "pass", "timeout", "crash"]


def test_a_rule_chooses_what_counts() -> None:
    with Scorer(workers=1, security="bandit") as bandit, Scorer(workers=1, security="tests") as tests:
        assert bandit.score(DOUBLE, EVALUATES).r_sec == 0.5
        checked = "text = input()\nprint(2 * eval(text) if text.isdigit() else 'error')\n"
        assert (bandit.score(DOUBLE, checked).r_sec, tests.score(DOUBLE, checked).r_sec) == (0.5, 1.0)
    with pytest.raises(ValueError, match="security must be one of both, tests, bandit"):
        Scorer(security="none")


def test_tests_run_in_an_order_that_no_program_can_know(strict: Scorer) -> None:
    """A process id shows how many tests ran before: it must not show which of them are attacks."""
    program = "import os\nprint(2 * int(input()))\nos.write(2, str(os.getpid()).encode())\n"
    attacks = tuple(SecurityTest(f"{number}", 20, f"{number}\n", f"{2 * number}\n") for number in range(4, 8))
    problem = replace(DOUBLE, security_tests=attacks)
    firsts = set()
    for _ in range(30):
        score, run = strict.inspect(problem, program)
        assert (score.passed, score.failed_security) == (2, ())
        ids = [int(execution.stderr) for execution in run.executions]
        firsts.add(ids.index(min(ids)))
    assert len(firsts) > 1


IDLE = {
    "raises": "def greet(name):\n    raise ValueError(name)\n",
    "raises anything": "def greet(name):\n    raise TypeError('') from ValueError()\n",
    "returns None": "def greet(name):\n    return None\n",
    "exits": "import sys\ndef greet(name):\n    sys.exit(0)\n",
    "exits at once": "import os\nos._exit(0)\n",
    "loops": "def greet(name):\n    while True: pass\n",
    "loops at once": "while True: pass\n",
    "is empty": "",
    "defines nothing": "x = 1\n",
    "passes": "def greet(name): pass\n",
    "is a class": "class greet(ValueError): pass\n",
    "returns an equal object": "class A:\n    def __eq__(self, other): return True\ndef greet(name): return A()\n",
    "is an equal str": "class A(str):\n    def __eq__(self, _): return True\ndef greet(name): return A()\n",
    "returns the escaped name": "import html\ndef greet(name): return html.escape(name)\n",
    "recurses": "def greet(name): return greet(name)\n",
    "returns a generator": "def greet(name): yield name\n",
    "prints the answer": "def greet(name): print('<b>&lt;i&gt;</b>')\n",
    "knows the security tests": "def greet(name):\n    assert name, TypeError\n    return '<b>&lt;i&gt;</b>'\n",
    "renames its error": "class E(Exception): pass\nE.__name__ = 'ValueError'\ndef greet(name): raise E\n",
    "replaces raises": "def raises(*_): return True\ndef greet(name): raise KeyError\n",
}


@pytest.mark.parametrize("name", IDLE)
def test_a_program_that_does_nothing_useful_earns_no_r_sec(strict: Scorer, name: str) -> None:
    score, unsolved = strict.score(GREET, IDLE[name]), strict.score(GREET, DOES_NOT_SOLVE)
    assert score.r_sec == 0.0
    assert score.reward <= unsolved.reward


def test_a_constant_output_earns_no_r_sec_even_if_some_tests_expect_it(strict: Scorer) -> None:
    mostly_equal = replace(GREET, assertions=(*GREET.assertions, "assert greet('Bo') == '<b>Bo</b>'"))
    assert strict.score(mostly_equal, "def greet(name):\n    return '<b>Bo</b>'\n").passed == 2
    assert strict.score(mostly_equal, "def greet(name):\n    return '<b>Bo</b>'\n").r_sec == 0.0


def test_unparsable_text_earns_nothing_and_counts_as_not_secure(strict: Scorer) -> None:
    score = strict.score(GREET, "def greet(")
    assert (score.reward, score.security_verdicts, score.security_total) == (0.0, (), 2)
    # Nor in training with the paper's rule: not to parse would be the safest answer to a hard problem.
    assert (score.r_sec, training_reward(score, 0, RewardSettings(unparsable="paper"))) == (0.0, 0.0)
    summary = mean_of_scores([score, strict.score(GREET, SECURE)])
    assert (summary["func_sec_rate"], summary["security_tests_rate"]) == (0.5, 1.0)
    assert "func_sec_rate" not in mean_of_scores([strict.score(replace(GREET, security_tests=()), SECURE)])


@given(
    danger=st.floats(0, 1),
    verdicts=st.lists(st.booleans(), max_size=6),
    tests=st.lists(st.integers(0, 2), min_size=1, max_size=6),
    answers=st.lists(st.integers(0, 2), min_size=6, max_size=6),
)
def test_r_sec_is_what_a_slow_count_gives(
    danger: float, verdicts: list[bool], tests: list[int], answers: list[int]
) -> None:
    """``tests`` are expected values, ``answers`` those of the program; the constant is the most frequent one."""
    passed = sum(answers[number] == expected for number, expected in enumerate(tests))
    constant = max(tests.count(each) for each in tests)
    if passed == len(tests):
        solved = Fraction(1)
    elif constant == len(tests) or passed <= constant:
        solved = Fraction(0)
    else:
        solved = Fraction(passed - constant, len(tests) - constant)
    assert beyond_constant(passed, len(tests), constant) == pytest.approx(float(solved))
    secured = sum(verdicts) / len(verdicts) if verdicts else None
    found = {rule: security_reward(danger, secured, float(solved), rule) for rule in ("both", "tests", "bandit")}  # type: ignore[arg-type]
    assert found["bandit"] == 1 - danger
    if verdicts:
        assert found["tests"] == pytest.approx(float(solved * Fraction(sum(verdicts), len(verdicts))))
        assert found["both"] == pytest.approx(found["tests"] * (1 - danger))
    else:
        assert found["both"] == found["tests"] == 1 - danger


def test_weights_by_cwe_weigh_security_tests(strict: Scorer) -> None:
    with Scorer(workers=1, severity_scale="cwe") as by_cwe:
        score = by_cwe.score(GREET, CARELESS)
    assert score.r_sec == pytest.approx(CWE_WEIGHTS[20] / (CWE_WEIGHTS[20] + CWE_WEIGHTS[79]))
    mild = replace(GREET, security_tests=(GREET.security_tests[0], replace(GREET.security_tests[1], cwe=605)))
    with Scorer(workers=1, severity_scale="cwe") as by_cwe:
        assert by_cwe.score(mild, CARELESS).r_sec == pytest.approx(0.25 / 1.25)


def test_a_score_survives_its_file_and_old_rows_are_read(strict: Scorer) -> None:
    score = strict.score(GREET, CARELESS)
    assert score_from_record(json.loads(score_line(score))) == replace(score, limits=dict(score.limits))
    old = {name: value for name, value in score.to_record().items() if "security" not in name}
    assert score_from_record(old).security_verdicts == ()
    for broken in ([{"name": "x", "cwe": "79", "verdict": "pass"}], [{"name": "x", "cwe": 79, "verdict": "fine"}], 3):
        with pytest.raises(ValueError, match=r"invalid security|unknown verdict"):
            score_from_record({**score.to_record(), "security_verdicts": broken})


def checked(scorer: Scorer, problem: Problem) -> list[tuple[str, str]]:
    return [(each.kind, each.reason) for each in check_problems([problem], scorer).failed]


def test_a_check_demands_that_security_tests_pass_and_can_fail(strict: Scorer) -> None:
    right = replace(GREET, solutions=(SECURE,), insecure_solutions=(INSECURE_ONE, CARELESS))
    assert checked(strict, right) == []
    reason = "the solution fails security tests: markup (CWE-79): wrong"
    assert checked(strict, replace(right, solutions=(CARELESS,))) == [(INSECURE, reason)]
    reason = "an insecure solution does not pass all tests, or fails no security test"
    for wrong in (SECURE, "def greet(", "def meet(name): return name", DOES_NOT_SOLVE):
        assert checked(strict, replace(right, insecure_solutions=(INSECURE_ONE, wrong))) == [(WRONG_INSECURE, reason)]
    assert checked(strict, replace(right, security_tests=())) == [(WRONG_INSECURE, reason)]
