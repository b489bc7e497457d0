"""One SFT update on reference solutions."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.training.settings import SftSettings
from securecoderl_edge.training.update.learner import Learner, memory_for, next_problems, precision_metrics, seed_of
from securecoderl_edge.training.update.sequences import Batch, completion_log_probs, make_batch, micro_batches

_MAX_GRADIENT_NORM = 1.0


def sft_update(
    learner: Learner, problems: Sequence[Problem], settings: SftSettings, step: int, seed: int, micro_tokens: int
) -> dict[str, Any]:
    """One SFT step on reference solutions; returns its metrics."""
    started, skipped = time.monotonic(), learner.skipped_steps
    batch = solution_batch(learner, problems, settings, step, seed)
    loss, gradient = supervised_step(learner, batch, micro_tokens)
    seconds = time.monotonic() - started
    return {
        "loss/sft": loss,
        "grad_norm": gradient,
        "tokens": sum(batch.lengths),
        "tokens_per_second": sum(batch.lengths) / seconds,
        "seconds": seconds,
        **precision_metrics(learner, skipped),
    }


def supervised_step(learner: Learner, batch: Batch, micro_tokens: int) -> tuple[float, float]:
    """One step of the policy on the mean negative log-likelihood of the completions' tokens.

    The end of sequence counts; prompts and padding are masked. Returns the loss and the gradient's norm.
    """
    total = sum(batch.lengths)
    with memory_for("computing the SFT loss", "ppo.micro_batch_tokens", learner.memory):
        for rows in micro_batches(batch, micro_tokens, learner.team):
            piece = batch.rows(rows)
            log_probs, _ = completion_log_probs(learner.model, piece, 1.0, learner.compute)
            learner.backward(-log_probs.sum() / total)
        tensors = {"tokens": batch.tokens, "mask": batch.mask}
        return learner.step(_MAX_GRADIENT_NORM, tensors, policy_alone=True)


def solution_batch(learner: Learner, problems: Sequence[Problem], settings: SftSettings, step: int, seed: int) -> Batch:
    """The prompts of update ``step`` with one reference solution each, end of sequence appended."""
    chooser = random.Random(seed_of(seed, "sft", step))
    pairs = []
    for problem in next_problems(problems, settings.batch_size, step, seed):
        shortest = settings.solutions == "shortest"
        program = min(problem.solutions, key=len) if shortest else chooser.choice(problem.solutions)
        pairs.append((learner.prompt_tokens(problem), learner.solution_tokens(program, problem.language)))
    return make_batch(pairs, learner.tokenizer.pad_token_id, learner.compute.device)
