"""The reward as training sees it: corrected for constant answers, mixed from the binary and the partial one."""

from __future__ import annotations

from securecoderl_edge.scoring.reward import PASSED_SHARE, combine
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.training.settings import RewardSettings, ScheduledSettings

# A running pass rate weighs an update by 1 - this; of 20 updates ago about a third is left.
_PASS_RATE_MEMORY = 0.95


def training_reward(score: Score, partial_weight: float, reward: RewardSettings, constant_passes: int = 0) -> float:
    """The number that reinforcement learning sees: (1 - w) binary + w partial.

    The partial reward is R; the binary one replaces R_func by 1 if all tests pass, else 0. A completion that does not
    parse gets 0 if ``reward.unparsable`` is ``zero``; with ``paper`` it keeps the security part of R.

    Args:
        partial_weight: w, from 0 (the binary phase) to 1 (the partial phase).
        constant_passes: with ``reward.subtract_constant_baseline``, how many tests the best constant output passes.

    Raises:
        ValueError: w is outside its bounds.
    """
    if not 0 <= partial_weight <= 1:
        raise ValueError(f"no such training reward: partial weight {partial_weight}")
    if not score.parses and reward.unparsable == "zero":
        return 0.0
    r_func = corrected(score, constant_passes) if reward.subtract_constant_baseline else score.r_func
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


def partial_weight(scheduled: ScheduledSettings, phase: str, step: int, pass_rate: float) -> float:
    """w in the reward (1 - w) binary + w partial, at update ``step`` (from 1) of a phase.

    Args:
        pass_rate: the running share of programs that pass all tests before this update.
    """
    if phase != "scheduled":
        return float(phase == "partial")
    if scheduled.mixture == "step":
        return float(step > scheduled.switch_at * scheduled.steps)
    if scheduled.mixture == "linear":
        return (step - 1) / max(1, scheduled.steps - 1)
    return min(1.0, pass_rate / scheduled.full_pass_rate)


def running_pass_rate(before: float | None, measured: float) -> float:
    """The exponential mean of the pass rate after one more update; the first one stands for itself."""
    return measured if before is None else _PASS_RATE_MEMORY * before + (1 - _PASS_RATE_MEMORY) * measured
