"""One PPO update: the numbered algorithm over the pure functions of `ppo.py`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from securecoderl_edge.models.adapters import reference_active
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.training.settings import PpoSettings, RewardSettings
from securecoderl_edge.training.update.advantages import count_zero_advantages, estimate_advantages
from securecoderl_edge.training.update.learner import (
    Learner,
    NotFiniteError,
    memory_for,
    next_problems,
    precision_metrics,
    seed_of,
)
from securecoderl_edge.training.update.minibatches import Goal, optimize, split, values_of
from securecoderl_edge.training.update.ppo import explained_variance, masked_mean
from securecoderl_edge.training.update.rollout import Rollout, collect
from securecoderl_edge.training.update.sequences import Batch, completion_log_probs, make_batch

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer


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
) -> tuple[dict[str, Any], Rollout]:
    """One PPO update on the reward (1 - w) binary + w partial; returns its metrics and its rollout.

    KL, entropy and ratios are those of the completions in the update; without any they are missing, and KL where
    nothing needs it. The rates of scores are those of all sampled completions.
    """
    started, skipped = time.monotonic(), learner.skipped_steps
    # 1 sample, 2 score
    size = ppo.samples_per_prompt
    chosen = next_problems(problems, ppo.batch_size // size, step, seed_of(seed, phase))
    rollout = collect(learner, scorer, chosen, size, ppo, seed, phase, "sample", step)
    rewards = torch.tensor(rollout.rewards(partial_weight, reward))
    if not torch.isfinite(rewards).all():
        raise NotFiniteError("a reward", {"rewards": rewards})
    varied = rows_of_varied_groups(rewards, size)
    rows = varied if ppo.drop_zero_variance_groups else list(range(len(rewards)))
    collected = time.monotonic()
    if rows:
        only_value = step <= ppo.value_warmup_steps
        facts = _learn(learner, rollout, rows, rewards, ppo, only_value, (seed, phase, "minibatches", step))
    else:
        facts = {}
        count_zero_advantages(ppo, learner.running)
    ended = time.monotonic()
    if ppo.advantage == "rloo":
        facts["zero_variance_rate"] = 1 - len(varied) / len(rewards)
    tokens = sum(len(done.token_ids) for done in rollout.completions)
    complete = sum(done.finished for done in rollout.completions)
    metrics: dict[str, Any] = {
        "episode": step * len(rewards),
        "objective/reward": rewards.mean().item(),
        "objective/partial_weight": partial_weight,
        **facts,
        **rollout.rates(),
        "groups_used": len(rows) // size,
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
    """Indices of the completions in groups whose rewards (B,) differ.

    In a zero-variance group every leave-one-out advantage is 0 except for the KL penalty, so nothing else is lost (the
    filter of DAPO, arXiv:2503.14476, section 3.2).
    """
    groups = rewards.view(-1, group_size)
    varied = (groups != groups[:, :1]).any(1).repeat_interleave(group_size)
    rows: list[int] = varied.nonzero()[:, 0].tolist()
    return rows


def _learn(
    learner: Learner,
    rollout: Rollout,
    rows: list[int],
    rewards: Tensor,
    ppo: PpoSettings,
    only_value: bool,
    order: tuple[object, ...],
) -> dict[str, float]:
    """Steps 3 to 6 on some of the completions, in whole groups; returns their metrics.

    The others count in every mean as completions with zero advantage: a batch with one group that has variance is one
    eighth of the evidence of a batch with eight, and must not make an equally large step.

    Args:
        rewards: of all completions.
        order: seeds of the minibatches.
    """
    completions = [rollout.completions[row] for row in rows]
    pairs = [(rollout.prompts[completion.prompt], completion.token_ids) for completion in completions]
    batch = make_batch(pairs, learner.tokenizer.pad_token_id, learner.compute.device)
    minibatches = split(learner, batch, ppo, *order, 0)
    # The last piece is the first that trains.
    pieces = [piece for minibatch in reversed(minibatches) for piece in minibatch.pieces]
    known: dict[str, Tensor] = {}
    with memory_for("computing log-probabilities", "ppo.micro_batch_tokens", learner.memory):
        if learner.measures_kl:
            with torch.no_grad(), reference_active(learner.model):
                known["reference"], _, _ = _evaluate(learner, batch, pieces, ppo.temperature)
        old, old_values, first_pass = _evaluate(learner, batch, pieces, ppo.temperature, for_update=True)
        if not minibatches[0].pieces:
            # Only other processes have pieces of the first minibatch, so the policy changes before ours trains.
            first_pass = None
        learner.team.add_up([old, old_values, *known.values()])
    known = {"log_probs": old, **known}
    tensors = {"tokens": batch.tokens, "mask": batch.mask, "rewards": rewards, **known}
    for name, values in known.items():
        if not torch.isfinite(values).all():
            raise NotFiniteError(f"a log-probability of the {'policy' if name == 'log_probs' else name}", tensors)

    # 3 KL-shape, 4 advantages, 5 whiten
    reference = known.get("reference", old)
    share = sum(batch.lengths) / sum(len(completion.token_ids) for completion in rollout.completions)
    scores = rewards[rows].to(old.device)
    scaled, returns = estimate_advantages(ppo, learner.running, scores, old, old_values, reference, batch.mask, share)
    tensors |= {"advantages": scaled, "returns": returns}

    # 6 update
    goal = Goal(batch, old, old_values, scaled, returns, share, only_value)
    facts = optimize(learner, goal, minibatches, first_pass, ppo, order, tensors)
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
    numbers["objective/non_score_reward"] = -ppo.kl_coefficient * numbers["objective/kl"]
    if "reference" not in known:
        del numbers["objective/kl"], numbers["objective/non_score_reward"]
    return {**numbers, **facts}


def _evaluate(
    learner: Learner, batch: Batch, pieces: list[list[int]], temperature: float, for_update: bool = False
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
    """(B, T) log-probabilities, and values with a value head (else zeros).

    The third is the forward pass of the last piece with gradients; the update begins with it instead of repeating it.
    """
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
                estimates[rows, :width] = values_of(learner.value_head, hidden, piece)
    return log_probs, estimates, kept
