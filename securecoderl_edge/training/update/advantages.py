"""Steps 3 to 5 of an update: the advantages of its completions, from their rewards and log-probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from securecoderl_edge.training.settings import PpoSettings
from securecoderl_edge.training.update.ppo import (
    batch_advantages,
    generalized_advantages,
    kl_shaped_rewards,
    leave_one_out_advantages,
    masked_mean,
    running_mean_square,
    whiten,
)

# With fewer sequences the mean and spread of a batch depend more on its prompts than on the policy.
_MIN_SEQUENCES_TO_WHITEN = 8
_NAME = "advantage"


def estimate_advantages(
    ppo: PpoSettings,
    running: dict[str, float],
    scores: Tensor,
    log_probs: Tensor,
    values: Tensor,
    reference: Tensor,
    mask: Tensor,
    share: float,
) -> tuple[Tensor, Tensor]:
    """Scaled advantages and returns, both (B, T) and zero outside the mask.

    Advantages are scaled over the whole batch, before it is split into minibatches, as in ``ppo1`` of OpenAI Baselines
    and in TRL's PPOTrainer (``ppo2`` scales minibatches). A minibatch of few groups would otherwise set its own scale.

    Args:
        running: running statistics, changed here for small batches.
        scores: (B,) reward of each completion.
        log_probs, values, reference: (B, T) of the sampling policy, of the value head, of the SFT policy.
        share: of the tokens of the whole batch that these completions have. The others have zero advantage.
    """
    shaped = kl_shaped_rewards(scores, log_probs, reference, mask, ppo.kl_coefficient)
    if ppo.advantage == "gae":
        advantages, returns = generalized_advantages(shaped, values, mask)
        return _scaled(ppo, running, advantages, mask, share), returns
    returns = torch.zeros_like(shaped)
    if ppo.advantage == "batch":
        penalties = kl_shaped_rewards(torch.zeros_like(scores), log_probs, reference, mask, ppo.kl_coefficient)
        return batch_advantages(scores, penalties, mask), returns
    advantages = leave_one_out_advantages(shaped, mask, ppo.samples_per_prompt)
    return _scaled(ppo, running, advantages, mask, share), returns


def count_zero_advantages(ppo: PpoSettings, running: dict[str, float]) -> None:
    """Running statistics after a batch whose advantages are all zero: they count, too."""
    if ppo.batch_size < _MIN_SEQUENCES_TO_WHITEN:
        running_mean_square(running, _NAME, torch.zeros(()))


def _scaled(ppo: PpoSettings, running: dict[str, float], advantages: Tensor, mask: Tensor, share: float) -> Tensor:
    """The advantages divided by their root mean square in the whole batch, or by the running one of small batches."""
    if ppo.batch_size >= _MIN_SEQUENCES_TO_WHITEN:
        # A leave-one-out advantage is centered by construction; the zeros of the others lower its mean square.
        return whiten(advantages, mask, center=ppo.advantage == "gae") / float(share**0.5)
    mean_square = running_mean_square(running, _NAME, share * masked_mean(advantages**2, mask))
    return advantages * float((mean_square + 1e-8) ** -0.5)
