"""The routes: OpenAI's three, health, metrics, and the page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from securecoderl_edge.serving.engine import Cancelled, Engine, ModelFailed
from securecoderl_edge.serving.faults import Fault
from securecoderl_edge.serving.guard import Guard
from securecoderl_edge.serving.metrics import Metrics
from securecoderl_edge.serving.requests import Bounds, parse, read_body
from securecoderl_edge.serving.responses import Responder, event, model, models
from securecoderl_edge.serving.service import Call, Service
from securecoderl_edge.serving.settings import MAX_BODY_BYTES, ServeSettings

_PAGE = Path(__file__).with_name("page")
_PAGE_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
# The status of requests whose client has left, in metrics only.
_LEFT = 499
# After the end of a stream's time, to write what a slow client has not read.
_GRACE_SECONDS = 10.0
# Of a body that is too large: many clients read no answer before they have sent all of it.
_MOST_DISCARDED = 32 << 20


class App:
    """The state behind the routes.

    Args:
        key: if clients need one.
        report: called with a line for the operator.
    """

    def __init__(
        self,
        service: Service,
        engine: Engine,
        bounds: Bounds,
        settings: ServeSettings,
        metrics: Metrics,
        key: str | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._service, self._engine, self._bounds, self._settings = service, engine, bounds, settings
        self._metrics, self._report, self._started = metrics, report, int(time.time())
        self._page = {path: (_PAGE / name).read_bytes() for path, (name, _) in _PAGE_FILES.items()}
        self.asgi = Starlette(
            routes=[
                *(Route(path, self._serve_page) for path in _PAGE_FILES),
                Route("/health", self._health),
                Route("/metrics", self._show_metrics),
                Route("/v1/models", self._list_models),
                Route("/v1/models/{name:path}", self._show_model),
                Route("/v1/completions", self._complete, methods=["POST"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
            ],
            middleware=[Middleware(Guard, hostnames=settings.hostnames, key=key)],
            exception_handlers={Fault: self._show_fault, HTTPException: self._show_http_error, 500: self._show_bug},
        )

    async def _serve_page(self, request: Request) -> Response:
        path = request.url.path
        return Response(self._page[path], media_type=_PAGE_FILES[path][1])

    async def _health(self, _: Request) -> Response:
        is_well = self._engine.failure is None
        return JSONResponse({"status": "ok" if is_well else "failed"}, 200 if is_well else 503)

    async def _show_metrics(self, _: Request) -> Response:
        gauges = {
            "requests_running": ("Requests in progress.", self._service.running),
            "rows": ("Samples that can be decoded together.", self._engine.rows),
            "rows_busy": ("Samples being decoded.", self._engine.busy_rows),
            "samples_waiting": ("Samples that wait for a row.", self._engine.waiting),
        }
        return PlainTextResponse(self._metrics.text(gauges), media_type="text/plain; version=0.0.4")

    async def _list_models(self, _: Request) -> Response:
        return JSONResponse(models(self._bounds.model, self._started))

    async def _show_model(self, request: Request) -> Response:
        if request.path_params["name"] != self._bounds.model:
            raise Fault(404, f"unknown model; this server has {self._bounds.model!r}", code="model_not_found")
        return JSONResponse(model(self._bounds.model, self._started))

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, is_chat=True)

    async def _complete(self, request: Request) -> Response:
        return await self._answer(request, is_chat=False)

    async def _answer(self, request: Request, *, is_chat: bool) -> Response:
        path, started = request.url.path, time.monotonic()

        def count(status: int) -> None:
            self._metrics.count("requests_total", path=path, status=str(status))
            self._metrics.time(time.monotonic() - started)

        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        try:
            async with asyncio.timeout_at(deadline):
                wanted = parse(read_body(await _body_of(request)), self._bounds, is_chat=is_chat)
                call = self._service.start(wanted)
                responder = Responder(wanted, self._bounds.model)
                if wanted.is_stream:
                    return _Stream(self._chunks(call, responder, deadline, count), call, deadline)
                try:
                    record = responder.whole(await _unless_left(request, call))
                finally:
                    call.cancel()
            count(200)
            return JSONResponse(record)
        except Exception as error:
            fault = self._fault_of(error)
            count(fault.status)
            raise fault from None

    async def _chunks(
        self, call: Call, responder: Responder, deadline: float, count: Callable[[int], None]
    ) -> AsyncIterator[bytes]:
        """A streamed answer; an error after its beginning is an event, too."""
        status = _LEFT
        try:
            for chunk in responder.first():
                yield chunk
            pieces = call.pieces()
            while True:
                async with asyncio.timeout_at(deadline):
                    piece = await anext(pieces, None)
                if piece is None:
                    break
                yield responder.piece(*piece)
            for chunk in responder.last(await call.result):
                yield chunk
            status = 200
        except Exception as error:
            fault = self._fault_of(error)
            status = fault.status
            yield event(fault.to_record())
        finally:
            count(status)

    def _fault_of(self, error: Exception) -> Fault:
        """What a client is told of a failure; the operator is told the rest."""
        if isinstance(error, Fault):
            return error
        if isinstance(error, TimeoutError):
            return Fault(504, f"no answer within {self._settings.timeout:g} s. Lower max_tokens or n", code="timeout")
        if isinstance(error, ClientDisconnect):
            return Fault(_LEFT, "the client has left")
        if isinstance(error, Cancelled):
            return Fault(503, "the request was cancelled: the server stops", code="cancelled")
        if isinstance(error, ModelFailed):
            return Fault(500, str(error))
        self._report(f"a request failed: {type(error).__name__}: {error}")
        return Fault(500, "the server failed; its operator can see the reason")

    async def _show_fault(self, _: Request, fault: Exception) -> Response:
        assert isinstance(fault, Fault)
        return JSONResponse(fault.to_record(), fault.status)

    async def _show_http_error(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = {404: "no such path; see /v1/models", 405: "the method is not allowed for this path"}
        fault = Fault(error.status_code, words.get(error.status_code, error.detail))
        return JSONResponse(fault.to_record(), fault.status, dict(error.headers or {}))

    async def _show_bug(self, _: Request, error: Exception) -> Response:
        return JSONResponse(self._fault_of(error).to_record(), 500)


class _Stream(StreamingResponse):
    """Server-sent events of a call, which is cancelled when the client has left or is too slow."""

    def __init__(self, chunks: AsyncIterator[bytes], call: Call, deadline: float) -> None:
        super().__init__(chunks, media_type="text/event-stream")
        self._call, self._deadline = call, deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout_at(self._deadline + _GRACE_SECONDS):
                await super().__call__(scope, receive, send)
        finally:
            self._call.cancel()


async def _body_of(request: Request) -> bytes:
    """The body of a request.

    Raises:
        Fault: it is too large, or not declared as JSON, which web pages of other origins could send unasked.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Fault(415, "expected the header Content-Type: application/json")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= MAX_BODY_BYTES:
            parts.append(part)
        elif size > _MOST_DISCARDED:
            break
    if size > MAX_BODY_BYTES:
        raise Fault(413, f"the body has more than {MAX_BODY_BYTES >> 20} MiB", code="body_too_large")
    return b"".join(parts)


async def _unless_left(request: Request, call: Call) -> Any:
    """The result of a call, unless the client leaves first.

    Raises:
        ClientDisconnect: it has left.
    """
    left = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((left, call.result), return_when=asyncio.FIRST_COMPLETED)
        if not call.result.done():
            raise ClientDisconnect
        return call.result.result()
    finally:
        left.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
