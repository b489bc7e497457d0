"""Anonymous files in memory, in which sources, outputs and programs travel as descriptors.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import fcntl
import os

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def memory_file(content: bytes = b"") -> int:
    """A descriptor of an anonymous file."""
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    offset = 0
    while offset < len(content):
        offset += os.pwrite(descriptor, content[offset:], offset)
    return descriptor


def seal(descriptor: int) -> None:
    """Nobody can change the file any more."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)


def executable(descriptor: int) -> int:
    """The same memory file, which is closed, opened for reading: the kernel executes none that is open for writing."""
    reading = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    os.close(descriptor)
    return reading


def content_of(descriptor: int) -> bytes:
    """All bytes of a memory file."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def beginning(descriptor: int, length: int) -> str:
    """Its first bytes as text, for messages."""
    return os.pread(descriptor, length, 0).decode("utf-8", "replace").strip()
