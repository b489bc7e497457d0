"""One request's part of the engine: it looks like a model of its own, so `generation` serves requests unchanged."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.runtimes.protocol import Completion, OnToken, Sampling
from securecoderl_edge.serving.engine import Engine, Job


class Client:
    """Implements `protocol.Generator`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._left = threading.Event()

    @property
    def context(self) -> int:
        """See `protocol.Generator`."""
        return self._engine.length

    def count_tokens(self, prompt: str) -> int:
        """See `protocol.Generator`."""
        return self._engine.count_tokens(prompt)

    def generate(
        self,
        prompts: Sequence[str],
        n: int,
        sampling: Sampling,
        on_token: OnToken | None = None,
        facts: Sequence[PromptFacts | None] | None = None,
    ) -> list[list[Completion]]:
        """See `protocol.Generator`.

        Raises:
            Cancelled: after `cancel`, or if the server stops.
            ModelFailed: the model failed.
        """
        jobs = [
            Job(prompt, n, sampling, facts[place] if facts else None, self.is_cancelled)
            for place, prompt in enumerate(prompts)
        ]
        for job in jobs:
            self._engine.submit(job)
        return [self._completions(place, job, on_token) for place, job in enumerate(jobs)]

    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._left.is_set()

    def cancel(self) -> None:
        """Give up: rows become free with the next step, and `generate` ends."""
        self._left.set()
        self._engine.wake()

    def _completions(self, place: int, job: Job, on_token: OnToken | None) -> list[Completion]:
        found: dict[int, Completion] = {}
        while len(found) < job.n:
            event = job.events.get()
            if isinstance(event, Exception):
                raise event
            sample, progress = event
            if progress.text and on_token is not None:
                on_token(place, sample, progress.text)
            if progress.completion is not None:
                found[sample] = progress.completion
        return [found[sample] for sample in range(job.n)]
