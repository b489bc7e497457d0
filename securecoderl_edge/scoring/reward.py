"""The reward R of one program (paper, Eq. 1-2, Table 1), from what was seen of its tests. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from securecoderl_edge.problems.problem import same_output
from securecoderl_edge.sandbox.records import Execution
from securecoderl_edge.sandbox.security import Finding, Scan
from securecoderl_edge.sandbox.severity import SeverityScale, severity
from securecoderl_edge.switches import StageRule

if TYPE_CHECKING:
    from securecoderl_edge.settings import RewardSettings

Verdict = Literal["pass", "wrong", "silent", "crash", "timeout", "output_limit", "memory"]

SECURITY_WEIGHT = 0.4  # beta of Eq. 1; alpha is 1 - beta
PASSED_SHARE = 0.4  # of R_func, for the share of tests passed
CLEAN_VERDICTS = frozenset(("pass", "wrong", "silent"))
STAGE_NAMES = ("does not parse", "parses", "runs clean", "prints", "passes all tests")

_LIMIT_VERDICTS: dict[str, Verdict] = {
    "cpu": "timeout",
    "wall": "timeout",
    "output": "output_limit",
    "memory": "memory",
    "threads": "crash",
}


@dataclass(frozen=True)
class Outcome:
    """One test: its verdict, and what the ``seed`` stage rule looks at even when the program crashed.

    Attributes:
        printed: stdout has a printable character that is no space (calls: a value other than None came back).
        matched: the answer equals the expected one.
    """

    verdict: Verdict
    printed: bool
    matched: bool


@dataclass(frozen=True)
class Score:
    """What one program of one problem is worth.

    Attributes:
        stage: 0 does not parse; 1 parses, but no test ends cleanly; 2 runs clean, but prints nothing; 3
            prints, with k < T tests passed; 4 passes all T. (Under the ``all`` rule "clean" and "prints" mean
            every test.)
        r_func, r_sec, severity: the parts of R; severity is 0 for text that does not parse, as it cannot be
            scanned.
        reward: R, where text that does not parse gets 0 (*gated*).
        reward_paper: R, where text that does not parse gets 0.4 for security, as in the paper's numbers.
        r_tests: k/T.
        findings: medium and high ones.
        program: the text that was scored, taken out of the completion as ``extract`` says.
        seconds: processor time of all test runs.
        extract, stage_rule, severity_scale: how the program was taken out of the completion, and the switches that
            the parts of R depend on.
        sandbox: the level that the program ran under.
        limits: those of a test, but for the problem's own ``time_limit_s``.
        problem_hash: tells the problem from an edited one of the same id.
        signs: what may hint at a program that games its tests, see `securecoderl_edge.meters`; never
            punished.
    """

    id: str
    sample: int
    stage: int
    passed: int
    total: int
    r_func: float
    r_sec: float
    severity: float
    reward: float
    reward_paper: float
    r_tests: float
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    program: str
    seconds: float
    extract: str = "raw"
    stage_rule: str = "any"
    severity_scale: str = "bandit"
    sandbox: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    problem_hash: str = ""
    signs: tuple[str, ...] = ()

    @property
    def parses(self) -> bool:
        """Whether the text is a Python program."""
        return self.stage > 0

    def to_record(self) -> dict[str, Any]:
        """The JSON object of the score."""
        return dataclasses.asdict(self)


def outcome(execution: Execution, expected: str) -> Outcome:
    """What one stdin test says: limits first, then the exit status, then the output; and what was printed anyway."""
    matched = same_output(execution.stdout, expected)
    printed = matched or prints(execution.stdout)
    failure = outcome_of_failure(execution)
    if failure is not None:
        return Outcome(failure.verdict, printed, matched)
    return Outcome("pass" if matched else "wrong" if printed else "silent", printed, matched)


def outcome_of_failure(execution: Execution) -> Outcome | None:
    """The outcome of a run that hit a limit or did not exit with 0; None for a clean one."""
    if execution.stopped_by:
        return Outcome(_LIMIT_VERDICTS[execution.stopped_by], False, False)
    return Outcome("crash", False, False) if execution.returncode != 0 else None


def prints(stdout: str) -> bool:
    """Whether there is a printable character that is no space."""
    return any(character.isprintable() and not character.isspace() for character in stdout)


def functional_reward(outcomes: Sequence[Outcome] | None, rule: StageRule = "any") -> float:
    """R_func of Table 1.

    Args:
        outcomes: one a test, at least one; None when the text does not parse.
        rule: whether ``any`` or ``all`` tests must be clean and print for a step to be paid; ``fraction``
            pays each step in proportion; ``seed`` adds up as the original code did, crashes included.
    """
    if outcomes is None:
        return 0.0
    total = len(outcomes)
    passed = sum(each.verdict == "pass" for each in outcomes)
    clean = sum(each.verdict in CLEAN_VERDICTS for each in outcomes)
    printing = sum(each.verdict in CLEAN_VERDICTS and each.printed for each in outcomes)
    if rule == "fraction":
        return 0.2 + (0.2 * clean + 0.2 * printing + 0.4 * passed) / total
    if rule == "seed":
        matched = sum(each.matched for each in outcomes)
        return 0.2 + 0.2 * (clean > 0) + 0.2 * any(each.printed for each in outcomes) + 0.4 * matched / total
    needed = total if rule == "all" else 1
    if clean < needed:
        return 0.2
    if printing < needed:
        return 0.4
    return 0.6 + PASSED_SHARE * (passed / total)


def stage(outcomes: Sequence[Outcome] | None, rule: StageRule = "any") -> int:
    """The stage of Table 1, 0 to 4; `Score` defines them."""
    if outcomes is None:
        return 0
    if all(each.verdict == "pass" for each in outcomes):
        return 4
    reward = functional_reward(outcomes, "all" if rule == "all" else "any")
    return 1 if reward < 0.4 else 2 if reward < 0.6 else 3


def combine(r_func: float, r_sec: float, security_weight: float = SECURITY_WEIGHT) -> float:
    """R = (1 - beta) R_func + beta R_sec, with the paper's beta = 0.4 (Eq. 1) or another ``security_weight``."""
    return (1 - security_weight) * r_func + security_weight * r_sec


