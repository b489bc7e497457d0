"""What training is doing at the moment, and how much of it is done: for people who watch, not for the training."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TOKENS, PROGRAMS = "tokens", "programs"
_SECONDS_BETWEEN = 0.1


@dataclass(frozen=True)
class Stage:
    """A part of an update, of an evaluation or of the start.

    Attributes:
        name: such as ``sampling``, or ``held-out evaluation: sampling``.
        done, total: in ``unit``s; sampling's total is the most that is left to come, since completions may end early.
            Both are 0 where nothing is counted.
    """

    name: str
    done: int = 0
    total: int = 0
    unit: str = TOKENS


class Meter:
    """Counts the tokens of a stage, and passes it on: when it begins, and then ten times a second at most.

    Args:
        tell: called with each stage. An exception of it ends the training.
    """

    def __init__(self, tell: Callable[[Stage], None] = lambda stage: None) -> None:
        self._tell = tell
        self._parts: list[str] = []
        self._stage = Stage("")
        self._told = 0.0

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Put ``name`` before the names of the stages that begin in the block."""
        self._parts.append(name)
        try:
            yield
        finally:
            self._parts.pop()

    def begin(self, name: str, total: int = 0, unit: str = TOKENS) -> None:
        """A stage begins; the one before it has ended."""
        self._pass_on(Stage(": ".join([*self._parts, name]), 0, total, unit))

    def advance(self, done: int = 1, spared: int = 0) -> None:
        """Count finished units; ``spared`` ones of the total will not come."""
        stage = self._stage
        self._stage = Stage(stage.name, stage.done + done, stage.total - spared, stage.unit)
        if time.monotonic() - self._told >= _SECONDS_BETWEEN:
            self._pass_on(self._stage)

    def counting(
        self, most: int, ends: frozenset[int], is_over: Callable[[int, int, int], bool] = lambda *_: False
    ) -> Callable[[int, int, int], bool]:
        """A `Sampler.on_token` that counts tokens.

        Args:
            most: tokens of a completion. ends: tokens that finish one.
            is_over: a `Sampler.on_token` that knows which completions end otherwise; by default none.
        """
        lengths: Counter[tuple[int, int]] = Counter()

        def count(prompt: int, sample: int, token: int) -> bool:
            lengths[prompt, sample] += 1
            has_ended = is_over(prompt, sample, token)
            self.advance(1, most - lengths[prompt, sample] if has_ended or token in ends else 0)
            return has_ended

        return count

    def _pass_on(self, stage: Stage) -> None:
        self._stage, self._told = stage, time.monotonic()
        self._tell(stage)
