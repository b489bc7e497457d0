"""Checkpoint selection: evaluations on held-out problems, always the same ones with the same random numbers.

The training reward is too noisy for this: it is a mean over the few prompts of one batch, and the best of many batches
is the luckiest. The held-out problems are taken from the training problems and never trained on.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.scoring.metrics import mean_of_scores
from securecoderl_edge.training.settings import LARGEST_SHARE, WITHOUT_REWARD, TrainSettings, with_own_r
from securecoderl_edge.training.update.learner import Learner, seed_of, shuffled
from securecoderl_edge.training.update.rollout import collect

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer


@dataclass(frozen=True)
class HeldOutResult:
    """The evaluation of the policy after update ``step``; 0 is before the first one.

    Attributes:
        rewards: reward of each program, by problem and sample.
    """

    step: int
    rewards: tuple[float, ...]
    all_tests_rate: float
    syntax_rate: float

    @property
    def reward(self) -> float:
        """The mean reward."""
        return sum(self.rewards) / len(self.rewards)

    def to_record(self, phase: str) -> dict[str, Any]:
        """The JSON object of a line of evaluations.jsonl."""
        return {"phase": phase, "reward": self.reward, **vars(self), "rewards": list(self.rewards)}


def result_from_record(record: dict[str, Any]) -> HeldOutResult:
    """The `HeldOutResult` that `HeldOutResult.to_record` wrote.

    Raises:
        KeyError, TypeError, ValueError: not such a record.
    """
    rewards = tuple(float(reward) for reward in record["rewards"])
    if not rewards or not all(map(math.isfinite, rewards)):
        raise ValueError("evaluation without rewards")
    return HeldOutResult(int(record["step"]), rewards, float(record["all_tests_rate"]), float(record["syntax_rate"]))


def hold_out(problems: Sequence[Problem], count: int, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Split off ``count`` problems for evaluation, but at most a tenth: the same for all runs with a seed.

    The problems of a smaller count are among those of a larger count.
    """
    count = min(count, int(len(problems) * LARGEST_SHARE))
    held = set(shuffled(len(problems), seed_of(seed, "held-out"))[:count])
    return (
        [problem for number, problem in enumerate(problems) if number not in held],
        [problem for number, problem in enumerate(problems) if number in held],
    )


def evaluate_policy(
    learner: Learner, scorer: Scorer, held_out: Sequence[Problem], settings: TrainSettings, step: int, phase: str
) -> HeldOutResult:
    """Sample completions of the held-out problems, always with the same random numbers, and score them.

    An RL phase is evaluated by its own reward; ``scheduled`` by the one it ends with; ``rft`` by the binary one, whose
    programs it keeps. SFT and ``ssd``, which have no reward, are evaluated by R itself, independent of the RL reward:
    the variants of a comparison start from the result of SFT.
    """
    rollout = collect(learner, scorer, held_out, settings.selection.samples, settings.ppo, settings.seed, "held-out")
    reward = with_own_r(settings.reward) if phase in WITHOUT_REWARD else settings.reward
    rewards = tuple(rollout.rewards(0.0 if phase in ("binary", "rft") else 1.0, reward))
    rates = mean_of_scores(rollout.scores)
    return HeldOutResult(step, rewards, rates["all_tests_rate"], rates["syntax_rate"])


def best_of(evaluations: Sequence[HeldOutResult]) -> HeldOutResult:
    """The evaluation with the highest mean reward; the first of equal ones."""
    return max(evaluations, key=lambda evaluation: evaluation.reward)


def choose(evaluations: Sequence[HeldOutResult], samples: int) -> tuple[HeldOutResult, str]:
    """The evaluation of the checkpoint to select, and the reason.

    This is the last one, unless an earlier one is better on the same problems by more than one standard error of the
    paired difference: the maximum of many evaluations selects for noise, and later policies were trained longer.

    Args:
        samples: completions per problem; their mean counts once, since they are not independent.
    """
    best, last = best_of(evaluations), evaluations[-1]
    if best.step == last.step:
        return last, f"the last step is the best on held-out problems (reward {last.reward:.3f})"
    each = [a - b for a, b in zip(best.rewards, last.rewards, strict=True)]
    differences = [sum(each[start : start + samples]) / samples for start in range(0, len(each), samples)]
    if len(differences) < 2:
        return last, f"the last step; with one held-out problem, step {best.step} is not significantly better"
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    facts = f"reward {best.reward:.3f} against {last.reward:.3f} at the last step, paired standard error {error:.3f}"
    if mean > error:
        start = "the start of the phase" if best.step == 0 else f"step {best.step}"
        return best, f"{start} is better on held-out problems ({facts})"
    return last, f"step {best.step} is not significantly better on held-out problems ({facts})"
