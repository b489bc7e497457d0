"""A server in this process whose model repeats what it was asked, and a client for it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fake_runtime import FakeRuntime

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.styles import OURS, PromptFormat
from securecoderl_edge.runtimes.extras import Abilities, InfillTokens
from securecoderl_edge.runtimes.protocol import Completion, DecodingProgress, DecodingTask
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.serving.score_service import ScoreService
from securecoderl_edge.serving.serve_settings import ServeSettings
from securecoderl_edge.serving.server import ServedModel, Server, listen

KEY = "a key of the tests".replace(" ", "-")
CHAT, TEXT, INFILL, SCORE = "/v1/chat/completions", "/v1/completions", "/infill", "/v1/score"


def echo(task: DecodingTask) -> str:
    """A program that prints its prompt, seed and sample: it tells which request it is the answer to."""
    return f"print({[task.prompt, task.sampling.seed, task.sample]!r})\n"


class EchoBatch:
    """Implements `protocol.DecodingBatch`: three characters per task and step."""

    def __init__(self, runtime: EchoRuntime, rows: int) -> None:
        self._runtime, self.rows = runtime, rows
        self.tasks: dict[int, tuple[DecodingTask, str, int]] = {}
        self.stops: dict[int, str] = {}
        self.most = 0
        self.is_closed = False

    def add(self, tasks: Sequence[DecodingTask]) -> None:
        for task in tasks:
            assert task.key not in self.tasks
            text = self._runtime.write_task(task)
            found = [(text.find(stop), stop) for stop in task.sampling.stop if stop in text]
            end, self.stops[task.key] = min(found, default=(len(text), ""))
            self.tasks[task.key] = task, text[:end], 0
        assert len(self.tasks) <= self.rows
        self.most = max(self.most, len(self.tasks))

    def step(self) -> list[DecodingProgress]:
        assert self._runtime.may_step.wait(30)
        self._runtime.before_step()
        news = []
        for key, (task, text, place) in list(self.tasks.items()):
            end = min(place + 3, len(text), 3 * task.sampling.max_tokens)
            done = None
            if end == len(text) or end == 3 * task.sampling.max_tokens:
                count = -(-end // 3)
                finish = "stop" if end == len(text) else "length"
                done = Completion(
                    text[:end], tuple(range(count)), (-0.5,) * count, finish, 5, (0.0,) * count, stop=self.stops[key]
                )  # type: ignore[arg-type]
                del self.tasks[key]
            else:
                self.tasks[key] = task, text, end
            news.append(DecodingProgress(key, text[place:end], done))
        return news

    def drop(self, keys: Collection[int]) -> None:
        for key in keys:
            self.tasks.pop(key, None)

    def close(self) -> None:
        self.is_closed = True


class EchoRuntime(FakeRuntime):
    """A model whose batches are `EchoBatch`; a test can hold its steps and make them fail."""

    context = 4000

    def __init__(self, write: Callable[[DecodingTask], str] = echo) -> None:
        super().__init__()
        self.write_task = write
        self.may_step = threading.Event()
        self.may_step.set()
        self.before_step: Callable[[], None] = lambda: None
        self.batches: list[EchoBatch] = []
        self.fails_to_open = False

    def open_batch(self, rows: int, length: int) -> EchoBatch:
        if self.fails_to_open:
            raise OSError("no device")
        self.batches.append(EchoBatch(self, rows))
        return self.batches[-1]


class AbleRuntime(EchoRuntime):
    """An `EchoRuntime` whose tokens are characters, and which can do all that a GGUF file can."""

    abilities = Abilities(1 << 16, InfillTokens((1,), 2, 3, 4, None, 5))

    def __init__(self, write: Callable[[DecodingTask], str]) -> None:
        super().__init__(self._note)
        self._write_text = write
        self.tasks: list[DecodingTask] = []

    def _note(self, task: DecodingTask) -> str:
        self.tasks.append(task)
        return self._write_text(task)

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))

    def knows_grammar(self, grammar: str) -> bool:
        return "#never" not in grammar


@dataclass
class Answer:
    """A response; ``record`` is its JSON."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def error(self) -> dict[str, Any]:
        """The error of a response, whose shape is checked."""
        assert set(self.record) == {"error"}
        error: dict[str, Any] = self.record["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error

    @property
    def events(self) -> list[Any]:
        """The events of a stream; the last one is the text ``[DONE]`` if it is whole."""
        lines = [line.removeprefix("data: ") for line in self.body.decode().split("\n\n") if line]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


class Served:
    """A running server."""

    def __init__(self, server: Server, port: int, runtime: EchoRuntime) -> None:
        self.server, self.port, self.runtime = server, port, runtime
        self.log: list[str] = []

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request; ``body`` is sent as JSON unless it is bytes."""
        sent = {"Content-Type": "application/json"} if body is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = self.connect()
        try:
            connection.request(method, path, content, sent)
            response = connection.getresponse()
            return Answer(
                response.status, response.read(), {key.lower(): value for key, value in response.getheaders()}
            )
        finally:
            connection.close()

    def chat(self, statement: str = "Print something.", **more: Any) -> Answer:
        """A chat completion for one message."""
        return self.ask("POST", CHAT, {"messages": [{"role": "user", "content": statement}], **more})

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until the server is in a state that it must come to."""
        pause = threading.Event()
        for _ in range(3000):
            if condition():
                return
            pause.wait(0.01)
        raise AssertionError("the server never came to this state")


@contextmanager
def serving(
    scorer: Scorer,
    runtime: Any = None,
    *,
    rows: int = 4,
    key: str | None = None,
    format: PromptFormat = OURS,
    problems: Sequence[Problem] | None = None,
    has_model: bool = True,
    report: Callable[[str], None] | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """A server on a free port, in a thread; with ``problems`` it serves the reward."""
    chosen = ServeSettings(port=0, **settings)
    runtime = EchoRuntime() if runtime is None else runtime
    model = ServedModel(runtime, scorer, format, "echo", rows, 64) if has_model else None
    known = None if problems is None else {problem.id: problem for problem in problems}
    score_service = None if known is None else ScoreService(scorer, known, chosen.max_requests)
    with listen(chosen) as listening:
        log: list[str] = []
        server = Server(chosen, key, report or log.append, model=model, score_service=score_service)
        served = Served(server, listening.getsockname()[1], runtime)
        served.log = log
        thread = threading.Thread(target=_run, args=(server, listening))
        thread.start()
        try:
            yield served
        finally:
            server.stop()
            thread.join(60)
            assert not thread.is_alive()


def _run(server: Server, listening: Any) -> None:
    try:
        server.run(listening)
    except Exception as error:  # tests read the engine's failure
        assert server.engine is not None
        assert error is server.engine.failure  # noqa: PT017
