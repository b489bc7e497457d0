"""Supervised updates: on reference solutions (SFT), or on completions of the policy itself.

Rejection-sampling fine-tuning (RFT, arXiv:2308.01825) trains on those that pass all tests, in rounds. One round is RFT
as published, but from the present policy; later ones sample from the policy that the round before has trained, as
expert iteration does (ReST, arXiv:2308.08998). ReST-EM (arXiv:2312.06585) trains the base model anew in each round.
Simple self-distillation (SSD, arXiv:2604.01193) trains on unverified ones of the policy that the phase starts from.
Their updates sample as many completions of as many problems as one of PPO.
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
    SAMPLED,
    TRAINED,
    Kept,
    Learner,
    Update,
    memory_for,
    next_problems,
    norm_metric,
    precision_metrics,
    seed_of,
    shuffled,
)
from securecoderl_edge.training.update.rollout import (
    Rollout,
    all_completions,
    collect,
    is_correct,
    own_completions,
    with_coin_flips,
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
    """Sample completions and keep those of `correct_rows`; at the end of a round, train on what it kept.

    A round also ends with the phase. Returns metrics, without loss and gradient if no step was made, and the rollout.
    """
    started, skipped, ppo = time.monotonic(), learner.skipped_steps, update.settings.ppo
    rft, reward, problems = update.settings.rft, update.settings.reward, update.prompted()
    size, seed = ppo.samples_per_prompt, update.seed("sample")
    rollout = collect(learner, update.scorer, problems, size, ppo, *seed, hint=ppo.hint)
    rollout = with_coin_flips(rollout, update)
    learner.count(SAMPLED, sum(len(done.token_ids) for done in rollout.completions))
    rewards = _rewards(rollout, reward)
    rows = correct_rows(rollout, reward, only_secure=rft.filter == "security")
    pool = [*learner.pool, *(_kept(rollout, row, rewards[row]) for row in rows)]
    chosen = best_programs([(each.problem, each.program, each.reward) for each in pool], MOST_PER_PROBLEM)
    learner.pool = tuple(pool[index] for index in chosen)
    facts: dict[str, float] = {"pool": len(learner.pool)}
    if update.step % rft.updates_per_round == 0 or update.step == update.steps or learner.has_spent(rft):
        facts |= train_on_pool(learner, update)
        learner.pool = ()
    times = {"seconds_sample": rollout.seconds_sample, "seconds_score": rollout.seconds_score}
    kept = [rollout.completions[row] for row in rows]
    metrics = {**facts, **rollout.rates(), **_metrics(update.step, rollout.completions, kept, started, times)}
    return metrics | precision_metrics(learner, skipped), rollout


def train_on_pool(learner: Learner, update: Update) -> dict[str, float]:
    """The epochs of a round on the learner's pool; returns the mean loss and gradient norm of its optimizer steps."""
    rft, pool = update.settings.rft, learner.pool
    size, steps, skipped = rft.batch_size or max(1, len(pool)), list[dict[str, float]](), learner.skipped_steps
    for epoch in range(rft.epochs):
        order = range(len(pool)) if size >= len(pool) else shuffled(len(pool), seed_of(*update.seed("epoch"), epoch))
        for start in range(0, len(pool), size):
            some = [pool[index] for index in order[start : start + size]]
            pairs = [(each.prompt, each.completion) for each in some]
            steps.append(step_on(learner, pairs, update.settings.ppo.micro_batch_tokens))
    if not steps:
        return {}
    # A step that float16 skipped has no norm.
    known = {name: [step[name] for step in steps if name in step] for name in ("loss/sft", "grad_norm")}
    means = {name: sum(values) / len(values) for name, values in known.items() if values}
    return {**means, "optimizer_steps": len(steps) - (learner.skipped_steps - skipped)}


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
    learner.count(SAMPLED, sum(len(done.token_ids) for done in completions))
    times = {"seconds_sample": time.monotonic() - started}
    kept = [done for done in completions if done.finished]
    facts = step_on(learner, [(prompts[done.prompt], done.token_ids) for done in kept], ppo.micro_batch_tokens)
    metrics = {**facts, **_metrics(update.step, completions, kept, started, times)}
    return metrics | precision_metrics(learner, skipped), None


def correct_rows(
    rollout: Rollout, reward: RewardSettings, most: int = MOST_PER_PROBLEM, only_secure: bool = False
) -> list[int]:
    """Indices of the completions to train on: they pass all tests, read their input and end by themselves.

    Of each problem `best_programs`. With numbers in place of R, such as those of a reward function of the user's own,
    the number must be above 0, whatever the tests.

    Args:
        only_secure: R_sec must be 1, too.
    """
    rewards = _rewards(rollout, reward)
    rows = []
    for row, (done, score) in enumerate(zip(rollout.completions, rollout.scores, strict=True)):
        if done.finished and is_correct(rollout, row, reward) and (score.is_secure or not only_secure):
            rows.append(row)
    programs = [(rollout.scores[row].id, rollout.scores[row].program, rewards[row]) for row in rows]
    return [rows[index] for index in best_programs(programs, most)]


def best_programs(programs: Sequence[tuple[str, str, float]], most: int) -> list[int]:
    """Indices of the programs to train on, of (problem, program, reward), in their order.

    Of each problem the ``most`` with different programs that have the highest reward, of equal ones the first.
    """
    chosen: list[int] = []
    known: defaultdict[str, set[str]] = defaultdict(set)
    for index in sorted(range(len(programs)), key=lambda index: -programs[index][2]):
        problem, program, _ = programs[index]
        if program not in known[problem] and len(known[problem]) < most:
            known[problem].add(program)
            chosen.append(index)
    return sorted(chosen)


def _rewards(rollout: Rollout, reward: RewardSettings) -> list[float]:
    """What decides between correct programs; R alone does not."""
    return [0.0] * len(rollout.scores) if rollout.own is None else rollout.rewards(0.0, reward)


def _kept(rollout: Rollout, row: int, reward: float) -> Kept:
    done, score = rollout.completions[row], rollout.scores[row]
    return Kept(score.id, score.program, reward, tuple(rollout.prompts[done.prompt]), tuple(done.token_ids))


def step_on(learner: Learner, pairs: Sequence[tuple[TokenIds, TokenIds]], tokens: int) -> dict[str, float]:
    """One supervised step on pairs of a prompt and its completion, or none; returns its loss and gradient norm.

    Args:
        tokens: per forward and backward pass.
    """
    if not pairs:
        return {}
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
        learner.count(TRAINED, total)
        return learner.step(_MAX_GRADIENT_NORM, {"tokens": batch.tokens, "mask": batch.mask})


def _metrics(
    step: int,
    completions: Sequence[TokenCompletion],
    kept: Sequence[TokenCompletion],
    started: float,
    times: dict[str, float],
) -> dict[str, Any]:
    """What both methods report; ``tokens`` are those sampled, ``kept_tokens`` those of the completions kept."""
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
