"""Proximal policy optimization for token sequences, as pure functions.

One update reads: 1 sample, 2 score (`ppo_update.py`), 3 KL-shape, 4 advantages, 5 whiten (`estimate_advantages`), 6
clipped loss (`minibatches.py`). Shapes: ``B`` completions of ``T`` tokens, right-padded; ``mask`` (B, T) is 1.0 on
tokens (the end-of-sequence token included) and 0.0 on padding, so padding cannot change any result. ``weights`` (B, T)
are what a token counts in the mean of the loss, see `trajectory.Trajectory`; 0.0 on padding. Symbols follow Schulman
et al. 2017 (arXiv:1707.06347) and, for GAE, Schulman et al. 2015 (arXiv:1506.02438).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from securecoderl_edge.training.phase_settings import GRPO, PpoSettings
from securecoderl_edge.training.update.trajectory import Trajectory

# Nothing is discounted: a completion ends within one update, and its reward is that of its end.
GAMMA, LAMBDA = 1.0, 0.95
# With fewer sequences the mean and spread of a batch depend more on its prompts than on the policy.
_MIN_SEQUENCES_TO_WHITEN = 8
_NAME = "advantage"
# Rewards that differ by less are equal: a reward function of the user's own may round, and an advantage that is divided
# by the deviation would be all of that.
ROUNDING = 1e-6


def estimate_advantages(trajectory: Trajectory, ppo: PpoSettings, running: dict[str, float]) -> Trajectory:
    """Steps 3 to 5: the trajectory with its scaled advantages, and with its returns if there is a value head.

    Advantages are scaled over the whole batch, before it is split into minibatches, as in ``ppo1`` of OpenAI Baselines
    and in TRL's PPOTrainer (``ppo2`` scales minibatches). A minibatch of few groups would otherwise set its own scale.

    Args:
        running: running statistics, changed here for small batches.
    """
    mask, rewards, values = trajectory.batch.mask, trajectory.rewards, trajectory.values
    log_probs, reference = trajectory.log_probs, trajectory.reference
    taught: Tensor | float = 0.0
    if ppo.reference is not None:
        taught = ppo.kl_coefficient * teacher_advantages(log_probs, reference, mask)
    if ppo.advantage in GRPO:  # their KL is in the loss, and the papers do not scale over the batch
        divided = ppo.advantage == "grpo"
        advantages = group_advantages(rewards, mask, ppo.samples_per_prompt, divided=divided)
        return replace(trajectory, advantages=advantages + taught)
    # 3 KL-shape
    coefficient = ppo.kl_coefficient if ppo.reference is None else 0.0
    shaped = kl_shaped_rewards(rewards, log_probs, reference, mask, coefficient)
    # 4 advantages, 5 whiten
    if ppo.advantage == "batch":
        penalties = kl_shaped_rewards(torch.zeros_like(rewards), log_probs, reference, mask, coefficient)
        return replace(trajectory, advantages=batch_advantages(rewards, penalties, mask) + taught)
    if ppo.advantage == "gae":
        advantages, returns = generalized_advantages(shaped, values, mask)
    else:
        advantages, returns = leave_one_out_advantages(shaped, mask, ppo.samples_per_prompt), trajectory.returns
    return replace(trajectory, advantages=_scaled(advantages + taught, trajectory, ppo, running), returns=returns)


def count_zero_advantages(ppo: PpoSettings, running: dict[str, float]) -> None:
    """Running statistics after a batch whose advantages are all zero: they count, too."""
    if ppo.batch_size < _MIN_SEQUENCES_TO_WHITEN:
        running_mean_square(running, _NAME, torch.zeros(()))


def _scaled(advantages: Tensor, trajectory: Trajectory, ppo: PpoSettings, running: dict[str, float]) -> Tensor:
    """The advantages divided by their root mean square in the whole batch, or by the running one of small batches."""
    mask, share = trajectory.weights, trajectory.share
    if ppo.batch_size >= _MIN_SEQUENCES_TO_WHITEN:
        # A leave-one-out advantage is centered by construction; the zeros of the others lower its mean square.
        return whiten(advantages, mask, center=ppo.advantage == "gae") / float(share**0.5)
    mean_square = running_mean_square(running, _NAME, share * masked_mean(advantages**2, mask))
    return advantages * float((mean_square + 1e-8) ** -0.5)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of ``values`` where ``mask`` is 1; 0 for an empty mask."""
    return (values * mask).sum() / mask.sum().clamp_min(1)


