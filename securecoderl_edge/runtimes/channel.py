"""Messages between a runtime and its child process: JSON objects, each after its length in four bytes."""

from __future__ import annotations

import json
import struct
from typing import IO, Any

_LENGTH = struct.Struct(">I")


def write_message(stream: IO[bytes], message: dict[str, Any]) -> None:
    """Send one message.

    Raises:
        BrokenPipeError: the other side is gone.
    """
    body = json.dumps(message).encode("ascii")
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def read_message(stream: IO[bytes]) -> dict[str, Any] | None:
    """Receive one message, or None when the other side has closed or died, in the middle of a message too."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    if len(body) < length:
        return None
    message: dict[str, Any] = json.loads(body)
    return message
