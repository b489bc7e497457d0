"""Seccomp filters as bytes, for x86_64 and aarch64. Pure functions; `lockdown` installs them.

Layer 1 (`supervisor_filter`) is installed once in the zygote and inherited by everything below: an allow-list
of what CPython needs to compute, read files and print, plus what supervising needs. Layer 2
(`program_filter`) is added in each test process; it takes the supervising calls away again, and forking and
signalling others. A refused call fails with an ordinary error number, so the program sees a PermissionError.

Compiled programs have a wider layer 1 (``native``), with which a process becomes the compiler or the program. Landlock
decides which files can be executed and written there, so these programs are run at level ``full`` only.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import errno
import os
import platform
import signal
import struct
from collections.abc import Mapping, Sequence

Instruction = tuple[int, int, int, int]

AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# name: (number on x86_64, number on aarch64); None where the call does not exist.
COMPUTING = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "pread64": (17, 67),
    "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66), "access": (21, None), "select": (23, None),
    "sched_yield": (24, 124), "mremap": (25, 216),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "pause": (34, None), "nanosleep": (35, 101),
    "getitimer": (36, 102), "alarm": (37, None), "setitimer": (38, 103), "getpid": (39, 172),
    "exit": (60, 93), "uname": (63, 160), "ftruncate": (77, 46), "getcwd": (79, 17),
    "gettimeofday": (96, 169), "getrlimit": (97, 163), "getrusage": (98, 165),
    "sysinfo": (99, 179), "times": (100, 153), "getuid": (102, 174), "getgid": (104, 176),
    "geteuid": (107, 175), "getegid": (108, 177), "getppid": (110, 173), "getpgrp": (111, None),
    "getresuid": (118, 148), "getresgid": (120, 150), "getpgid": (121, 155), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132), "statfs": (137, 43), "fstatfs": (138, 44),
    "getpriority": (140, 141), "gettid": (186, 178), "futex": (202, 98), "sched_getaffinity": (204, 123),
    "getdents64": (217, 61), "set_tid_address": (218, 96), "restart_syscall": (219, 128),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115),
    "exit_group": (231, 94), "newfstatat": (262, 79), "stat": (4, None), "lstat": (6, None),
    "faccessat": (269, 48), "faccessat2": (439, 439), "pselect6": (270, 72), "ppoll": (271, 73),
    "poll": (7, None), "set_robust_list": (273, 99), "eventfd2": (290, 19), "epoll_create1": (291, 20),
    "pipe": (22, None), "pipe2": (293, 59), "getrandom": (318, 278), "membarrier": (324, 283),
    "statx": (332, 291), "rseq": (334, 293), "close_range": (436, 436),
}  # fmt: skip
# Allowed with arguments that the filters look at.
INSPECTED = {
    "open": (2, None), "openat": (257, 56), "ioctl": (16, 29), "clone": (56, 220), "fcntl": (72, 25),
    "kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261), "madvise": (28, 233),
}  # fmt: skip
OPENING = ("open", "openat")
# What the zygote and the box need and a test process must not have. (A link in /proc tells which files other
# processes of this user have open.)
SUPERVISING: dict[str, tuple[int, int | None]] = {
    "readlink": (89, None), "readlinkat": (267, 78), "sendto": (44, 206), "recvfrom": (45, 207),
    "sendmsg": (46, 211), "recvmsg": (47, 212), "fork": (57, None), "wait4": (61, 260), "prctl": (157, 167),
    "setrlimit": (160, 164), "pidfd_open": (434, 434), "landlock_restrict_self": (446, 446),
}  # fmt: skip
LINKS = ("readlink", "readlinkat")
# What the zygote needs to take notes, and the box no more once it has a listener.
LISTENING: dict[str, tuple[int, int | None]] = {"seccomp": (317, 277), "process_vm_readv": (310, 270)}
# For compiled programs, in addition: what only we need before one starts, and what its start asks for.
BECOMING: dict[str, tuple[int, int | None]] = {
    "memfd_create": (319, 279), "personality": (135, 92), "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
}  # fmt: skip
STARTING: dict[str, tuple[int, int | None]] = {
    "execve": (59, 221), "execveat": (322, 281), "arch_prctl": (158, None), "fallocate": (285, 47), "umask": (95, 166),
}  # fmt: skip
# Refused to every program, and worth a note (`reports`): what kind of attempt each is, and which argument is a path.
# Of opening and of `clone` a listener lets a part go on: to read, and to start a thread while there are few.
REPORTED: dict[str, tuple[str, int, int | None, int]] = {
    "socket": ("network", 41, 198, -1), "connect": ("network", 42, 203, -1), "bind": ("network", 49, 200, -1),
    "fork": ("process", 57, None, -1), "vfork": ("process", 58, None, -1), "clone": ("clone", 56, 220, -1),
    "execve": ("exec", 59, 221, 0), "execveat": ("exec", 322, 281, 1),
    "open": ("open", 2, None, 0), "openat": ("open", 257, 56, 1), "creat": ("write", 85, None, 0),
    "mkdir": ("write", 83, None, 0), "mkdirat": ("write", 258, 34, 1), "rmdir": ("write", 84, None, 0),
    "unlink": ("write", 87, None, 0), "unlinkat": ("write", 263, 35, 1), "rename": ("write", 82, None, 0),
    "renameat": ("write", 264, 38, 1), "renameat2": ("write", 316, 276, 1), "link": ("write", 86, None, 0),
    "linkat": ("write", 265, 37, 1), "symlink": ("write", 88, None, 1), "symlinkat": ("write", 266, 36, 2),
    "chmod": ("write", 90, None, 0), "fchmodat": ("write", 268, 53, 1), "chown": ("write", 92, None, 0),
    "lchown": ("write", 94, None, 0), "fchownat": ("write", 260, 54, 1), "truncate": ("write", 76, 45, 0),
    "mknod": ("write", 133, None, 0), "mknodat": ("write", 259, 33, 1), "utimensat": ("write", 280, 88, 1),
    "utime": ("write", 132, None, 0), "utimes": ("write", 235, None, 0), "futimesat": ("write", 261, None, 1),
    "setxattr": ("write", 188, 5, 0), "lsetxattr": ("write", 189, 6, 0),
    "removexattr": ("write", 197, 14, 0), "lremovexattr": ("write", 198, 15, 0), "openat2": ("openat2", 437, 437, 1),
}  # fmt: skip
# Refused as if the kernel were old: the C library then falls back to a call that a filter can read. A notification that
# nobody listens to has the same effect, and the notary gives the same answer.
UNKNOWN = {"clone3": (435, 435), "openat2": (437, 437)}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO, _NOTIFY = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_X32_BIT = 0x40000000

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_TCGETS, _FIONREAD, _FIOCLEX = 0x5401, 0x541B, 0x5451
NOTIFICATION_RECEIVE, NOTIFICATION_SEND = 0xC0502100, 0xC0182101
NOTIFICATION_IS_VALID, NOTIFICATION_FLAGS = 0x40082102, 0x40082104
_NOTIFICATIONS = NOTIFICATION_RECEIVE, NOTIFICATION_SEND, NOTIFICATION_IS_VALID, NOTIFICATION_FLAGS
_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_SETFL, _F_DUPFD_CLOEXEC = 0, 1, 2, 3, 4, 1030
_F_ADD_SEALS = 1033
_O_ASYNC = 0o20000
CLONE_THREAD, _CLONE_FILES, _CLOSE_RANGE_UNSHARE = 0x00010000, 0x00000400, 2
_MAP_SHARED, _MAP_HUGETLB = 1, 0x40000
# What allocators ask for: MADV_NORMAL to _DONTNEED, _FREE, _NOHUGEPAGE, _DONTDUMP and _DODUMP. Others, such as
# _GUARD_INSTALL, fill memory or page tables for a range of any size in one call that no signal ends; so does mincore.
_ADVICE = 0, 1, 2, 3, 4, 8, 15, 16, 17
# How a zygote and a box fork: as the C library does, and with CLONE_DETACHED, which has no effect and nobody sets.
FORK_OF_A_BOX = 0x01600000 | signal.SIGCHLD
_RLIMIT_STACK = 3
_AT_EMPTY_PATH = 0x1000
_PID_MARK = 0x5A5A1234


def supervisor_filter(machine: str | None = None, native: bool = False, reports: bool = False) -> bytes:
    """Layer 1: everything that is not listed fails with EPERM; foreign architectures kill the process.

    ``fcntl`` is inspected because F_SETOWN with O_ASYNC makes the kernel signal any process of the same user. With
    ``native``, files may be opened for writing, for compilers: Landlock permits none but memory files. With
    ``reports``, what is `REPORTED` fails with ENOSYS, unless a `reporting_filter` with a listener comes on top: of two
    equal verdicts the kernel takes that of the newer filter.

    Raises:
        KeyError: no table for this machine.
    """
    machine = machine or platform.machine()
    more = (*((BECOMING, STARTING) if native else ()), *((LISTENING,) if reports else ()))
    numbers = _numbers(machine, COMPUTING, INSPECTED, SUPERVISING, UNKNOWN, *more)
    rules: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_EQUAL, 1, 0, AUDIT_ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
    ]
    if machine == "x86_64":
        rules += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL_PROCESS)]
    unknown = {name: numbers.pop(name) for name in UNKNOWN}
    rules += _if_any([unknown[name] for name in unknown if not (reports and name in REPORTED)], [_refuse(errno.ENOSYS)])
    if not native:
        opening = {name: numbers.pop(name) for name in OPENING if name in numbers}
        rules += _reading_only(opening, _notify() if reports else _refuse(errno.EACCES))
    harmless = [_TCGETS, _FIONREAD, _FIOCLEX, *(_NOTIFICATIONS if reports else ())]
    commands = [_argument(1), *_if_any(harmless, [_allow()]), _refuse(errno.ENOTTY)]
    rules += _if_any([numbers.pop("ioctl")], commands)
    harmless = [_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC, *([_F_ADD_SEALS] if native else [])]
    set_flags = [_argument(2), (_ANY_BIT, 1, 0, _O_ASYNC), _allow()]
    commands = [_argument(1), *_if_any(harmless, [_allow()]), (_EQUAL, 0, len(set_flags), _F_SETFL), *set_flags]
    rules += _if_any([numbers.pop("fcntl")], [*commands, _refuse(errno.EPERM)])
    # A thread with descriptors of its own could have as many as a process may, and fill as many pipes.
    shares = [(_ANY_BIT, 0, 1, CLONE_THREAD), (_ANY_BIT, 0, 1, _CLONE_FILES), _allow(), _refuse(errno.EPERM)]
    rules += _if_any([numbers["clone"]], [_argument(0), *shares])
    rules += _if_any([numbers.pop("madvise")], [_argument(2), *_if_any([*_ADVICE], [_allow()]), _refuse(errno.EINVAL)])
    keeps = [_argument(2), (_ANY_BIT, 0, 1, _CLOSE_RANGE_UNSHARE), _refuse(errno.EPERM), _allow()]
    rules += _if_any([numbers["close_range"]], keeps)
    if reports:
        rules += _if_any([call for call in reported_calls(machine) if call not in numbers.values()], [_notify()])
    for low, high in _ranges(sorted(numbers.values())):
        if low == high:
            rules += [(_EQUAL, 0, 1, low), _allow()]
        else:
            rules += [(_AT_LEAST, 0, 2, low), (_AT_LEAST, 1, 0, high + 1), _allow()]
    return _assemble([*rules, _refuse(errno.EPERM)])


def reported_calls(machine: str | None = None) -> dict[int, tuple[str, int]]:
    """The kind of attempt, and the place of a path among the arguments or -1, by the number of a system call."""
    is_first = (machine or platform.machine()) == next(iter(AUDIT_ARCHITECTURES))
    found = [(first if is_first else second, kind, place) for kind, first, second, place in REPORTED.values()]
    return {number: (kind, place) for number, kind, place in found if number is not None}


def reporting_filter(machine: str | None = None) -> bytes:
    """The layer between, of a box and its tests: what is `REPORTED` asks whoever has the listener, also for threads.

    Raises:
        KeyError: no table for this machine.
    """
    machine = machine or platform.machine()
    clone = _numbers(machine, INSPECTED)["clone"]
    rules: list[Instruction] = [(_LOAD, 0, 0, _NUMBER_OFFSET)]
    rules += _if_any([clone], [_argument(0), (_EQUAL, 0, 1, FORK_OF_A_BOX), _allow(), _notify()])
    rules += _if_any(list(_numbers(machine, LISTENING).values()), [_refuse(errno.EPERM)])
    rules += _if_any([number for number in reported_calls(machine) if number != clone], [_notify()])
    return _assemble([*rules, _allow()])


def program_filter(pid: int, machine: str | None = None, may_open: bool = True, reports: bool = False) -> bytes:
    """Layer 2 for the test process ``pid``: no children, signals only to itself, no limits raised.

    With ``may_open`` false, for kernels without Landlock, no file can be opened either. With ``reports``, opening and
    starting processes are left to the `reporting_filter`. Every test installs one, and the kernel compiles it anew, so
    it is as short as it can be.

    Raises:
        KeyError: no table for this machine.
    """
    machine = machine or platform.machine()
    numbers = _numbers(machine, INSPECTED, SUPERVISING)
    left = set(REPORTED) if reports else set()
    rules: list[Instruction] = [(_LOAD, 0, 0, _NUMBER_OFFSET)]
    refused = [numbers[name] for name in SUPERVISING if name in numbers and name not in left]
    rules += _if_any(refused, [_refuse(errno.EPERM)])
    if not may_open and not reports:
        rules += _if_any([numbers[name] for name in OPENING if name in numbers], [_refuse(errno.EACCES)])
    return _assemble([*rules, *_alone(pid, numbers, reports), _allow()])


def native_filter(
    pid: int,
    place: int,
    machine: str | None = None,
    may_write: bool = False,
    reports: bool = False,
    unasked: Sequence[int] = (),
) -> bytes:
    """Layer 2 for the compiled program ``pid``: as `program_filter`, and no file is opened for writing.

    It may read links, as AddressSanitizer does with its own; Landlock keeps those of other processes from it. With
    ``may_write`` it is the filter of a compiler, which opens its output. Others map no shared or huge pages: the kernel
    counts them as nobody's memory once they are out of sight.

    With ``reports`` it is the `reporting_filter` as well; its listener can be sent through descriptor ``place`` + 2. It
    asks nobody about a path at one of the addresses ``unasked`` that is opened for reading.

    A process can become only the file at descriptor ``place``, as the launcher does once. A program has no such
    descriptor, nor can it make one: the number is beyond its limit. So no other thread can take over the process, and
    with it lose the signal that the first one gets at the death of its supervisor.

    Raises:
        KeyError: no table for this machine.
    """
    machine = machine or platform.machine()
    numbers = _numbers(machine, INSPECTED, SUPERVISING, BECOMING, LISTENING, STARTING)
    refusal = _notify() if reports else _refuse(errno.EPERM)
    rules: list[Instruction] = [(_LOAD, 0, 0, _NUMBER_OFFSET)]
    is_place, is_itself = (_EQUAL, 0, 3, place), (_EQUAL, 0, 1, _AT_EMPTY_PATH)
    rules += _if_any([numbers["execveat"]], [_argument(0), is_place, _argument(4), is_itself, _allow(), refusal])
    if reports:
        is_way = [_argument(0), (_EQUAL, 0, 1, place + 2), _allow(), _refuse(errno.EPERM)]
        rules += _if_any([numbers.pop("sendmsg")], is_way)
        for name, position in zip(OPENING, (1, 2), strict=True):
            if name in numbers:
                known = [rule for address in unasked for rule in _if_argument_is(position - 1, address, _allow())]
                is_reading = [_argument(position), (_ANY_BIT, 0, 1, WRITING), refusal]
                rules += _if_any([numbers[name]], [*is_reading, *known, refusal])
        rules += _if_any(list(reported_calls(machine)), [refusal])
    taken = (*SUPERVISING, *BECOMING, *LISTENING, "execve")
    refused = [numbers[name] for name in taken if name in numbers and name not in LINKS]
    rules += _if_any(refused, [_refuse(errno.EPERM)])
    if not may_write:
        rules += _reading_only(numbers, _refuse(errno.EACCES))
        unseen = [_argument(3), (_ANY_BIT, 0, 1, _MAP_SHARED | _MAP_HUGETLB), _refuse(errno.EPERM), _allow()]
        rules += _if_any([_numbers(machine, COMPUTING)["mmap"]], unseen)
    return _assemble([*rules, *_alone(pid, numbers), _allow()])


def program_filter_template(
    machine: str | None = None, may_open: bool = True, reports: bool = False
) -> tuple[bytes, int]:
    """`program_filter` for a process not yet known, and the offset of the four bytes for its id."""
    return _template(program_filter(_PID_MARK, machine, may_open, reports))


def native_filter_template(
    place: int, may_write: bool, reports: bool = False, unasked: Sequence[int] = ()
) -> tuple[bytes, int]:
    """`native_filter` for a process not yet known, and the offset of the four bytes for its id."""
    return _template(native_filter(_PID_MARK, place, may_write=may_write, reports=reports, unasked=unasked))


def _template(program: bytes) -> tuple[bytes, int]:
    return program, program.index(struct.pack("I", _PID_MARK))


def _numbers(machine: str, *tables: Mapping[str, tuple[int, int | None]]) -> dict[str, int]:
    column = list(AUDIT_ARCHITECTURES).index(machine)
    found = {name: numbers[column] for table in tables for name, numbers in table.items()}
    return {name: number for name, number in found.items() if number is not None}


def _reading_only(numbers: Mapping[str, int], otherwise: Instruction) -> list[Instruction]:
    """Files are opened for reading only."""
    rules: list[Instruction] = []
    for name, position in zip(OPENING, (1, 2), strict=True):
        if name in numbers:
            body = [_argument(position), (_ANY_BIT, 0, 1, WRITING), otherwise, _allow()]
            rules += _if_any([numbers[name]], body)
    return rules


def _alone(pid: int, numbers: Mapping[str, int], reports: bool = False) -> list[Instruction]:
    """No children but threads, signals to ``pid`` only, no limits raised."""
    refuse = _refuse(errno.EPERM)
    if reports:
        permitted = [(_EQUAL, 0, 1, FORK_OF_A_BOX), refuse, _allow()]
    else:
        permitted = [(_ANY_BIT, 0, 1, CLONE_THREAD), _allow(), refuse]
    rules = _if_any([numbers["clone"]], [_argument(0), *permitted])
    rules += _if_any([numbers["kill"], numbers["tgkill"]], [_argument(0), (_EQUAL, 0, 1, pid), _allow(), refuse])
    # Reading a limit passes no new one: both halves of that pointer are zero. A larger stack, which contest programs
    # ask for, is granted in words alone: theirs is fixed, and pure Python needs little of it.
    is_reading = [_argument(2), (_EQUAL, 0, 3, 0), _argument(2, high=True), (_EQUAL, 0, 1, 0), _allow()]
    in_words = [_argument(1), (_EQUAL, 0, 1, _RLIMIT_STACK), _refuse(0), refuse]
    return [*rules, *_if_any([numbers["prlimit64"]], [*is_reading, *in_words])]


def _if_any(numbers: list[int], body: list[Instruction]) -> list[Instruction]:
    """Run ``body``, which must return on every path, if what was loaded is one of ``numbers``."""
    last = len(numbers) - 1
    jumps = [(_EQUAL, last - place, 0 if place < last else len(body), number) for place, number in enumerate(numbers)]
    return [*jumps, *body]


def _if_argument_is(position: int, value: int, verdict: Instruction) -> list[Instruction]:
    low, high = value & 0xFFFFFFFF, value >> 32
    halves = [_argument(position), (_EQUAL, 0, 3, low), _argument(position, high=True), (_EQUAL, 0, 1, high)]
    return [*halves, verdict]


def _argument(position: int, high: bool = False) -> Instruction:
    return (_LOAD, 0, 0, 16 + 8 * position + 4 * high)


def _allow() -> Instruction:
    return (_RETURN, 0, 0, _ALLOW)


def _notify() -> Instruction:
    return (_RETURN, 0, 0, _NOTIFY)


def _refuse(error: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | error)


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _assemble(rules: list[Instruction]) -> bytes:
    return b"".join(struct.pack("HBBI", *rule) for rule in rules)