def kl_shaped_rewards(scores: Tensor, log_probs: Tensor, reference: Tensor, mask: Tensor, coefficient: float) -> Tensor:
    """Per-token rewards: minus ``coefficient`` x (log pi - log pi_ref) at each token, plus the score at the last one.

    The penalty is the k1 estimator of KL(pi || pi_ref) and part of the *reward*: as a loss its gradient would not
    depend on the reference at all.

    Args:
        scores: (B,) reward of each whole completion.
        log_probs: (B, T) of the sampling policy.
        reference: (B, T) of the frozen reference policy.

    Returns:
        (B, T), zero outside the mask.
    """
    rewards = -coefficient * (log_probs - reference) * mask
    rows = torch.arange(len(scores), device=scores.device)
    rewards[rows, last_token(mask)] += scores * mask.any(1)
    return rewards


def teacher_advantages(log_probs: Tensor, reference: Tensor, mask: Tensor) -> Tensor:
    """log pi_teacher - log pi of each token: its part in the KL to the teacher, and of no later one.

    With it the expected update is minus the gradient of the sum over tokens of KL(pi || pi_teacher) after the tokens
    before, which are taken as given: the on-policy distillation of GKD (arXiv:2306.13649, section 3.2). The gradient of
    the KL of whole completions has one more part, for what a token does to the KL of later ones. As a sample that part
    is mostly noise, which grows with the length, since a teacher is far away (docs/guides/distill.md).

    Args:
        log_probs: (B, T) of the sampling policy. reference: (B, T) of the teacher.

    Returns:
        (B, T), zero outside the mask.
    """
    return (reference - log_probs) * mask


def last_token(mask: Tensor) -> Tensor:
    """(B,) index of the last position where ``mask`` is 1 (0 for an empty row)."""
    positions = torch.arange(mask.shape[1], device=mask.device)
    return (positions * (mask > 0)).amax(1)


