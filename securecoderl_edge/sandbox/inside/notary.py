"""Takes notes of what the sandbox refuses, from outside: a process beside the zygote, which the kernel asks.

    zygote --fork--> notary
    zygote --fork--> box --fork--> test process     what it tries in vain --kernel--> notary

A box puts on a filter whose refusals are notifications (`seccomp.reporting_filter`) and passes its listener to the
notary before it reads the program. A process has one listener at most, and the box closes its own, so neither it nor a
program can answer in the notary's place. Without a notary the same calls fail all the same.

Noted are attempts to use the network, to write, to start a process or another program, and to read a file that lies
outside and exists; not what an interpreter or a C library looks at by itself (`HARMLESS`). It is a process of its own
because a page that the zygote writes to while a box lives has to be copied, which would cost a program 5 %.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import struct
import time
from _socket import CMSG_SPACE, socketpair
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

# struct seccomp_notif: id, process, flags; system call, architecture, instruction pointer, six arguments.
_NOTIFICATION = struct.Struct("QIIiIQ6Q")
_ANSWER = struct.Struct("Qqii")  # struct seccomp_notif_resp: id, value, error, flags
_CONTINUE, _SYNC_WAKE_UP = 1, 1
_FILE = struct.Struct("i")
_ATTACHED = CMSG_SPACE(_FILE.size)
_AT_FDCWD = -100
_PAGE = 4096
MOST_NOTES, MOST_PATH_BYTES, MOST_BYTES = 16, 512, 1 << 15
# So many calls of a program are answered at once, and again in each second; others wait, so that it cannot keep the
# notary busy.
MOST_PROMPT, PAUSE_SECONDS = 1000, 0.001
HARMLESS = frozenset((
    "/proc/self/maps", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/possible", "/etc/ssl/openssl.cnf",
))  # fmt: skip
NAME = ctypes.create_string_buffer(b"notary")
Notes = dict[tuple[str, bytes], int]


class Notary:
    """The notary, as the processes around it see it; made in the zygote, before it is confined.

    Args:
        lockdown, seccomp: siblings of this file.
        readable: files and folders below which reading is no attempt. harmless: those of which that is true alone.
        may_open: whether Landlock lets programs open what is readable.
    """

    def __init__(
        self,
        lockdown: Any,
        seccomp: Any,
        readable: Sequence[str],
        harmless: Sequence[str] = (),
        *,
        may_open: bool = True,
    ) -> None:
        self._lockdown, self._seccomp, self._may_open = lockdown, seccomp, may_open
        self._readable, self._harmless = readable, HARMLESS.union(harmless)
        self._ours, self._theirs = socketpair()
        self._notes = os.memfd_create("notes", os.MFD_CLOEXEC)
        self._filter = lockdown.Filter(seccomp.reporting_filter())
        self.way = self._theirs.fileno()
        self._passing = lockdown.Passing(self.way)

    def start(self) -> None:
        """In the zygote, once it is confined."""
        zygote = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._lockdown.DeathSignal().ask_for(zygote)
                self._lockdown.prctl(self._lockdown.PR_SET_NAME, ctypes.addressof(NAME))  # for those who list processes
                keep = sorted((self._ours.fileno(), self._notes))
                for low, high in zip((3, *(each + 1 for each in keep)), (*keep, 1 << 16), strict=True):
                    os.closerange(low, high)
                seen = _Inside(self._readable, self._harmless)
                _Desk(self._lockdown, self._seccomp, seen, self._may_open, self._notes).serve(self._ours)
            finally:
                os._exit(1)
        self._ours.close()

    def begin(self) -> None:
        """In the box, before it reads anything: from here on the notary is asked.

        Raises:
            OSError: the kernel or the container refuses, or the notary has died.
        """
        listener = self._filter.install_with_listener()
        self._passing.send(listener)
        for descriptor in (listener, self.way, self._notes):
            os.close(descriptor)

    def notes(self, box: int) -> str:
        """In the zygote, when a box has ended: its notes, ``KIND:COUNT:PATH`` each, with the path in hex.

        Raises:
            OSError: the notary has died.
        """
        if os.waitpid(self.pid, os.WNOHANG)[0]:
            raise OSError("the notary has died")
        text = os.pread(self._notes, MOST_BYTES, 0)
        if not text:
            return ""
        os.ftruncate(self._notes, 0)
        owner, _, notes = text.decode().partition(" ")
        return notes if owner == str(box) else ""


class _Desk:
    """The notary's own side."""

    def __init__(self, lockdown: Any, seccomp: Any, inside: _Inside, may_open: bool, notes: int) -> None:
        self._calls: dict[int, tuple[str, int]] = seccomp.reported_calls()
        self._writing, self._receive = seccomp.WRITING, seccomp.NOTIFICATION_RECEIVE
        self._send, self._set_flags = seccomp.NOTIFICATION_SEND, seccomp.NOTIFICATION_FLAGS
        self._inside, self._may_open = inside, may_open
        self._memory = lockdown.Memory()
        self._file = notes

    def serve(self, arrivals: Any) -> NoReturn:
        """Answer for one box after the other; the death signal ends it."""
        events = select.poll()
        events.register(arrivals, select.POLLIN)
        boxes: dict[int, _Box] = {}
        latest = _Box(0)
        while True:
            for descriptor, event in events.poll():
                box = boxes.get(descriptor)
                if box is None:
                    head, ((_, _, attached),), _, _ = arrivals.recvmsg(_FILE.size, _ATTACHED)
                    (listener,) = _FILE.unpack(attached)
                    (pid,) = _FILE.unpack(head)
                    if pid != latest.pid:  # the tests of a program in C have a listener each
                        latest = _Box(pid)
                    boxes[listener] = latest
                    with suppress(OSError):  # a kernel older than 6.6: it is slower then
                        fcntl.ioctl(listener, self._set_flags, _SYNC_WAKE_UP)
                    events.register(listener, select.POLLIN)
                elif event & select.POLLIN:
                    self._answer(descriptor, box)
                else:  # nobody has the filter any more
                    events.unregister(descriptor)
                    os.close(descriptor)
                    del boxes[descriptor]

    def _answer(self, listener: int, box: _Box) -> None:
        content = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, self._receive, content)
            identity, process, _, number, _, _, *arguments = _NOTIFICATION.unpack(content)
            is_prompt = process == box.pid or box.is_served_promptly()
            error = self._decide(box, process, number, arguments, is_prompt)
            if not is_prompt:
                time.sleep(PAUSE_SECONDS)
            fcntl.ioctl(listener, self._send, _ANSWER.pack(identity, 0, -error, 0 if error else _CONTINUE))
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.EINTR):  # the process has ended, or a signal woke it
                raise

    def _decide(self, box: _Box, process: int, number: int, arguments: Sequence[int], looks: bool) -> int:
        """The error number of a refusal; 0 lets the call go on, to Landlock. Only if it ``looks`` it reads a path."""
        kind, position = self._calls[number]
        is_opening = kind == "open"
        if is_opening and not arguments[position + 1] & self._writing:
            if process == box.pid:
                return 0  # it imports what the program names
            kind = "read"
        path = self._path(process, arguments, position) if position >= 0 and looks else b""
        if kind == "read":
            if path and path not in self._inside and os.path.exists(path):
                self._note(box, kind, path)
            return 0 if self._may_open else errno.EACCES
        if path != b"/dev/null":
            self._note(box, "write" if is_opening else kind, path)
        return errno.EACCES if is_opening else errno.EPERM

    def _note(self, box: _Box, kind: str, path: bytes) -> None:
        if box.note(kind, path):
            text = box.text()
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))

    def _path(self, process: int, arguments: Sequence[int], position: int) -> bytes:
        """The path that an argument points to, absolute where its folder can be told; empty if it cannot be read."""
        path: bytes = self._memory.text(process, arguments[position], MOST_PATH_BYTES)
        if path.startswith(b"/") or not path:
            return path
        folder = "/"
        if position == 1 and arguments[0] & 0xFFFFFFFF != _AT_FDCWD & 0xFFFFFFFF:
            try:
                folder = os.readlink(f"/proc/{process}/fd/{arguments[0]}")
            except OSError:
                return b""
        return os.path.join(os.fsencode(folder), path)


