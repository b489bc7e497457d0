"""The training reward: a mixture of the binary and the partial reward, optionally minus the constant baseline."""

from __future__ import annotations

from securecoderl_edge.scoring.reward import PASSED_SHARE, beyond_constant, combine
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.training.settings import RewardSettings


def training_reward(score: Score, partial_weight: float, reward: RewardSettings, constant_passes: int = 0) -> float:
    """The reward for RL: (1 - w) binary + w partial.

    The partial reward is R; the binary one replaces R_func by 1 if all tests pass, else 0. Unparsable output gets 0 if
    ``reward.unparsable`` is ``zero``; with ``paper`` it keeps the security part of R.

    Args:
        partial_weight: w, from 0 (the binary phase) to 1 (the partial phase).
        constant_passes: with ``reward.subtract_constant_baseline``, the tests that the best constant output passes.

    Raises:
        ValueError: w is outside its bounds.
    """
    if not 0 <= partial_weight <= 1:
        raise ValueError(f"partial weight must be from 0 to 1, found {partial_weight}")
    if not score.parses and reward.unparsable == "zero":
        return 0.0
    r_func = corrected(score, constant_passes) if reward.subtract_constant_baseline else score.r_func
    binary = combine(float(score.passes_all_tests), score.r_sec, reward.security_weight)
    partial = combine(r_func, score.r_sec, reward.security_weight)
    return (1 - partial_weight) * binary + partial_weight * partial


def corrected(score: Score, constant_passes: int) -> float:
    """R_func minus the constant baseline, see `beyond_constant`."""
    if not score.parses:
        return score.r_func
    share = beyond_constant(score.passed, score.total, constant_passes)
    return score.r_func - PASSED_SHARE * (score.passed / score.total - share)


def partial_weight(phase: str, step: int, steps: int) -> float:
    """w in the reward (1 - w) binary + w partial, at update ``step`` (from 1) of the ``steps`` of a phase."""
    return (step - 1) / max(1, steps - 1) if phase == "scheduled" else float(phase == "partial")
