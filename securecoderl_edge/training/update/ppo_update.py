"""One PPO update: the numbered algorithm over the pure functions of `ppo.py`."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from securecoderl_edge.models.adapters import reference_active
from securecoderl_edge.training.phase_settings import OF_GROUPS, PpoSettings
from securecoderl_edge.training.update.learner import (
    SAMPLED,
    Learner,
    NotFiniteError,
    Update,
    memory_for,
    precision_metrics,
)
from securecoderl_edge.training.update.minibatches import (
    ForwardPass,
    Minibatch,
    has_kl_loss,
    optimize,
    require_finite,
    split,
    values_of,
)
from securecoderl_edge.training.update.ppo import (
    count_zero_advantages,
    estimate_advantages,
    explained_variance,
    masked_mean,
)
from securecoderl_edge.training.update.prompt_sampling import RESAMPLED, rows_of_varied_groups, sample_update
from securecoderl_edge.training.update.rollout import Rollout, partial_weight
from securecoderl_edge.training.update.sequences import TokenBatch, completion_log_probs, make_batch, micro_batches
from securecoderl_edge.training.update.trajectory import Trajectory, is_masked, trajectory_of


def ppo_update(learner: Learner, update: Update) -> tuple[dict[str, Any], Rollout]:
    """One PPO update on the reward (1 - w) binary + w partial; returns its metrics and its rollout.

    Entropy and ratios are those of the completions in the update; without any they are missing. KL, where something
    needs it, and the rates of scores are those of all sampled completions.
    """
    started, skipped = time.monotonic(), learner.skipped_steps
    ppo, size = update.settings.ppo, update.settings.ppo.samples_per_prompt
    # 1 sample, 2 score
    weight = partial_weight(update.phase, update.step, update.steps)
    rollout, rewards, resampled = sample_update(learner, update, weight)
    if not torch.isfinite(rewards).all():
        raise NotFiniteError("a reward", {"rewards": rewards})
    varied = rows_of_varied_groups(rewards, size)
    rows = varied if ppo.drop_zero_variance_groups else list(range(len(rewards)))
    rows = [row for row in rows if not all(is_masked(done, ppo) for done in rollout.group_of(row, size))]
    collected = time.monotonic()
    facts = learn(learner, update, rollout, rows, rewards)
    ended = time.monotonic()
    if ppo.advantage in OF_GROUPS:
        facts["zero_variance_rate"] = 1 - len(varied) / len(rewards)
    tokens = sum(len(done.token_ids) for done in rollout.completions)
    learner.count(SAMPLED, tokens)
    complete = sum(done.finished for done in rollout.completions)
    metrics: dict[str, Any] = {
        "episode": update.step * ppo.batch_size + int(learner.running.get(RESAMPLED, 0)),
        "objective/reward": rewards.mean().item(),
        "objective/partial_weight": weight,
        **facts,
        **rollout.rates(),
        **resampled,
        "groups_used": len(rows) // size,
        "val/num_eos_tokens": sum(done.token_ids[-1] in learner.end_tokens for done in rollout.completions),
        "truncated_rate": 1 - complete / len(rollout.completions),
        "tokens": tokens,
        "tokens_per_second": tokens / (ended - started),
        "seconds": ended - started,
        "seconds_sample": rollout.seconds_sample,
        "seconds_score": rollout.seconds_score,
        "seconds_update": ended - collected,
        **precision_metrics(learner, skipped),
    }
    if rollout.hinted:
        with_hint = torch.tensor([done.sample in rollout.hinted for done in rollout.completions])
        metrics["objective/hint_gain"] = (rewards[with_hint].mean() - rewards[~with_hint].mean()).item()
    return metrics, rollout


def learn(learner: Learner, update: Update, rollout: Rollout, rows: Sequence[int], rewards: Tensor) -> dict[str, float]:
    """Steps 3 to 6 on some ``rows`` of a rollout, whole groups or none; returns their metrics.

    The KL is the mean over all completions of log pi - log pi_ref: KL(pi || pi_ref), in nats per completion.

    Args:
        rewards: of all completions of the rollout.
    """
    ppo, facts, kl = update.settings.ppo, dict[str, float](), torch.zeros(())
    if learner.measures_kl:  # before the policy changes
        known = {row for row in rows if not is_masked(rollout.completions[row], ppo)}
        kl = kl_of_others(learner, rollout, known, ppo)
    if rows:
        trajectory = trajectory_of(rollout, rows, rewards, ppo, learner.tokenizer.pad_token_id, learner.compute.device)
        minibatches = split(learner, trajectory, ppo, *update.seed("minibatches"), 0)
        first_pass, are_known = None, _advantages_need_a_pass(learner, minibatches)
        if are_known:
            # The last piece is the first that trains.
            pieces = [piece for minibatch in reversed(minibatches) for piece in minibatch.pieces]
            trajectory, first_pass = with_log_probs(learner, trajectory, pieces, ppo.temperature)
            if not minibatches[0].pieces:
                # Only other processes have pieces of the first minibatch, so the policy changes before ours trains.
                first_pass = None
        # 3 KL-shape, 4 advantages, 5 whiten
        trajectory = estimate_advantages(trajectory, ppo, learner.running)
        if learner.measures_kl:
            kl = kl + ((trajectory.log_probs - trajectory.reference) * (trajectory.weights > 0)).sum()
        # 6 clipped loss and optimizer steps
        trajectory, facts = optimize(learner, update, trajectory, minibatches, first_pass, are_known=are_known)
        hinted = [place for place, row in enumerate(rows) if rollout.completions[row].sample in rollout.hinted]
        facts = {**trajectory_metrics(learner, trajectory, hinted), **facts}
    else:
        count_zero_advantages(ppo, learner.running)
    if learner.measures_kl:
        facts["objective/kl"] = kl.item() / len(rewards)
        if ppo.reference is None and not has_kl_loss(ppo):
            facts["objective/non_score_reward"] = -ppo.kl_coefficient * facts["objective/kl"]
    return facts


def _advantages_need_a_pass(learner: Learner, minibatches: Sequence[Minibatch]) -> bool:
    """Whether the log-probabilities of the sampling policy are needed before the first optimizer step.

    If not, they are those of the pass that trains: the first step is on all completions, and its ratios are 1.
    """
    return learner.measures_kl or learner.value_head is not None or len(minibatches) > 1


def with_log_probs(
    learner: Learner, trajectory: Trajectory, pieces: Sequence[list[int]], temperature: float
) -> tuple[Trajectory, ForwardPass | None]:
    """The trajectory with the log-probabilities of the policy and of its reference, and with its values.

    Args:
        pieces: rows that are computed together, of this process.

    Returns:
        also the forward pass of the last piece, with gradients.

    Raises:
        NotFiniteError: NaN or Inf in a log-probability.
    """
    batch = trajectory.batch
    tokens = sum(batch.lengths[row] for rows in pieces for row in rows)
    learner.meter.begin("log-probabilities", tokens * (2 if learner.measures_kl else 1))
    with memory_for("computing log-probabilities", "ppo.micro_batch_tokens", learner.memory):
        reference = _of_reference(learner, batch, pieces, temperature) if learner.measures_kl else None
        log_probs, values, last = _evaluate(learner, batch, pieces, temperature, for_update=True)
        learner.team.add_up([log_probs, values, *([] if reference is None else [reference])])
    trajectory = replace(
        trajectory, log_probs=log_probs, values=values, reference=log_probs if reference is None else reference
    )
    require_finite("policy", log_probs, trajectory)
    if reference is not None:
        require_finite("reference", reference, trajectory)
    return trajectory, last


def _of_reference(learner: Learner, batch: TokenBatch, pieces: Sequence[list[int]], temperature: float) -> Tensor:
    """(B, T) log-probabilities of the teacher, or else of the policy that the KL refers to."""
    if learner.teacher is None:
        with reference_active(learner.model):
            return _evaluate(learner, batch, pieces, temperature)[0]
    rows = len(learner.teacher.get_input_embeddings().weight)
    return _evaluate(learner, batch.within(rows), pieces, temperature, model=learner.teacher)[0]


def _evaluate(
    learner: Learner,
    batch: TokenBatch,
    pieces: Sequence[list[int]],
    temperature: float,
    for_update: bool = False,
    model: Any = None,
) -> tuple[Tensor, Tensor, ForwardPass | None]:
    """(B, T) log-probabilities, and values with a value head (else zeros).

    The third is the forward pass of the last piece with gradients; the update begins with it instead of repeating it.

    Args:
        model: by default that of the policy.
    """
    log_probs, estimates = torch.zeros_like(batch.mask), torch.zeros_like(batch.mask)
    kept = None
    for number, rows in enumerate(pieces):
        piece = batch.rows(rows)
        width = piece.mask.shape[1]
        is_kept = for_update and number == len(pieces) - 1
        with torch.set_grad_enabled(is_kept):
            part, hidden = completion_log_probs(
                learner.model if model is None else model, piece, temperature, learner.compute
            )
        kept = (part, hidden) if is_kept else None
        log_probs[rows, :width] = part.detach()
        learner.meter.advance(sum(piece.lengths))
        if for_update and learner.value_head is not None:
            with torch.no_grad():
                estimates[rows, :width] = values_of(learner.value_head, hidden, piece)
    return log_probs, estimates, kept


def kl_of_others(learner: Learner, rollout: Rollout, known: Collection[int], ppo: PpoSettings) -> Tensor:
    """The sum of log pi - log pi_ref over completions that leave no gradient, which are not ``known``.

    They are masked, or of a group without variance: often one that the policy has learned, so a mean without them would
    be another. The first of each group represents them: two passes over an eighth of them, with groups of eight.
    """
    groups: dict[int, list[int]] = {}
    for row in range(len(rollout.completions)):
        if row not in known:
            groups.setdefault(row // ppo.samples_per_prompt, []).append(row)
    if not groups:
        return torch.zeros((), device=learner.compute.device)
    chosen = [rollout.completions[group[0]] for group in groups.values()]
    pairs = [(rollout.prompts[done.prompt], done.token_ids) for done in chosen]
    batch = make_batch(pairs, learner.tokenizer.pad_token_id, learner.compute.device)
    learner.meter.begin("log-probabilities", 2 * sum(batch.lengths))
    with memory_for("computing log-probabilities", "ppo.micro_batch_tokens", learner.memory), torch.no_grad():
        pieces = list(micro_batches(batch, ppo.micro_batch_tokens, learner.team))
        ours, _, _ = _evaluate(learner, batch, pieces, ppo.temperature)
        reference = _of_reference(learner, batch, pieces, ppo.temperature)
        learner.team.add_up([ours, reference])
    counts = torch.tensor([float(len(group)) for group in groups.values()], device=batch.mask.device)
    return ((ours - reference).sum(1) * counts).sum()


def trajectory_metrics(learner: Learner, trajectory: Trajectory, hinted: Sequence[int]) -> dict[str, float]:
    """Entropy of the sampling policy, how far its sampler is from it, and how good its values were.

    Masked completions, whose log-probabilities are not computed, count in none. Of hinted ones there is the log of the
    importance ratio that the loss leaves out: of the prompt without the hint to the one with it, in nats per token.

    Args:
        hinted: rows of the trajectory.
    """
    log_probs, mask = trajectory.log_probs, (trajectory.weights > 0).float()
    ratio, own = log_probs - trajectory.sampled, mask.clone()
    own[hinted] = 0
    drift = ratio.abs() * own
    means = {
        "objective/entropy_estimate": masked_mean(-log_probs, mask),
        "sampling/sampling_logp_difference/mean": masked_mean(drift, own),
        "sampling/sampling_logp_difference/max": drift.max(),
    }
    if hinted:
        means["sampling/hint_log_ratio"] = masked_mean(ratio, mask - own)
    if learner.value_head is not None:
        means["val/explained_variance"] = explained_variance(trajectory.values, trajectory.returns, mask)
    return dict(zip(means, torch.stack(list(means.values())).tolist(), strict=True))
