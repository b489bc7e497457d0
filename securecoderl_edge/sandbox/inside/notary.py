"""Takes notes of what the sandbox refuses, from outside: a process beside the zygote, which the kernel asks.

    zygote --fork--> notary
    zygote --fork--> box --fork--> test process     what it tries in vain --kernel--> notary

The zygote puts on a filter whose refusals are notifications (`seccomp.reporting_filter`), once for all that descends
from it, and passes its listener to the notary. Programs in C have one each, since compilers may do more. A process has
one listener at most, and the zygote keeps none, so neither a box nor a program can answer in the notary's place.
Without a notary the same calls fail all the same.

Noted are attempts to use the network, to write, to start a process or another program, and to read a file that lies
outside and exists; not what an interpreter or a C library looks at by itself (`HARMLESS`). Programs choose the paths:
none may end the notary, and one that it cannot follow lies outside. It is a process of its own because a page that the
zygote writes to while a box lives has to be copied, which would cost a program 5 %.

It also counts threads before there is one more. A supervisor looks too late: threads that all make more threads, none
of which has run yet, keep it from a core until there are as many as the system has room for.

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
_IDENTITY = struct.Struct("Q")
_FILE = struct.Struct("i")
_TURN = struct.Struct("QQ")  # the number of a program in Python, the process id of its box
_ATTACHED = CMSG_SPACE(_FILE.size)
_AT_FDCWD = -100
_LONGEST_PATH, _MOST_LINKS = 4096, 40  # that the kernel follows
_MOST_NAMES = 256  # of a path that the notary follows
MOST_NOTES, MOST_PATH_BYTES, MOST_BYTES = 16, 512, 1 << 15
# So many calls of a program are answered at once, and again in each second, if they take no longer than that; others
# wait, the longer the more work they are, so that it cannot keep the notary busy. All are looked at, or a flood would
# hide what follows it.
MOST_PROMPT, PROMPT_SECONDS = 1000, 0.1
PAUSE_SECONDS, PAUSE_FACTOR = 0.001, 10
# What interpreters look at by themselves, such as how many threads there are at a fork (Python 3.12).
HARMLESS = frozenset((
    "/proc/self/maps", "/proc/self/stat", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/possible", "/etc/ssl/openssl.cnf", "/etc/inputrc",
))  # fmt: skip
NAME = ctypes.create_string_buffer(b"notary")
Notes = dict[tuple[str, bytes], int]


class Notary:
    """The notary, as the processes around it see it; made in the zygote, before it is confined.

    Args:
        lockdown, seccomp: siblings of this file.
        readable: files and folders below which reading is no attempt. harmless: those of which that is true alone.
        most_threads: a process gets none once it has more than these.
        may_open: whether Landlock lets programs open what is readable.
    """

    def __init__(
        self,
        lockdown: Any,
        seccomp: Any,
        readable: Sequence[str],
        harmless: Sequence[str] = (),
        *,
        most_threads: int,
        may_open: bool = True,
    ) -> None:
        self._lockdown, self._seccomp, self._may_open = lockdown, seccomp, may_open
        self._most_threads = most_threads
        self._readable, self._harmless = readable, HARMLESS.union(harmless)
        self._ours, self._theirs = socketpair()
        self._notes, self._turns = (os.memfd_create(name, os.MFD_CLOEXEC) for name in ("notes", "turns"))
        self._turn = 0
        self._filter = lockdown.Filter(seccomp.reporting_filter())
        self.way = self._theirs.fileno()
        self._passing = lockdown.Passing(self.way)

    def start(self, *, listens: bool) -> None:
        """In the zygote, once it is confined.

        Args:
            listens: whether the notary is asked for all that descends from the zygote, from here on.

        Raises:
            OSError: the kernel or the container refuses.
        """
        zygote = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._lockdown.DeathSignal().ask_for(zygote)
                self._lockdown.prctl(self._lockdown.PR_SET_NAME, ctypes.addressof(NAME))  # for those who list processes
                keep = sorted((self._ours.fileno(), self._notes, self._turns))
                for low, high in zip((3, *(each + 1 for each in keep)), (*keep, 1 << 16), strict=True):
                    os.closerange(low, high)
                seen = _Inside(self._readable, self._harmless)
                places = zygote, self._notes, self._turns
                desk = _Desk(self._lockdown, self._seccomp, seen, self._may_open, self._most_threads, *places)
                desk.serve(self._ours)
            finally:
                os._exit(1)
        self._ours.close()
        if listens:
            listener = self._filter.install_with_listener()
            self._passing.send(listener)
            os.close(listener)
            self._theirs.close()

    def begin(self) -> None:
        """In the box of a program in Python, before it reads anything."""
        os.pwrite(self._turns, _TURN.pack(self._turn, os.getpid()), 0)
        os.close(self._turns)
        os.close(self._notes)

    def notes(self, box: int) -> str:
        """In the zygote, when a box has ended: its notes, ``KIND:COUNT:PATH`` each, with the path in hex.

        Raises:
            OSError: the notary has died.
        """
        if os.waitpid(self.pid, os.WNOHANG)[0]:
            raise OSError("the notary has died")
        self._turn += 1
        text = os.pread(self._notes, MOST_BYTES, 0)
        if not text:
            return ""
        os.ftruncate(self._notes, 0)
        owner, _, notes = text.decode().partition(" ")
        return notes if owner == str(box) else ""


class _Desk:
    """The notary's own side."""

    def __init__(
        self,
        lockdown: Any,
        seccomp: Any,
        inside: _Inside,
        may_open: bool,
        most_threads: int,
        zygote: int,
        notes: int,
        turns: int,
    ) -> None:
        self._calls: dict[int, tuple[str, int]] = seccomp.reported_calls()
        self._writing, self._receive = seccomp.WRITING, seccomp.NOTIFICATION_RECEIVE
        self._send, self._set_flags = seccomp.NOTIFICATION_SEND, seccomp.NOTIFICATION_FLAGS
        self._is_valid, self._thread = seccomp.NOTIFICATION_IS_VALID, seccomp.CLONE_THREAD
        self._inside, self._may_open, self._most_threads = inside, may_open, most_threads
        self._memory = lockdown.Memory()
        self._zygote, self._file, self._turns = zygote, notes, turns
        self._turn, self._latest = b"", _Box(0)

    def serve(self, arrivals: Any) -> NoReturn:
        """Answer for one box after the other; the death signal ends it."""
        events = select.poll()
        events.register(arrivals, select.POLLIN)
        boxes: dict[int, _Box | None] = {}
        while True:
            for descriptor, event in events.poll():
                if descriptor not in boxes:
                    head, ancillary, _, _ = arrivals.recvmsg(_FILE.size, _ATTACHED)
                    if not head:  # no more will come
                        events.unregister(arrivals)
                        continue
                    ((_, _, attached),) = ancillary
                    (listener,) = _FILE.unpack(attached)
                    (pid,) = _FILE.unpack(head)
                    if pid == self._zygote:
                        boxes[listener] = None
                    else:
                        if pid != self._latest.pid:  # the tests of a program in C have a listener each
                            self._latest = _Box(pid)
                        boxes[listener] = self._latest
                    with suppress(OSError):  # a kernel older than 6.6: it is slower then
                        fcntl.ioctl(listener, self._set_flags, _SYNC_WAKE_UP)
                    events.register(listener, select.POLLIN)
                elif event & select.POLLIN:
                    self._answer(descriptor, boxes[descriptor] or self._box_at_work())
                else:  # nobody has the filter any more
                    events.unregister(descriptor)
                    os.close(descriptor)
                    del boxes[descriptor]

    def _box_at_work(self) -> _Box:
        """Of programs in Python there is one at a time, and it wrote down its turn."""
        turn = os.pread(self._turns, _TURN.size, 0)
        if turn != self._turn:
            self._turn, self._latest = turn, _Box(_TURN.unpack(turn)[1])
        return self._latest

    def _answer(self, listener: int, box: _Box) -> None:
        content = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, self._receive, content)
            identity, process, _, number, _, _, *arguments = _NOTIFICATION.unpack(content)
            begun = time.process_time()
            error = self._decide(box, (listener, identity), process, number, arguments)
            work = time.process_time() - begun
            if process != box.pid and not box.is_served_promptly(work):
                time.sleep(max(PAUSE_SECONDS, PAUSE_FACTOR * work))
            fcntl.ioctl(listener, self._send, _ANSWER.pack(identity, 0, -error, 0 if error else _CONTINUE))
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.EINTR):  # the process has ended, or a signal woke it
                raise

    def _decide(self, box: _Box, call: tuple[int, int], process: int, number: int, arguments: Sequence[int]) -> int:
        """The error number of a refusal; 0 lets the call go on, to Landlock."""
        kind, position = self._calls[number]
        if kind == "clone":
            if arguments[0] & self._thread:
                return errno.EAGAIN if _threads_of(process) > self._most_threads else 0
            kind = "process"
        is_opening, is_unknown = kind == "open", kind == "openat2"
        if is_opening or is_unknown:
            flags = self._memory.number(process, arguments[2]) if is_unknown else arguments[position + 1]
            kind = "write" if flags & self._writing else "read"
        if kind == "read" and process in (box.pid, self._zygote):
            return 0  # they import what programs use and name
        path = self._path(process, arguments, position) if position >= 0 else b""
        is_attempt = self._inside.is_attempt(path, process) if kind == "read" else path != b"/dev/null"
        if is_attempt and path and not self._still_waits(*call):
            path, is_attempt = b"", kind != "read"
        if is_attempt:
            self._note(box, kind, path[:MOST_PATH_BYTES])
        if is_unknown:
            return errno.ENOSYS
        if kind == "read" and self._may_open:
            return 0
        return errno.EACCES if is_opening else errno.EPERM

    def _still_waits(self, listener: int, identity: int) -> bool:
        """False if a signal has ended the call: its path could be read from memory that is used anew."""
        try:
            fcntl.ioctl(listener, self._is_valid, _IDENTITY.pack(identity))
        except OSError:
            return False
        return True

    def _note(self, box: _Box, kind: str, path: bytes) -> None:
        if box.note(kind, path):
            text = box.text()
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))

    def _path(self, process: int, arguments: Sequence[int], position: int) -> bytes:
        """The path that an argument points to, absolute where its folder can be told; empty if it cannot be read."""
        path: bytes = self._memory.text(process, arguments[position], _LONGEST_PATH)
        if path.startswith(b"/") or not path:
            return path
        folder = "/"
        descriptor = arguments[0] & 0xFFFFFFFF  # the kernel looks at no more of it
        if position == 1 and descriptor != _AT_FDCWD & 0xFFFFFFFF:
            try:
                folder = os.readlink(f"/proc/{process}/fd/{descriptor}")
            except OSError:
                return b""
        return os.path.join(os.fsencode(folder), path)


