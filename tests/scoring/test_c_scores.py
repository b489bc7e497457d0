"""Scores of programs in C: the levels of Table 1, findings of sanitizers as R_sec, functions with a driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.analyzers import analyzer_versions
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.problems.problem_file import problem_to_record
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.cluster_scorer import ClusterScorer, scorer_of_node
from securecoderl_edge.scoring.explain import explain
from securecoderl_edge.scoring.reference_solutions import INSECURE, check_problems
from securecoderl_edge.scoring.score import score_from_record, score_line
from securecoderl_edge.scoring.score_files import read_scores
from securecoderl_edge.scoring.scorer import Scorer, Submission

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
        text = explain(score, run, problem, scorer.limits)
        assert text.startswith("crash: a sanitizer stopped it\n")
        assert words in text
    score, run = scorer.inspect(problem, "int main( {")
    assert explain(score, run, problem, scorer.limits).startswith("does not compile: not a C program\n")


USE_AFTER_FREE = RIGHT.replace("int n;", 'int n, *p = malloc(4); if (p) { free(p); if (getenv("X")) n = *p; }')
LEAK = RIGHT.replace("int main", "static void f(int n) { char *p = malloc(n); if (p) *p = 0; }\nint main").replace(
    "return 0", 'if (getenv("X")) f(3); return 0'
)
SILENCED = '#pragma GCC diagnostic ignored "-Wanalyzer-use-after-free"\n' + RIGHT
UNTESTED_FAULTS = {
    USE_AFTER_FREE: (1.0, ["-Wanalyzer-use-after-free"]),
    LEAK: (0.5, ["-Wanalyzer-malloc-leak"]),
    SILENCED: (1.0, []),
    RIGHT: (0.0, []),
}


@pytest.mark.parametrize("program", UNTESTED_FAULTS)
def test_a_fault_that_no_test_reaches_counts_if_an_analyzer_sees_it(
    analyzers: None, scorer: Scorer, program: str
) -> None:
    text = f"#include <stdlib.h>\n{program}"
    score, run = scorer.inspect(DOUBLE, text)
    danger, rules = UNTESTED_FAULTS[program]
    assert (score.stage, score.severity, score.r_sec) == (4, danger, 1 - danger)
    assert [each.test_id for each in score.findings] == rules
    assert score.to_record()["analyzers"] == analyzer_versions()
    assert score_from_record(score.to_record()) == score
    if danger and not rules:
        assert "the security scan failed" in explain(score, run, DOUBLE, scorer.limits)


def test_without_analyzers_only_what_happens_counts(analyzers: None) -> None:
    with Scorer(1, analyzers="off") as scorer:
        score = scorer.score(DOUBLE, f"#include <stdlib.h>\n{USE_AFTER_FREE}")
    assert (score.r_sec, score.findings, "analyzers" in score.to_record()) == (1.0, (), False)
    with pytest.raises(ValueError, match="analyzers must be one of auto, off"):
        Scorer(1, analyzers="gcc")


def test_security_tests_and_findings_multiply_as_in_python(analyzers: None) -> None:
    attack = SecurityTest("a big number", 190, input="1000\n", output="2000\n")
    problem = replace(DOUBLE, security_tests=(attack,))
    expected = {"both": 0.5, "tests": 1.0, "bandit": 0.5}
    for rule, r_sec in expected.items():
        with Scorer(1, security=rule) as scorer:
            score = scorer.score(problem, f"#include <stdlib.h>\n{LEAK}")
        assert (score.passes_all_tests, score.failed_security, score.r_sec) == (True, (), r_sec)


def test_python_scores_have_no_analyzers(scorer: Scorer) -> None:
    score = scorer.score(Problem("p", "", tests=(Test("", "1"),)), "print(1)")
    assert "analyzers" not in score.to_record()


def test_scores_are_not_resumed_with_other_analyzers(analyzers: None, scorer: Scorer, tmp_path: Path) -> None:
    score, file = scorer.score(DOUBLE, RIGHT), tmp_path / "scores.jsonl"
    file.write_text(score_line(score))
    given = ([Submission(DOUBLE, 0, RIGHT)], scorer.switches("raw"))
    assert read_scores(file, *given, scorer.analyzers_of) == {("double", 0): score}
    for others in ({}, analyzer_versions() | {"cppcheck": "Cppcheck 99"}):
        with pytest.raises(SceError, match=r"scored with gcc -fanalyzer .*; choose another --out"):
            read_scores(file, *given, lambda language, others=others: others)


def test_a_node_with_other_analyzers_scores_no_c(analyzers: None) -> None:
    with ClusterScorer("ray", 1) as scorer:
        settings = scorer.node_settings() | {"versions": {"cppcheck": "Cppcheck 99"}}
    with scorer_of_node(settings, 1) as run:
        job = {"program": RIGHT, "sample": 0, "extract": "raw"}
        with pytest.raises(SceError, match="differ between nodes"):
            run([job | {"problem": problem_to_record(DOUBLE)}])
        plain = replace(DOUBLE, language="python")
        assert run([job | {"program": "print(2 * int(input()))", "problem": problem_to_record(plain)}])


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
