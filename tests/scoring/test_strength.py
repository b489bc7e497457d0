"""Which tests let a program pass that does not solve the task."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.scoring.reference_solutions import check_problems
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.scoring.strength import Strength, measure_strength


def call(*assertions: str, solution: str = "", name: str = "f") -> Problem:
    solutions = (solution,) if solution else ()
    return Problem("p", "Write it.", "call", entry_point=name, assertions=assertions, solutions=solutions)


def strength(problem: Problem, scorer: Scorer, most: int = 20) -> Strength:
    report = check_problems([problem], scorer)
    assert not report.failed
    (found,) = measure_strength([problem], report.passing, scorer, most).problems
    return found


WEAK = {
    "is": call("assert f(1) is True", "assert f(3) is True", solution="def f(n): return n % 2 == 1"),
    "bare": call("assert f(1)", "assert f(3)", solution="def f(n): return n % 2 == 1"),
    "not": call("assert not f([])", "assert not f([0])", solution="def f(n): return sum(n)"),
    "in": call("assert 'a' in f('a')", "assert 'b' in f('b')", solution="def f(s): return s * 2"),
    "not in": call("assert '<' not in f('<a>')", solution="def f(s): return s.strip('<>')"),
    "one of": call("assert f(1) in (1, 2)", "assert f(2) in (2, 3)", solution="def f(n): return n"),
    "near": call("assert abs(f(2) - 1.4) < 0.2", "assert abs(f(3) - 1.7) < 0.2", solution="def f(n): return n ** 0.5"),
    "set": call("assert f([1, 2]) == set([1, 2])", solution="def f(a): return set(a)"),
    "raises": call("assert raises(f(''), ValueError)", solution="def f(s): return int(s)"),
    "own error": call(
        "class Refused(Exception): pass\nassert raises(f(0), Refused)", solution="def f(n):\n    raise Refused",
    ),
    "length": call("assert len(f(3)) == 3", "assert len(f(3)) > 1", solution="def f(n): return 'x' * n"),
    "part": call("assert f(3)[0] == 9", solution="def f(n): return [n * n, 'rest']"),
    "whole": call("r = f(2)\nassert r == 4 and r > 0", solution="def f(n): return n * n"),
    "copy": call("assert f('a') == 'a'", "assert f('b') == 'b'", solution="def f(s): return s.replace('<', '')"),
    "method": call("assert Solution().f(2) == 4", solution="class Solution:\n    def f(self, n): return n * n"),
    "class": call(
        "s = Stack()\ns.push(1)\nassert s.pop() == 1",
        solution="class Stack(list):\n    def push(self, x): self.append(x)\n    def pop(self): return super().pop()",
        name="Stack",
    ),
    "no reference": call("assert f(1) == 2", "assert f(3) == 2"),
    "class without reference": call("assert Box(1).get() == 2", name="Box"),
    "stdin": Problem("p", "s", tests=(Test("1\n", "YES\n"), Test("3\n", "YES\n")), solutions=("print('YES')",)),
    "echo": Problem("p", "s", tests=(Test("1\n", "1\n"), Test("2\n", "2\n")), solutions=("print(int(input()))",)),
    "checker": Problem(
        "p", "s", tests=(Test("4\n", "2\n"), Test("9\n", "3\n")), solutions=("print(1)",),
        checker="def check(given, output, expected): return int(given) % int(output) == 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WEAK)
def test_a_problem_that_a_cheap_program_passes_is_weak(kind: str, scorer: Scorer) -> None:
    assert strength(WEAK[kind], scorer, 0).is_weak


STRONG = {
    "values": call("assert f(1) == 2", "assert f(2) == 3", solution="def f(n): return n + 1"),
    "true and false": call("assert f(1) is True", "assert f(2) is False", solution="def f(n): return n % 2 == 1"),
    "error and value": call(
        "assert raises(f(''), ValueError)", "assert f('4') == 4", solution="def f(s): return int(s)"
    ),
    "bare": call("assert f(1)", "assert not f(2)", solution="def f(n): return n % 2"),
    "lengths": call("assert len(f(3)) == 3", "assert len(f(2)) == 2", solution="def f(n): return 'x' * n"),
    "stdin": Problem("p", "s", tests=(Test("1\n", "2\n"), Test("2\n", "4\n")), solutions=("print(2 * int(input()))",)),
}


@pytest.mark.parametrize("kind", STRONG)
def test_a_problem_that_no_cheap_program_passes_is_not(kind: str, scorer: Scorer) -> None:
    assert strength(STRONG[kind], scorer, 0).passing == []


CLAMP = "def f(n):\n    if n > 5:\n        return 5\n    return n"


def test_mutants_survive_where_no_test_looks(scorer: Scorer) -> None:
    loose = strength(call("assert f(1) == 1", "assert f(2) == 2", solution=CLAMP), scorer)
    tight = strength(call("assert f(1) == 1", "assert f(6) == 5", "assert f(5) == 5", solution=CLAMP), scorer)
    assert loose.mutants == tight.mutants > 5
    assert {"line 3: left out", "line 3: 5 becomes 6", "line 2: > becomes >="} <= set(loose.survivors)
    assert set(tight.survivors) < set(loose.survivors)
    assert "line 3: left out" not in tight.survivors


def test_a_mutant_that_loops_without_end_is_noticed(scorer: Scorer) -> None:
    loop = "def f(n):\n    while n > 0:\n        n -= 2\n    return n"
    found = strength(call("assert f(4) == 0", "assert f(3) == -1", solution=loop), scorer)
    assert "line 3: left out" not in found.survivors
    assert found.mutants > 0


def test_an_attack_notices_a_mutant_and_excuses_no_cheap_program(scorer: Scorer) -> None:
    safe = "def f(s):\n    return s.replace('<', '')"
    problem = replace(
        call("assert f('a') == 'a'", solution=safe),
        security_tests=(SecurityTest("markup", 79, assertion="assert '<' not in f('<i>')"),),
    )
    found = strength(problem, scorer)
    assert "return argument 1" in found.passing
    assert not [each for each in found.survivors if "'<' becomes" in each]
    without = strength(replace(problem, security_tests=()), scorer)
    assert [each for each in without.survivors if "'<' becomes" in each]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_programs_in_c_are_tried_without_mutants(scorer: Scorer) -> None:
    echo = '#include <stdio.h>\nint main(void) { int n; scanf("%d", &n); printf("%d\\n", n > 0); return 0; }\n'
    problem = Problem("p", "s", tests=(Test("1\n", "1\n"), Test("4\n", "1\n")), solutions=(echo,), language="c")
    found = strength(problem, scorer)
    assert (found.passing, found.mutants) == (["print '1'"], 0)
    function = Problem(
        "p", "s", tests=(Test("3\n", "7\n"), Test("4\n", "7\n")), solutions=("int seven(int n) { return n ? 7 : 0; }",),
        language="c", entry_point="seven", starter_code="int seven(int n);\n",
        driver='#include <stdio.h>\nint main(void) { int n; scanf("%d", &n); printf("%d\\n", seven(n)); return 0; }\n',
    )  # fmt: skip
    assert strength(function, scorer).passing == ["return 7"]


def test_the_record_has_the_rates_of_the_file_and_of_each_problem(scorer: Scorer) -> None:
    problems = [
        replace(WEAK["is"], id="weak"),
        replace(STRONG["values"], id="strong"),
        replace(WEAK["no reference"], id="bare"),
    ]
    report = measure_strength(problems, check_problems(problems, scorer).passing, scorer, 6, 3)
    record = report.to_record()
    assert record["weak"] == 2
    assert record["passing"] == {"return True": 1, "return 2": 1}
    rows = {row["id"]: row for row in record["problems"]}
    assert list(rows) == ["weak", "strong", "bare"]
    assert (rows["bare"]["mutants"], rows["bare"]["survival"]) == (0, None)
    assert record["mutants"] == rows["weak"]["mutants"] + rows["strong"]["mutants"]
    survivors = sum(len(row["survivors"]) for row in rows.values())
    assert record["survival"] == pytest.approx(survivors / record["mutants"], abs=1e-4)
    again = measure_strength(problems, check_problems(problems, scorer).passing, scorer, 6, 3)
    assert again.to_record() == record