def generalized_advantages(
    rewards: Tensor, values: Tensor, mask: Tensor, discount: float = GAMMA, gae_lambda: float = LAMBDA
) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimation: A_t = delta_t + gamma lambda A_(t+1), delta_t = r_t + gamma V_(t+1) - V_t.

    The value after the last masked token is 0: a completion ends there.

    Args:
        rewards: (B, T) per-token rewards.
        values: (B, T) value estimates of the states in which the tokens were chosen.
        discount: gamma. gae_lambda: lambda.

    Returns:
        advantages (B, T) and returns ``advantages + values`` (B, T), both zero outside the mask.
    """
    advantages = torch.zeros_like(rewards)
    following_advantage = torch.zeros_like(rewards[:, 0])
    following_value = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + discount * following_value - values[:, t]
        following_advantage = (delta + discount * gae_lambda * following_advantage) * mask[:, t]
        following_value = values[:, t] * mask[:, t]
        advantages[:, t] = following_advantage
    return advantages, (advantages + values) * mask


def leave_one_out_advantages(rewards: Tensor, mask: Tensor, group_size: int) -> Tensor:
    """Each completion's total reward minus the mean of the *other* completions of the same prompt.

    Rows are ordered by prompt, ``group_size`` consecutive rows each (Kool et al. 2019; RLOO, arXiv:2402.14740). The
    baseline does not depend on the completion it is subtracted from, so the gradient stays unbiased.

    Args:
        rewards: (B, T) per-token rewards, such as those of `kl_shaped_rewards`.

    Returns:
        (B, T): the sequence's advantage at each of its tokens, zero outside the mask.

    Raises:
        ValueError: fewer than two samples per prompt, or B is not a multiple of ``group_size``.
    """
    totals = _in_groups((rewards * mask).sum(1), group_size)
    others = (totals.sum(1, keepdim=True) - totals) / (group_size - 1)
    return (totals - others).view(-1, 1) * mask


def group_advantages(scores: Tensor, mask: Tensor, group_size: int, *, divided: bool) -> Tensor:
    """Each score minus the mean of its group, ``divided`` by the group's standard deviation or not.

    Divided, it is the advantage of GRPO (DeepSeekMath, arXiv:2402.03300, section 4.1.2); else that of Dr. GRPO
    (arXiv:2503.20783, eq. 2), which is (n - 1) / n times that of `leave_one_out_advantages`. The papers do not say
    which standard deviation; as in TRL and verl it is that of a sample, with n - 1. Scores that are equal up to
    `ROUNDING` give zeros.

    Args:
        scores: (B,) reward of each whole completion; rows are ordered by prompt.

    Returns:
        (B, T): the sequence's advantage at each of its tokens, zero outside the mask.

    Raises:
        ValueError: as `leave_one_out_advantages`.
    """
    groups = _in_groups(scores, group_size)
    centered = groups - groups.mean(1, keepdim=True)
    equal = ~is_varied(groups)[:, None]
    spread = groups.std(1, keepdim=True) if divided else torch.ones_like(centered)
    return torch.where(equal, 0.0, centered / spread).view(-1, 1) * mask


def is_varied(groups: Tensor) -> Tensor:
    """(G,) whether the rewards (G, n) of a group differ by more than `ROUNDING`."""
    return groups.amax(1) - groups.amin(1) > ROUNDING


def _in_groups(values: Tensor, size: int) -> Tensor:
    if size < 2 or len(values) % size:
        raise ValueError(f"cannot split {len(values)} rows into groups of {size} (at least 2)")
    return values.view(-1, size)


def batch_advantages(scores: Tensor, penalties: Tensor, mask: Tensor) -> Tensor:
    """Each score minus the mean of the batch, divided by its standard deviation; and the KL penalties still to come.

    The advantage of SecureCodeRL's published code. It compares completions of different prompts, so an easy prompt
    makes the others look bad. At batch size 2 it keeps only which score is higher: (0.40, 0.42) and (0, 1) both become
    (-1, 1), and equal scores (0, 0).

    Args:
        scores: (B,) reward of each whole completion.
        penalties: (B, T) the KL part of the reward of each token. It is not divided: where all scores are equal, its
            rounding errors would become the advantage.

    Returns:
        (B, T), zero outside the mask.
    """
    centered = scores - scores.mean()
    spread = centered.square().mean().sqrt()
    # Equal scores differ from their mean by rounding.
    normalized = torch.where(spread > ROUNDING, centered / spread, 0.0)
    remaining = (penalties * mask).flip(1).cumsum(1).flip(1)
    return (normalized[:, None] + remaining) * mask


def whiten(values: Tensor, mask: Tensor, *, center: bool = True) -> Tensor:
    """Scale to mean square 1 over the masked positions, first to mean 0 if ``center``; zero outside the mask."""
    shifted = values - masked_mean(values, mask) if center else values
    return shifted * (masked_mean(shifted**2, mask) + 1e-8).rsqrt() * mask


def running_mean_square(state: dict[str, float], name: str, mean_square: Tensor, memory: float = 0.98) -> float:
    """The exponential moving average of a mean square over the updates so far, including this one, bias-corrected.

    Small batches are scaled by it. A batch of two, divided by its own standard deviation, would keep the order of its
    two rewards but not their sizes, so partial credit would be lost.

    Args:
        state: the sum and the weight under ``name``, updated here; empty at the first update.
    """
    total = memory * state.get(f"{name}_sum", 0.0) + (1 - memory) * float(mean_square)
    weight = memory * state.get(f"{name}_weight", 0.0) + 1 - memory
    state[f"{name}_sum"], state[f"{name}_weight"] = total, weight
    return total / weight


@dataclass(frozen=True)
class PolicyLoss:
    """The clipped surrogate and its diagnostics.

    Attributes:
        loss: scalar to minimize.
        clip_fraction: fraction of tokens whose ratio left the clip range.
        approximate_kl: k3 estimate of KL(old || new), in nats per token (Schulman, "Approximating KL divergence",
        2020).
        ratio_mean, ratio_square: means of pi/pi_old and of its square.
        ratio_max_error: largest distance of a ratio from 1.
    """

    loss: Tensor
    clip_fraction: Tensor
    approximate_kl: Tensor
    ratio_mean: Tensor
    ratio_square: Tensor
    ratio_max_error: Tensor


def clip_bounds(clip_range: float | tuple[float, float]) -> tuple[float, float]:
    """How far below and above 1 a ratio may be: equally far, or not (clip-higher of DAPO, arXiv:2503.14476)."""
    return clip_range if isinstance(clip_range, tuple) else (clip_range, clip_range)


def policy_loss(
    log_probs: Tensor, old: Tensor, advantages: Tensor, weights: Tensor, clip_range: float | tuple[float, float]
) -> PolicyLoss:
    """PPO's clipped objective (eq. 7), each *token* with its own ratio, in the mean by ``weights``.

    Args:
        log_probs: (B, T) of the policy being updated.
        old: (B, T) of the policy that sampled, from the same forward pass, not from the sampler.
        advantages: (B, T), treated as constants.
    """
    low, high = clip_bounds(clip_range)
    counted = weights > 0
    log_ratio = (log_probs - old) * counted
    ratio = log_ratio.exp()
    unclipped = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - low, 1 + high)
    with torch.no_grad():
        shift = ratio - 1
        clip_fraction = masked_mean(((shift > high) | (-shift > low)).float(), weights)
        approximate_kl = masked_mean(shift - log_ratio, weights)
        ratio_mean, ratio_square = masked_mean(ratio, weights), masked_mean(ratio**2, weights)
        ratio_max_error = (shift.abs() * counted).max()
    loss = masked_mean(torch.maximum(unclipped, clipped), weights)
    return PolicyLoss(loss, clip_fraction, approximate_kl, ratio_mean, ratio_square, ratio_max_error)


def kl_loss(log_probs: Tensor, reference: Tensor, weights: Tensor) -> Tensor:
    """GRPO's KL penalty: the mean of pi_ref / pi - log(pi_ref / pi) - 1 (DeepSeekMath, eq. 4), to be minimized.

    On samples of pi the estimate is that of KL(pi || pi_ref), without bias and never negative. Its gradient is not: it
    is that of KL(pi_ref || pi) on average.

    Args:
        log_probs: (B, T) of the policy being updated. reference: (B, T) of the frozen reference policy.
    """
    log_ratio = (reference - log_probs) * (weights > 0)
    return masked_mean(log_ratio.exp() - 1 - log_ratio, weights)


def value_loss(
    values: Tensor, old: Tensor, returns: Tensor, weights: Tensor, clip_range: float | tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Half the squared error to the returns, the worse of the clipped and the unclipped estimate at each token.

    Of two numbers in ``clip_range`` it uses the first in both directions.

    Returns:
        the loss to minimize, and the fraction of tokens at which the clipped estimate was the worse one.
    """
    near, _ = clip_bounds(clip_range)
    clipped = old + (values - old).clamp(-near, near)
    plain_error, clipped_error = (values - returns) ** 2, (clipped - returns) ** 2
    with torch.no_grad():
        clip_fraction = masked_mean((clipped_error > plain_error).float(), weights)
    return 0.5 * masked_mean(torch.maximum(plain_error, clipped_error), weights), clip_fraction


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """The fraction of the returns' variance that the values explain: at most 1, 0 for a constant, negative if worse."""

    def variance(numbers: Tensor) -> Tensor:
        return masked_mean((numbers - masked_mean(numbers, mask)) ** 2, mask)

    return 1 - variance(returns - values) / variance(returns).clamp_min(1e-12)
