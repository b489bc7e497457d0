"""One PPO update: the numbered algorithm over the pure functions of `ppo.py`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from securecoderl_edge.models.adapters import reference_active
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.training.settings import PpoSettings, RewardSettings
from securecoderl_edge.training.update.history import NO_HISTORY, History
from securecoderl_edge.training.update.learner import (
    Learner,
    NotFiniteError,
    draw_problems,
    memory_for,
    next_problems,
    precision_metrics,
    seed_of,
)
from securecoderl_edge.training.update.ppo import (
    batch_advantages,
    explained_variance,
    generalized_advantages,
    kl_shaped_rewards,
    leave_one_out_advantages,
    masked_mean,
    policy_loss,
    running_mean_square,
    value_loss,
    whiten,
)
from securecoderl_edge.training.update.references import Hints
from securecoderl_edge.training.update.rollout import Rollout, collect
from securecoderl_edge.training.update.sequences import Batch, completion_log_probs, make_batch, micro_batches

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer

# With fewer sequences the mean and spread of a batch depend more on its prompts than on the policy.
_MIN_SEQUENCES_TO_WHITEN = 8
# Means over the tokens of a batch, summed over its pieces, in this order.
_MEANS = (
    "loss/policy",
    "loss/value",
    "policy/clipfrac",
    "policy/approxkl",
    "val/clipfrac",
    "val/ratio",
    "val/ratio_square",
)


def ppo_update(
    learner: Learner,
    scorer: Scorer,
    problems: Sequence[Problem],
    ppo: PpoSettings,
    reward: RewardSettings,
    partial_weight: float,
    phase: str,
    step: int,
    seed: int,
    history: History = NO_HISTORY,
    hints: Hints | None = None,
) -> tuple[dict[str, Any], Rollout]:
    """One PPO update on the reward (1 - w) binary + w partial; returns its metrics and its rollout.

    KL, entropy and ratios are those of the completions in the update; without any they are missing. The rates of scores
    are those of completions without a hint.

    Args:
        history: of the problems, for ``ppo.prompts = pass-rate``.
    """
    started, skipped = time.monotonic(), learner.skipped_steps
    # 1 sample, 2 score
    count = ppo.batch_size // ppo.samples_per_prompt
    chosen = next_problems(problems, count, step, seed_of(seed, phase))
    if ppo.prompts == "pass-rate":
        weights = [history.of(problem.id).weight for problem in problems]
        chosen = draw_problems(problems, weights, count, seed_of(seed, phase, "order", step))
    beginnings = [hints.of(learner, problem) for problem in chosen] if hints else ()
    rollout = collect(
        learner, scorer, chosen, ppo.samples_per_prompt, ppo, seed, phase, "sample", step, hints=beginnings
    )
    rewards = torch.tensor(rollout.rewards(partial_weight, reward))
    if not torch.isfinite(rewards).all():
        raise NotFiniteError("a reward", {"rewards": rewards})
    collected = time.monotonic()
    varied = rows_of_varied_groups(rewards, ppo.samples_per_prompt)
    rows = varied if ppo.drop_zero_variance_groups else list(range(len(rewards)))
    only_value = step <= ppo.value_warmup_steps
    facts = _learn(learner, rollout, rows, rewards, ppo, only_value) if rows else {}
    if not rows and len(rewards) < _MIN_SEQUENCES_TO_WHITEN:
        running_mean_square(learner.running, "advantage", torch.zeros(()))  # zero advantages count too
    ended = time.monotonic()
    tokens = sum(len(done.token_ids) for done in rollout.completions)
    complete = sum(done.finished for done in rollout.completions)
    metrics: dict[str, Any] = {
        "episode": step * len(rewards),
        "objective/reward": rewards.mean().item(),
        "objective/partial_weight": partial_weight,
        **facts,
        **rollout.rates(),
        **(rollout.hint_metrics() if hints else {}),
        **({"zero_variance_rate": 1 - len(varied) / len(rewards)} if ppo.advantage == "rloo" else {}),
        "groups_used": len(rows) // ppo.samples_per_prompt,
        "val/num_eos_tokens": complete,
        "truncated_rate": 1 - complete / len(rollout.completions),
        "tokens": tokens,
        "tokens_per_second": tokens / (ended - started),
        "seconds": ended - started,
        "seconds_sample": rollout.seconds_sample,
        "seconds_score": rollout.seconds_score,
        "seconds_update": ended - collected,
        **precision_metrics(learner, skipped),
    }
    return metrics, rollout


def rows_of_varied_groups(rewards: Tensor, group_size: int) -> list[int]:
    """Indices of the completions in groups with reward variance.

    In a zero-variance group every leave-one-out advantage is 0 except for the KL penalty, so nothing else is lost (the
    filter of DAPO, arXiv:2503.14476, section 3.2, without resampling).
    """
    groups = rewards.view(-1, group_size)
    varied = (groups != groups[:, :1]).any(1).repeat_interleave(group_size)
    rows: list[int] = varied.nonzero()[:, 0].tolist()
    return rows


def _learn(
    learner: Learner, rollout: Rollout, rows: list[int], rewards: Tensor, ppo: PpoSettings, only_value: bool
) -> dict[str, float]:
    """Steps 3 to 6 on some of the completions, in whole groups; returns their metrics.

    The others count in every mean as completions with zero advantage: a batch with one group that has variance is one
    eighth of the evidence of a batch with eight, and must not make an equally large step.
    """
    completions = [rollout.completions[row] for row in rows]
    pairs = [(rollout.prompts[completion.prompt], completion.token_ids) for completion in completions]
    batch = make_batch(pairs, learner.tokenizer.pad_token_id, learner.compute.device)
    pieces = list(micro_batches(batch, ppo.micro_batch_tokens, learner.team))
    with memory_for("computing log-probabilities", "ppo.micro_batch_tokens", learner.memory):
        with torch.no_grad(), reference_active(learner.model):
            reference = _evaluate(learner, batch, pieces, ppo.temperature).log_probs
        before = _evaluate(learner, batch, pieces, ppo.temperature, for_update=True)
        old, old_values = before.log_probs, before.values
        learner.team.add_up([old, old_values, reference])
    tensors = {"tokens": batch.tokens, "mask": batch.mask, "rewards": rewards, "log_probs": old, "reference": reference}
    for name in ("log_probs", "reference"):
        if not torch.isfinite(tensors[name]).all():
            raise NotFiniteError(f"a log-probability of the {'policy' if name == 'log_probs' else name}", tensors)

    # 3 KL-shape, 4 advantages, 5 whiten
    scores = rewards[rows].to(old.device)
    shaped = kl_shaped_rewards(scores, old, reference, batch.mask, ppo.kl_coefficient)
    returns = torch.zeros_like(shaped)
    if ppo.advantage == "gae":
        advantages, returns = generalized_advantages(shaped, old_values, batch.mask, ppo.discount, ppo.gae_lambda)
    elif ppo.advantage == "rloo":
        advantages = leave_one_out_advantages(shaped, batch.mask, ppo.samples_per_prompt)
    else:
        penalties = kl_shaped_rewards(torch.zeros_like(scores), old, reference, batch.mask, ppo.kl_coefficient)
        advantages = batch_advantages(scores, penalties, batch.mask)
    share = sum(batch.lengths) / sum(len(completion.token_ids) for completion in rollout.completions)
    if ppo.advantage == "batch":
        scaled = advantages
    elif len(rewards) >= _MIN_SEQUENCES_TO_WHITEN:
        # A leave-one-out advantage is centered by construction; the zeros of the others lower its mean square.
        scaled = whiten(advantages, batch.mask, center=ppo.advantage == "gae") / share**0.5
    else:
        mean_square = running_mean_square(learner.running, "advantage", share * masked_mean(advantages**2, batch.mask))
        scaled = advantages * (mean_square + 1e-8) ** -0.5
    tensors |= {"advantages": scaled, "returns": returns}

    # 6 update
    sums = dict.fromkeys(_MEANS, 0.0)
    first_ratio_error, grad_norm, epochs = 0.0, 0.0, 0
    first_pass = before.last_pass
    for epoch in range(ppo.epochs):
        found = [torch.zeros(len(_MEANS) + 1, device=old.device)]
        with memory_for("computing the update", "ppo.micro_batch_tokens", learner.memory):
            for piece in reversed(pieces):
                again, first_pass = first_pass, None
                loss, facts = _piece_loss(
                    learner, batch, piece, again, old, old_values, scaled, returns, ppo, only_value
                )
                learner.backward(share * loss)
                found.append(facts)
            grad_norm += learner.step(ppo.max_grad_norm, tensors)[1]
        of_pieces = torch.stack(found).cpu().double()
        means, worst = of_pieces[:, :-1].sum(0), float(of_pieces[:, -1].max())
        learner.team.add_up([means])
        worst = max(learner.team.collect([worst]))
        for name, value in zip(_MEANS, means.tolist(), strict=True):
            sums[name] += value
        first_ratio_error = worst if epoch == 0 else first_ratio_error
        epochs += 1
        if ppo.target_kl is not None and means[_MEANS.index("policy/approxkl")] > ppo.target_kl:
            break
    average = {name: value / epochs for name, value in sums.items()}
    ratio_square = average.pop("val/ratio_square")
    drawn = torch.tensor([log_prob for done in completions for log_prob in done.log_probs], device=old.device)
    drift = (batch.spread(drawn) - old).abs()
    of_batch = {
        "objective/kl": ((old - reference) * batch.mask).sum(1).mean(),
        "objective/entropy_estimate": masked_mean(-old, batch.mask),
        "sampling/sampling_logp_difference/mean": masked_mean(drift, batch.mask),
        "sampling/sampling_logp_difference/max": drift.max(),
    }
    if learner.value_head is not None:
        of_batch["val/explained_variance"] = explained_variance(old_values, returns, batch.mask)
    numbers = dict(zip(of_batch, torch.stack(list(of_batch.values())).tolist(), strict=True))
    return {
        **numbers,
        "objective/non_score_reward": -ppo.kl_coefficient * numbers["objective/kl"],
        **average,
        "val/ratio_var": max(0.0, ratio_square - average["val/ratio"] ** 2),
        "val/first_ratio_error": first_ratio_error,
        "val/epochs": epochs,
        "grad_norm": grad_norm / epochs,
    }


@dataclass(frozen=True)
class _Evaluated:
    """(B, T) log-probabilities, and values with a value head (else zeros).

    ``last_pass`` is the forward pass of the last piece with gradients; the update begins with it instead of repeating
    it.
    """

    log_probs: Tensor
    values: Tensor
    last_pass: tuple[Tensor, Tensor] | None = None


def _evaluate(
    learner: Learner, batch: Batch, pieces: list[list[int]], temperature: float, for_update: bool = False
) -> _Evaluated:
    log_probs, estimates = torch.zeros_like(batch.mask), torch.zeros_like(batch.mask)
    kept = None
    for number, rows in enumerate(pieces):
        piece = batch.rows(rows)
        width = piece.mask.shape[1]
        is_kept = for_update and number == len(pieces) - 1
        with torch.set_grad_enabled(is_kept):
            part, hidden = completion_log_probs(learner.model, piece, temperature, learner.compute)
        kept = (part, hidden) if is_kept else None
        log_probs[rows, :width] = part.detach()
        if for_update and learner.value_head is not None:
            with torch.no_grad():
                estimates[rows, :width] = _values(learner.value_head, hidden, piece)
    return _Evaluated(log_probs, estimates, kept)


def _values(head: nn.Module, hidden: Tensor, piece: Batch) -> Tensor:
    return piece.spread(head(hidden.detach().float())[:, 0])


def _piece_loss(
    learner: Learner,
    batch: Batch,
    rows: list[int],
    forward_pass: tuple[Tensor, Tensor] | None,
    old: Tensor,
    old_values: Tensor,
    advantages: Tensor,
    returns: Tensor,
    ppo: PpoSettings,
    only_value: bool,
) -> tuple[Tensor, Tensor]:
    """The loss of some rows, weighted by their fraction of the batch's tokens.

    Args:
        forward_pass: log-probabilities and hidden states of these rows, if already computed.

    Returns:
        the loss; and its contributions to `_MEANS` with the largest distance of a ratio from 1, still on the device.
    """
    piece = batch.rows(rows)
    cut = (torch.tensor(rows, device=old.device), slice(piece.mask.shape[1]))
    share = sum(piece.lengths) / sum(batch.lengths)
    if forward_pass is None:
        forward_pass = completion_log_probs(learner.model, piece, ppo.temperature, learner.compute)
    log_probs, hidden = forward_pass
    surrogate = policy_loss(log_probs, old[cut], advantages[cut], piece.mask, ppo.clip_range)
    loss = 0 * surrogate.loss if only_value else surrogate.loss
    value = clipped = torch.zeros_like(surrogate.clip_fraction)
    if learner.value_head is not None:
        values = _values(learner.value_head, hidden, piece)
        value, clipped = value_loss(values, old_values[cut], returns[cut], piece.mask, ppo.clip_range)
        loss = loss + value  # of other parameters: the head reads detached states
    facts = (
        surrogate.loss, value, surrogate.clip_fraction, surrogate.approximate_kl, clipped,
        surrogate.ratio_mean, surrogate.ratio_square,
    )  # fmt: skip
    means = share * torch.stack([fact.detach() for fact in facts])
    return share * loss, torch.cat([means, surrogate.ratio_max_error[None]])