def _threads_of(process: int) -> int:
    """How many threads a process has; 0 if /proc is hidden."""
    try:
        return os.stat(f"/proc/{process}/task").st_nlink - 2
    except OSError:
        return 0


class _Inside:
    """Tells attempts to read from what may be read, what is harmless, and what does not exist."""

    def __init__(self, readable: Sequence[str], harmless: frozenset[str]) -> None:
        self._folders = frozenset(map(os.path.realpath, readable))
        self._single = frozenset(map(os.path.realpath, harmless))
        self._known = set(map(os.fsencode, harmless))  # so that what all programs open costs little
        self._most_known = len(self._known) + MOST_PROMPT

    def is_attempt(self, path: bytes, process: int) -> bool:
        """Whether a path that a process opens for reading leads outside."""
        if not path or path in self._known:
            return False
        real, depends = _real_path(os.fsdecode(path), process)
        is_inside, left = real in self._single, real
        while not is_inside and left not in ("", "/"):
            is_inside, left = left in self._folders, os.path.dirname(left)
        if is_inside and not depends and len(self._known) < self._most_known:
            self._known.add(path)
        return real != "" and not is_inside


def _real_path(path: str, process: int) -> tuple[str, bool]:
    """Where an absolute path leads for a process, and whether it could lead elsewhere for another one.

    Empty if nothing is there, such as behind a descriptor of a memory file. A link that may not be read counts as a
    folder. A path of very many names is not followed: it leads to ``/``. Not `os.path.realpath`: to that,
    ``/proc/self`` is the notary, and it fails at a link that is not for it.
    """
    real, waiting, names, links, depends = "/", path.split("/")[::-1], 0, 0, False
    while waiting:
        name = waiting.pop()
        if name == "..":
            real = real.rpartition("/")[0] or "/"
        if name in ("", ".", ".."):
            continue
        names += 1
        if names > _MOST_NAMES:
            return "/", True
        place = f"{real.rstrip('/')}/{name}"
        depends = depends or place == "/proc"
        try:
            target = str(process) if place in ("/proc/self", "/proc/thread-self") else os.readlink(place)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                return "", depends
            real = place
            continue
        links += 1
        if links > _MOST_LINKS:
            return "", depends
        waiting += target.split("/")[::-1]
        if target.startswith("/"):
            real = "/"
    return real, depends


class _Box:
    """What is known of the program of one box."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._begun, self._asked, self._work = time.monotonic(), 0, 0.0
        self._notes: Notes = {}

    def is_served_promptly(self, work: float) -> bool:
        """Count a call and its CPU seconds; False if there were too many for the time that has passed."""
        self._asked, self._work = self._asked + 1, self._work + work
        if self._asked <= MOST_PROMPT and self._work <= PROMPT_SECONDS:
            return True
        passed = 1 + time.monotonic() - self._begun
        return self._asked <= MOST_PROMPT * passed and self._work <= PROMPT_SECONDS * passed

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
