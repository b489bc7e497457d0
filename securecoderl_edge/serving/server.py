"""The server: a model, the reward, or both behind a listening socket."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import uvicorn

from securecoderl_edge.errors import UsageError
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.runtimes.protocol import Runtime
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.serving.app import App
from securecoderl_edge.serving.connections import MOST_FILES, Connection
from securecoderl_edge.serving.counters import Metrics
from securecoderl_edge.serving.engine import Engine
from securecoderl_edge.serving.request_sampling import RequestLimits
from securecoderl_edge.serving.score_service import ScoreService
from securecoderl_edge.serving.serve_settings import ServeSettings
from securecoderl_edge.serving.service import Service
from securecoderl_edge.serving.tools import find_notation
from securecoderl_edge.system.processes import allow_files

# Accepted at once, before they are counted.
_BACKLOG = 256
# For requests in progress when the server is asked to stop, and then for answers that say so.
STOP_SECONDS, LAST_SECONDS = 10, 0.5


def listen(settings: ServeSettings) -> socket.socket:
    """The listening socket.

    Raises:
        UsageError: the port is in use, or the address is not one of this machine's.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]
        raise UsageError(
            f"cannot listen on {settings.host} port {settings.port}: {reason}. Choose another --port or --host"
        ) from None


def address_of(listening: socket.socket) -> str:
    """The URL of the server."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@dataclass(frozen=True)
class ServedModel:
    """A model and how it is served.

    Attributes:
        scorer: checks its programs.
        format: how it is asked for programs.
        name: for clients.
        rows: samples decoded together; fewer if memory is short.
        default_tokens: maximum of a completion whose request has none.
        language: of its programs, where a request names none.
    """

    runtime: Runtime
    scorer: Scorer
    format: PromptFormat
    name: str
    rows: int
    default_tokens: int
    language: str = PYTHON.name


class Server:
    """Answers requests until SIGINT or SIGTERM; a second signal does not wait for those in progress.

    Args:
        key: if clients need one.
        report: called with a line for the operator.
        model, score_service: one of them or both.

    Raises:
        SceError: the model cannot be served.
    """

    def __init__(
        self,
        settings: ServeSettings,
        key: str | None = None,
        report: Callable[[str], None] = lambda line: None,
        *,
        model: ServedModel | None = None,
        score_service: ScoreService | None = None,
    ) -> None:
        metrics = Metrics()

        def tell(line: str) -> None:
            with contextlib.suppress(OSError, SystemExit):  # nobody reads our lines any more
                report(line)

        self._score_service = score_service
        self._service = None if model is None else self._service_of(model, settings, metrics, tell)
        self.engine = None if self._service is None else self._service.engine
        app = App(settings, metrics, key, tell, service=self._service, score_service=score_service)
        config = uvicorn.Config(
            app.asgi,
            http=Connection,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=STOP_SECONDS + 5,
        )
        self._server = _Uvicorn(config, self._end_requests)

    def run(self, listening: socket.socket) -> None:
        """Serve; a signal that ended this is raised again afterwards.

        Raises:
            SceError: the model failed for good.
        """
        allow_files(MOST_FILES)
        try:
            self._server.run([listening])
        finally:
            if self._service is not None:
                self._service.engine.close()
                self._service.close()
        if self.engine is not None and self.engine.failure is not None:
            raise self.engine.failure

    def stop(self) -> None:
        """Ask for the end, from any thread."""
        self._server.should_exit = True

    def _service_of(
        self, model: ServedModel, settings: ServeSettings, metrics: Metrics, report: Callable[[str], None]
    ) -> Service:
        length, format = min(settings.context, model.runtime.context), model.format
        if format.chat is not None:  # messages are from outside
            format = replace(format, chat=replace(format.chat, controls=model.runtime.controls()))
        bounds = RequestLimits(
            model.name,
            min(settings.max_tokens, length - 1),
            settings.max_samples,
            model.default_tokens,
            model.format.chat is not None,
            model.language,
            model.runtime.abilities,
            find_notation(model.format.chat),
        )
        engine = Engine(model.runtime, model.rows, length, report, self.stop)
        return Service(engine, model.scorer, format, bounds, settings.max_requests, metrics)

    def _end_requests(self) -> None:
        for part in (self._service, self._score_service):
            if part is not None:
                part.stop()


class _Uvicorn(uvicorn.Server):
    """Ends requests with an answer that says so; uvicorn alone would break off their connections.

    Args:
        end_requests: called in the event loop.
    """

    def __init__(self, config: uvicorn.Config, end_requests: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_requests, self._is_urgent = end_requests, False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ask for the end; a second signal asks for it at once."""
        if self.should_exit:
            self._is_urgent = True
        else:
            super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        asyncio.get_running_loop().set_exception_handler(_report_error)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Every 0.1 s: look after the connections, and find out whether to end."""
        if counter % 10 == 0:
            now = time.monotonic()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, Connection)
                connection.end_if_late(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for requests in progress as long as they may take."""
        waiting = asyncio.ensure_future(self._end_late_requests())
        try:
            await super().shutdown(sockets)
        finally:
            waiting.cancel()

    async def _end_late_requests(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        while not self._is_urgent and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        self._end_requests()
        await asyncio.sleep(LAST_SECONDS)
        for connection in list(self.server_state.connections):  # of clients that send no body, or do not read
            connection.transport.abort()


def _report_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Without the error of each connection that finds no descriptor: asyncio tries again after a second."""
    error = context.get("exception")
    if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
        loop.default_exception_handler(context)
