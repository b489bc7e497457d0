"""Watching a test process from outside: its end, the time and threads it uses, the limits that stop it.

Covers: CPU time and wall time to a few milliseconds; the number of threads, and without
``RLIMIT_AS`` (macOS) memory, looked at every 50 ms; processes that a program left behind in its process
group. Does not cover: processes that moved to a group of their own, which only a program at a level that
permits forking can do.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

# Between two checks a program is bounded by its other limits; a check takes microseconds.
LOOK_SECONDS = 0.05
# Without a descriptor that signals the end, check often at first: most tests take a few milliseconds.
SHORTEST_WAIT_MS, LONGEST_WAIT_MS = 1, 10
MOST_THREADS = 256
# Time in which a program waits for a core is not counted, up to this many times the wall limit in all. It waits if it
# gets less than the whole core, but not nothing: a program that sleeps uses less than this part.
LONGEST_WALL, SLEEPS_BELOW = 3, 0.02
KIBIBYTE = 1 << 10
# In /proc/PID/stat: the place of the flags behind the state, and PF_EXITING of the kernel.
FLAGS, EXITING = 6, 4


class Releases:
    """The pieces of a request that a test process gets one by one, each when it reports that it is ready.

    They are read only then, after the fork, so the test process cannot have inherited them.
    """

    def __init__(self, request: int, pieces: Sequence[int]) -> None:
        self.ready, self._ready_out = os.pipe()
        # A program can open its own end for reading, as /proc/self/fd/3, and take back what it wrote.
        fcntl.fcntl(self.ready, fcntl.F_SETFL, os.O_NONBLOCK)
        self._go_in, self._go = os.pipe()
        self._request, self._pieces = request, list(pieces)

    def for_the_test(self) -> tuple[int, int]:
        """The pipe ends of the test process: one to report that it is ready, one to wait on."""
        return self._ready_out, self._go_in

    def start(self) -> None:
        """In the supervisor, after the fork: keep no end of the test process open."""
        os.close(self._ready_out)
        os.close(self._go_in)

    def release(self) -> bool:
        """Send the next piece; False if the process gets no more: it has all, or died, or closed or read its end."""
        try:
            if not os.read(self.ready, 1) or not self._pieces:
                return False
        except BlockingIOError:
            return False
        piece = self._pieces.pop(0)
        content = bytearray(os.fstat(piece).st_size)
        os.lseek(piece, 0, os.SEEK_SET)
        os.readv(piece, [content])
        os.ftruncate(self._request, 0)
        os.pwrite(self._request, content, 0)
        content[:] = bytes(len(content))  # the processes of later tests are copies of this one
        try:
            os.write(self._go, b"g")
        except OSError:  # the test has closed its end: a program can, and waits for nothing any more
            return False
        return True

    def close(self) -> None:
        """Close our ends."""
        os.close(self.ready)
        os.close(self._go)


class Supervisor:
    """Waits for the test processes of one box, one after the other.

    When ``control`` hangs up, the child is killed and this process ends: sce has left. The methods keep to
    local names where they can: after a fork, each page that is looked at for the first time is copied.

    Args:
        look_seconds: between two looks at threads and memory.
        is_resident: whether ``memory`` is that of pages in use, for programs that reserve far more addresses than that.
    """

    def __init__(
        self,
        control: int,
        cpu: float,
        wall: float,
        memory: int,
        look_seconds: float = LOOK_SECONDS,
        is_resident: bool = False,
    ) -> None:
        self._control, self._cpu, self._wall, self._memory = control, cpu, wall, memory
        self._look_seconds, self._is_resident = look_seconds, is_resident
        self._events = select.poll()
        self._events.register(control, 0)  # a hang-up is always reported
        self._first_wait = max(1, int(min(cpu, wall, look_seconds) * 1000) + 1)

    def wait(self, pid: int, releases: Releases | None = None) -> str:
        """Wait for a child; returns `` STATUS LIMIT CPU_SECONDS``: its wait status, the limit that stopped it or -."""
        events, process = self._events, _end_descriptor(pid)
        if process is not None:
            events.register(process, select.POLLIN)
        if releases is not None:
            releases.start()
            events.register(releases.ready, select.POLLIN)
        stopped_by = "-"
        woken = events.poll(self._first_wait if process is not None else SHORTEST_WAIT_MS)
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if not ended:
            status, stopped_by, usage = self._watch(pid, woken, process is not None, releases)
        if self._is_resident and usage.ru_maxrss * KIBIBYTE > self._memory and stopped_by == "-":
            stopped_by = "memory"  # between two looks
        if releases is not None:
            self._forget(releases.ready)
            releases.close()
        if process is not None:
            events.unregister(process)
            os.close(process)
        return f" {status} {stopped_by} {usage.ru_utime + usage.ru_stime}"

    def _watch(
        self, pid: int, woken: list[tuple[int, int]], is_told: bool, releases: Releases | None
    ) -> tuple[int, str, Any]:
        """Until the child has ended, by itself or by us: its wait status, the limit, its resource usage."""
        looked = started = before = time.monotonic() - self._first_wait / 1000
        used = waited = 0.0
        pause = SHORTEST_WAIT_MS
        while True:
            for descriptor, _ in woken:
                if descriptor == self._control:
                    os.kill(pid, signal.SIGKILL)
                    os._exit(0)
                if releases is not None and descriptor == releases.ready and not releases.release():
                    self._forget(descriptor)
            now = time.monotonic()
            gained, passed = cpu_seconds(pid) - used, now - before
            if gained > SLEEPS_BELOW * passed:
                waited += max(0.0, passed - gained)
            used, before = used + gained, now
            cpu_left = self._cpu - used
            wall_left = self._wall - (now - started) + min(waited, (LONGEST_WALL - 1) * self._wall)
            stopped_by = "cpu" if cpu_left <= 0 else "wall" if wall_left <= 0 else "-"
            if stopped_by == "-" and now - looked >= self._look_seconds:
                looked, stopped_by = now, _excess(pid, self._memory)
                if stopped_by == "-" and self._is_resident and _resident_bytes(pid) > self._memory:
                    stopped_by = "memory"
            if stopped_by != "-":
                os.kill(pid, signal.SIGKILL)
                _, status, usage = os.wait4(pid, 0)
                return status, stopped_by, usage
            left = max(1, int(min(max(cpu_left, 0.005), wall_left, self._look_seconds) * 1000) + 1)
            pause = left if is_told else min(left, 2 * pause, LONGEST_WAIT_MS)
            woken = self._events.poll(pause)
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                return status, "-", usage

    def _forget(self, descriptor: int) -> None:
        with suppress(KeyError):  # done before
            self._events.unregister(descriptor)


def end_group(pid: int) -> None:
    """Kill what a child that led a process group left behind in it."""
    with suppress(ProcessLookupError, PermissionError):  # macOS reports the second for a group of zombies
        os.killpg(pid, signal.SIGKILL)


def _resident_bytes(pid: int) -> int:
    """Memory in use by a child, from /proc; 0 once it has ended. Addresses that are only read cost page tables.

    The first thread may have ended, and has no memory then, while others go on. A process that lives and whose memory
    cannot be read has too much.
    """
    try:
        found = _resident_in(f"/proc/{pid}/status")
        threads = [f"/proc/{pid}/task/{each}/status" for each in os.listdir(f"/proc/{pid}/task")] if found < 0 else []
    except OSError:  # it has ended, and somebody waits for it
        return 0
    for thread in threads:
        with suppress(OSError):  # this thread has ended
            found = _resident_in(thread)
        if found >= 0:  # they share it: to ask each would cost a supervisor more than the program
            break
    return found if found >= 0 else sys.maxsize if _lives(pid) else 0


def _resident_in(path: str) -> int:
    """The memory in a status of /proc; -1 if it has none."""
    with open(path, "rb", buffering=0) as file:
        words = file.read().split()
    names = [name for name in (b"VmRSS:", b"VmPTE:", b"VmSwap:") if name in words]
    return sum(int(words[words.index(name) + 1]) for name in names) * KIBIBYTE if b"VmRSS:" in names else -1


def _lives(pid: int) -> bool:
    """Whether a thread of a child neither has ended nor is about to, after it gave up its memory."""
    states = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/stat", "rb", buffering=0) as file:
                states.append(file.read().rpartition(b") ")[2].split())
    return any(state[0] not in (b"Z", b"X") and not int(state[FLAGS]) & EXITING for state in states)


def _end_descriptor(pid: int) -> int | None:
    """A descriptor that becomes readable when the child ends; None on macOS and on Linux before 5.3."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


