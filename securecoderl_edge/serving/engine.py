"""The queue and the thread that decodes: samples of all requests share one batch, and join it as soon as rows are free.

A request's thread submits an `EngineJob` and reads its events, see `Client`. Only the engine's thread touches the
model.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, TypeVar

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.runtimes.extras import NO_EXTRAS, Extras, Prompt
from securecoderl_edge.runtimes.protocol import (
    Completion,
    DecodingProgress,
    DecodingTask,
    OnToken,
    Runtime,
    Sampling,
)

T = TypeVar("T")

# No text has so many characters per token on average: a longer one is refused before it is tokenized.
_CHARACTERS_PER_TOKEN = 32
# Most texts have fewer.
_USUAL_CHARACTERS = 4
# Tokens of the prompts that join between two steps, and the rest of the last prompt: all other requests wait for them.
_PROMPT_TOKENS = 512
# For the last step, when the engine is closed.
_LAST_STEP_SECONDS = 2.0


class Cancelled(Exception):
    """The client has left, or the server stops."""


class Unfit(UsageError):
    """A prompt that is empty for the model, or exceeds the context with ``max_tokens``."""


class ModelFailed(SceError):
    """The model failed while it decoded this request, or for good."""


class EngineJob:
    """Samples of one prompt.

    Args:
        is_flexible: generate less than ``max_tokens`` where the context ends.
        first: the number of the first sample, see `DecodingTask`.

    Attributes:
        events: (sample, progress) pairs, and at last an exception if the job does not finish.
        tokens: of the prompt, once it is queued.
        begun: samples that have joined the batch.
    """

    def __init__(
        self,
        prompt: Prompt,
        n: int,
        sampling: Sampling,
        facts: PromptFacts | None,
        is_cancelled: Callable[[], bool],
        extras: Extras = NO_EXTRAS,
        is_flexible: bool = False,
        first: int = 0,
    ) -> None:
        self.prompt, self.n, self.sampling, self.facts, self.is_cancelled = prompt, n, sampling, facts, is_cancelled
        self.extras, self.is_flexible, self.first = extras, is_flexible, first
        self.events: SimpleQueue[tuple[int, DecodingProgress] | Exception] = SimpleQueue()
        self.tokens = self.begun = 0


class Engine:
    """Decodes jobs in the order of their arrival.

    Args:
        rows: samples decoded together; fewer if memory is short.
        length: maximum number of tokens of a prompt and its completion.
        report: called with a line for the operator when the model fails.
        on_end: called when it has failed for good.

    Raises:
        SceError: the model cannot be served.
    """

    def __init__(
        self,
        runtime: Runtime,
        rows: int,
        length: int,
        report: Callable[[str], None] = lambda line: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._runtime, self._wanted_rows, self.length = runtime, rows, length
        self._report, self._on_end = report, on_end
        self._batch = runtime.open_batch(rows, length)
        self.rows = self._batch.rows
        self.failure: SceError | None = None
        self._changed = threading.Condition()
        self._questions: deque[tuple[Callable[[Any], Any], Future[Any]]] = deque()
        self._jobs: deque[EngineJob] = deque()  # with samples that have not begun
        self._running: dict[int, tuple[EngineJob, int]] = {}  # job and sample by the key of the task
        self._keys = itertools.count()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def busy_rows(self) -> int:
        """Samples being decoded."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Samples that wait for a free row."""
        with self._changed:
            return sum(job.n - job.begun for job in self._jobs)

    def count_tokens(self, prompt: str) -> int:
        """Tokens of a prompt, at least so many of one that cannot fit; waits for the current step.

        Raises:
            SceError: the prompt cannot be encoded, or the model has failed.
        """
        if self.is_endless(len(prompt)):
            return len(prompt)  # all requests would wait while its tokens are counted
        size = _USUAL_CHARACTERS * self.length
        # By beginnings, twice as long each time: of one of them with twice the tokens no rest makes fewer.
        while (tokens := self._count(prompt[:size])) <= 2 * self.length and size < len(prompt):
            size *= 2
        return tokens

    def _count(self, prompt: str) -> int:
        tokens: int = self.ask(lambda runtime: runtime.count_tokens(prompt))
        return tokens

    def ask(self, question: Callable[[Any], T]) -> T:
        """What the runtime answers to a short question; waits for the current step.

        Raises:
            SceError: it cannot be answered, or the model has failed.
        """
        answer: Future[T] = Future()
        with self._changed:
            self._check_open()
            self._questions.append((question, answer))
            self._changed.notify()
        return answer.result()

    def submit(self, job: EngineJob) -> None:
        """Queue a job.

        Raises:
            Unfit: it does not fit the context.
            SceError: as for `count_tokens`.
        """
        if self.is_endless(len(job.prompt)):
            raise self.too_long(f"it has {len(job.prompt)} characters")
        tokens = self.count_tokens(job.prompt) if isinstance(job.prompt, str) else len(job.prompt)
        if tokens < 1:
            raise Unfit("the prompt has no tokens")
        if job.is_flexible and tokens < self.length:
            job.sampling = replace(job.sampling, max_tokens=min(job.sampling.max_tokens, self.length - tokens))
        if tokens + job.sampling.max_tokens > self.length:
            least = "at least " if tokens > 2 * self.length else ""
            raise self.too_long(f"it has {least}{tokens} tokens, with {job.sampling.max_tokens} to generate")
        job.tokens = tokens
        with self._changed:
            self._check_open()
            self._jobs.append(job)
            self._changed.notify()

    def too_long(self, size: str) -> Unfit:
        """The error of a prompt, in words by which litellm and LangChain know that a conversation must be shortened."""
        return Unfit(
            f"the prompt is too long: {size}, and this model's maximum context length is {self.length} tokens. "
            "Shorten it or lower max_tokens"
        )

    def wake(self) -> None:
        """Look for cancelled jobs."""
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        """End all jobs as cancelled, and the thread.

        A thread that is in the middle of a long step ends later, when its owner closes the runtime.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(_LAST_STEP_SECONDS)
        if self._thread.is_alive():
            self._end_all(Cancelled())

    def is_endless(self, size: int) -> bool:
        """Whether a prompt of so many characters, or tokens, cannot fit, however it is tokenized."""
        return size > _CHARACTERS_PER_TOKEN * self.length

    def _check_open(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._is_closing:
            raise Cancelled

    @property
    def _has_ended(self) -> bool:
        return self._is_closing or self.failure is not None

    def _run(self) -> None:
        while self._has_work():
            try:
                self._turn()
            except Exception as error:
                # Whatever the model raises: the requests in the batch fail, the server does not.
                self._start_again(error)
        self._end_all(self.failure or Cancelled())
        with contextlib.suppress(Exception):  # a model that failed may fail again
            self._batch.close()
        if self.failure is not None:
            self._on_end()

    def _has_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or self._questions or self._jobs or self._running)
            return not self._has_ended

    def _turn(self) -> None:
        for _ in range(len(self._questions)):  # with those that come meanwhile there might never be a step
            self._answer(*self._questions.popleft())
        self._drop_cancelled()
        self._admit()
        if self._running:
            for progress in self._batch.step():
                job, sample = self._running[progress.key]
                if progress.completion is not None:
                    del self._running[progress.key]
                job.events.put((sample, progress))

    def _answer(self, question: Callable[[Any], Any], answer: Future[Any]) -> None:
        try:
            answer.set_result(question(self._runtime))
        except Exception as error:
            answer.set_exception(error)
            # The prompt may be at fault, or the model is lost. Without samples nothing else would show that.
            if not self._running:
                self._start_again(error)

    def _drop_cancelled(self) -> None:
        keys = [key for key, (job, _) in self._running.items() if job.is_cancelled()]
        ended = {self._running.pop(key)[0] for key in keys}
        with self._changed:
            ended.update(job for job in self._jobs if job.is_cancelled())
            self._jobs = deque(job for job in self._jobs if job not in ended)
        try:
            if keys:
                self._batch.drop(keys)
        finally:  # a model that has just been lost fails here, and their threads wait
            for job in ended:
                job.events.put(Cancelled())

    def _admit(self) -> None:
        tasks: list[DecodingTask] = []
        tokens = 0
        with self._changed:
            while self._jobs and len(self._running) < self.rows and tokens < _PROMPT_TOKENS:
                job, key = self._jobs[0], next(self._keys)
                tasks.append(DecodingTask(key, job.prompt, job.sampling, job.first + job.begun, job.facts, job.extras))
                # A batch computes a prompt once, unless all its tokens are reported.
                if not job.begun or job.extras.reports_prompt:
                    tokens += job.tokens
                self._running[key] = job, job.begun
                job.begun += 1
                if job.begun == job.n:
                    self._jobs.popleft()
        if tasks:
            self._batch.add(tasks)

    def _start_again(self, error: Exception) -> None:
        """Fail the running jobs and open a new batch; if that fails too, the engine has failed."""
        if self._is_closing:
            return
        self._report(f"the model failed: {error or type(error).__name__}")
        failed = {job for job, _ in self._running.values()}
        self._running.clear()
        with self._changed:
            self._jobs = deque(job for job in self._jobs if job not in failed)
        for job in failed:
            job.events.put(ModelFailed("the model failed; the operator of the server can see the reason"))
        try:
            with contextlib.suppress(Exception):
                self._batch.close()
            self._batch = self._runtime.open_batch(self._wanted_rows, self.length)
            self.rows = self._batch.rows
        except Exception as again:
            self._report(f"the model cannot be used any more: {again}")
            with self._changed:
                self.failure = ModelFailed("the model cannot be used any more; the server stops")

    def _end_all(self, error: Exception) -> None:
        with self._changed:
            self._is_closing = True
            ended = {job for job, _ in self._running.values()} | set(self._jobs)
            self._running.clear()
            self._jobs.clear()
            questions = list(self._questions)
            self._questions.clear()
        for job in ended:
            job.events.put(error)
        for _, answer in questions:
            answer.set_exception(error)


class Client:
    """One request's part of the engine: a `protocol.Generator`, so `generation` serves requests unchanged.

    Args:
        extras, is_flexible: of all its jobs, see `EngineJob`.
    """

    def __init__(self, engine: Engine, extras: Extras = NO_EXTRAS, is_flexible: bool = False) -> None:
        self._engine, self._extras, self._is_flexible = engine, extras, is_flexible
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
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        on_token: OnToken | None = None,
        facts: Sequence[PromptFacts | None] | None = None,
    ) -> list[list[Completion]]:
        """See `protocol.Generator`; an empty piece of text says that a sample is complete.

        Samples of all prompts are numbered together: else equal prompts would get equal tokens, and all the same luck.

        Raises:
            Cancelled: after `cancel`, or if the server stops.
            ModelFailed: the model failed.
        """
        more = self.is_cancelled, self._extras, self._is_flexible
        jobs = [
            EngineJob(prompt, n, sampling, facts[index] if facts else None, *more, index * n)
            for index, prompt in enumerate(prompts)
        ]
        for job in jobs:
            if self.is_cancelled():  # each of many prompts waits for a step
                raise Cancelled
            self._engine.submit(job)
        return [self._completions(index, job, on_token) for index, job in enumerate(jobs)]

    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._left.is_set()

    def cancel(self) -> None:
        """Give up: rows become free with the next step, and `generate` ends."""
        self._left.set()
        self._engine.wake()

    def _completions(self, prompt: int, job: EngineJob, on_token: OnToken | None) -> list[Completion]:
        completions: dict[int, Completion] = {}
        while len(completions) < job.n:
            event = job.events.get()
            if isinstance(event, Exception):
                raise event
            sample, progress = event
            if progress.text and on_token is not None:
                on_token(prompt, sample, progress.text)
            if progress.completion is not None:
                completions[sample] = progress.completion
                if on_token is not None:
                    on_token(prompt, sample, "")  # the end
        return [completions[sample] for sample in range(job.n)]
