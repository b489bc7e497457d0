"""The routes: OpenAI's three and the page for a model, one for the reward, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from securecoderl_edge.serving.counters import Metrics
from securecoderl_edge.serving.engine import Cancelled, ModelFailed
from securecoderl_edge.serving.faults import Fault
from securecoderl_edge.serving.fields import read_body
from securecoderl_edge.serving.guard import Guard
from securecoderl_edge.serving.request_sampling import Kind
from securecoderl_edge.serving.requests import parse
from securecoderl_edge.serving.responses import Responder, event, model, models
from securecoderl_edge.serving.score_service import ScoreService, parse_batch
from securecoderl_edge.serving.serve_settings import MAX_BODY_BYTES, RETRY_SECONDS, ServeSettings
from securecoderl_edge.serving.service import Piece, RunningRequest, Service

T = TypeVar("T")

_PAGE = Path(__file__).with_name("page")
_PAGE_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/show.js": ("show.js", "text/javascript"),
}
# Part of the body may not have been read.
_CLOSING = (413, 415, 504)
# The header with the limit of tokens, where a request asks for more.
_CUT = "X-Sce-Max-Tokens"
# Asks nginx, as a proxy, to pass each event on at once.
_UNBUFFERED = {"X-Accel-Buffering": "no"}
# The status of requests whose client has left, in metrics only.
_LEFT = 499
# After the end of a stream's time, to write what a slow client has not read.
_GRACE_SECONDS = 10.0
# Of a body that is refused: many clients read no answer before they have sent all of it.
_MOST_DISCARDED = 32 << 20
# Bodies that are read at a time, in threads that keep each other and the event loop waiting.
_READERS = 2


class App:
    """The state behind the routes.

    Args:
        key: if clients need one.
        report: called with a line for the operator.
        service: of the model, if one is served.
        score_service: of the reward, if it is served.
    """

    def __init__(
        self,
        settings: ServeSettings,
        metrics: Metrics,
        key: str | None = None,
        report: Callable[[str], None] = lambda line: None,
        *,
        service: Service | None = None,
        score_service: ScoreService | None = None,
    ) -> None:
        self._service, self._score_service, self._settings = service, score_service, settings
        self._metrics, self._report, self._started = metrics, report, int(time.time())
        self._turns = asyncio.Semaphore(_READERS)
        self._page = {path: (_PAGE / name).read_bytes() for path, (name, _) in _PAGE_FILES.items()}
        routes = [Route("/health", self._health), Route("/metrics", self._show_metrics)]
        if service is not None:
            routes += self._routes_of_model(service)
        if score_service is not None:
            routes.append(Route("/v1/score", partial(self._score, score_service), methods=["POST"]))
        self.asgi = Starlette(
            routes=routes,
            middleware=[Middleware(Guard, hostnames=settings.hostnames, key=key, origins=settings.allow_origin)],
            exception_handlers={Fault: self._show_fault, HTTPException: self._show_http_error, 500: self._show_bug},
        )
        # Such an answer would repeat the client's Host header.
        self.asgi.router.redirect_slashes = False

    def _routes_of_model(self, service: Service) -> list[Route]:
        return [
            *(Route(path, self._serve_page) for path in _PAGE_FILES),
            Route("/v1/models", partial(self._list_models, service.bounds.model)),
            Route("/v1/models/{name:path}", partial(self._show_model, service.bounds.model)),
            Route("/v1/completions", partial(self._answer, service, "text"), methods=["POST"]),
            Route("/v1/chat/completions", partial(self._answer, service, "chat"), methods=["POST"]),
            Route("/infill", partial(self._answer, service, "infill"), methods=["POST"]),
        ]

    async def _serve_page(self, request: Request) -> Response:
        path = request.scope["path"]
        return Response(self._page[path], media_type=_PAGE_FILES[path][1])

    async def _health(self, _: Request) -> Response:
        is_well = self._service is None or self._service.engine.failure is None
        return JSONResponse({"status": "ok" if is_well else "failed"}, 200 if is_well else 503)

    async def _show_metrics(self, _: Request) -> Response:
        running = sum(part.running for part in (self._service, self._score_service) if part is not None)
        gauges: dict[str, tuple[str, float]] = {"requests_running": ("Requests in progress.", running)}
        if self._service is not None:
            engine = self._service.engine
            gauges |= {
                "rows": ("Samples that can be decoded together.", engine.rows),
                "rows_busy": ("Samples being decoded.", engine.busy_rows),
                "samples_waiting": ("Samples that wait for a row.", engine.waiting),
            }
        return PlainTextResponse(self._metrics.text(gauges), media_type="text/plain; version=0.0.4")

    async def _list_models(self, name: str, _: Request) -> Response:
        return JSONResponse(models(name, self._started))

    async def _show_model(self, name: str, request: Request) -> Response:
        if request.path_params["name"] != name:
            raise Fault(404, f"unknown model; this server has {name!r}", code="model_not_found")
        return JSONResponse(model(name, self._started))

    async def _answer(self, service: Service, kind: Kind, request: Request) -> Response:
        async def answered(deadline: float, count: Callable[[int], None]) -> Response:
            wanted = await self._read(request, lambda body: parse(body, service.bounds, kind))
            call = service.start(wanted)
            headers = {} if wanted.cut_to is None else {_CUT: str(wanted.cut_to)}
            responder = Responder(wanted, service.bounds.model)
            if wanted.is_stream:
                pieces = call.pieces()
                first = await _first_of(pieces, call, request)
                return _Stream(self._chunks(first, pieces, call, responder, deadline, count), call, deadline, headers)
            try:
                result = await _unless_left(request, call.result)
            finally:
                call.cancel()
            # In a thread: log-probabilities of many tokens take a second.
            answer = await asyncio.to_thread(lambda: JSONResponse(responder.whole(result), headers=headers))
            count(200)
            return answer

        return await self._in_time(request, answered)

    async def _score(self, score_service: ScoreService, request: Request) -> Response:
        async def scored(_: float, count: Callable[[int], None]) -> Response:
            batch = await self._read(request, lambda body: parse_batch(body, score_service.problems))
            scoring = score_service.start(batch)
            try:
                scores = await _unless_left(request, scoring)
            finally:
                scoring.cancel()
            # In a thread: programs can have a hundred thousand findings.
            answer = await asyncio.to_thread(
                lambda: JSONResponse({"object": "list", "data": [score.to_record() for score in scores]})
            )
            self._metrics.count("scores_total", len(scores))
            count(200)
            return answer

        return await self._in_time(request, scored)

    async def _read(self, request: Request, parse: Callable[[Mapping[str, Any]], T]) -> T:
        """What the body of a request comes to, in a thread: examples in long texts, for one, take time.

        Raises:
            Fault: the body is refused.
            ClientDisconnect: the client has left; what still waits for its turn is then not read.
        """
        content = await _body_of(request)
        reading = asyncio.ensure_future(self._in_turn(lambda: parse(read_body(content))))
        try:
            return await _unless_left(request, reading)
        finally:
            reading.cancel()

    async def _in_turn(self, work: Callable[[], T]) -> T:
        async with self._turns:
            running = asyncio.ensure_future(asyncio.to_thread(work))
            # Nobody asks for what is wrong with the body of a client that has left.
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                await asyncio.wait([running])  # a thread goes on, and the next one would be one more
                raise

    async def _in_time(
        self, request: Request, work: Callable[[float, Callable[[int], None]], Awaitable[Response]]
    ) -> Response:
        """The response of ``work``, which is called with its deadline and a function that counts its status.

        Raises:
            Fault: it failed, or took too long.
        """
        path, started = request.scope["path"], time.monotonic()

        def count(status: int) -> None:
            self._metrics.count("requests_total", path=path, status=str(status))
            self._metrics.time(time.monotonic() - started)

        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        try:
            async with asyncio.timeout_at(deadline):
                return await work(deadline, count)
        except Exception as error:
            fault = self._fault_of(error)
            count(fault.status)
            raise fault from None

    async def _chunks(
        self,
        piece: Piece | None,
        pieces: AsyncIterator[Piece],
        call: RunningRequest,
        responder: Responder,
        deadline: float,
        count: Callable[[int], None],
    ) -> AsyncIterator[bytes]:
        """A streamed answer from its first piece on; an error after that is an event, too."""
        status = _LEFT
        try:
            for chunk in responder.first():
                yield chunk
            while piece is not None:
                yield responder.piece(*piece)
                await asyncio.sleep(0)  # others come between, and asyncio tells that the client has left
                async with asyncio.timeout_at(deadline):
                    piece = await anext(pieces, None)
            result = await call.result
            # In a thread, as whole answers are written.
            for chunk in await asyncio.to_thread(lambda: list(responder.last(result))):
                yield chunk
                await asyncio.sleep(0)
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
            return Fault(504, f"no answer within {self._settings.timeout:g} s. Ask for less at a time", code="timeout")
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
        headers = {"Retry-After": str(RETRY_SECONDS)} if fault.status == 429 else {}
        if fault.status == 504:  # OpenAI's packages would ask twice more, for as long
            headers["X-Should-Retry"] = "false"
        if fault.status in _CLOSING:
            headers["Connection"] = "close"
        return JSONResponse(fault.to_record(), fault.status, headers)

    async def _show_http_error(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = {
            404: "no such path; see /v1/models (the reward: sce serve --reward)",
            405: "the method is not allowed for this path",
        }
        fault = Fault(error.status_code, words.get(error.status_code, error.detail))
        return JSONResponse(fault.to_record(), fault.status, dict(error.headers or {}))

    async def _show_bug(self, _: Request, error: Exception) -> Response:
        return JSONResponse(self._fault_of(error).to_record(), 500)


class _Stream(StreamingResponse):
    """Server-sent events of a call, which is cancelled when the client has left or is too slow."""

    def __init__(
        self, chunks: AsyncIterator[bytes], call: RunningRequest, deadline: float, headers: dict[str, str]
    ) -> None:
        super().__init__(chunks, headers={**_UNBUFFERED, **headers}, media_type="text/event-stream")
        self._call, self._deadline = call, deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with contextlib.suppress(TimeoutError):  # uvicorn closes an answer without an end
                async with asyncio.timeout_at(self._deadline + _GRACE_SECONDS):
                    await super().__call__(scope, receive, send)
        finally:
            self._call.cancel()


async def _body_of(request: Request) -> bytes:
    """The body of a request.

    Raises:
        Fault: it is too large, or not declared as JSON, which web pages of other origins could send unasked.
    """
    is_json = request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if is_json and size <= MAX_BODY_BYTES:
            parts.append(part)
        elif size > _MOST_DISCARDED:
            break
    if not is_json:
        raise Fault(415, "expected the header Content-Type: application/json")
    if size > MAX_BODY_BYTES:
        raise Fault(413, f"the body has more than {MAX_BODY_BYTES >> 20} MiB", code="body_too_large")
    return b"".join(parts)


async def _first_of(pieces: AsyncIterator[Piece], call: RunningRequest, request: Request) -> Piece | None:
    """The first piece of a stream; None if it has none. Until then, a failure has a status of its own.

    Raises:
        ClientDisconnect: the client has left.
        Exception: the request has failed.
    """
    begun = asyncio.ensure_future(anext(pieces, None))
    try:
        first = await _unless_left(request, begun)
        if first is None:
            call.result.result()
    except BaseException:
        begun.cancel()
        call.cancel()
        raise
    return first


async def _unless_left(request: Request, result: asyncio.Future[T]) -> T:
    """A result, unless the client leaves first.

    Raises:
        ClientDisconnect: it has left.
        Cancelled: the server stops.
    """
    left = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((left, result), return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise ClientDisconnect
        if result.cancelled():
            raise Cancelled
        return result.result()
    finally:
        left.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
