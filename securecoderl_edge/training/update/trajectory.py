"""What an update of PPO learns from: its completions, and the numbers of each of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from securecoderl_edge.models.sampling import TokenCompletion
from securecoderl_edge.training.phase_settings import GRPO, PpoSettings
from securecoderl_edge.training.update.rollout import Rollout
from securecoderl_edge.training.update.sequences import TokenBatch, make_batch


@dataclass(frozen=True)
class Trajectory:
    """B completions of at most T tokens, in whole groups, on their way from the rollout to the loss.

    All tensors of tokens are (B, T), right-padded, and zero on padding; those not computed yet are zero everywhere.

    Attributes:
        batch: the tokens, their mask, and the prompts that they continue.
        rewards: (B,) of whole completions.
        weights: what each token counts in the mean of the loss: 1, or for GRPO one over the length of its completion.
            Of masked completions 0.
        sizes: the sums of the rows of ``weights``, known without reading the device.
        share: s, of the tokens of all completions of the update; for GRPO and Dr. GRPO, of the completions. Those that
            were dropped have zero advantage, but count in every mean. So one group with variance of eight makes an
            eighth of the gradient that it would make alone. Where the batch's root mean square scales the advantages,
            the zeros lower that too, and s becomes sqrt(s): 0.35 instead of 0.125. Then gradients have the same noise
            whatever s is, and those of few groups a smaller signal.
        sampled: log-probabilities as the sampler computed them.
        log_probs: the same, of the same policy, by the forward pass that the loss repeats.
        reference: log-probabilities of the SFT policy or the teacher; those of the policy where no KL is measured.
        values: estimates of a value head before each token.
        advantages: see `ppo.estimate_advantages`. returns: what a value head should estimate.
    """

    batch: TokenBatch
    rewards: Tensor
    weights: Tensor
    sizes: tuple[float, ...]
    share: float
    sampled: Tensor
    log_probs: Tensor
    reference: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor

    def rows(self, indices: Sequence[int]) -> Trajectory:
        """Some of the completions, cut to the longest among them."""
        batch = self.batch.rows(indices)
        chosen = torch.tensor(indices, device=self.rewards.device)
        some = (chosen, slice(batch.mask.shape[1]))
        return Trajectory(
            batch,
            self.rewards[chosen],
            self.weights[some],
            tuple(self.sizes[row] for row in indices),
            self.share,
            self.sampled[some],
            self.log_probs[some],
            self.reference[some],
            self.values[some],
            self.advantages[some],
            self.returns[some],
        )

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, for the inspection of NaN and Inf."""
        own = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return {"tokens": self.batch.tokens, "mask": self.batch.mask, **own}


def trajectory_of(
    rollout: Rollout, rows: Sequence[int], rewards: Tensor, ppo: PpoSettings, padding: int, device: str
) -> Trajectory:
    """Some ``rows`` of a rollout, with what is known before any forward pass.

    Args:
        rewards: of all completions of the rollout.
        padding: a token id.
    """
    completions = [rollout.completions[row] for row in rows]
    pairs = [(rollout.prompts[completion.prompt], completion.token_ids) for completion in completions]
    batch = make_batch(pairs, padding, device)
    sizes = tuple(0.0 if is_masked(done, ppo) else _size(done, ppo) for done in completions)
    of_token = torch.tensor([size / length for size, length in zip(sizes, batch.lengths, strict=True)], device=device)
    if ppo.advantage in GRPO:
        share = len(rows) / len(rollout.completions)
    else:
        share = sum(sizes) / sum(_size(done, ppo) for done in rollout.completions)
    sampled = torch.tensor([log_prob for done in completions for log_prob in done.log_probs], device=device)
    nothing = torch.zeros_like(batch.mask)
    return Trajectory(
        batch=batch,
        rewards=rewards[rows].to(device),
        weights=batch.mask * of_token[:, None],
        sizes=sizes,
        share=share,
        sampled=batch.spread(sampled),
        log_probs=nothing,
        reference=nothing,
        values=nothing,
        advantages=nothing,
        returns=nothing,
    )


def is_masked(completion: TokenCompletion, ppo: PpoSettings) -> bool:
    """Whether a completion leaves no gradient because its end is missing (DAPO, arXiv:2503.14476, section 3.4)."""
    return ppo.mask_truncated and not completion.finished


def _size(completion: TokenCompletion, ppo: PpoSettings) -> float:
    return 1.0 if ppo.advantage == "grpo" else float(len(completion.token_ids))
