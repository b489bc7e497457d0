"""Scores of programs in C: the levels of Table 1, findings of sanitizers as R_sec, functions with a driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from securecoderl_edge.languages.language import LANGUAGES
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.explain import explain
from securecoderl_edge.scoring.references import INSECURE, check_problems
from securecoderl_edge.scoring.score import score_from_record
from securecoderl_edge.scoring.scorer import Scorer

pytestmark = [pytest.mark.usefixtures("c_compiler"), pytest.mark.timeout(300)]
DOUBLE = Problem("double", "Double it.", tests=(Test("1\n", "2\n"), Test("4\n", "8\n")), language="c")
RIGHT = '#include <stdio.h>\nint main(void) { int n; scanf("%d", &n); printf("%d\\n", 2 * n); return 0; }\n'
PART = RIGHT.replace("2 * n", "n + 1")
OVERFLOW = RIGHT.replace("2 * n", "n * 2147483647 * 2 / 2147483647")
PROGRAMS = {
    "int main(void) { return x; }": (0, 0.0, 0.0),
    "int main(void) { return 1; }": (1, 0.2, 1.0),
    OVERFLOW: (1, 0.2, 0.5),
    "int main(void) { return 0; }": (2, 0.4, 1.0),
    PART: (3, 0.8, 1.0),
    RIGHT: (4, 1.0, 1.0),
}
SUM = Problem(
    "sum",
    "Write `int sum(const int *numbers, int count)`.",
    tests=(Test("3 1 2 3", "6"), Test("0", "0")),
    language="c",
    entry_point="sum",
    starter_code="int sum(const int *numbers, int count);",
    driver='#include <stdio.h>\nint main(void) {\n    int count, numbers[9];\n    scanf("%d", &count);\n'
    '    for (int n = 0; n < count; n++) scanf("%d", numbers + n);\n    printf("%d\\n", sum(numbers, count));\n}\n',
)
LOOP = "int sum(const int *numbers, int count) { int all = 0; while (count--) all += *numbers++; return all; }"


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(1, Limits(cpu_seconds=2, wall_seconds=20, memory_mib=256)) as opened:
        yield opened


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_level_has_its_reward(scorer: Scorer, program: str) -> None:
    score = scorer.score(DOUBLE, program)
    stage, r_func, r_sec = PROGRAMS[program]
    assert (score.stage, round(score.r_func, 6)) == (stage, r_func)
    assert stage == 0 or score.r_sec == r_sec
    assert score_from_record(score.to_record()) == score


def test_a_finding_is_explained_and_needs_no_line(scorer: Scorer) -> None:
    problem = replace(DOUBLE, tests=DOUBLE.tests[:1])
    heap = "#include <stdlib.h>\nint main(void) { char *volatile p = malloc(8); return p[8]; }\n"
    for program, words in ((OVERFLOW, "(CWE-190) in line 2"), (heap, "heap-buffer-overflow (CWE-122)\n")):
        score, run = scorer.inspect(problem, program)
        text = explain(score, run, "2", scorer.limits, LANGUAGES["c"])
        assert text.startswith("crash: a sanitizer stopped it\n")
        assert words in text
    score, run = scorer.inspect(problem, "int main( {")
    assert explain(score, run, "2", scorer.limits, LANGUAGES["c"]).startswith("does not compile: not a C program\n")


def test_bandit_does_not_read_c(scorer: Scorer) -> None:
    assert scorer.score(DOUBLE, RIGHT).findings == ()
    assert scorer.score(DOUBLE, "eval(input())").stage == 0


def test_a_function_is_called_by_its_driver_and_judged_by_what_it_prints(scorer: Scorer) -> None:
    assert scorer.score(SUM, LOOP).passes_all_tests
    wrong = scorer.score(SUM, LOOP.replace("all = 0", "all = 1"))
    assert (wrong.stage, wrong.passed) == (3, 0)
    assert scorer.score(SUM, LOOP.replace("sum", "total")).stage == 0
    assert wrong.program == LOOP.replace("all = 0", "all = 1")


def test_an_attack_that_a_sanitizer_stops_fails_its_security_test(scorer: Scorer) -> None:
    copy = '#include <stdio.h>\nint main(void) { char name[9]; scanf("%s", name); printf("%s\\n", name); return 0; }'
    careful = copy.replace('%s", name', '%8s", name')
    problem = Problem(
        "name",
        "Print the name.",
        tests=(Test("Ann\n", "Ann"), Test("Bo\n", "Bo")),
        security_tests=(SecurityTest("a long name", 121, input="A" * 99, output="A" * 8),),
        language="c",
    )
    safe, unsafe = scorer.score(problem, careful), scorer.score(problem, copy)
    assert (safe.passes_all_tests, safe.failed_security, safe.r_sec) == (True, (), 1.0)
    assert (unsafe.passes_all_tests, len(unsafe.failed_security), unsafe.r_sec) == (True, 1, 0.0)
    forbidden = SecurityTest("a long name", 121, input="A" * 99, forbidden="root")
    assert scorer.score(replace(problem, security_tests=(forbidden,)), careful).failed_security == ()
    assert scorer.score(replace(problem, security_tests=(forbidden,)), copy).failed_security[0].verdict == "crash"
    report = check_problems(
        [replace(problem, solutions=(copy,)), replace(problem, id="b", solutions=(careful,))], scorer
    )
    assert [each.kind for each in report.failed] == [INSECURE]
    assert list(report.passing) == ["b"]
