"""From a checked request to checked programs: a thread per request waits for the engine, then for the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.generation.answering import SILENT, Answerer, Watcher
from securecoderl_edge.generation.answers import Answer, check
from securecoderl_edge.generation.code_blocks import best_first, check_answers
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.python_source import has_foreign_line
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.prompts.thoughts import open_thought
from securecoderl_edge.runtimes.protocol import OnToken
from securecoderl_edge.runtimes.text_writer import TextWriter
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.serving.conversation import prompt_of, size_of
from securecoderl_edge.serving.counters import Metrics
from securecoderl_edge.serving.engine import Cancelled, Client, Engine, Unfit
from securecoderl_edge.serving.faults import Fault, too_many
from securecoderl_edge.serving.infill import Hole, infill_prompt
from securecoderl_edge.serving.request_sampling import RequestLimits
from securecoderl_edge.serving.requests import Wanted
from securecoderl_edge.serving.results import Choice, Result
from securecoderl_edge.serving.score_service import demand

# The number of a choice, and a piece of its text.
Piece = tuple[int, str]


class RunningRequest(Watcher):
    """A request in progress; it belongs to the event loop that started it.

    Attributes:
        result: what the thread returns or raises, or `Cancelled` after `stop`.
    """

    def __init__(self, client: Client, wanted: Wanted) -> None:
        self._client, self._loop, self._samples = client, asyncio.get_running_loop(), wanted.samples
        self._tools, self._writers = wanted.tools, dict[int, TextWriter]()
        # By choice: text that may yet be a call, and those whose text is none.
        self._held, self._told = dict[int, str](), set[int]()
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        self.result: asyncio.Future[Result] = self._loop.create_future()
        # Nobody asks for the result of a client that has left.
        self.result.add_done_callback(lambda done: done.cancelled() or done.exception())

    def token(self, prompt: int, sample: int, text: str) -> None:
        """Pass on a piece of text, from the thread; what may be the call of a tool is held back."""
        choice = prompt * self._samples + sample
        if self._tools is None:
            self._piece(choice, text)
        elif not self._tools.is_forced:
            if choice not in self._writers:
                signs = tuple(filter(None, (self._tools.begin,)))
                self._writers[choice] = TextWriter(signs, partial(self._piece, choice))
            held = self._held.pop(choice, "") + text
            if choice in self._told or not self._tools.may_be_call(held):
                self._told.add(choice)
                self._writers[choice].add(held)
            else:
                self._held[choice] = held

    def _piece(self, choice: int, text: str) -> None:
        self._soon(self._pieces.put_nowait, (choice, text))

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

    async def pieces(self) -> AsyncIterator[Piece]:
        """The pieces as they are decoded, until the result is there."""
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
        client = Client(self.engine, wanted.extras, wanted.is_flexible)
        call = RunningRequest(client, wanted)
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
        self._demand_room(wanted)
        self._demand_grammar(wanted)
        answered = self._continued if wanted.kind != "chat" else self._asked if wanted.is_task else self._talked
        try:
            result = answered(wanted, client, watcher)
        except Unfit as error:
            raise Fault(400, str(error), code="context_length_exceeded") from None
        for choice in result.choices:
            if choice.candidate is not None:
                self._metrics.count("programs_total", accepted=str(choice.candidate.is_accepted).lower())
        self._metrics.count("prompt_tokens_total", result.prompt_tokens)
        self._metrics.count("completion_tokens_total", result.completion_tokens)
        return result

    def _can_run(self, language: str) -> bool:
        """Whether programs in a language can be run here."""
        try:
            self._demand(language)
        except Fault:
            return False
        return True

    def _demand_room(self, wanted: Wanted) -> None:
        """Refuse messages and tools that cannot fit, before a prompt is made of them; each takes a token at least."""
        size = size_of(wanted.messages, wanted.tools.offered if wanted.tools else ())
        size += len(wanted.problem.statement) if wanted.is_task else 0
        count = len(wanted.messages) + wanted.is_task
        if count > self.engine.length or self.engine.is_endless(size):
            raise Fault(
                400,
                str(self.engine.too_long(f"it has {count} messages, of {size} characters with tools")),
                param="messages",
                code="context_length_exceeded",
            )

    def _demand_grammar(self, wanted: Wanted) -> None:
        """Find out whether the model can follow a grammar, before it is part of a batch."""
        grammar = wanted.extras.grammar
        if grammar and not self.engine.ask(lambda runtime: runtime.knows_grammar(grammar)):
            raise Fault(
                400,
                "the schema cannot be followed: it contains itself without anything before",
                param="tools" if wanted.tools else "response_format",
                code="unsupported_parameter",
            )

    def _demand(self, language: str) -> None:
        """Find out whether programs in a language can be run, before the model writes one."""
        demand(self._scorer, language, self._languages)

    def _asked(self, wanted: Wanted, client: Client, watcher: Watcher) -> Result:
        """The last message is a programming problem."""
        format = replace(self._format, shows_tests=not wanted.hides_tests)
        if format.chat is not None:
            # Errors go to the client, without the path of the file.
            format = replace(format, chat=replace(format.chat, earlier=wanted.messages, where=""))
            try:
                format.prompt(wanted.problem)
            except SceError as error:  # templates reject some orders of roles
                raise Fault(400, str(error), param="messages") from None
        scorer = self._scorer.until(client.is_cancelled)
        answerer = Answerer(client, scorer, wanted.samples, wanted.sampling, format, watcher, wanted.is_ranked)
        answer = answerer.answer([wanted.problem], wanted.repairs)[0]
        prompt_tokens = min(candidate.completion.prompt_tokens for candidate in answer.candidates)
        return Result(_chosen(answer, wanted), prompt_tokens, answer.tokens)

    def _talked(self, wanted: Wanted, client: Client, watcher: Watcher) -> Result:
        """The messages are what the model gets; blocks of code in its answers are checked."""
        assert self._format.chat is not None
        chat, tools = replace(self._format.chat, where=""), wanted.tools
        try:
            prompt = prompt_of(chat, wanted.messages, tools.offered if tools else None)
            is_thinking = bool(open_thought(prompt))
            prompt += chat.as_text(wanted.prefill)
        except SceError as error:
            raise Fault(400, str(error), param="messages") from None
        (sampled,) = client.generate([prompt], wanted.samples, wanted.sampling, _listener(wanted, watcher))
        if wanted.is_skipped:
            return Result(tuple(Choice(each, "", blocks=()) for each in sampled), sampled[0].prompt_tokens, 0)
        # The words of an answer, and its calls.
        read = {each.text: tools.read(each.text) if tools else (each.text, []) for each in sampled}
        texts = [(each, f"{wanted.prefill}{read[each.text][0]}") for each in sampled]
        scorer = self._scorer.until(client.is_cancelled)
        format = replace(self._format, is_as_typed=True)
        answers = check_answers(
            scorer, wanted.problem, format, texts, self._can_run, is_thinking, wanted.names_language
        )
        choices = []
        for answer in (best_first(answers) if wanted.is_ranked else answers)[: wanted.n]:
            text, calls = read[answer.completion.text]
            named = tuple({"id": f"call_{secrets.token_hex(12)}", **call} for call in calls)
            choices.append(Choice(answer.completion, text, answer.candidate, answer.blocks, named))
        return Result(tuple(choices), sampled[0].prompt_tokens, sum(len(each.token_ids) for each in sampled))

    def _continued(self, wanted: Wanted, client: Client, watcher: Watcher) -> Result:
        """Each prompt is the beginning of a program, and the completion its rest, or what fills its hole."""
        prompts, is_cut = wanted.prompts, False
        texts = [each if isinstance(each, str) else self._text_of(each) for each in prompts]
        suffix = ""
        if wanted.hole is not None:
            filled, is_cut = self._prompt_of(wanted.hole, wanted.sampling.max_tokens)
            prompts, texts, suffix = (filled,), [wanted.hole.prefix], wanted.hole.suffix
        echoes = texts if wanted.echoes else [""] * len(texts)
        sampled = client.generate(prompts, wanted.samples, wanted.sampling, _listener(wanted, watcher, echoes))
        prompt_tokens = sum(each[0].prompt_tokens for each in sampled)
        tokens = sum(len(each.token_ids) for completions in sampled for each in completions)
        if wanted.is_skipped:
            choices = [
                Choice(completion, "", echo=echo)
                for completions, echo in zip(sampled, echoes, strict=True)
                for completion in completions
            ]
            return Result(tuple(choices), prompt_tokens, 0, is_cut)
        problems = [replace(each, statement=text) for each, text in zip(wanted.problems, texts, strict=True)]
        programs = [
            [(completion, f"{text}{completion.text}{suffix}") for completion in completions]
            for text, completions in zip(texts, sampled, strict=True)
        ]
        answers = check(self._scorer.until(client.is_cancelled), problems, programs)
        choices = [
            replace(choice, candidate=None) if _is_foreign(choice, wanted) else choice
            for answer, echo in zip(answers, echoes, strict=True)
            for choice in _chosen(answer, wanted, echo)
        ]
        return Result(tuple(choices), prompt_tokens, tokens, is_cut)

    def _text_of(self, tokens: tuple[int, ...]) -> str:
        if len(tokens) > self.engine.length:
            raise self.engine.too_long(f"it has {len(tokens)} tokens")
        text: str = self.engine.ask(lambda runtime: runtime.decode(tokens))
        return text

    def _prompt_of(self, hole: Hole, max_tokens: int) -> tuple[tuple[int, ...], bool]:
        tokens = self.bounds.abilities.infill
        assert tokens is not None
        if not hole.may_cut and self.engine.is_endless(size := len(hole.prefix) + len(hole.suffix)):
            raise self.engine.too_long(f"it has {size} characters with its suffix")
        # Of a short context half is for what is there.
        room = max(self.engine.length - max_tokens, self.engine.length // 2)
        # One question, since each waits for a step, and editors send many files.
        return self.engine.ask(lambda runtime: infill_prompt(hole, tokens, runtime.encode, room))


def _listener(wanted: Wanted, watcher: Watcher, echoes: Sequence[str] = ("",)) -> OnToken | None:
    """What is told of the tokens, behind the echo of their prompt; nothing of the one that only computes the prompt."""
    echoed = set[tuple[int, int]]()

    def token(prompt: int, sample: int, text: str) -> None:
        if echoes[prompt] and (prompt, sample) not in echoed:
            echoed.add((prompt, sample))
            watcher.token(prompt, sample, echoes[prompt])
        watcher.token(prompt, sample, text)

    return None if wanted.is_skipped else token


def _is_foreign(choice: Choice, wanted: Wanted) -> bool:
    """Whether a text is in a language that the request does not name, and is not checked as another one."""
    candidate = choice.candidate
    if candidate is None or wanted.names_language or candidate.is_tested or candidate.language is not PYTHON:
        return False
    return not candidate.score.parses and has_foreign_line(candidate.score.program)


def _chosen(answer: Answer, wanted: Wanted, echo: str = "") -> tuple[Choice, ...]:
    candidates = answer.candidates
    if not wanted.is_ranked:
        candidates = tuple(sorted(candidates, key=lambda candidate: candidate.score.sample))
    return tuple(Choice(each.completion, each.completion.text, each, echo=echo) for each in candidates[: wanted.n])
