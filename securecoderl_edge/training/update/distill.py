"""On-policy distillation (GKD, arXiv:2306.13649): a PPO update with reward 0, towards a teacher.

The policy samples, the teacher gives the log-probabilities of the same tokens. No program runs.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from securecoderl_edge.prompts.extraction import prompt_facts
from securecoderl_edge.system.heap import return_free_memory
from securecoderl_edge.training.update.learner import SAMPLED, Learner, Update, precision_metrics
from securecoderl_edge.training.update.ppo_update import learn
from securecoderl_edge.training.update.rollout import Rollout, all_completions, own_completions
from securecoderl_edge.training.update.trajectory import is_masked


def distill_update(learner: Learner, update: Update) -> tuple[dict[str, Any], None]:
    """One update on `teacher_advantages` alone, neither scaled nor compared within groups; returns its metrics."""
    started, skipped = time.monotonic(), learner.skipped_steps
    # Equal rewards add nothing to the advantages of `batch`, and each token counts the same.
    ppo = replace(update.settings.ppo, advantage="batch", kl_coefficient=1.0, value_warmup_steps=0)
    update = replace(update, settings=replace(update.settings, ppo=ppo))
    problems, size = update.prompted(), ppo.samples_per_prompt
    prompts = [tuple(learner.prompt_tokens(problem)) for problem in problems]
    facts = [prompt_facts(each, learner.format, learner.extract) for each in problems] if ppo.end_with_program else None
    completions = all_completions(
        learner, own_completions(learner, prompts, size, ppo, *update.seed("sample"), facts=facts)
    )
    return_free_memory()  # sampling's, before learning needs its own
    rollout, sampled = Rollout(problems, completions, [], prompts), time.monotonic()
    rows = [
        row for row in range(len(completions)) if not all(is_masked(done, ppo) for done in rollout.group_of(row, size))
    ]
    learned = learn(learner, update, rollout, rows, torch.zeros(len(completions)))
    seconds, tokens = time.monotonic() - started, sum(len(done.token_ids) for done in completions)
    learner.count(SAMPLED, tokens)
    metrics = {
        "episode": update.step * len(completions),
        **learned,
        "truncated_rate": sum(not done.finished for done in completions) / len(completions),
        "tokens": tokens,
        "tokens_per_second": tokens / seconds,
        "seconds": seconds,
        "seconds_sample": sampled - started,
        "seconds_update": seconds - (sampled - started),
        **precision_metrics(learner, skipped),
    }
    return metrics, None
