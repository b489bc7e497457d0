"""Messages between sce and the processes of the sandbox: a line of text with files attached, on a stream socket.

A stream with lengths in front, because macOS has no packet sockets between processes; plain words, because
the modules of richer formats would make every fork dearer. This file is loaded by path in an interpreter
without the package, so it imports the standard library only.
"""

from __future__ import annotations

import os
import struct

# The C part of the socket module; the rest of it is a megabyte that each test would inherit.
from _socket import CMSG_LEN, SCM_RIGHTS, SOL_SOCKET, socket
from collections.abc import Sequence

_LENGTH = struct.Struct("!I")
_FILE = struct.Struct("i")
MOST_BYTES = 1 << 20
# In place of whether tests are the last ones: a text in C has none, and is not linked, only analyzed.
PART = "part"
_MOST_FILES = 253  # the kernel's own bound
_ANCILLARY_BYTES = CMSG_LEN(_MOST_FILES * _FILE.size)


def send(to: socket, text: str, files: Sequence[int] = ()) -> None:
    """Send one message, not empty; ``files`` are descriptors, which the receiver gets duplicates of.

    Raises:
        OSError: the other side has left.
    """
    body = text.encode()
    data = _LENGTH.pack(len(body)) + body
    attached = [(SOL_SOCKET, SCM_RIGHTS, b"".join(map(_FILE.pack, files)))] if files else []
    sent = to.sendmsg([data], attached)
    if sent < len(data):
        to.sendall(data[sent:])


def receive(from_: socket) -> tuple[str, list[int]]:
    """The next message and its descriptors; ``("", [])`` when the other side has left.

    Raises:
        OSError: the connection broke, the socket's timeout passed, or the message is far too long to be one of ours.
    """
    head, attached, _, _ = from_.recvmsg(_LENGTH.size, _ANCILLARY_BYTES)
    files = [
        number
        for level, kind, data in attached
        if level == SOL_SOCKET and kind == SCM_RIGHTS
        for (number,) in _FILE.iter_unpack(data[: len(data) - len(data) % _FILE.size])
    ]
    try:
        if head:
            head += _exactly(from_, _LENGTH.size - len(head))
        length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
        if length > MOST_BYTES:
            raise OSError(f"a message of {length} bytes")
        body = _exactly(from_, length)
        if body:
            kept, files = files, []
            return body.decode("utf-8", "replace"), kept
    finally:
        for descriptor in files:
            os.close(descriptor)
    return "", []


def _exactly(from_: socket, size: int) -> bytes:
    """``size`` bytes, or none when the other side leaves before it has sent them."""
    parts = []
    while size and (part := from_.recv(min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"" if size else b"".join(parts)
