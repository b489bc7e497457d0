"""Checkpoint selection: evaluations on held-out problems, always the same ones with the same random numbers.

The training reward is too noisy for this: it is a mean over the few prompts of one batch, and the best of many batches
is the luckiest. The held-out problems are taken from the training problems; neither they nor variants of them are
trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securecoderl_edge.problems.groups import disjoint_groups, group_labels
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.scoring.cluster_intervals import merged, standard_error
from securecoderl_edge.scoring.metrics import mean_of_scores
from securecoderl_edge.training.phase_settings import WITHOUT_REWARD
from securecoderl_edge.training.settings import LARGEST_SHARE, SelectionSettings, TrainSettings, with_own_r
from securecoderl_edge.training.update.learner import Learner, seed_of, shuffled
from securecoderl_edge.training.update.rollout import Rollout, collect

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer

_NAMES = {"reward": "reward", "all_tests": "passing all tests"}


@dataclass(frozen=True)
class HeldOutResult:
    """The evaluation of the policy after update ``step``; 0 is before the first one.

    Attributes:
        rewards: reward of each program, by problem and sample.
        solved: whether it passes all tests, likewise.
        groups: the label of each problem's group, see `problems.groups`; empty in records from before it was kept.
    """

    step: int
    rewards: tuple[float, ...]
    solved: tuple[bool, ...]
    syntax_rate: float
    groups: tuple[str, ...] = ()

    @property
    def reward(self) -> float:
        """The mean reward."""
        return sum(self.rewards) / len(self.rewards)

    @property
    def all_tests_rate(self) -> float:
        """The fraction of programs that pass all tests."""
        return sum(self.solved) / len(self.solved)

    def values(self, metric: str) -> tuple[float, ...]:
        """Each program's value of a metric of `SelectionSettings`."""
        return self.rewards if metric == "reward" else self.solved

    def mean(self, metric: str) -> float:
        """The mean of `values`."""
        return self.reward if metric == "reward" else self.all_tests_rate

    def to_record(self, phase: str) -> dict[str, Any]:
        """The JSON object of a line of evaluations.jsonl."""
        means = {"phase": phase, "reward": self.reward, "all_tests_rate": self.all_tests_rate}
        lists = {"rewards": self.rewards, "solved": map(int, self.solved), "groups": self.groups}
        return {**means, **vars(self), **{name: list(values) for name, values in lists.items()}}


def result_from_record(record: dict[str, Any]) -> HeldOutResult:
    """The `HeldOutResult` that `HeldOutResult.to_record` wrote.

    Raises:
        KeyError, TypeError, ValueError: not such a record.
    """
    rewards = tuple(float(reward) for reward in record["rewards"])
    solved = tuple(bool(each) for each in record["solved"])
    if not rewards or not all(map(math.isfinite, rewards)) or len(solved) != len(rewards):
        raise ValueError("evaluation without rewards, or with other numbers of them")
    groups = tuple(str(each) for each in record.get("groups", ()))
    return HeldOutResult(int(record["step"]), rewards, solved, float(record["syntax_rate"]), groups)


def hold_out(
    problems: Sequence[Problem], selection: SelectionSettings, seed: int
) -> tuple[list[Problem], list[Problem]]:
    """The problems to train on, and those for evaluation: the same for all runs with a seed.

    Whole groups of variants (`problems.groups`) leave training, in random order and at most a tenth of all problems. As
    many as wanted are evaluated: one of each group, then a second one. A group that is too large stays in training.
    With ``hold_out = "problems"`` each problem is a group, whatever it is a variant of. The evaluated problems of a
    smaller number are among those of a larger number.
    """
    room, count = int(len(problems) * LARGEST_SHARE), selection.problems
    if min(room, count) == 0:
        return list(problems), []
    by_group = selection.hold_out == "groups"
    groups = disjoint_groups(problems) if by_group else [[index] for index in range(len(problems))]
    chosen: list[list[int]] = []
    for number in shuffled(len(groups), seed_of(seed, "held-out")):
        if len(chosen) < count and len(groups[number]) <= room:
            chosen.append(groups[number])
            room -= len(groups[number])
    gone = {index for group in chosen for index in group}
    ranked = sorted((rank, place, index) for place, group in enumerate(chosen) for rank, index in enumerate(group))
    held = {index for _, _, index in ranked[:count]}
    return (
        [problem for index, problem in enumerate(problems) if index not in gone],
        [problem for index, problem in enumerate(problems) if index in held],
    )


