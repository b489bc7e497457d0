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
    """One SFT step on reference solutions.

    The loss is the mean negative log-likelihood of the completion's tokens, end of sequence included; prompts and
    padding are masked.
    """
    started, skipped = time.monotonic(), learner.skipped_steps
    batch = solution_batch(learner, problems, settings, step, seed)
    total = sum(batch.lengths)
    tensors = {"tokens": batch.tokens, "mask": batch.mask}
    with memory_for("computing the SFT loss", "ppo.micro_batch_tokens", learner.memory):
        for rows in micro_batches(batch, micro_tokens, learner.team):
            piece = batch.rows(rows)
            log_probs, _ = completion_log_probs(learner.model, piece, 1.0, learner.compute)
            learner.backward(-log_probs.sum() / total)
        loss, gradient = learner.step(_MAX_GRADIENT_NORM, tensors)
    seconds = time.monotonic() - started
    return {
        "loss/sft": loss,
        "grad_norm": gradient,
        "tokens": total,
        "tokens_per_second": total / seconds,
        "seconds": seconds,
        **precision_metrics(learner, skipped),
    }


def solution_batch(learner: Learner, problems: Sequence[Problem], settings: SftSettings, step: int, seed: int) -> Batch:
    """The prompts of update ``step`` with one reference solution each, end of sequence appended."""
    chooser = random.Random(seed_of(seed, "sft", step))
    pairs = []
    for problem in next_problems(problems, settings.batch_size, step, seed):
        shortest = settings.solutions == "shortest"
        program = min(problem.solutions, key=len) if shortest else chooser.choice(problem.solutions)
        pairs.append((learner.prompt_tokens(problem), learner.solution_tokens(program)))
    return make_batch(pairs, learner.tokenizer.pad_token_id, learner.compute.device)