if sys.platform == "darwin":
    import ctypes

    _libc = ctypes.CDLL(None)
    _RUSAGE_INFO_V0 = 0

    class _Usage(ctypes.Structure):
        """``struct rusage_info_v0``; times are in ticks of the machine's clock."""

        _fields_ = (
            ("uuid", ctypes.c_uint8 * 16),
            *((name, ctypes.c_uint64) for name in ("user", "system", "idle_wakeups", "wakeups", "pageins")),
            *((name, ctypes.c_uint64) for name in ("wired", "resident", "footprint", "started", "exited")),
        )

    class _Timebase(ctypes.Structure):
        _fields_ = (("numerator", ctypes.c_uint32), ("denominator", ctypes.c_uint32))

    def _usage(pid: int) -> _Usage:
        usage = _Usage()
        _libc.proc_pid_rusage(pid, _RUSAGE_INFO_V0, ctypes.byref(usage))
        return usage

    def cpu_seconds(pid: int) -> float:
        """CPU time of a child so far."""
        base, usage = _Timebase(), _usage(pid)
        _libc.mach_timebase_info(ctypes.byref(base))
        return (usage.user + usage.system) * base.numerator / base.denominator / 1e9

    def _excess(pid: int, memory: int) -> str:
        return "memory" if _usage(pid).footprint > memory else "-"

else:

    def cpu_seconds(pid: int) -> float:
        """CPU time of a child so far."""
        return time.clock_gettime(((~pid) << 3) | 2)  # the kernel's CPUCLOCK_SCHED of that process

    def _excess(pid: int, memory: int) -> str:
        """The limit that only a look from outside can check: no ``rlimit`` bounds the threads of root."""
        try:
            threads = os.stat(f"/proc/{pid}/task").st_nlink - 2
        except OSError:  # /proc is hidden from us
            return "-"
        return "threads" if threads > MOST_THREADS else "-"
