"""Supervised steps on own completions: rejection-sampling fine-tuning (RFT) and simple self-distillation (SSD).

RFT: arXiv:2308.01825; with the current policy at each update, as here, it is expert iteration (ReST, arXiv:2308.08998).
SSD: arXiv:2604.01193. An update samples as many completions of as many problems as one of PPO.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from securecoderl_edge.models.adapters import reference_active
from securecoderl_edge.models.sampling import Sampled, truncated
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.training.settings import MOST_PER_PROBLEM, PpoSettings, SsdSettings
from securecoderl_edge.training.update.learner import Learner, next_problems, precision_metrics, seed_of
from securecoderl_edge.training.update.rollout import Rollout, all_completions, collect, own_completions
from securecoderl_edge.training.update.sequences import TokenIds, make_batch
from securecoderl_edge.training.update.sft_update import supervised_step

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer


def rft_update(
    learner: Learner,
    scorer: Scorer,
    problems: Sequence[Problem],
    ppo: PpoSettings,
    step: int,
    seed: int,
) -> tuple[dict[str, Any], Rollout]:
    """One supervised step on the completions of the current policy that are correct, see `correct_rows`.

    Returns its metrics, without loss and gradient if none is correct, and its rollout.
    """
    started, skipped = time.monotonic(), learner.skipped_steps
    chosen = _problems_of(problems, ppo, "rft", step, seed)
    rollout = collect(learner, scorer, chosen, ppo.samples_per_prompt, ppo, seed, "rft", "sample", step)
    kept = [rollout.completions[row] for row in correct_rows(rollout)]
    facts = step_on(learner, rollout.prompts, kept, ppo.micro_batch_tokens)
    times = {"seconds_sample": rollout.seconds_sample, "seconds_score": rollout.seconds_score}
    metrics = {**facts, **rollout.rates(), **_metrics(step, rollout.completions, kept, started, times)}
    return metrics | precision_metrics(learner, skipped), rollout


def ssd_update(
    learner: Learner, problems: Sequence[Problem], ssd: SsdSettings, ppo: PpoSettings, step: int, seed: int
) -> dict[str, Any]:
    """One supervised step on completions of the reference adapter that end by themselves; returns its metrics.

    Nothing is executed. Completions that the token limit cut off are left out: they would teach not to end.
    """
    started, skipped = time.monotonic(), learner.skipped_steps
    chosen = _problems_of(problems, ppo, "ssd", step, seed)
    prompts = [tuple(learner.prompt_tokens(problem)) for problem in chosen]
    truncate = partial(truncated, top_k=ssd.top_k, top_p=ssd.top_p)
    sampling = replace(ppo, temperature=ssd.temperature)
    with reference_active(learner.model):
        own = own_completions(
            learner, prompts, ppo.samples_per_prompt, sampling, seed, "ssd", "sample", step, truncate=truncate
        )
    completions = all_completions(learner, own)
    times = {"seconds_sample": time.monotonic() - started}
    kept = [done for done in completions if done.finished]
    facts = step_on(learner, prompts, kept, ppo.micro_batch_tokens)
    return {**facts, **_metrics(step, completions, kept, started, times), **precision_metrics(learner, skipped)}


def correct_rows(rollout: Rollout, most: int = MOST_PER_PROBLEM) -> list[int]:
    """Indices of the completions to train on: they pass all tests and end by themselves.

    Of each problem the first ``most`` with different programs.
    """
    rows: list[int] = []
    programs: defaultdict[str, set[str]] = defaultdict(set)
    for row, (done, score) in enumerate(zip(rollout.completions, rollout.scores, strict=True)):
        known = programs[score.id]
        is_correct = done.finished and score.passes_all_tests
        if is_correct and score.program not in known and len(known) < most:
            known.add(score.program)
            rows.append(row)
    return rows


def step_on(
    learner: Learner, prompts: Sequence[TokenIds], completions: Sequence[Sampled], tokens: int
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
    return {"loss/sft": loss, "grad_norm": gradient}


def _problems_of(problems: Sequence[Problem], ppo: PpoSettings, phase: str, step: int, seed: int) -> list[Problem]:
    """The problems of an update, in the order that a PPO phase of this name would have."""
    return next_problems(problems, ppo.batch_size // ppo.samples_per_prompt, step, seed_of(seed, phase))


def _metrics(
    step: int, completions: Sequence[Sampled], kept: Sequence[Sampled], started: float, times: dict[str, float]
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
