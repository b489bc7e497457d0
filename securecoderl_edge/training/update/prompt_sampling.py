"""Steps 1 and 2 of an update of RL: which problems it samples, and which others in place of those that teach nothing.

The gradient of each problem stays unbiased, since its completions are compared with each other alone. Which problems
count how often is another matter: with the adaptive choice, and with resampling, the update follows the mean over the
problems that were sampled, not over all. All of these count in the means of the update, those without variance as
zeros.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.training.update.learner import Learner, Update, seed_of, shuffled
from securecoderl_edge.training.update.ppo import is_varied
from securecoderl_edge.training.update.rollout import Rollout, collect, is_correct, with_coin_flips

# In the running statistics: completions of the phase beyond ppo.batch_size per update.
RESAMPLED = "resampled"


def sample_update(learner: Learner, update: Update, weight: float) -> tuple[Rollout, Tensor, dict[str, Any]]:
    """The scored completions of an update, their rewards (B,), and what was resampled.

    Groups without variance are resampled in rounds, each as large as their number in the round before (the dynamic
    sampling of DAPO, arXiv:2503.14476, section 3.2, with a bound): at most ``sampling.resample`` in all.

    Args:
        weight: of partial credit in the reward.
    """
    ppo, sampling, reward = update.settings.ppo, update.settings.sampling, update.settings.reward
    size, left, attempt = ppo.samples_per_prompt, sampling.resample, 0

    def sampled(problems: Sequence[Problem], *attempt: int) -> Rollout:
        seed = (*update.seed("sample"), *attempt)
        made = collect(learner, update.scorer, problems, size, ppo, *seed, hint=ppo.hint)
        return with_coin_flips(made, update, *attempt)

    rollout = sampled(next_prompts(learner, update))
    rewards = torch.tensor(rollout.rewards(weight, reward))
    last = rewards
    while count := min(left, (len(last) - len(rows_of_varied_groups(last, size))) // size):
        left, attempt = left - count, attempt + 1
        problems = next_prompts(learner, update, rollout.problems, count, attempt)
        with learner.meter.within("resampling"):
            more = sampled(problems, attempt)
        last = torch.tensor(more.rewards(weight, reward))
        rollout, rewards = rollout.joined(more), torch.cat([rewards, last])
    metrics: dict[str, Any] = {}
    if sampling.resample:
        metrics["groups_resampled"] = sampling.resample - left
        learner.running[RESAMPLED] = learner.running.get(RESAMPLED, 0.0) + size * (sampling.resample - left)
    if sampling.method == "adaptive":
        passed = [is_correct(rollout, row, reward) for row in range(len(rewards))]
        counts = [sum(passed[start : start + size]) for start in range(0, len(passed), size)]
        groups = ((each.id, count, size - count) for each, count in zip(rollout.problems, counts, strict=True))
        learner.pass_rates = learner.pass_rates.after(groups, update.step)
    return rollout, rewards, metrics


def next_prompts(
    learner: Learner, update: Update, before: Sequence[Problem] = (), count: int | None = None, attempt: int = 0
) -> list[Problem]:
    """The problems to sample next, the same in all processes.

    Args:
        before: those that the update has sampled; they are taken again only if there are no others.
        count: their number; by default that of an update. attempt: how often the update has resampled.
    """
    problems, gone = update.problems, {problem.id for problem in before}
    if update.settings.sampling.method == "uniform":
        if count is None:
            return update.prompted()
        order = shuffled(len(problems), seed_of(*update.seed("resample"), attempt))
        order.sort(key=lambda index: problems[index].id in gone)
        return [problems[order[place % len(order)]] for place in range(count)]
    ppo, rng = update.settings.ppo, random.Random(seed_of(*update.seed("prompts"), attempt))
    wanted = ppo.batch_size // ppo.samples_per_prompt if count is None else count
    names = [problem.id for problem in problems]
    # Logarithms of other machines may round otherwise, so that one process chooses for all.
    chosen = learner.pass_rates.choose(names, wanted, update.step, rng, gone) if learner.team.is_writer else []
    return [problems[index] for index in learner.team.collect(chosen)]


def rows_of_varied_groups(rewards: Tensor, group_size: int) -> list[int]:
    """Indices of the completions in groups whose rewards (B,) differ.

    In a zero-variance group every leave-one-out advantage is 0 except for the KL penalty, so nothing else is lost (the
    filter of DAPO, arXiv:2503.14476, section 3.2).
    """
    varied = is_varied(rewards.view(-1, group_size)).repeat_interleave(group_size)
    rows: list[int] = varied.nonzero()[:, 0].tolist()
    return rows