def evaluate_policy(
    learner: Learner,
    scorer: Scorer,
    held_out: Sequence[Problem],
    settings: TrainSettings,
    step: int,
    phase: str,
    keep: Callable[[int, Rollout], None] | None = None,
) -> HeldOutResult:
    """Sample completions of the held-out problems, always with the same random numbers, and score them.

    An RL phase is evaluated by its own reward; ``scheduled`` by the one it ends with; ``rft`` by the binary one, whose
    programs it keeps. SFT, ``ssd`` and ``distill``, which have no reward, are evaluated by R itself, independent of the
    RL reward: the variants of a comparison start from the result of SFT.

    Args:
        keep: called with ``step`` and the scored completions.
    """
    with learner.meter.within("held-out evaluation"):
        rollout = collect(
            learner, scorer, held_out, settings.selection.samples, settings.ppo, settings.seed, "held-out"
        )
    if keep is not None:
        keep(step, rollout)
    reward = with_own_r(settings.reward) if phase in WITHOUT_REWARD else settings.reward
    rewards = tuple(rollout.rewards(0.0 if phase in ("binary", "rft") else 1.0, reward))
    rates = mean_of_scores(rollout.scores)
    solved = tuple(score.passes_all_tests for score in rollout.scores)
    return HeldOutResult(step, rewards, solved, rates["syntax_rate"], tuple(group_labels(held_out)))


def best_of(evaluations: Sequence[HeldOutResult], metric: str) -> HeldOutResult:
    """The evaluation with the highest mean of a metric; the first of equal ones."""
    return max(evaluations, key=lambda evaluation: evaluation.mean(metric))


def choose(
    evaluations: Sequence[HeldOutResult], selection: SelectionSettings, held_out: Sequence[Problem]
) -> tuple[HeldOutResult, str]:
    """The evaluation of the checkpoint to select, and the reason.

    This is the last one, unless an earlier one is better on the same problems by more than
    ``selection.standard_errors``, of the paired difference over groups of problems: the maximum of many evaluations
    selects for noise, and later policies were trained longer.

    Args:
        held_out: the problems. Their samples, and the problems of a group, are not independent.
    """
    metric, last = selection.metric, evaluations[-1]
    if metric == "none":
        return last, "the last step; selection.metric is none"
    best, name = best_of(evaluations, metric), _NAMES[metric]
    if best.mean(metric) == last.mean(metric):
        return last, f"the last step is the best on held-out problems ({name} {last.mean(metric):.3f})"
    each = [a - b for a, b in zip(best.values(metric), last.values(metric), strict=True)]
    of_problems = [each[start : start + selection.samples] for start in range(0, len(each), selection.samples)]
    groups = group_labels(held_out) if selection.hold_out == "groups" else range(len(held_out))
    error = standard_error(merged(of_problems, groups))
    if math.isnan(error):
        return last, f"the last step; with one held-out group, step {best.step} is not significantly better"
    gain = best.mean(metric) - last.mean(metric)
    facts = f"{name} {best.mean(metric):.3f}, {gain:.2g} more than at the last step, paired standard error {error:.2g}"
    # Of a gain in one group alone, the error is the gain itself, but for rounding.
    if gain > selection.standard_errors * error and not math.isclose(gain, selection.standard_errors * error):
        start = "the start of the phase" if best.step == 0 else f"step {best.step}"
        return best, f"{start} is better on held-out problems ({facts})"
    return last, f"step {best.step} is not significantly better on held-out problems ({facts})"