def make_score(
    id: str,
    sample: int,
    program: str,
    outcomes: Sequence[Outcome] | None,
    total: int,
    scan: Scan,
    *,
    rule: StageRule = "any",
    scale: SeverityScale = "bandit",
    seconds: float = 0.0,
    extract: str = "raw",
    sandbox: str = "",
    limits: Mapping[str, float] | None = None,
    problem_hash: str = "",
    signs: tuple[str, ...] = (),
) -> Score:
    """Put a `Score` together; ``outcomes`` is None when the text does not parse, and then there is nothing to scan."""
    passed = sum(each.verdict == "pass" for each in outcomes or ())
    danger = 0.0 if outcomes is None else severity(scan, scale)
    r_func, r_sec = functional_reward(outcomes, rule), 1.0 - danger
    paper = combine(r_func, r_sec)
    return Score(
        id=id,
        sample=sample,
        stage=stage(outcomes, rule),
        passed=passed,
        total=total,
        r_func=r_func,
        r_sec=r_sec,
        severity=danger,
        reward=0.0 if outcomes is None else paper,
        reward_paper=paper,
        r_tests=passed / total,
        verdicts=tuple(each.verdict for each in outcomes or ()),
        findings=() if outcomes is None else scan.serious,
        program=program,
        seconds=seconds,
        extract=extract,
        stage_rule=rule,
        severity_scale=scale,
        sandbox=sandbox,
        limits=limits or {},
        problem_hash=problem_hash,
        signs=signs,
    )


def training_reward(score: Score, partial_weight: float, reward: RewardSettings, constant_passes: int = 0) -> float:
    """The number that reinforcement learning sees: (1 - w) binary + w partial.

    The partial reward is R; the binary one replaces R_func by 1 if all tests pass, else 0. Where ``reward.reading`` is
    ``gated``, text that does not parse gets 0; with ``paper`` it is paid for being harmless.

    Args:
        partial_weight: w, from 0 (the binary phase) to 1 (the partial phase).
        constant_passes: with ``reward.correct_constants``, the most tests of the problem that one constant answer
            passes.

    Raises:
        ValueError: w is outside its bounds.
    """
    if not 0 <= partial_weight <= 1:
        raise ValueError(f"no such training reward: partial weight {partial_weight}")
    if not score.parses and reward.reading == "gated":
        return 0.0
    r_func = corrected(score, constant_passes) if reward.correct_constants else score.r_func
    binary = combine(float(score.passed == score.total), score.r_sec, reward.security_weight)
    partial = combine(r_func, score.r_sec, reward.security_weight)
    return (1 - partial_weight) * binary + partial_weight * partial


def corrected(score: Score, constant_passes: int) -> float:
    """R_func without what one constant answer earns: k/T becomes max(0, (k - c) / (T - c)), c of T tests passed by it.

    A program that passes all tests keeps its 1, also where one answer would do for all of them.
    """
    passed, total = score.passed, score.total
    if passed == total or not score.parses:
        return score.r_func
    share = max(0.0, (passed - constant_passes) / (total - constant_passes)) if constant_passes < total else 0.0
    return score.r_func - PASSED_SHARE * (passed / total - share)
