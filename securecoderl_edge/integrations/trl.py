"""The reward for trainers of TRL: ``GRPOTrainer(reward_funcs=Reward("starter:general-train"), ...)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from securecoderl_edge.integrations.problem_reward import ProblemReward, TrainerCompletion, text_of
from securecoderl_edge.scoring.own_reward import columns_of, mixed, own_function


@dataclass(frozen=True)
class Reward(ProblemReward):
    """A reward function of TRL; other arguments and errors as those of `ProblemReward`.

    Args:
        function: a reward function of your own, ``FILE.py:NAME``, called with our scores, as in ``sce train``.
        function_weight: w in (1 - w) R + w f, where f is what the function returns.
    """

    function: str | None = None
    function_weight: float = 0.5

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
            problem_id: the column of the dataset; ``prompts`` and other columns are for the own function only.
        """
        scores = self.scores(zip(problem_id, completions, strict=True))
        ours = [float(getattr(score, self.part)) for score in scores]
        if self.function is None:
            return ours
        asked = own_function(self.function)
        given = columns_of(prompts, list(map(text_of, completions)), list(map(self.problem, problem_id)), scores)
        numbers = asked.call(_loaded(self.function), {**columns, **given})
        return [mixed(*pair, self.function_weight) for pair in zip(ours, numbers, strict=True)]


@cache
def _loaded(function: str) -> Callable[..., Any]:
    return own_function(function).load()
