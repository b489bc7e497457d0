"""From a checked request to checked programs: a thread per request waits for the engine, then for the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.generation.answering import SILENT, Answerer, Watcher
from securecoderl_edge.generation.answers import Answer, Candidate, check
from securecoderl_edge.languages.language import LANGUAGES, PYTHON
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.serving.counters import Metrics
from securecoderl_edge.serving.engine import Cancelled, Client, Engine, Unfit
from securecoderl_edge.serving.faults import Fault, too_many
from securecoderl_edge.serving.requests import RequestLimits, Wanted


@dataclass(frozen=True)
class Result:
    """A finished request.

    Attributes:
        choices: candidates in the order of the answer.
        prompt_tokens: of the request's own prompt, without those of repairs.
        completion_tokens: of all samples.
    """

    choices: tuple[Candidate, ...]
    prompt_tokens: int
    completion_tokens: int


class RunningRequest(Watcher):
    """A request in progress; it belongs to the event loop that started it.

    Attributes:
        result: what the thread returns or raises, or `Cancelled` after `stop`.
    """

    def __init__(self, client: Client) -> None:
        self._client, self._loop = client, asyncio.get_running_loop()
        self._pieces: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()
        self.result: asyncio.Future[Result] = self._loop.create_future()
        # Nobody asks for the result of a client that has left.
        self.result.add_done_callback(lambda done: done.cancelled() or done.exception())

    def token(self, prompt: int, sample: int, text: str) -> None:
        """Pass on a piece of text, from the thread."""
        self._soon(self._pieces.put_nowait, (sample, text))

    def end(self, future: Future[Result]) -> None:
        """Take the result of the thread, from the thread."""
        self._soon(self._set, None if future.cancelled() else future)

    def stop(self) -> None:
        """Give up, whatever the thread waits for."""
        self.cancel()
        self._set(None)

    def cancel(self) -> None:
        """Free the rows and the sandbox of the request; nothing happens if it has ended."""
        self._client.cancel()

    async def pieces(self) -> AsyncIterator[tuple[int, str]]:
        """(sample, text) as they are decoded, until the result is there."""
        while (piece := await self._pieces.get()) is not None:
            yield piece

    def _set(self, future: Future[Result] | None) -> None:
        if self.result.done():
            return
        error = Cancelled() if future is None else future.exception()
        if error is not None:
            self.result.set_exception(error)
        elif future is not None:
            self.result.set_result(future.result())
        self._pieces.put_nowait(None)

    def _soon(self, function: Callable[..., None], argument: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended before this thread
            self._loop.call_soon_threadsafe(function, argument)


class Service:
    """Answers requests with one model and one sandbox.

    Args:
        format: how the model is asked for programs.
        bounds: of requests.
        max_requests: in progress at the same time.
    """

    def __init__(
        self,
        engine: Engine,
        scorer: Scorer,
        format: PromptFormat,
        bounds: RequestLimits,
        max_requests: int,
        metrics: Metrics,
    ) -> None:
        self.engine, self.bounds = engine, bounds
        self._scorer, self._format, self._metrics = scorer, format, metrics
        self._threads = ThreadPoolExecutor(max_requests, thread_name_prefix="request")
        self._max_requests = max_requests
        self._lock = threading.Lock()
        self._calls: set[RunningRequest] = set()
        self.running = 0
        self._languages = {PYTHON.name}  # whose programs can be run

    def start(self, wanted: Wanted) -> RunningRequest:
        """Start a request, from the event loop.

        Raises:
            Fault: as many requests as are allowed are in progress, or the model has failed.
        """
        if self.engine.failure is not None:
            raise Fault(503, str(self.engine.failure))
        with self._lock:
            if self.running >= self._max_requests:
                raise too_many(self.running)
            self.running += 1
        client = Client(self.engine)
        call = RunningRequest(client)
        future = self._threads.submit(self._answer, wanted, client, call if wanted.is_stream else SILENT)
        self._calls.add(call)
        call.result.add_done_callback(lambda _: self._calls.discard(call))
        # Its own thread counts the end: a client that has left is done earlier.
        future.add_done_callback(self._count_end)
        future.add_done_callback(call.end)
        return call

    def stop(self) -> None:
        """End all requests in progress as cancelled, from the event loop."""
        for call in list(self._calls):
            call.stop()

    def close(self) -> None:
        """Start nothing more. Threads end with the engine or, if they wait for the sandbox, with the scorer."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _count_end(self, _: object) -> None:
        with self._lock:
            self.running -= 1

    def _answer(self, wanted: Wanted, client: Client, watcher: Watcher) -> Result:
        """The work of a request, in its thread.

        Raises:
            Fault: the prompt does not fit, or programs in its language cannot be run.
            Cancelled: the client has left, or the server stops.
            SceError: the model or the sandbox failed.
        """
        self._demand(wanted.problem.language)
        try:
            answer = (
                self._asked(wanted, client, watcher) if wanted.is_chat else self._continued(wanted, client, watcher)
            )
        except Unfit as error:
            raise Fault(400, str(error), code="context_length_exceeded") from None
        candidates = answer.candidates
        if not wanted.is_ranked:
            candidates = tuple(sorted(candidates, key=lambda candidate: candidate.score.sample))
        choices = candidates[: wanted.n]
        for candidate in choices:
            self._metrics.count("programs_total", accepted=str(candidate.is_accepted).lower())
        prompt_tokens = min(candidate.completion.prompt_tokens for candidate in candidates)
        self._metrics.count("prompt_tokens_total", prompt_tokens)
        self._metrics.count("completion_tokens_total", answer.tokens)
        return Result(choices, prompt_tokens, answer.tokens)

    def _demand(self, language: str) -> None:
        """Find out whether programs in a language can be run, before the model writes one."""
        if language in self._languages:
            return
        try:
            self._scorer.prepare(language)
        except SceError:  # the reason may have paths of this machine
            raise Fault(
                400,
                f"this server cannot run programs in {LANGUAGES[language].noun}; sce doctor on its machine shows why",
                param="language",
                code="unsupported_language",
            ) from None
        self._languages.add(language)

    def _asked(self, wanted: Wanted, client: Client, watcher: Watcher) -> Answer:
        format = replace(self._format, shows_tests=not wanted.hides_tests)
        if format.chat is not None:
            # Errors go to the client, without the path of the file.
            chat = replace(format.chat, earlier=wanted.earlier, where="")
            format = replace(format, chat=chat, is_as_typed=wanted.is_question)
            try:
                format.prompt(wanted.problem)
            except SceError as error:  # templates reject some orders of roles
                raise Fault(400, str(error), param="messages") from None
        scorer = self._scorer.until(client.is_cancelled)
        answerer = Answerer(client, scorer, wanted.samples, wanted.sampling, format, watcher)
        return answerer.answer([wanted.problem], wanted.repairs)[0]

    def _continued(self, wanted: Wanted, client: Client, watcher: Watcher) -> Answer:
        """The prompt is the beginning of a program, and the completion its rest."""
        prompt = wanted.problem.statement
        (sampled,) = client.generate([prompt], wanted.samples, wanted.sampling, watcher.token)
        programs = [(completion, f"{prompt}{completion.text}") for completion in sampled]
        return check(self._scorer.until(client.is_cancelled), [wanted.problem], [programs])[0]
