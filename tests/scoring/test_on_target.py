"""Scores of problems with a target: a test passes natively and on the board; each broken limit is a failed test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages import targets
from securecoderl_edge.languages.targets import NO_BUDGET, TargetBudget
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.explain import explain
from securecoderl_edge.scoring.reference_solutions import check_problems
from securecoderl_edge.scoring.reward import Outcome, functional_reward, over_budget, stage
from securecoderl_edge.scoring.score import score_from_record
from securecoderl_edge.scoring.scorer import Scorer

PASS, WRONG = Outcome("pass", True, True), Outcome("wrong", True, False)
BUDGET = TargetBudget(code_bytes=40, stack_bytes=16, heap=False, float=False, recursion=False)
CLAMP = Problem(
    "clamp",
    "Write `int clamp(int value)`.",
    tests=(Test("300", "255"), Test("-1", "0"), Test("7", "7")),
    language="c",
    entry_point="clamp",
    starter_code="int clamp(int value);",
    driver='#include <stdio.h>\nint main(void) { int v; scanf("%d", &v); printf("%d\\n", clamp(v)); return 0; }\n',
    target="cortex-m3",
    budget=BUDGET,
)
SMALL = "int clamp(int value) { return value < 0 ? 0 : value > 255 ? 255 : value; }"
FLOATING = (
    "int clamp(int value) { double x = value; x = x * 1.1 / 1.1; return x < 0.0 ? 0 : x > 255.0 ? 255 : (int)x; }"
)
# Only where long has 64 bits does it do what it should.
WIDE = "int clamp(int value) { if (sizeof(long) == 4) return 9; return value < 0 ? 0 : value > 255 ? 255 : value; }"
# Natively its driver is compiled after it, on the target apart.
MACRO = "int clamp(int value) { return value; }\n#define clamp(v) ((v) < 0 ? 0 : (v) > 255 ? 255 : (v))"
NATIVE_ONLY = "#include <sys/random.h>\n" + SMALL
on_the_board = pytest.mark.usefixtures("c_compiler", "cortex_m3")


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(1, Limits(cpu_seconds=2, wall_seconds=60, memory_mib=256)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("outcomes", "broken", "verdicts"),
    [
        ([PASS, PASS, WRONG], 0, ["pass", "pass", "wrong"]),
        ([PASS, PASS, WRONG], 1, ["pass", "over_budget", "wrong"]),
        ([PASS, PASS, PASS], 5, ["over_budget"] * 3),
        ([WRONG], 2, ["wrong"]),
        ([], 2, []),
    ],
)
def test_each_broken_limit_takes_one_passed_test(outcomes: list[Outcome], broken: int, verdicts: list[str]) -> None:
    found = over_budget(outcomes, broken)
    assert [each.verdict for each in found] == verdicts
    for rule in ("any", "all", "fraction", "published"):
        assert functional_reward(found or [WRONG], rule) <= functional_reward(outcomes or [WRONG], rule)


def test_a_program_over_budget_keeps_level_3_and_cannot_reach_level_4() -> None:
    rewards = [functional_reward(over_budget([PASS] * 5, broken)) for broken in range(4)]
    assert [round(each, 2) for each in rewards] == [1.0, 0.92, 0.84, 0.76]
    assert [stage(over_budget([PASS] * 5, broken), "all") for broken in range(4)] == [4, 3, 3, 3]
    assert functional_reward(over_budget([PASS] * 5, 9), "published") == pytest.approx(0.6)


@on_the_board
@pytest.mark.parametrize(
    ("program", "verdicts", "level"),
    [
        (SMALL, ["pass", "pass", "pass"], 4),
        (FLOATING, ["pass", "over_budget", "over_budget"], 3),  # too long as well
        (WIDE, ["wrong", "wrong", "wrong"], 3),
        (MACRO, ["wrong", "wrong", "pass"], 3),
        (SMALL.replace("255", "254"), ["wrong", "pass", "pass"], 3),
        (NATIVE_ONLY, [], 0),
        ("static " + SMALL, [], 0),
        (SMALL.replace("value;", "valu;"), [], 0),
    ],
)
def test_verdicts_come_from_the_board_and_the_budget(
    scorer: Scorer, program: str, verdicts: list[str], level: int
) -> None:
    score = scorer.score(CLAMP, program)
    assert (list(score.verdicts), score.stage) == (verdicts, level)
    assert score_from_record(score.to_record()) == score
    assert score.passes_all_tests == (level == 4)
    assert bool(score.footprint) == (level > 0)


@on_the_board
def test_a_fault_that_the_board_would_not_notice_is_found_natively(scorer: Scorer) -> None:
    stray = SMALL.replace("{ return", "{ int kept[2] = {0, 0}; volatile int n = 2; kept[n] = value; return")
    score = scorer.score(CLAMP, stray)
    assert (score.stage, score.r_sec) == (1, 0.0)
    assert set(score.verdicts) == {"crash"}
    assert score.footprint["code_bytes"] > 0


@on_the_board
def test_a_program_cannot_accuse_itself_on_the_board_where_there_are_no_sanitizers(scorer: Scorer) -> None:
    leave = "#include <stdlib.h>\n" + SMALL.replace("{ return", "{ if (sizeof(long) == 4) exit(197); return")
    score, run = scorer.inspect(replace(CLAMP, tests=CLAMP.tests[:1]), leave)
    assert (score.verdicts, score.r_sec) == (("crash",), 1.0)
    told = explain(score, run, CLAMP, scorer.limits)
    assert told.startswith("crash: it ends with exit status 197 on cortex-m3 (natively it passes)\n")


@on_the_board
def test_security_tests_and_problems_without_a_target_stay_native(scorer: Scorer) -> None:
    attack = SecurityTest("a large number", 190, input="2147483647", output="255")
    score = scorer.score(replace(CLAMP, security_tests=(attack,)), SMALL)
    assert (score.failed_security, score.stage, score.security_total) == ((), 4, 1)
    native = scorer.score(replace(CLAMP, target="", budget=NO_BUDGET), FLOATING)
    assert (native.stage, native.footprint, "footprint" in native.to_record()) == (4, {}, False)


@on_the_board
def test_broken_limits_are_explained_in_words(scorer: Scorer) -> None:
    problem = replace(CLAMP, tests=CLAMP.tests[:1], budget=replace(BUDGET, stack_bytes=0))
    score, run = scorer.inspect(problem, FLOATING)
    lines = explain(score, run, problem, scorer.limits).splitlines()
    assert lines[0] == "passes: it prints the expected output"
    assert lines[1].startswith("cortex-m3: ")
    assert lines[1].endswith("no heap, floating point, no recursion")
    assert [line.split(": ")[0] for line in lines[2:-1]] == ["over budget"] * 3
    assert lines[-2] == "over budget: floating point"
    assert lines[-1] == "level 3 (prints), reward 0.76 = 0.6 x 0.60 (tests) + 0.4 x 1.00 (security)"


@on_the_board
def test_a_reference_over_budget_fails_the_check(scorer: Scorer) -> None:
    good, bad = replace(CLAMP, solutions=(SMALL,)), replace(CLAMP, id="b", solutions=(FLOATING,))
    report = check_problems([good, bad], scorer)
    assert (list(report.passing), report.kinds()) == (["clamp"], {"over_budget": 1})


def test_without_the_tools_a_problem_with_a_target_is_an_error_and_others_work(
    c_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets.shutil, "which", lambda name: None)
    targets.find_target_toolchain.cache_clear()
    try:
        with Scorer(1) as opened:
            assert opened.score(replace(CLAMP, target="", budget=NO_BUDGET), SMALL).stage == 4
            with pytest.raises(SceError, match=r"cannot run programs for cortex-m3: missing .*; install"):
                opened.score(CLAMP, SMALL)
    finally:
        targets.find_target_toolchain.cache_clear()
