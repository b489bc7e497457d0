"""The reward as all trainers need it: of completions by problem id, with one sandbox per process."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program, recorded_format
from securecoderl_edge.prompts.styles import CHAT_STYLES, OURS, STYLES, PromptFormat, messages
from securecoderl_edge.sandbox.limits import TRAINING_LIMITS
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.scoring.scorer import Scorer, Submission

# A trainer's completion: text, or the messages of a conversation, which may end with the result of a tool.
TrainerCompletion = str | Sequence[Mapping[str, Any]]

PARTS = ("reward", "reward_paper", "r_func", "r_sec", "r_tests")

_lock = threading.Lock()
# By process: a forked one inherits the entries of its parent, whose threads and sockets it must not use.
_scorers: dict[tuple[int, int | None], Scorer] = {}


@dataclass(frozen=True)
class ProblemReward:
    """The reward of completions for the problems of one set.

    Can be pickled, and called from several threads and processes. Each process opens a sandbox with its first
    completion and closes it when it ends.

    Args:
        problems: ``starter:general-train``, ``mbpp:train``, ...; or a JSONL file.
        style: of the prompts: ``chat`` (a message for the model's chat template), or one of the other prompt styles.
        part: the field of `Score` that is the reward: ``reward`` (R), ``reward_paper``, ``r_func``, ``r_sec`` or
            ``r_tests``.
        workers: programs that run at the same time in each process; by default one per core.

    Raises:
        UsageError: unknown style or part.
    """

    problems: str
    style: str = "chat"
    part: str = "reward"
    workers: int | None = None

    def __post_init__(self) -> None:
        for name, value, choices in (("style", self.style, STYLES), ("part", self.part, PARTS)):
            if value not in choices:
                raise UsageError(f"unknown {name} {value!r}; choose from {', '.join(choices)}")

    def prompts(self) -> dict[str, Any]:
        """The prompt of each problem by its id: text, or for chat a list of messages, the last of them prefilled.

        Raises:
            UsageError, SceError: as `load_problems`.
        """
        problems, format = _by_id(self.problems), self._format
        if self.style not in CHAT_STYLES:
            return {name: format.prompt(problem) for name, problem in problems.items()}
        return {name: messages(problem, self.style) for name, problem in problems.items()}

    def scores(self, completions: Iterable[tuple[str, TrainerCompletion]]) -> list[Score]:
        """Score ``(problem id, completion)`` pairs in parallel; the scores are in the order of the pairs.

        Raises:
            UsageError: an unknown id; or as `load_problems`.
            SceError: this system cannot isolate programs, or the sandbox failed. No completion then gets a score.
        """
        pairs = [(self.problem(name), text_of(completion)) for name, completion in completions]
        facts = {problem.id: PromptFacts.of(problem, self._format) for problem, _ in pairs}
        programs = ((problem, extract_program(text, facts[problem.id])) for problem, text in pairs)
        return _scorer(self.workers).score_all(Submission(*each, extract="auto") for each in programs)

    def rewards(self, completions: Iterable[tuple[str, TrainerCompletion]]) -> list[float]:
        """The reward of each pair; see `scores`."""
        return [float(getattr(score, self.part)) for score in self.scores(completions)]

    @property
    def _format(self) -> PromptFormat:
        # The template of a chat prompt is the trainer's. Answers to it have fences, as those to our own template may.
        return OURS if self.style == "chat" else recorded_format(self.style)

    def problem(self, name: str) -> Problem:
        """The problem with an id; `UsageError` without one."""
        problem = _by_id(self.problems).get(name)
        if problem is None:
            raise UsageError(f"{self.problems}: unknown problem id {str(name)[:100]!r}. Make the dataset of this set")
        return problem


def text_of(completion: TrainerCompletion) -> str:
    """The text of a completion; of messages, that of the model's last one, without images and tool calls."""
    if isinstance(completion, str):
        return completion
    content = next((each.get("content") for each in reversed(completion) if each.get("role") == "assistant"), None)
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or () if part.get("type") == "text")


@cache
def _by_id(source: str) -> dict[str, Problem]:
    return {problem.id: problem for problem in load_problems(source)}


def _scorer(workers: int | None) -> Scorer:
    """The scorer of this process."""
    key = os.getpid(), workers
    with _lock:
        if key not in _scorers:
            _scorers[key] = Scorer(workers, TRAINING_LIMITS)
        return _scorers[key]


def _close() -> None:
    for (process, _), scorer in _scorers.items():
        if process == os.getpid():
            scorer.close()


def _renew_lock() -> None:
    """Another thread may have held the lock when this process was forked; it does not exist here."""
    global _lock
    _lock = threading.Lock()


atexit.register(_close)
os.register_at_fork(after_in_child=_renew_lock)
