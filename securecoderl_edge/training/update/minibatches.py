"""Step 6 of an update: epochs of optimizer steps on minibatches, with the clipped loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from securecoderl_edge.training.phase_settings import GRPO, PpoSettings
from securecoderl_edge.training.update.learner import (
    TRAINED,
    Learner,
    NotFiniteError,
    Update,
    memory_for,
    norm_metric,
    seed_of,
    shuffled,
)
from securecoderl_edge.training.update.ppo import kl_loss, policy_loss, value_loss
from securecoderl_edge.training.update.sequences import TokenBatch, completion_log_probs, micro_batches
from securecoderl_edge.training.update.trajectory import Trajectory

# Log-probabilities (B, T) of a piece, and the hidden states (N, H) before its tokens.
ForwardPass = tuple[Tensor, Tensor]

# Means by the weights of a minibatch's tokens, summed over its pieces, in this order.
_MEANS = (
    "loss/policy",
    "loss/value",
    "loss/kl",
    "policy/clipfrac",
    "policy/approxkl",
    "val/clipfrac",
    "val/ratio",
    "val/ratio_square",
)


@dataclass(frozen=True)
class Minibatch:
    """Some groups of a batch, of which each has a completion that is not masked.

    Attributes:
        pieces: indices of rows of the batch, those of this process; masked ones are in none.
        size, tokens: the sum of their weights, and of their lengths, over all processes.
        scale: of the mean loss, see `_scale`.
    """

    pieces: list[list[int]]
    size: float
    tokens: int
    scale: float


def split(learner: Learner, trajectory: Trajectory, ppo: PpoSettings, *seed: object) -> list[Minibatch]:
    """The minibatches of an epoch: whole groups in random order, fewer if there are fewer groups."""
    size = ppo.samples_per_prompt
    groups = shuffled(len(trajectory.sizes) // size, seed_of(*seed))
    count = min(ppo.minibatches, len(groups))
    minibatches = []
    for number in range(count):
        every = [group * size + row for group in sorted(groups[number::count]) for row in range(size)]
        rows = [row for row in every if trajectory.sizes[row]]
        pieces = micro_batches(trajectory.batch.rows(rows), ppo.micro_batch_tokens, learner.team)
        weight = sum(trajectory.sizes[row] for row in rows)
        scale = _scale(weight, len(every), trajectory.share, ppo)
        tokens = sum(trajectory.batch.lengths[row] for row in rows)
        minibatches.append(Minibatch([[rows[index] for index in piece] for piece in pieces], weight, tokens, scale))
    return minibatches


def _scale(size: float, rows: int, share: float, ppo: PpoSettings) -> float:
    """What the mean by weights is multiplied with.

    With ``share`` the completions that were dropped count, too. GRPO divides by all ``rows``, masked ones included,
    Dr. GRPO by the tokens that they could have had (arXiv:2503.20783, listing 1).
    """
    if ppo.advantage not in GRPO:
        return share
    return share * size / (rows * (ppo.max_tokens if ppo.advantage == "dr-grpo" else 1))


def optimize(
    learner: Learner,
    update: Update,
    trajectory: Trajectory,
    minibatches: list[Minibatch],
    first_pass: ForwardPass | None,
    *,
    are_known: bool = True,
) -> tuple[Trajectory, dict[str, float]]:
    """Step 6: epochs of optimizer steps, one for each minibatch.

    A step is that of a batch of its own: the mean over the tokens of its minibatch, times its scale. A minibatch whose
    KL exceeds ``target_kl`` is not stepped on, and ends the update.

    Args:
        minibatches: of the first epoch. first_pass: the forward pass of the last piece of the first one.
        are_known: whether the trajectory has its log-probabilities; if not, the first step, on all of it, adds them.

    Returns:
        the trajectory with its log-probabilities, and the mean metrics of the steps.

    Raises:
        NotFiniteError: see `require_finite` and `Learner.step`.
    """
    ppo, only_value = update.settings.ppo, update.step <= update.settings.ppo.value_warmup_steps
    sums, first_ratio_error, norms, steps = dict.fromkeys(_MEANS, 0.0), 0.0, list[float](), 0
    tokens = sum(trajectory.batch.lengths[row] for each in minibatches for rows in each.pieces for row in rows)
    learner.meter.begin("learning", ppo.epochs * tokens)
    for step in range(ppo.epochs * len(minibatches)):
        epoch, number = divmod(step, len(minibatches))
        if epoch and not number:
            minibatches = split(learner, trajectory, ppo, *update.seed("minibatches"), epoch)
        minibatch = minibatches[number]
        of_pieces = [torch.zeros(len(_MEANS) + 1, device=trajectory.log_probs.device)]
        found = None if are_known else torch.zeros_like(trajectory.log_probs)
        with memory_for("computing the update", "ppo.micro_batch_tokens", learner.memory):
            for rows in reversed(minibatch.pieces):
                piece = trajectory.rows(rows)
                if first_pass is None:
                    first_pass = completion_log_probs(learner.model, piece.batch, ppo.temperature, learner.compute)
                if found is not None:
                    piece = replace(piece, log_probs=first_pass[0].detach())
                    found[rows, : piece.log_probs.shape[1]] = piece.log_probs
                loss, means = _loss(learner, piece, first_pass, ppo, only_value)
                first_pass, weight = None, sum(piece.sizes) / minibatch.size
                learner.backward(minibatch.scale * (weight * loss))
                learner.meter.advance(sum(piece.batch.lengths))
                # Those of a piece count by its weights, but for the largest error.
                of_pieces.append(torch.cat([weight * means[:-1], means[-1:]]))
            if found is not None:
                learner.team.add_up([found])
                trajectory, are_known = replace(trajectory, log_probs=found, reference=found), True
                require_finite("policy", found, trajectory)
            table = torch.stack(of_pieces).cpu().double()
            totals, worst = table[:, :-1].sum(0), float(table[:, -1].max())
            learner.team.add_up([totals])
            learner.count(TRAINED, minibatch.tokens)
            # At the first step the KL is 0, up to rounding.
            if step and ppo.target_kl is not None and totals[_MEANS.index("policy/approxkl")] > ppo.target_kl:
                learner.discard_gradients()
                break
            norms.append(learner.step(ppo.max_grad_norm, trajectory.tensors())[1])
        worst = max(learner.team.collect([worst]))
        for name, value in zip(_MEANS, totals.tolist(), strict=True):
            sums[name] += value
        first_ratio_error = worst if step == 0 else first_ratio_error
        steps += 1
    average = {name: value / steps for name, value in sums.items()}
    ratio_square = average.pop("val/ratio_square")
    if not has_kl_loss(ppo):
        del average["loss/kl"]
    return trajectory, {
        **average,
        "val/ratio_var": max(0.0, ratio_square - average["val/ratio"] ** 2),
        "val/first_ratio_error": first_ratio_error,
        "val/epochs": epoch + 1,
        "val/steps": steps,
        **norm_metric(norms),
    }


def require_finite(whose: str, log_probs: Tensor, trajectory: Trajectory) -> None:
    """Check the log-probabilities of a trajectory.

    Raises:
        NotFiniteError: NaN or Inf in them.
    """
    if not torch.isfinite(log_probs).all():
        raise NotFiniteError(f"a log-probability of the {whose}", trajectory.tensors())


def has_kl_loss(ppo: PpoSettings) -> bool:
    """Whether the KL penalty is in the loss instead of in the reward; that to a teacher is in the advantages."""
    return ppo.advantage in GRPO and ppo.kl_coefficient > 0 and ppo.reference is None


def values_of(head: nn.Module, hidden: Tensor, piece: TokenBatch) -> Tensor:
    """(B, T) value estimates at the tokens of a piece, 0 on padding, from the hidden states (N, H) before them."""
    return piece.spread(head(hidden.detach().float())[:, 0])


def _loss(
    learner: Learner, piece: Trajectory, forward_pass: ForwardPass, ppo: PpoSettings, only_value: bool
) -> tuple[Tensor, Tensor]:
    """The mean loss by the weights of a piece; `_MEANS` and the largest distance of a ratio from 1, on the device.

    Args:
        forward_pass: of the piece. only_value: the policy stays as it is.
    """
    (log_probs, hidden), weights = forward_pass, piece.weights
    policy = policy_loss(log_probs, piece.log_probs, piece.advantages, weights, ppo.clip_range)
    loss = 0 * policy.loss if only_value else policy.loss
    kl = value = clipped = torch.zeros_like(policy.clip_fraction)
    if has_kl_loss(ppo):
        kl = kl_loss(log_probs, piece.reference, weights)
        loss = loss + ppo.kl_coefficient * kl
    if learner.value_head is not None:
        values = values_of(learner.value_head, hidden, piece.batch)
        value, clipped = value_loss(values, piece.values, piece.returns, weights, ppo.clip_range)
        loss = loss + value  # of other parameters: the head reads detached states
    means = (
        policy.loss, value, kl, policy.clip_fraction, policy.approximate_kl, clipped, policy.ratio_mean,
        policy.ratio_square, policy.ratio_max_error,
    )  # fmt: skip
    return loss, torch.stack([mean.detach() for mean in means])
