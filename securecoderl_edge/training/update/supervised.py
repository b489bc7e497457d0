"""Supervised updates: on reference solutions (SFT), or on completions of the policy itself.

Rejection-sampling fine-tuning (RFT, arXiv:2308.01825) trains on those that pass all tests; with the current policy at
each update, as here, it is expert iteration (ReST, arXiv:2308.08998). Simple self-distillation (SSD, arXiv:2604.01193)
trains on unverified ones of the policy that the phase starts from. Their updates sample as many completions of as many
problems as one of PPO.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from securecoderl_edge.models.adapters import reference_active
from securecoderl_edge.models.drawing import truncated
from securecoderl_edge.models.sampling import TokenCompletion
from securecoderl_edge.training.phase_settings import MOST_PER_PROBLEM
from securecoderl_edge.training.settings import RewardSettings
from securecoderl_edge.training.update.learner import (
    Learner,
    Update,
    memory_for,
    next_problems,
    norm_metric,
    precision_metrics,
    seed_of,
)
from securecoderl_edge.training.update.rollout import (
    Rollout,
    all_completions,
    collect,
    own_completions,
    solves_problem,
)
from securecoderl_edge.training.update.sequences import (
    TokenBatch,
    TokenIds,
    completion_log_probs,
    make_batch,
    micro_batches,
)

_MAX_GRADIENT_NORM = 1.0


def sft_update(learner: Learner, update: Update) -> tuple[dict[str, Any], None]:
    """One step on reference solutions; returns its metrics."""
    started, skipped = time.monotonic(), learner.skipped_steps
    batch = solution_batch(learner, update)
    loss, gradient = supervised_step(learner, batch, update.settings.ppo.micro_batch_tokens)
    seconds = time.monotonic() - started
    metrics = {
        "loss/sft": loss,
        **norm_metric([gradient]),
        "tokens": sum(batch.lengths),
        "tokens_per_second": sum(batch.lengths) / seconds,
        "seconds": seconds,
        **precision_metrics(learner, skipped),
    }
    return metrics, None


def solution_batch(learner: Learner, update: Update) -> TokenBatch:
    """The prompts of an update with one reference solution each, end of sequence appended."""
    sft, seed = update.settings.sft, update.settings.seed
    chooser = random.Random(seed_of(seed, "sft", update.step))
    pairs = []
    for problem in next_problems(update.problems, sft.batch_size, update.step, seed):
        shortest = sft.solutions == "shortest"
        program = min(problem.solutions, key=len) if shortest else chooser.choice(problem.solutions)
        pairs.append((learner.prompt_tokens(problem), learner.solution_tokens(program, problem.language)))
    return make_batch(pairs, learner.tokenizer.pad_token_id, learner.compute.device)


def rft_update(learner: Learner, update: Update) -> tuple[dict[str, Any], Rollout]:
    """One step on the completions of the current policy that are correct, see `correct_rows`.

    Returns its metrics, without loss and gradient if none is correct, and its rollout.
    """
    started, skipped, ppo = time.monotonic(), learner.skipped_steps, update.settings.ppo
    problems = update.prompted()
    rollout = collect(learner, update.scorer, problems, ppo.samples_per_prompt, ppo, *update.seed("sample"))
    kept = [rollout.completions[row] for row in correct_rows(rollout, update.settings.reward)]
    facts = step_on(learner, rollout.prompts, kept, ppo.micro_batch_tokens)
    times = {"seconds_sample": rollout.seconds_sample, "seconds_score": rollout.seconds_score}
    metrics = {**facts, **rollout.rates(), **_metrics(update.step, rollout.completions, kept, started, times)}
    return metrics | precision_metrics(learner, skipped), rollout


def ssd_update(learner: Learner, update: Update) -> tuple[dict[str, Any], None]:
    """One step on completions of the reference adapter that end by themselves; returns its metrics.

    Nothing is executed. Completions that the token limit cut off are left out: they would teach not to end.
    """
    started, skipped = time.monotonic(), learner.skipped_steps
    ppo, ssd = update.settings.ppo, update.settings.ssd
    prompts = [tuple(learner.prompt_tokens(problem)) for problem in update.prompted()]
    truncate = partial(truncated, top_k=ssd.top_k, top_p=ssd.top_p)
    sampling, seed = replace(ppo, temperature=ssd.temperature), update.seed("sample")
    with reference_active(learner.model):
        own = own_completions(learner, prompts, ppo.samples_per_prompt, sampling, *seed, truncate=truncate)
    completions = all_completions(learner, own)
    times = {"seconds_sample": time.monotonic() - started}
    kept = [done for done in completions if done.finished]
    facts = step_on(learner, prompts, kept, ppo.micro_batch_tokens)
    metrics = {**facts, **_metrics(update.step, completions, kept, started, times)}
    return metrics | precision_metrics(learner, skipped), None


def correct_rows(rollout: Rollout, reward: RewardSettings, most: int = MOST_PER_PROBLEM) -> list[int]:
    """Indices of the completions to train on: they pass all tests, read their input and end by themselves.

    Of each problem the ``most`` with different programs that have the highest reward, of equal ones the first. With a
    reward function of the user's own in place of R, its number must be above 0, whatever the tests.
    """
    rows: list[int] = []
    replaced = rollout.own if reward.function_weight == 1 else None
    order: Sequence[int] = range(len(rollout.scores))
    if rollout.own is not None:
        rewards = rollout.rewards(0.0, reward)
        order = sorted(order, key=lambda row: -rewards[row])
    programs: defaultdict[str, set[str]] = defaultdict(set)
    for row in order:
        done, score = rollout.completions[row], rollout.scores[row]
        known = programs[score.id]
        is_correct = solves_problem(score, reward) if replaced is None else (replaced[row] or 0.0) > 0
        if done.finished and is_correct and score.program not in known and len(known) < most:
            known.add(score.program)
            rows.append(row)
    return sorted(rows)


def step_on(
    learner: Learner, prompts: Sequence[TokenIds], completions: Sequence[TokenCompletion], tokens: int
) -> dict[str, float]:
    """One supervised step on completions, or none without any; returns its loss and gradient norm.

    Args:
        tokens: per forward and backward pass.
    """
    if not completions:
        return {}
    pairs = [(prompts[done.prompt], done.token_ids) for done in completions]
    batch = make_batch(pairs, learner.tokenizer.pad_token_id, learner.compute.device)
    loss, gradient = supervised_step(learner, batch, tokens)
    return {"loss/sft": loss, **norm_metric([gradient])}


def supervised_step(learner: Learner, batch: TokenBatch, micro_tokens: int) -> tuple[float, float]:
    """One step of the policy on the mean negative log-likelihood of the completions' tokens.

    The end of sequence counts; prompts and padding are masked. Returns the loss and the gradient's norm.
    """
    total = sum(batch.lengths)
    pieces = list(micro_batches(batch, micro_tokens, learner.team))
    learner.meter.begin("learning", sum(batch.lengths[row] for rows in pieces for row in rows))
    with memory_for("computing the SFT loss", "ppo.micro_batch_tokens", learner.memory):
        for rows in pieces:
            piece = batch.rows(rows)
            log_probs, _ = completion_log_probs(learner.model, piece, 1.0, learner.compute)
            learner.backward(-log_probs.sum() / total)
            learner.meter.advance(sum(piece.lengths))
        return learner.step(_MAX_GRADIENT_NORM, {"tokens": batch.tokens, "mask": batch.mask})


def _metrics(
    step: int,
    completions: Sequence[TokenCompletion],
    kept: Sequence[TokenCompletion],
    started: float,
    times: dict[str, float],
) -> dict[str, Any]:
    """What both methods report; ``tokens`` are those sampled, ``kept_tokens`` those trained on."""
    seconds = time.monotonic() - started
    tokens = sum(len(done.token_ids) for done in completions)
    return {
        "episode": step * len(completions),
        "kept_rate": len(kept) / len(completions),
        "kept_tokens": sum(len(done.token_ids) for done in kept),
        "truncated_rate": sum(not done.finished for done in completions) / len(completions),
        "tokens": tokens,
        "tokens_per_second": tokens / seconds,
        "seconds": seconds,
        **times,
        "seconds_update": seconds - sum(times.values()),
    }
