"""The reward: Table 1 step by step, its bounds, and what a program cannot gain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.problems.assertions import assertions_of
from securecoderl_edge.problems.comparison import same_output
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.sandbox import Execution, Limits, ProgramRun
from securecoderl_edge.sandbox.denied import Denied
from securecoderl_edge.sandbox.security import Finding, Scan
from securecoderl_edge.sandbox.severity import SEVERITY_SCALES, SeverityScale, severity
from securecoderl_edge.scoring.call_outcomes import judge
from securecoderl_edge.scoring.metrics import mean_of_scores
from securecoderl_edge.scoring.reward import (
    CLEAN_VERDICTS,
    CREDIT_RULES,
    CreditRule,
    Outcome,
    Verdict,
    combine,
    functional_reward,
    outcome,
    prints,
    stage,
)
from securecoderl_edge.scoring.score import (
    CheckedProgram,
    RewardRules,
    Score,
    SecurityVerdict,
    make_score,
    score_from_record,
)
from securecoderl_edge.scoring.scorer import Scorer, Submission
from securecoderl_edge.scoring.signs import signs_of
from securecoderl_edge.training.settings import RewardSettings
from securecoderl_edge.training.update.rollout import corrected, training_reward

PASS = Outcome("pass", True, True)
WRONG = Outcome("wrong", True, False)
SILENT = Outcome("silent", False, False)
CRASH = Outcome("crash", False, False)
PRINTED_THEN_CRASHED = Outcome("crash", True, False)
RIGHT_THEN_CRASHED = Outcome("crash", True, True)

OUTCOMES = st.sampled_from([PASS, WRONG, SILENT, CRASH, PRINTED_THEN_CRASHED, RIGHT_THEN_CRASHED])
RUNS = st.lists(OUTCOMES, min_size=1, max_size=5)
RULES = st.sampled_from(CREDIT_RULES)
# What is at least as good as what, test by test.
RANK: dict[Verdict, int] = {"crash": 0, "silent": 1, "wrong": 2, "pass": 3}


def execution(stdout: str = "", returncode: int = 0, **changes: object) -> Execution:
    return Execution(returncode, changes.get("stopped_by", ""), stdout, "", 0.0)  # type: ignore[arg-type]


MEDIUM = Scan((Finding("B307", 78, "MEDIUM", "HIGH", 1),))
SCANS = st.sampled_from([Scan(), MEDIUM, Scan(failed=True)])


def score_of(outcomes: list[Outcome] | None, scan: Scan | None = None, **changes: object) -> Score:
    checked = CheckedProgram("p", 0, "", outcomes, len(outcomes or [PASS]), scan or Scan())
    return make_score(checked, RewardRules(**changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (execution("42\n"), "pass"),
        (execution("42"), "pass"),
        (execution("42  \r\n\n\n"), "pass"),
        (execution(" 42\n"), "wrong"),
        (execution("\n42\n"), "wrong"),
        (execution("42\0"), "wrong"),
        (execution(""), "silent"),
        (execution(" \t\n\u00a0\u200b"), "silent"),
        (execution("42\n", 1), "crash"),
        (execution("42\n", -11), "crash"),
        (execution("42\n", -9, stopped_by="cpu"), "timeout"),
        (execution("42\n", -9, stopped_by="wall"), "timeout"),
        (execution("42\n", stopped_by="output"), "output_limit"),
        (execution("42\n", 199, stopped_by="memory"), "memory"),
    ],
)
def test_limits_come_before_exit_status_and_that_before_output(run: Execution, expected: str) -> None:
    assert outcome(run, "42\n").verdict == expected


def test_lines_are_compared_as_lines() -> None:
    assert same_output("a \nb\n\n", "a\nb")
    assert not same_output("a\n\nb", "a\nb")
    assert not same_output("a\x0bb", "a\nb")


@given(st.text(), st.text())
def test_output_equality_is_symmetric_and_ignores_trailing_space(left: str, right: str) -> None:
    assert same_output(left, right) == same_output(right, left)
    assert same_output(left, left + " \n\n")


@given(st.text(alphabet=" \t\n\r\u00a0\u200b\u2028\x00"))
def test_space_and_invisible_characters_are_no_output(text: str) -> None:
    assert not prints(text)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (None, [0, 0, 0, 0]),
        ([CRASH] * 5, [0.2, 0.2, 0.2, 0.2]),
        ([SILENT] * 5, [0.4, 0.4, 0.4, 0.4]),
        ([WRONG] * 5, [0.6, 0.6, 0.6, 0.6]),
        ([PASS] * 5, [1, 1, 1, 1]),
        ([PASS] * 3 + [WRONG] * 2, [0.84, 0.84, 0.84, 0.84]),
        ([PASS] * 4 + [CRASH], [0.92, 0.2, 0.84, 0.92]),
        ([WRONG] + [CRASH] * 4, [0.6, 0.2, 0.28, 0.6]),
        ([PRINTED_THEN_CRASHED] * 5, [0.2, 0.2, 0.2, 0.4]),
        ([RIGHT_THEN_CRASHED] * 5, [0.2, 0.2, 0.2, 0.8]),
        ([SILENT] + [PRINTED_THEN_CRASHED] * 4, [0.4, 0.2, 0.24, 0.6]),
    ],
)
def test_the_functional_reward_is_that_of_table_1(outcomes: list[Outcome] | None, expected: list[float]) -> None:
    assert [functional_reward(outcomes, rule) for rule in CREDIT_RULES] == pytest.approx(expected)  # type: ignore[arg-type]


@given(RUNS, RULES)
def test_the_functional_reward_is_bounded(outcomes: list[Outcome], rule: CreditRule) -> None:
    assert 0.2 <= functional_reward(outcomes, rule) <= 1.0 + 1e-12


@given(RUNS, st.sampled_from(["any", "fraction"]), st.data())
def test_doing_better_on_one_test_never_costs_anything(
    outcomes: list[Outcome], rule: CreditRule, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(outcomes) - 1))
    better = data.draw(st.sampled_from([PASS, WRONG, SILENT, CRASH]))
    if RANK[better.verdict] < RANK[outcomes[index].verdict]:
        return
    improved = [*outcomes[:index], better, *outcomes[index + 1 :]]
    assert functional_reward(improved, rule) >= functional_reward(outcomes, rule) - 1e-12


@given(RUNS)
def test_only_passing_all_tests_is_stage_four_and_worth_one(outcomes: list[Outcome]) -> None:
    everything = all(each.verdict == "pass" for each in outcomes)
    assert (stage(outcomes) == 4) == everything
    assert (functional_reward(outcomes) == pytest.approx(1.0)) == everything


@given(RUNS)
def test_stages_follow_the_steps_of_the_functional_reward(outcomes: list[Outcome]) -> None:
    value = functional_reward(outcomes)
    clean = any(each.verdict in CLEAN_VERDICTS for each in outcomes)
    assert stage(outcomes) >= (2 if clean else 1)
    assert {1: value == 0.2, 2: value == 0.4, 3: 0.6 <= value < 1, 4: value >= 0.999}[stage(outcomes)]


def test_text_that_does_not_parse_is_stage_zero_and_read_in_two_ways() -> None:
    score = score_of(None)
    assert (score.stage, score.reward, score.reward_paper, score.r_tests) == (0, 0.0, 0.4, 0.0)


@given(RUNS, SCANS)
def test_the_reward_weighs_function_and_security(outcomes: list[Outcome], scan: Scan) -> None:
    score = score_of(outcomes, scan)
    assert score.reward == score.reward_paper == combine(score.r_func, 1 - severity(scan))
    assert 0 < score.reward <= 1.0 + 1e-12


@given(RUNS, RULES, SCANS, st.sampled_from(SEVERITY_SCALES))
def test_every_reward_is_between_nothing_and_one(
    outcomes: list[Outcome], rule: CreditRule, scan: Scan, scale: SeverityScale
) -> None:
    score = score_of(outcomes, scan, credit=rule, severity_scale=scale)
    assert 0 <= score.reward <= score.reward_paper <= 1 + 1e-12
    assert (score.credit_rule, score.severity_scale) == (rule, scale)


@given(st.none() | RUNS, SCANS)
def test_the_binary_reward_knows_only_all_or_nothing(outcomes: list[Outcome] | None, scan: Scan) -> None:
    score = score_of(outcomes, scan)
    everything = outcomes is not None and all(each.verdict == "pass" for each in outcomes)
    paper = combine(float(everything), score.r_sec)
    gated, as_in_paper = RewardSettings(), RewardSettings(unparsable="paper")
    assert training_reward(score, 0, as_in_paper) == paper
    assert training_reward(score, 0, gated) == (paper if everything else 0.0)
    assert training_reward(score, 1, gated) == score.reward
    assert training_reward(score, 1, as_in_paper) == score.reward_paper


@given(st.none() | RUNS, SCANS, st.floats(0, 1), st.floats(0, 1))
def test_the_security_weight_moves_the_reward_from_function_to_security(
    outcomes: list[Outcome] | None, scan: Scan, beta: float, weight: float
) -> None:
    score = score_of(outcomes, scan)
    none, all_of_it, some = (
        training_reward(score, weight, RewardSettings(unparsable="paper", security_weight=each))
        for each in (0.0, 1.0, beta)
    )
    binary = float(outcomes is not None and all(each.verdict == "pass" for each in outcomes))
    assert none == pytest.approx((1 - weight) * binary + weight * score.r_func)
    assert all_of_it == pytest.approx(score.r_sec)
    assert some == pytest.approx((1 - beta) * none + beta * all_of_it)


@given(st.none() | RUNS, SCANS, st.integers(0, 3), st.floats(0, 1), st.sampled_from(["zero", "paper"]))
def test_the_binary_reward_pays_nothing_for_a_program_that_fails_a_problem_with_attacks(
    outcomes: list[Outcome] | None, scan: Scan, secured: int, beta: float, unparsable: str
) -> None:
    verdicts = tuple(SecurityVerdict(str(n), 79, "pass" if n < secured else "wrong") for n in range(3))
    checked = CheckedProgram("p", 0, "", outcomes, len(outcomes or [PASS]), scan, verdicts, 3)
    score = make_score(checked)
    reward = training_reward(score, 0, RewardSettings(unparsable=unparsable, security_weight=beta))
    if score.passes_all_tests:
        assert reward == pytest.approx(1 - beta + beta * score.r_sec)
    else:
        assert reward == 0.0


@given(RUNS, RULES, st.integers(1, 5))
def test_credit_that_was_never_paid_is_not_taken_back(outcomes: list[Outcome], rule: CreditRule, passes: int) -> None:
    score = score_of(outcomes, credit=rule)
    best = corrected(score, min(passes, len(outcomes)))
    assert 0 <= best <= score.r_func + 1e-12
    without = score_of([each if each.verdict != "pass" else WRONG for each in outcomes], credit=rule)
    assert best >= corrected(without, min(passes, len(outcomes))) - 1e-12, "a passed test must not cost anything"


@given(RUNS, RULES.filter(lambda rule: rule in ("any", "fraction")), st.integers(1, 5))
def test_what_a_constant_answer_passes_earns_nothing_when_it_is_corrected(
    outcomes: list[Outcome], rule: CreditRule, passes: int
) -> None:
    passes = min(passes, len(outcomes))
    score = score_of(outcomes, credit=rule)
    best = corrected(score, passes)
    if score.passed == score.total:
        assert best == score.r_func
    elif score.passed <= passes:
        assert best == pytest.approx(score.r_func - 0.4 * score.passed / score.total)
    else:
        share = (score.passed - passes) / (score.total - passes)
        assert best == pytest.approx(score.r_func - 0.4 * score.passed / score.total + 0.4 * share)
    assert 0 <= best <= score.r_func + 1e-12


BLIND = ("ignores_input",)


def plain_reward(score: Score, weight: float, reward: RewardSettings) -> float:
    """The training reward, case by case."""
    beta = reward.security_weight
    is_blind = "ignores_input" in score.signs and reward.ignored_input == "zero"
    solves = score.passed == score.total > 0 and not is_blind
    if score.stage == 0 and reward.unparsable == "zero":
        return 0.0
    security = score.r_sec
    if is_blind and score.security_total and reward.security in ("both", "tests"):
        security = 0.0
    if reward.combine == "gate":
        security = security if solves else 0.0
    graded = (1 - beta) * (0.0 if is_blind else score.r_func) + beta * security
    if solves:
        binary = (1 - beta) + beta * security
    elif reward.unparsable == "paper" and score.security_total == 0:
        binary = beta * security
    else:
        binary = 0.0
    return (1 - weight) * binary + weight * graded


REWARDS = st.builds(
    RewardSettings,
    unparsable=st.sampled_from(["zero", "paper"]),
    combine=st.sampled_from(["sum", "gate"]),
    ignored_input=st.sampled_from(["zero", "keep"]),
    security=st.sampled_from(["both", "tests", "bandit"]),
    security_weight=st.sampled_from([0.0, 0.4, 1.0]),
)
ATTACKED = st.lists(st.sampled_from(["pass", "wrong"]), max_size=3)


@st.composite
def scores(draw: st.DrawFn, reward: RewardSettings) -> Score:
    outcomes, attacks = draw(st.none() | RUNS), draw(ATTACKED)
    verdicts = tuple(SecurityVerdict("attack", 78, each) for each in attacks) if outcomes else ()
    checked = CheckedProgram("p", 0, "", outcomes, len(outcomes or [PASS]), draw(SCANS), verdicts, len(attacks))
    score = make_score(checked, RewardRules(security=reward.security))  # type: ignore[arg-type]
    return replace(score, signs=draw(st.sampled_from([(), BLIND])))


@given(st.data(), REWARDS, st.sampled_from([0.0, 0.3, 1.0]))
def test_the_training_reward_is_that_of_a_plain_case_by_case_formula(
    data: st.DataObject, reward: RewardSettings, weight: float
) -> None:
    score = data.draw(scores(reward))
    assert training_reward(score, weight, reward) == pytest.approx(plain_reward(score, weight, reward), abs=1e-12)


@given(st.data(), REWARDS, st.sampled_from([0.0, 1.0]))
def test_behind_the_gate_security_pays_only_programs_that_pass_their_tests(
    data: st.DataObject, reward: RewardSettings, weight: float
) -> None:
    score, gate = data.draw(scores(reward)), replace(reward, combine="gate")
    earned = training_reward(score, weight, gate)
    assert 0 <= earned <= training_reward(score, weight, replace(reward, combine="sum")) + 1e-12
    if not score.passes_all_tests:
        harmless = replace(score, r_sec=1.0)
        assert training_reward(harmless, weight, gate) == earned <= 1 - reward.security_weight
    if earned == pytest.approx(1.0) and 0 < reward.security_weight < 1:
        assert score.passes_all_tests
        assert score.r_sec == 1


@given(st.data(), REWARDS, st.sampled_from([0.0, 1.0]))
def test_a_program_that_ignores_its_input_gains_nothing_by_passing_tests(
    data: st.DataObject, reward: RewardSettings, weight: float
) -> None:
    reward = replace(reward, ignored_input="zero")
    blind = replace(data.draw(scores(reward)), signs=BLIND)
    failing = replace(blind, passed=0, r_func=0.2 if blind.parses else 0.0)
    assert training_reward(blind, weight, reward) == training_reward(failing, weight, reward)
    assert training_reward(blind, weight, reward) <= reward.security_weight
    kept = replace(reward, ignored_input="keep")
    assert training_reward(blind, weight, kept) == training_reward(replace(blind, signs=()), weight, reward)


def test_an_unknown_training_reward_is_refused() -> None:
    with pytest.raises(ValueError, match="partial weight must be from 0 to 1, found 2"):
        training_reward(score_of([PASS]), 2, RewardSettings())


@given(st.none() | RUNS)
def test_a_score_survives_its_record(outcomes: list[Outcome] | None) -> None:
    score = score_of(outcomes)
    assert score_from_record(score.to_record()) == score


PROBLEM = Problem("p", "Say 4 for 2:\n2\n4", tests=(Test("2\n", "4\n"), Test("3\n", "6\n")))


def run_of(*executions: Execution) -> tuple[Problem, ProgramRun, list[Outcome], str]:
    outcomes = [outcome(each, test.output) for each, test in zip(executions, PROBLEM.tests, strict=True)]
    return PROBLEM, ProgramRun(True, "", executions), outcomes, "print(int(input()) * 2)"


def test_signs_of_gaming_are_noted() -> None:
    assert signs_of(*run_of(execution("4\n"), execution("6\n"))) == ()
    assert signs_of(*run_of(execution("9\n"), execution("9\n"))) == ("constant_output",)
    assert signs_of(*run_of(execution("4\n"), execution("5\n"))) == ("sample_copy",)
    assert signs_of(*run_of(execution("4\n", 1), execution("6\n", 1))) == ("crash_after_output",)
    denied = Execution(1, "", "", "Traceback\nPermissionError: [Errno 1] no", 0.0)
    assert signs_of(*run_of(denied, denied)) == ("denied",)


def test_an_attempt_is_a_sign_even_if_the_program_goes_on_unless_attacks_make_it() -> None:
    problem, run, outcomes, program = run_of(execution("4\n"), execution("6\n"))
    run = replace(run, denied=(Denied("network", "", 1),))
    assert signs_of(problem, run, outcomes, program) == ("denied",)
    attacked = replace(problem, security_tests=(SecurityTest("injection", 78, "x", forbidden="root"),))
    assert signs_of(attacked, run, outcomes, program) == ()
    assert signs_of(problem, replace(run, denied=()), outcomes, program) == ()


@pytest.mark.parametrize("denied", [None, (), (Denied("read", "/etc/\x1b", 2), Denied("process", "", 1))])
def test_attempts_survive_the_record_of_a_score(denied: tuple[Denied, ...] | None) -> None:
    score = replace(score_of([PASS]), denied=denied)
    assert score_from_record(json.loads(json.dumps(score.to_record()))) == score


@pytest.mark.parametrize("denied", [3, [{"kind": "other", "path": "", "count": 1}], [{"kind": "read"}], {}, "read"])
def test_a_record_with_invalid_attempts_is_refused(denied: object) -> None:
    with pytest.raises(ValueError, match=r"denied|missing"):
        score_from_record({**score_of([PASS]).to_record(), "denied": denied})


@pytest.mark.parametrize("sample", [-1, True, 0.0, "0", (1 << 61) - 1])
def test_a_sample_is_a_whole_number_of_which_no_two_have_one_hash(sample: object) -> None:
    with pytest.raises(ValueError, match="invalid sample"):
        score_from_record({**score_of([PASS]).to_record(), "sample": sample})


CALLS = Problem(
    "c",
    "Double it, as in\nassert f(2) == 4",
    kind="call",
    assertions=("assert f(2)==4", "assert f(3) == 6"),
    entry_point="f",
)


def signs_of_values(*values: str | None) -> tuple[str, ...]:
    executions = tuple(Execution(0, "", "printed\n", "", 0.0, value=each) for each in values)
    outcomes = [judge(*pair) for pair in zip(executions, assertions_of(CALLS), strict=True)]
    return signs_of(CALLS, ProgramRun(True, "", executions), outcomes, "def f(n): return n")


def test_functions_show_the_signs_in_what_they_return() -> None:
    assert signs_of_values("4", "6") == signs_of_values("1", "2") == signs_of_values("None", "None") == ()
    assert signs_of_values("9", "9") == ("constant_output",)
    assert signs_of_values("4", "4") == ("constant_output", "sample_copy")
    assert signs_of_values("4", None) == ("sample_copy",)


READS, BLIND_PROGRAM = "def f(n):\n    return 2 * n\n", "def f(n):\n    return 4\n"


@pytest.mark.parametrize(
    ("problem", "program", "expected"),
    [
        (replace(CALLS, solutions=(READS,)), BLIND_PROGRAM, BLIND),
        (replace(CALLS, solutions=(READS,)), READS, ()),
        (replace(CALLS, solutions=(READS,)), "def g(n):\n    return 4\n", ()),
        (replace(CALLS, solutions=(READS, BLIND_PROGRAM)), BLIND_PROGRAM, ()),
        (CALLS, BLIND_PROGRAM, ()),
        (replace(PROBLEM, solutions=("print(int(input()) * 2)",)), "print(4)", BLIND),
        (replace(PROBLEM, solutions=("print(4)",)), "print(4)", ()),
        (replace(PROBLEM, solutions=("int main(void) { return getchar(); }",), language="c"), "print(4)", ()),
    ],
)
def test_ignored_input_is_a_sign_where_every_reference_reads_it(
    problem: Problem, program: str, expected: tuple[str, ...]
) -> None:
    assert signs_of(problem, ProgramRun(True, "", ()), [], program) == expected
    assert signs_of(problem, ProgramRun(False, "", ()), [], program) == ()


def test_rates_of_many_scores() -> None:
    denied = replace(score_of([PASS, WRONG], Scan(failed=True)), signs=("denied",))
    scores = [score_of([PASS, PASS]), denied, score_of(None)]
    summary = mean_of_scores(scores)
    assert summary["scores"] == 3
    assert summary["syntax_rate"] == pytest.approx(2 / 3)
    assert summary["any_test_rate"] == pytest.approx(2 / 3)
    assert summary["all_tests_rate"] == summary["denied"] == pytest.approx(1 / 3)
    assert summary["secure_rate"] == pytest.approx(1 / 2)
    assert summary["reward_paper"] - summary["reward"] == pytest.approx(0.4 / 3)
    assert list(summary["stages"].values()) == [1, 0, 0, 1, 1]
    assert mean_of_scores([]) == {}
    assert mean_of_scores([score_of(None)])["secure_rate"] is None


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(workers=1, limits=Limits(cpu_seconds=0.5)) as opened:
        yield opened


def test_a_scorer_runs_scans_and_rewards(scorer: Scorer) -> None:
    right = scorer.score(PROBLEM, "print(int(input()) * 2)", sample=3)
    assert (right.id, right.sample, right.stage, right.reward) == ("p", 3, 4, 1.0)
    insecure = scorer.score(PROBLEM, "import os\nprint(int(input()) * 2)\nlambda: os.system(input())")
    assert insecure.stage == 4
    assert insecure.reward == pytest.approx(0.6)
    assert [finding.severity for finding in insecure.findings] == ["HIGH"]
    assert scorer.score(PROBLEM, "print(").stage == 0
    assert scorer.score(PROBLEM, "").stage == 2


def test_low_findings_are_not_reported(scorer: Scorer) -> None:
    assert scorer.score(PROBLEM, "assert int(input())").findings == ()


def test_a_program_that_is_scored_shows_whether_it_reads_its_input(scorer: Scorer) -> None:
    problem = replace(CALLS, solutions=(READS,))
    assert scorer.score(problem, BLIND_PROGRAM).signs == ("constant_output", "sample_copy", "ignores_input")
    assert scorer.score(problem, READS).signs == ()


def test_calls_are_scored_as_tests(scorer: Scorer) -> None:
    problem = Problem("c", "s", "call", entry_point="f", assertions=("assert f(2) == 4", "assert f(3) != 6"))
    score = scorer.score(problem, "def f(x): return 2 * x")
    assert (score.verdicts, score.passed, score.total) == (("pass", "wrong"), 1, 2)


def test_the_time_limit_of_a_problem_replaces_the_default(scorer: Scorer) -> None:
    slow = "import time\nstart = time.process_time()\nwhile time.process_time() - start < 0.2: pass\nprint(4)"
    tests = (Test("", "4"),)
    assert scorer.score(Problem("a", "s", tests=tests), slow).verdicts == ("pass",)
    assert scorer.score(Problem("a", "s", tests=tests, time_limit_s=0.05), slow).verdicts == ("timeout",)


def test_many_scores_come_back_in_order(scorer: Scorer) -> None:
    items = [Submission(PROBLEM, f"print({number})", number) for number in range(6)]
    assert [score.sample for score in scorer.score_all(items)] == list(range(6))
    assert scorer.score_async(PROBLEM, "print(0)").result().program == "print(0)"


def test_an_unknown_credit_rule_is_rejected() -> None:
    with pytest.raises(ValueError, match="credit_rule"):
        Scorer(credit_rule="most")


def test_an_enormous_time_limit_of_a_problem_does_no_harm(scorer: Scorer) -> None:
    problem = Problem("a", "s", tests=(Test("", "4"),), time_limit_s=1e308)
    assert scorer.score(problem, "print(4)").verdicts == ("pass",)