class _Inside:
    """The paths that are no attempt to read: of what may be read, and what is harmless."""

    def __init__(self, readable: Sequence[str], harmless: frozenset[str]) -> None:
        self._folders = frozenset(map(os.path.realpath, readable))
        self._single = harmless.union(map(os.path.realpath, harmless))
        self._known: set[bytes] = set()  # so that what all programs open costs little

    def __contains__(self, path: bytes) -> bool:
        if path in self._known:
            return True
        real = os.path.realpath(os.fsdecode(path))
        is_inside = real in self._single
        while not is_inside and real != "/":
            is_inside, real = real in self._folders, os.path.dirname(real)
        if is_inside and len(self._known) < MOST_PROMPT:
            self._known.add(path)
        return is_inside


class _Box:
    """What is known of the program of one box."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._begun, self._asked = time.monotonic(), 0
        self._notes: Notes = {}

    def is_served_promptly(self) -> bool:
        """Count a call; False if there were too many for the time that has passed."""
        self._asked += 1
        return self._asked <= MOST_PROMPT * (1 + time.monotonic() - self._begun)

    def note(self, kind: str, path: bytes) -> bool:
        """Count an attempt; False if there are too many different ones to keep this one."""
        key = kind, path
        is_kept = key in self._notes or len(self._notes) < MOST_NOTES
        if is_kept:
            self._notes[key] = self._notes.get(key, 0) + 1
        return is_kept

    def text(self) -> bytes:
        """As `Notary.notes` reads it."""
        words = [f"{kind}:{count}:{path.hex()}" for (kind, path), count in self._notes.items()]
        return " ".join((str(self.pid), *words)).encode()
