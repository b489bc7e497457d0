"""The reward for trainers of TRL: ``GRPOTrainer(reward_funcs=Reward("starter:general-train"), ...)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from securecoderl_edge.integrations.problem_reward import ProblemReward, TrainerCompletion


@dataclass(frozen=True)
class Reward(ProblemReward):
    """A reward function of TRL; arguments and errors as those of `ProblemReward`."""

    @property
    def __name__(self) -> str:
        """The name in TRL's metrics: ``rewards/NAME/mean``."""
        return f"sce_{self.part}"

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the dataset, for ``datasets.Dataset.from_list``: ``prompt`` and ``problem_id``."""
        return [{"prompt": prompt, "problem_id": name} for name, prompt in self.prompts().items()]

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[TrainerCompletion],
        problem_id: Sequence[str],
        **columns: Any,
    ) -> list[float]:
        """One reward per completion.

        Args:
            problem_id: the column of the dataset; other columns and ``prompts`` are not used.
        """
        return self.rewards(zip(problem_id, completions, strict=True))
