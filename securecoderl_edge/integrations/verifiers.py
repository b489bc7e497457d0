"""Problems as a taskset of verifiers, with the reward; needs the package ``verifiers``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import verifiers.v1 as vf

from securecoderl_edge.integrations.problem_reward import ProblemReward

__all__ = ["ProblemTaskset"]


class ProblemData(vf.TaskData):  # type: ignore[misc]
    """A problem; ``id`` is its own.

    Attributes:
        problems: the name of its set.
    """

    problems: str


class ProblemTask(vf.Task[ProblemData]):  # type: ignore[misc]
    """Answered by one message with a program."""

    @vf.reward  # type: ignore[untyped-decorator]
    async def reward(self, trace: vf.Trace) -> float:
        """R of the last answer; a failure of the sandbox is an error of the rollout."""
        reward = ProblemReward(self.data.problems)
        (value,) = await asyncio.to_thread(reward.rewards, [(self.data.id, trace.last_reply)])
        return value


class ProblemConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Settings of the taskset.

    Attributes:
        problems: as of `ProblemReward`.
    """

    problems: str = "starter:general-train"


class ProblemTaskset(vf.Taskset[ProblemTask, ProblemConfig]):  # type: ignore[misc]
    """The problems of a set."""

    def load(self) -> Iterator[ProblemTask]:
        """See `vf.Taskset`."""
        problems = self.config.problems
        for name, prompt in ProblemReward(problems).prompts().items():
            data = ProblemData(id=name, prompt=prompt[0]["content"], problems=problems)
            yield ProblemTask(data, self.config.task)
