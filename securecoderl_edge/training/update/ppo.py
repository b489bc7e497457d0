"""Proximal policy optimization for token sequences, as pure functions.

One update reads: 1 sample, 2 score (`ppo_update.py`), 3 KL-shape, 4 advantages, 5 whiten (`advantages.py`), 6 clipped
loss (`minibatches.py`). Shapes: ``B`` completions of ``T`` tokens, right-padded; ``mask`` (B, T) is 1.0 on tokens (the
end-of-sequence token included) and 0.0 on padding, so padding cannot change any result. Symbols follow Schulman et al.
2017 (arXiv:1707.06347) and, for GAE, Schulman et al. 2015 (arXiv:1506.02438).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from securecoderl_edge.models.fused import rounded_products
from securecoderl_edge.models.sizes import logits_at_a_time

# Nothing is discounted: a completion ends within one update, and its reward is that of its end.
GAMMA, LAMBDA = 1.0, 0.95


class _ChunkedLogProbs(torch.autograd.Function):
    """Log-probabilities of target tokens with at most ``chunk`` rows of logits in memory.

    The forward pass has the probabilities at hand, so it also computes the derivatives, d log p(target) / d hidden,
    which the backward pass would otherwise compute the logits for again. The output projection is frozen and gets no
    gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        temperature: float,
        chunk: int,
        products: torch.dtype | None,
    ) -> Tensor:
        log_probs = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        slopes = torch.empty_like(hidden if ctx.needs_input_grad[0] else hidden[:0])
        # One block for all chunks: the pages of new memory would cost as much time as the product.
        logits = hidden.new_empty(min(chunk, len(hidden)), len(weight))
        with rounded_products(products, hidden.device.type):
            for start in range(0, len(hidden), chunk):
                part = slice(start, start + chunk)
                wanted = targets[part, None]
                scores = torch.mm(hidden[part] / temperature, weight.T, out=logits[: len(wanted)])
                largest, chosen = scores.amax(-1, keepdim=True), scores.gather(-1, wanted)
                sums = scores.sub_(largest).exp_().sum(-1, keepdim=True)
                log_probs[part] = (chosen - largest - sums.log())[:, 0]
                if len(slopes):
                    # d log p(target) / d logits = onehot(target) - softmax(logits)
                    slopes[part] = (weight[wanted[:, 0]] - (scores @ weight).div_(sums)).div_(temperature)
        ctx.save_for_backward(slopes)
        return log_probs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        (slopes,) = ctx.saved_tensors
        return slopes * gradients[0][:, None], None, None, None, None, None


def chunked_log_probs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    chunk: int | None = None,
    products: torch.dtype | None = None,
) -> Tensor:
    """Log-probability of each target under ``softmax(hidden @ weight.T / temperature)``, in float32.

    Args:
        hidden: (N, H) last hidden states at the positions that predict the targets.
        weight: (V, H) output projection, frozen.
        targets: (N,) token ids.
        temperature: the sampling temperature, so that old and new policy are the same function.
        chunk: rows of logits in memory at a time; by default `logits_at_a_time`.
        products: see `fused.rounded_products`.

    Returns:
        (N,) natural-log probabilities; differentiable once with respect to ``hidden``.
    """
    chunk = chunk or logits_at_a_time(hidden.device.type, len(weight))
    log_probs: Tensor = _ChunkedLogProbs.apply(  # type: ignore[no-untyped-call]
        hidden, weight.to(hidden.dtype), targets, temperature, chunk, products
    )
    return log_probs


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
    if group_size < 2 or len(rewards) % group_size:
        raise ValueError(f"cannot split {len(rewards)} rows into groups of {group_size} (at least 2)")
    totals = (rewards * mask).sum(1).view(-1, group_size)
    others = (totals.sum(1, keepdim=True) - totals) / (group_size - 1)
    return (totals - others).view(-1, 1) * mask


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
    normalized = torch.where(spread > 1e-6, centered / spread, 0.0)
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


def policy_loss(log_probs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, clip_range: float) -> PolicyLoss:
    """PPO's clipped objective (eq. 7), each *token* with its own ratio, averaged over the tokens of the batch.

    Args:
        log_probs: (B, T) of the policy being updated.
        old: (B, T) of the policy that sampled, from the same forward pass, not from the sampler.
        advantages: (B, T), treated as constants.
    """
    log_ratio = (log_probs - old) * mask
    ratio = log_ratio.exp()
    unclipped = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip_range, 1 + clip_range)
    with torch.no_grad():
        clip_fraction = masked_mean(((ratio - 1).abs() > clip_range).float(), mask)
        approximate_kl = masked_mean(ratio - 1 - log_ratio, mask)
        ratio_mean, ratio_square = masked_mean(ratio, mask), masked_mean(ratio**2, mask)
        ratio_max_error = ((ratio - 1).abs() * mask).max()
    loss = masked_mean(torch.maximum(unclipped, clipped), mask)
    return PolicyLoss(loss, clip_fraction, approximate_kl, ratio_mean, ratio_square, ratio_max_error)


def value_loss(values: Tensor, old: Tensor, returns: Tensor, mask: Tensor, clip_range: float) -> tuple[Tensor, Tensor]:
    """Half the squared error to the returns, the worse of the clipped and the unclipped estimate at each token.

    Returns:
        the loss to minimize, and the fraction of tokens at which the clipped estimate was the worse one.
    """
    clipped = old + (values - old).clamp(-clip_range, clip_range)
    plain_error, clipped_error = (values - returns) ** 2, (clipped - returns) ** 2
    with torch.no_grad():
        clip_fraction = masked_mean((clipped_error > plain_error).float(), mask)
    return 0.5 * masked_mean(torch.maximum(plain_error, clipped_error), mask), clip_fraction


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """The fraction of the returns' variance that the values explain: at most 1, 0 for a constant, negative if worse."""

    def variance(numbers: Tensor) -> Tensor:
        return masked_mean((numbers - masked_mean(numbers, mask)) ** 2, mask)

    return 1 - variance(returns - values) / variance(returns).clamp_min(1e-12)
