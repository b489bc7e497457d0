"""The reward for verl: ``reward.custom_reward_function.path=pkg://securecoderl_edge.integrations.verl``."""

from __future__ import annotations

from typing import Any

from securecoderl_edge.integrations.problem_reward import ProblemReward


def rows(problems: str) -> list[dict[str, Any]]:
    """The rows of the dataset of a set of problems, for ``datasets.Dataset.from_list(...).to_parquet``.

    ``data_source`` is the set's name, and the ``ground_truth`` of a row is its problem's id.
    """
    return [
        {
            "data_source": problems,
            "prompt": prompt,
            "ability": "code",
            "reward_model": {"style": "rule", "ground_truth": name},
            "extra_info": {"index": index},
        }
        for index, (name, prompt) in enumerate(ProblemReward(problems).prompts().items())
    ]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Any = None,
    *,
    part: str = "reward",
    workers: int | None = None,
    **_: Any,
) -> float:
    """The reward of one completion, with verl's signature; verl calls it from several threads.

    Args:
        part, workers: from ``reward.custom_reward_function.reward_kwargs``; see `ProblemReward`, also for errors.
    """
    (reward,) = ProblemReward(data_source, part=part, workers=workers).rewards([(ground_truth, solution_str)])
    return reward
