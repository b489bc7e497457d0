"""The server: a model and a sandbox behind a listening socket."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from securecoderl_edge.errors import UsageError
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.runtimes.protocol import Runtime
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.serving.app import App
from securecoderl_edge.serving.engine import Engine
from securecoderl_edge.serving.metrics import Metrics
from securecoderl_edge.serving.requests import Bounds
from securecoderl_edge.serving.service import Service
from securecoderl_edge.serving.settings import ServeSettings

_BACKLOG = 512
# Connections, not requests: each costs a file descriptor even if it sends nothing.
_MOST_CONNECTIONS = 1000
# For requests in progress when the server is asked to stop.
STOP_SECONDS = 10


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


class Server:
    """Answers requests until SIGINT or SIGTERM; a second signal does not wait for those in progress.

    Args:
        name: the model's, for clients.
        rows: samples decoded together; fewer if memory is short.
        default_tokens: maximum of a completion whose request has none.
        key: if clients need one.
        report: called with a line for the operator.

    Raises:
        SceError: the model cannot be served.
    """

    def __init__(
        self,
        runtime: Runtime,
        scorer: Scorer,
        format: PromptFormat,
        name: str,
        settings: ServeSettings,
        rows: int,
        default_tokens: int,
        key: str | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        metrics, length = Metrics(), min(settings.context, runtime.context)
        self.engine = Engine(runtime, rows, length, report, self.stop)
        self._service = Service(self.engine, scorer, format, settings.max_requests, metrics)
        bounds = Bounds(
            name, min(settings.max_tokens, length - 1), settings.max_samples, default_tokens, format.chat is not None
        )
        app = App(self._service, self.engine, bounds, settings, metrics, key, report)
        config = uvicorn.Config(
            app.asgi,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=STOP_SECONDS + 5,
        )
        self._server = _Uvicorn(config, self._service.stop)

    def run(self, listening: socket.socket) -> None:
        """Serve; a signal that ended this is raised again afterwards.

        Raises:
            SceError: the model failed for good.
        """
        try:
            self._server.run([listening])
        finally:
            self.engine.close()
            self._service.close()
        if self.engine.failure is not None:
            raise self.engine.failure

    def stop(self) -> None:
        """Ask for the end, from any thread."""
        self._server.should_exit = True


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
