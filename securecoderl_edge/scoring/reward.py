"""The reward R of one program (paper, Eq. 1-2, Table 1), from the outcomes of its tests. Pure functions.

Each limit of a target's budget that a program breaks counts as one failed test (`over_budget`): it keeps what it earned
by compiling, running and printing, it cannot reach level 4, and keeping one more limit is worth as much as passing one
more test. A limit is no test of its own, because a program that does nothing would keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from securecoderl_edge.config import setting
from securecoderl_edge.problems.comparison import EXACT, Rule, same_output
from securecoderl_edge.problems.problem import contains

if TYPE_CHECKING:
    from securecoderl_edge.sandbox import Execution

Verdict = Literal["pass", "wrong", "silent", "crash", "timeout", "output_limit", "memory", "over_budget", "own_error"]
CreditRule = Literal["any", "all", "fraction", "published"]
CREDIT_RULES = ("any", "all", "fraction", "published")
SecurityRule = Literal["both", "tests", "bandit"]
Combination = Literal["sum", "gate"]
SECURITY_RULES = ("both", "tests", "bandit")
COMBINATIONS = ("sum", "gate")

SECURITY_WEIGHT = 0.4  # beta of Eq. 1; alpha is 1 - beta
PRINTING = 0.6  # R_func of a program that runs and prints
PASSED_SHARE = 0.4  # part of R_func for the fraction of passed tests
# ``own_error``: the function is right, but statements beside it fail, such as tests that the model appended. It is not
# credited as a passed test, and to leave the statements out does not pay before all tests pass.
CLEAN_VERDICTS = frozenset(("pass", "wrong", "silent", "over_budget", "own_error"))
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
    """One test: its verdict, and its output, which the ``published`` credit rule rewards even after a crash.

    Attributes:
        printed: stdout has a printable character other than white space (calls: the value is not None).
        matched: the answer equals the expected one.
    """

    verdict: Verdict
    printed: bool
    matched: bool


def outcome(execution: Execution, expected: str, rule: Rule = EXACT) -> Outcome:
    """The outcome of one stdin test: limits first, then the exit status, then the output."""
    return outcome_as_judged(execution, same_output(execution.stdout, expected, rule))


def outcome_as_judged(execution: Execution, matched: bool) -> Outcome:
    """As `outcome`, of a test whose output was judged already."""
    printed = matched or prints(execution.stdout)
    failure = outcome_of_failure(execution)
    if failure is not None:
        return Outcome(failure.verdict, printed, matched)
    return Outcome("pass" if matched else "wrong" if printed else "silent", printed, matched)


def outcome_without(execution: Execution, forbidden: str) -> Outcome:
    """The outcome of a security test that any output passes but one with this text.

    A crash is a way to reject an input, but a program that has to be stopped, or dies of a signal, was brought down.
    """
    printed, failure = prints(execution.stdout), outcome_of_failure(execution)
    if failure is not None and (execution.stopped_by or execution.returncode < 0):
        return Outcome(failure.verdict, printed, False)
    matched = not contains(execution.stdout, forbidden)
    return Outcome("pass" if matched else "wrong", printed, matched)


def over_budget(outcomes: Sequence[Outcome], broken: int) -> list[Outcome]:
    """The outcomes of a program that breaks so many limits: as many passed tests, the last ones, count as failed."""
    passed = [index for index, each in enumerate(outcomes) if each.verdict == "pass"]
    taken = set(passed[max(0, len(passed) - broken) :])
    return [
        Outcome("over_budget", each.printed, False) if index in taken else each for index, each in enumerate(outcomes)
    ]


def outcome_of_failure(execution: Execution) -> Outcome | None:
    """The outcome of a run that hit a limit or did not exit with 0; None for a clean one."""
    if execution.stopped_by:
        return Outcome(_LIMIT_VERDICTS[execution.stopped_by], False, False)
    return Outcome("crash", False, False) if execution.returncode != 0 else None


def prints(stdout: str) -> bool:
    """Whether ``stdout`` has a printable character other than white space."""
    return any(character.isprintable() and not character.isspace() for character in set(stdout))


def functional_reward(outcomes: Sequence[Outcome] | None, rule: CreditRule = "any") -> float:
    """R_func of Table 1.

    Args:
        outcomes: one per test, at least one; None if the text does not parse.
        rule: whether ``any`` or ``all`` tests must be clean and print to reach a reward level; ``fraction`` gives
            proportional credit; ``published`` adds up as the original code does, crashes included.
    """
    if outcomes is None:
        return 0.0
    total = len(outcomes)
    passed = sum(each.verdict == "pass" for each in outcomes)
    clean = sum(each.verdict in CLEAN_VERDICTS for each in outcomes)
    printing = sum(each.verdict in CLEAN_VERDICTS and each.printed for each in outcomes)
    if rule == "fraction":
        return 0.2 + (0.2 * clean + 0.2 * printing + 0.4 * passed) / total
    if rule == "published":
        matched = sum(each.matched for each in outcomes)
        return 0.2 + 0.2 * (clean > 0) + 0.2 * any(each.printed for each in outcomes) + 0.4 * matched / total
    needed = total if rule == "all" else 1
    if clean < needed:
        return 0.2
    if printing < needed:
        return 0.4
    return PRINTING + PASSED_SHARE * (passed / total)


def beyond_constant(passed: int, total: int, constant_passes: int) -> float:
    """The share of tests that a program passes, less what is due to the best constant output.

    Args:
        constant_passes: c, the tests that the best constant output passes: k/T becomes max(0, (k - c) / (T - c)), and 1
            for a program that passes all tests, even if a constant output does so too.
    """
    if passed == total:
        return 1.0
    return max(0.0, (passed - constant_passes) / (total - constant_passes)) if constant_passes < total else 0.0


def security_reward(danger: float, secured: float | None, solved: float, rule: SecurityRule = "both") -> float:
    """R_sec: 1 - V (Eq. 2), or for a problem with security tests the earned part of them, times 1 - V with ``both``.

    A program that does nothing is harmless, so security counts only as far as the program solves the task.

    Args:
        danger: V.
        secured: the part of the attacked weaknesses of which the program passes all security tests; None without tests.
        solved: of the tests, see `beyond_constant`.
        rule: what counts.
    """
    if secured is None or rule == "bandit":
        return 1.0 - danger
    earned = solved * secured
    return earned if rule == "tests" else earned * (1.0 - danger)


def stage(outcomes: Sequence[Outcome] | None, rule: CreditRule = "any") -> int:
    """The reward level of Table 1, 0 to 4; `Score` defines them."""
    if outcomes is None:
        return 0
    if all(each.verdict == "pass" for each in outcomes):
        return 4
    reward = functional_reward(outcomes, "all" if rule == "all" else "any")
    return 1 if reward < 0.4 else 2 if reward < 0.6 else 3


def combine(r_func: float, r_sec: float, security_weight: float = SECURITY_WEIGHT) -> float:
    """R = (1 - beta) R_func + beta R_sec, with the paper's beta = 0.4 (Eq. 1) or another ``security_weight``."""
    return (1 - security_weight) * r_func + security_weight * r_sec


def security_rule_setting() -> Any:
    """The setting for what R_sec is made of."""
    return setting(
        "both",
        "R_sec of problems with security tests. both: tests and findings; tests; bandit: findings, as elsewhere.",
        choices=SECURITY_RULES,
    )


def credit_rule_setting() -> Any:
    """The setting for the number of tests that a reward level of Table 1 requires."""
    return setting("any", "How many tests must run (print) to reach a reward level.", choices=CREDIT_RULES)
