"""Step 6 of an update: epochs of optimizer steps on minibatches, with the clipped loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from securecoderl_edge.training.settings import PpoSettings
from securecoderl_edge.training.update.learner import Learner, memory_for, seed_of, shuffled
from securecoderl_edge.training.update.ppo import policy_loss, value_loss
from securecoderl_edge.training.update.sequences import Batch, completion_log_probs, micro_batches

# Means over the tokens of a minibatch, summed over its pieces, in this order.
_MEANS = (
    "loss/policy",
    "loss/value",
    "policy/clipfrac",
    "policy/approxkl",
    "val/clipfrac",
    "val/ratio",
    "val/ratio_square",
)


@dataclass(frozen=True)
class Minibatch:
    """The ``tokens`` of some groups of a batch, and the ``pieces`` of this process: indices of rows of the batch."""

    pieces: list[list[int]]
    tokens: int


def split(learner: Learner, batch: Batch, ppo: PpoSettings, *seed: object) -> list[Minibatch]:
    """The minibatches of an epoch: whole groups in random order, fewer if there are fewer groups."""
    size = ppo.samples_per_prompt
    groups = shuffled(len(batch.sequences) // size, seed_of(*seed))
    count = min(ppo.minibatches, len(groups))
    minibatches = []
    for number in range(count):
        rows = [group * size + row for group in sorted(groups[number::count]) for row in range(size)]
        part = batch.rows(rows)
        pieces = micro_batches(part, ppo.micro_batch_tokens, learner.team)
        minibatches.append(Minibatch([[rows[index] for index in piece] for piece in pieces], sum(part.lengths)))
    return minibatches


@dataclass(frozen=True)
class Goal:
    """All that the loss of a batch depends on besides the policy; tensors are (B, T).

    ``share``: of the batch with its dropped completions, which have zero loss. ``only_value``: the policy stays.
    """

    batch: Batch
    old: Tensor
    old_values: Tensor
    advantages: Tensor
    returns: Tensor
    share: float
    only_value: bool


def optimize(
    learner: Learner,
    goal: Goal,
    minibatches: list[Minibatch],
    first_pass: tuple[Tensor, Tensor] | None,
    ppo: PpoSettings,
    order: tuple[object, ...],
    tensors: dict[str, Tensor],
) -> dict[str, float]:
    """Step 6: epochs of optimizer steps, one for each minibatch; returns their mean metrics.

    A step is that of a batch of its own: the mean over the tokens of its minibatch, times the share of the completions
    that were not dropped. A minibatch whose KL exceeds ``target_kl`` is not stepped on, and ends the update.

    Args:
        minibatches: of the first epoch. first_pass: the forward pass of the last piece of the first one.
    """
    sums, first_ratio_error, grad_norm, steps = dict.fromkeys(_MEANS, 0.0), 0.0, 0.0, 0
    for number in range(ppo.epochs * len(minibatches)):
        epoch, place = divmod(number, len(minibatches))
        if epoch and not place:
            minibatches = split(learner, goal.batch, ppo, *order, epoch)
        minibatch = minibatches[place]
        found = [torch.zeros(len(_MEANS) + 1, device=goal.old.device)]
        with memory_for("computing the update", "ppo.micro_batch_tokens", learner.memory):
            for piece in reversed(minibatch.pieces):
                again, first_pass = first_pass, None
                loss, facts = _piece_loss(learner, goal, piece, minibatch.tokens, again, ppo)
                learner.backward(goal.share * loss)
                found.append(facts)
            of_pieces = torch.stack(found).cpu().double()
            means, worst = of_pieces[:, :-1].sum(0), float(of_pieces[:, -1].max())
            learner.team.add_up([means])
            # At the first step the KL is 0, up to rounding.
            if number and ppo.target_kl is not None and means[_MEANS.index("policy/approxkl")] > ppo.target_kl:
                learner.discard_gradients()
                break
            grad_norm += learner.step(ppo.max_grad_norm, tensors)[1]
        worst = max(learner.team.collect([worst]))
        for name, value in zip(_MEANS, means.tolist(), strict=True):
            sums[name] += value
        first_ratio_error = worst if number == 0 else first_ratio_error
        steps += 1
    average = {name: value / steps for name, value in sums.items()}
    ratio_square = average.pop("val/ratio_square")
    return {
        **average,
        "val/ratio_var": max(0.0, ratio_square - average["val/ratio"] ** 2),
        "val/first_ratio_error": first_ratio_error,
        "val/epochs": epoch + 1,
        "val/steps": steps,
        "grad_norm": grad_norm / steps,
    }


def values_of(head: nn.Module, hidden: Tensor, piece: Batch) -> Tensor:
    """(B, T) value estimates at the tokens of a piece, 0 on padding, from the hidden states (N, H) before them."""
    return piece.spread(head(hidden.detach().float())[:, 0])


def _piece_loss(
    learner: Learner,
    goal: Goal,
    rows: list[int],
    tokens: int,
    forward_pass: tuple[Tensor, Tensor] | None,
    ppo: PpoSettings,
) -> tuple[Tensor, Tensor]:
    """The loss of some rows, weighted by their fraction of the ``tokens`` of a minibatch.

    Args:
        forward_pass: log-probabilities and hidden states of these rows, if already computed.

    Returns:
        the loss; and its contributions to `_MEANS` with the largest distance of a ratio from 1, still on the device.
    """
    piece = goal.batch.rows(rows)
    cut = (torch.tensor(rows, device=goal.old.device), slice(piece.mask.shape[1]))
    share = sum(piece.lengths) / tokens
    if forward_pass is None:
        forward_pass = completion_log_probs(learner.model, piece, ppo.temperature, learner.compute)
    log_probs, hidden = forward_pass
    surrogate = policy_loss(log_probs, goal.old[cut], goal.advantages[cut], piece.mask, ppo.clip_range)
    loss = 0 * surrogate.loss if goal.only_value else surrogate.loss
    value = clipped = torch.zeros_like(surrogate.clip_fraction)
    if learner.value_head is not None:
        values = values_of(learner.value_head, hidden, piece)
        value, clipped = value_loss(values, goal.old_values[cut], goal.returns[cut], piece.mask, ppo.clip_range)
        loss = loss + value  # of other parameters: the head reads detached states
    facts = (
        surrogate.loss, value, surrogate.clip_fraction, surrogate.approximate_kl, clipped,
        surrogate.ratio_mean, surrogate.ratio_square,
    )  # fmt: skip
    means = share * torch.stack([fact.detach() for fact in facts])
    return share * loss, torch.cat([means, surrogate.ratio_max_error[None]])
