"""Connections of clients that send nothing, too much or too slowly, or do not read."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import resource
import socket
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the serve extra")

from quick import few
from served import CHAT, EchoRuntime, Served, serving

from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.serving import app, connections, server
from securecoderl_edge.serving.server import _report_error
from securecoderl_edge.system.processes import allow_files

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def dial(served: Served, content: bytes = b"") -> socket.socket:
    """A connection that has sent something."""
    dialled = socket.create_connection(("127.0.0.1", served.port), timeout=30)
    dialled.sendall(content)
    return dialled


def chat(**more: Any) -> bytes:
    """A request for a chat completion."""
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], **more}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def connections_of(served: Served) -> list[Any]:
    return list(served.server._server.server_state.connections)


def open_connections(served: Served) -> int:
    return len(connections_of(served))


def read_to_the_end(connection: socket.socket) -> bytes:
    with connection, contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return b""


@pytest.mark.parametrize(
    "content",
    few([b"", HEALTH[:20], HEALTH + b"G"], HEALTH[:20], HEALTH + b"G"),
    ids=["nothing", "half a header", "a late byte"],
)
def test_a_connection_without_a_whole_header_is_closed(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    with serving(scorer) as served:
        served.runtime.may_step.clear()
        waiting = dial(served, chat())
        served.wait_for(lambda: served.server.engine.busy_rows == 1)
        read_to_the_end(dial(served, content))
        served.runtime.may_step.set()
        assert waiting.recv(1 << 16).startswith(b"HTTP/1.1 200")  # it had a request in progress
        waiting.close()


@pytest.mark.parametrize(
    "head", few(["Content-Length: 5000", "Transfer-Encoding: chunked"], "Transfer-Encoding: chunked")
)
def test_a_body_that_never_ends_is_answered_when_its_time_is_over(scorer: Scorer, head: str) -> None:
    lines = (f"POST {CHAT} HTTP/1.1", "Host: localhost", "Content-Type: application/json", head, "", '4\r\n{"n"\r\n')
    with serving(scorer, timeout=1.0) as served:
        answer = read_to_the_end(dial(served, "\r\n".join(lines).encode()))
        assert answer.startswith(b"HTTP/1.1 504")
        served.wait_for(lambda: open_connections(served) == 0)


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_no_connection_changes_its_protocol(scorer: Scorer, protocol: str) -> None:
    head = f"Host: localhost\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\nSec-WebSocket-Key: eA==\r\n\r\n"
    with serving(scorer) as served:
        for method, path, status in (("GET", "/health", 200), ("GET", CHAT, 405), ("CONNECT", "/health", 405)):
            with dial(served, f"{method} {path} HTTP/1.1\r\n{head}".encode()) as dialled:
                assert dialled.recv(1 << 16).startswith(f"HTTP/1.1 {status}".encode())


def test_connections_beyond_the_limit_are_closed_and_the_others_served(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    with serving(scorer) as served:
        idle = [dial(served) for _ in range(3)]
        served.wait_for(lambda: open_connections(served) == 3)
        assert read_to_the_end(dial(served)) == b""
        idle[0].sendall(HEALTH)
        assert idle[0].recv(1 << 16).startswith(b"HTTP/1.1 200")
        for each in idle:
            each.close()
        served.wait_for(lambda: open_connections(served) == 0)
        assert served.chat().status == 200


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("more", [b"G", HEALTH], ids=["a byte", "a request"])
@pytest.mark.parametrize("is_late", [True, False])
def test_data_behind_a_request_in_progress_ends_it(scorer: Scorer, is_stream: bool, more: bytes, is_late: bool) -> None:
    runtime, pause = EchoRuntime(lambda task: "x" * 10_000), threading.Event()
    runtime.before_step = lambda: pause.wait(0.01) and None
    with serving(scorer, runtime, context=8000, max_tokens=5000) as served:
        request = chat(max_tokens=3000, stream=is_stream)
        connection = dial(served, request if is_late else request + more)
        if is_late:
            served.wait_for(lambda: served.server.engine.busy_rows == 1)
            connection.sendall(more)
        read_to_the_end(connection)
        served.wait_for(lambda: b"sce_requests_running 0" in served.ask("GET", "/metrics").body)
        served.wait_for(lambda: served.server.engine.busy_rows == 0)


def test_a_client_that_leaves_in_the_middle_of_a_stream_is_no_news(
    scorer: Scorer, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = EchoRuntime(lambda task: "x" * 6000)
    with serving(scorer, runtime, context=3900, max_tokens=2000) as served:
        for _ in range(3):
            leaving = dial(served, chat(stream=True, n=4, max_tokens=2000))
            leaving.recv(1000)
            leaving.close()  # with data that it has not read, so that writing fails
        served.wait_for(lambda: b"sce_requests_running 0" in served.ask("GET", "/metrics").body)
    assert caplog.messages == []


@pytest.mark.parametrize("ends", [b"\r\n", b"\n", b"\r\n\r\n"])
@pytest.mark.parametrize("is_stream", [True, False])
def test_line_ends_before_and_behind_a_request_are_nothing(scorer: Scorer, ends: bytes, is_stream: bool) -> None:
    with serving(scorer) as served:
        answers = [read_to_the_end(dial(served, ends + chat(stream=is_stream) + ends))]
        served.runtime.may_step.clear()
        late = dial(served, chat(stream=is_stream))
        served.wait_for(lambda: served.server.engine.busy_rows == 1)
        late.sendall(ends)
        served.wait_for(lambda: all(not each.cycle.keep_alive for each in connections_of(served)))
        served.runtime.may_step.set()
        answers.append(read_to_the_end(late))
        idle = dial(served, HEALTH)
        answers.append(idle.recv(1 << 16))
        while not answers[-1].endswith(b"}"):
            answers[-1] += idle.recv(1 << 16)
        idle.sendall(ends)
        idle.sendall(HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answers.append(read_to_the_end(idle))
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("is_stream", few([True, False], True))
def test_a_client_that_does_not_read_loses_its_connection(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_stream: bool
) -> None:
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.2)
    runtime = EchoRuntime(lambda task: "#" + "\u4e00" * 3000)
    runtime.context = 5000
    settings = {"context": 5000, "max_tokens": 2000, "max_samples": 1000}
    with serving(scorer, runtime, rows=64, **settings) as served, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", served.port))
        client.sendall(chat(n=32 if is_stream else 256, max_tokens=1500, stream=is_stream))
        served.wait_for(lambda: open_connections(served) == 1)
        served.wait_for(lambda: open_connections(served) == 0)
    assert caplog.records == []


@pytest.mark.parametrize(("step", "is_kept"), [(connections.PIECE_BYTES, True), (1, False)])
def test_a_client_that_reads_a_large_answer_keeps_its_connection_while_it_does(step: int, is_kept: bool) -> None:
    unread, ended = [100 * connections.PIECE_BYTES], list[int]()
    transport = SimpleNamespace(
        abort=lambda: ended.append(unread[0]), get_write_buffer_size=lambda: unread[0], is_closing=lambda: False
    )
    connection: Any = SimpleNamespace(_active=0.0, _unread=0, transport=transport, _has_request=lambda: False)
    for second in range(100):
        connections.Connection.end_if_late(connection, second)
        unread[0] -= step
    assert (ended == []) is is_kept


def test_a_stream_whose_time_is_over_ends_without_an_error_though_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_GRACE_SECONDS", 0.0)
    cancelled: list[bool] = []

    async def chunks() -> AsyncIterator[bytes]:
        yield b"data: x"

    async def wait(*_: Any) -> Any:
        await asyncio.Event().wait()

    async def stream() -> None:
        call: Any = SimpleNamespace(cancel=lambda: cancelled.append(True))
        deadline = asyncio.get_running_loop().time()
        await app._Stream(chunks(), call, deadline, {})({"type": "http", "asgi": {"spec_version": "2.3"}}, wait, wait)

    asyncio.run(stream())
    assert cancelled == [True]


def test_a_body_in_tiny_chunks_keeps_nobody_waiting_for_more_than_a_small_part_of_it(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[int] = []
    take = connections.Connection.data_received

    def note(self: Any, data: bytes) -> None:
        pieces.append(len(data))
        take(self, data)

    monkeypatch.setattr(connections.Connection, "data_received", note)
    body = chat().partition(b"\r\n\r\n")[2]
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in b" " * 20_000 + body)
    with serving(scorer) as served:
        sent = dial(served, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n")
        assert read_to_the_end(sent).startswith(b"HTTP/1.1 200")
    assert sum(pieces) > len(chunks)
    assert max(pieces) <= 4096


@pytest.mark.parametrize("is_reading", few([True, False], True), ids=["no body", "no reader"])
def test_a_server_that_stops_does_not_wait_for_clients_that_neither_send_nor_read(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_reading: bool
) -> None:
    monkeypatch.setattr(server, "STOP_SECONDS", 0.2)
    runtime = EchoRuntime(lambda task: "#" + "\u4e00" * 3000)
    runtime.context = 5000
    with (
        serving(scorer, runtime, rows=64, context=5000, max_tokens=2000, max_samples=32) as served,
        socket.socket() as client,
    ):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", served.port))
        client.sendall(chat()[:-5] if is_reading else chat(n=32, max_tokens=1500, stream=True))
        served.wait_for(lambda: any(each._has_request() for each in connections_of(served)))
        if not is_reading:
            served.wait_for(lambda: any(each.flow.write_paused for each in connections_of(served)))
        served.server.stop()
        served.wait_for(lambda: open_connections(served) == 0)
    assert caplog.records == []  # uvicorn, which would wait longer, reports tasks that it ends


def test_the_limit_of_open_files_is_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        assert connections._most_connections() == 100
        allow_files(connections.MOST_FILES)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(before[1], connections.MOST_FILES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_connections_that_find_no_descriptor_are_not_reported_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    try:
        _report_error(loop, {"message": "none left", "exception": OSError(errno.EMFILE, "too many open files")})
        assert caplog.records == []
        _report_error(loop, {"message": "another one", "exception": OSError(errno.EIO, "broken")})
        assert len(caplog.records) == 1
    finally:
        loop.close()


def test_garbage_behind_an_early_answer_closes_the_connection_and_is_not_reported(
    scorer: Scorer, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(scorer) as served:
        connection = dial(served, head)
        assert connection.recv(12) == b"HTTP/1.1 404"
        connection.sendall(b"no chunk\r\n")
        read_to_the_end(connection)
        served.wait_for(lambda: not open_connections(served))
    assert caplog.records == []
