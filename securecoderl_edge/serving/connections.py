"""Connections: how many there are, and how long a client may keep one without a request or without reading."""

from __future__ import annotations

import asyncio
import resource
import time

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Each costs a descriptor and memory, even if it sends nothing.
MOST_CONNECTIONS = 1000
MOST_FILES = 1 << 16
# For the complete header of a request, from the beginning of the connection or the end of the answer before.
HEADER_SECONDS = 10.0
# For a client that does not read its answer.
UNREAD_SECONDS = 30.0
# Read at a time: of a body in chunks of one byte, h11 takes a second for what asyncio would read, and all others wait.
PIECE_BYTES = 4096


class Connection(H11Protocol):
    """Adds limits to uvicorn's connection; `end_if_late` must be called about every second."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close it at once if there are too many."""
        super().connection_made(transport)
        self._active, self._unread = time.monotonic(), 0
        transport.max_size = PIECE_BYTES  # type: ignore[attr-defined]  # of asyncio's own loop
        if len(self.connections) > _most_connections():
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Close it if there is data behind a request in progress.

        uvicorn would read no further until the answer, and so not notice that the client leaves. Line ends before a
        request are nothing, as RFC 9112 (2.2) wants it: simple clients send one behind a body.
        """
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            data = data.lstrip(b"\r\n")
        if data and not self._is_answering():  # without any, h11 takes it for the end
            super().data_received(data)
            data = self.conn.trailing_data[0] if self._is_answering() else b""
        if data.strip(b"\r\n"):
            self.transport.abort()
        elif data:
            self.cycle.keep_alive = False  # h11 would take them for a bad request

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; behind an answer that came before the end of its request, only close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._active = time.monotonic()
        super().on_response_complete()

    def end_if_late(self, now: float) -> None:
        """Close it if there has been neither a request in progress nor a client that reads for too long."""
        is_working = self._has_request() and not self.transport.is_closing()
        before, self._unread = self._unread, self.transport.get_write_buffer_size()
        is_reading = self._unread <= before - PIECE_BYTES  # a large answer takes a while
        if is_reading or (is_working and not self.flow.write_paused):
            self._active = now
        elif now - self._active > (UNREAD_SECONDS if self._unread else HEADER_SECONDS):
            self.transport.abort()

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _is_answering(self) -> bool:
        """Whether there is a request in progress that has been read."""
        return self._has_request() and self.conn.their_state is not h11.SEND_BODY


def _most_connections() -> int:
    """Half of the descriptors are for the model and the sandbox."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if limit == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, limit // 2)
