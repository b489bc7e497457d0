"""Locking a process down without root: seccomp, Landlock, capabilities. Linux only, through ctypes.

Covers: after a `Filter` is installed a process keeps only the system calls of `seccomp`; after
`restrict_paths` it can open only files below the given folders for reading, connect nowhere and signal no
process outside. Does not cover: whether a path exists (stat stays allowed), side channels of the processor,
kernel bugs.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import re
import signal
import struct
import sys
from _socket import SCM_RIGHTS, SOL_SOCKET
from collections.abc import Callable, Sequence
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME = 1, 4, 15
PR_GET_SECCOMP, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 21, 22, 38
_SECCOMP_MODE_FILTER = 2

_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_PR_GET_TID_ADDRESS, _PR_SET_PTRACER = 40, 0x59616D61
_YAMA = "/proc/sys/kernel/yama"  # the module that lets only ancestors read, and whom a process gives leave
_PAGE_BYTES = 4096
_SYS_SENDMSG = {"x86_64": 46, "aarch64": 211}
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SECCOMP_SET_MODE_FILTER, _SECCOMP_NEW_LISTENER = 1, 8
_CAPABILITY_VERSION_3 = 0x20080522
_PR_CAPBSET_DROP, _MOST_CAPABILITIES = 24, 64
_SYS_CREATE_RULESET, _SYS_ADD_RULE, _SYS_RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_EXECUTE, _READ_FILE, _READ_DIRECTORY = 1, 1 << 2, 1 << 3

libc = ctypes.CDLL(None, use_errno=True)
_prctl = libc.prctl
libc.syscall.restype = ctypes.c_long
# For each program and test process: these keep the interpreter's lock and look for no error number, which spares page
# faults. So do arguments that are C values already.
_plain_prctl = ctypes.PyDLL(None).prctl
_plain_syscall = ctypes.PyDLL(None).syscall
_plain_syscall.restype = ctypes.c_long
_plain_read = ctypes.PyDLL(None).process_vm_readv
_plain_read.restype = ctypes.c_ssize_t


class _FilterProgram(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def prctl(option: int, argument: int = 0, address: int = 0) -> int:
    """``prctl(2)``.

    Raises:
        OSError: the kernel refuses.
    """
    result = int(_prctl(*_prctl_arguments(option, argument, address)))
    if result < 0:
        raise _error("prctl")
    return result


def _prctl_arguments(option: int, argument: int, address: int) -> tuple[Any, ...]:
    """As C values, so that a call that every test process makes need not convert them."""
    return (ctypes.c_int.from_param(option), *map(ctypes.c_ulong.from_param, (argument, address, 0, 0)))


def _call_arguments(*values: int) -> tuple[Any, ...]:
    return tuple(map(ctypes.c_long.from_param, values))


def has_seccomp() -> bool:
    """Whether the kernel knows seccomp at all; a container may still refuse to install a filter."""
    try:
        prctl(PR_GET_SECCOMP)
    except OSError as error:
        return error.errno != errno.EINVAL
    return True


class Filter:
    """A seccomp filter, laid out in memory once and installed in any number of forked processes."""

    def __init__(self, program: bytes) -> None:
        self._instructions = ctypes.create_string_buffer(program, len(program))
        self._header = _FilterProgram(len(program) // 8, ctypes.addressof(self._instructions))
        self.arguments = _prctl_arguments(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(self._header))
        operation = (_SYS_SECCOMP[platform.machine()], _SECCOMP_SET_MODE_FILTER, _SECCOMP_NEW_LISTENER)
        self._listening = _call_arguments(*operation, ctypes.addressof(self._header))

    def word(self, offset: int) -> ctypes.c_uint32:
        """The four bytes at an offset, to be overwritten."""
        return ctypes.c_uint32.from_buffer(self._instructions, offset)

    def install(self) -> None:
        """Install it for the calling thread; needs no_new_privs.

        Raises:
            OSError: the kernel or the container refuses.
        """
        if _prctl(*self.arguments) != 0:
            raise _error("prctl")

    def install_with_listener(self) -> int:
        """As `install`; a descriptor where the calls that it refers to a supervisor arrive.

        Raises:
            OSError: the kernel or the container refuses, or the process has a listener already.
        """
        listener = int(_plain_syscall(*self._listening))
        if listener < 0:
            raise OSError("the kernel refuses a filter with a listener")
        return listener


def can_listen() -> bool:
    """Whether filters may refer calls to a supervisor here, who may let them go on (Linux 5.5); tried in a process."""
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < (5, 5):
        return False
    pid = os.fork()
    if pid == 0:
        try:
            prctl(PR_SET_NO_NEW_PRIVS, 1)
            Filter(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)).install_with_listener()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def fork_with(flags: int) -> Callable[[], int]:
    """A ``fork(2)`` with flags of our own, for a process of one thread; called like the C library's."""
    own_id = ctypes.c_void_p()
    prctl(_PR_GET_TID_ADDRESS, ctypes.addressof(own_id))
    address = own_id.value or 0
    # The C library keeps the number of a thread there. On aarch64 the last two arguments are the other way round.
    last = (address,) if platform.machine() == "x86_64" else (0, address)
    arguments = _call_arguments(_SYS_CLONE[platform.machine()], flags, 0, 0, *last)
    return functools.partial(_plain_syscall, *arguments)


class _Vector(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """``struct msghdr`` and what it points to: a process id, and one descriptor."""

    _fields_ = (
        ("name", ctypes.c_void_p), ("name_length", ctypes.c_uint), ("parts", ctypes.c_void_p),
        ("part_count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("length", ctypes.c_size_t), ("level", ctypes.c_int), ("kind", ctypes.c_int), ("file", ctypes.c_int),
        ("part", _Vector), ("sender", ctypes.c_int),
    )  # fmt: skip


class Passing:
    """Sends a descriptor over a socket, with the process id; laid out once, for the reasons of `Seal`."""

    def __init__(self, to: int) -> None:
        self._message = message = _Message()
        start = ctypes.addressof(message)
        message.part = _Vector(start + _Message.sender.offset, ctypes.sizeof(ctypes.c_int))
        message.parts, message.part_count = start + _Message.part.offset, 1
        message.control = start + _Message.length.offset
        message.length = message.control_length = _Message.file.offset + 4 - _Message.length.offset
        message.level, message.kind = SOL_SOCKET, SCM_RIGHTS
        self._arguments = _call_arguments(_SYS_SENDMSG[platform.machine()], to, start, 0)

    def send(self, descriptor: int) -> None:
        """Send it.

        Raises:
            OSError: the kernel or the container refuses.
        """
        self._message.file, self._message.sender = descriptor, os.getpid()
        if _plain_syscall(*self._arguments) < 0:
            raise OSError("the kernel passes no descriptor")


class Memory:
    """The memory of other processes, those below this one, or that permit it; laid out once."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(_PAGE_BYTES)
        self._here, self._there = _Vector(ctypes.addressof(self._buffer), 0), _Vector(0, 0)
        values = (ctypes.addressof(self._here), 1, ctypes.addressof(self._there), 1, 0)
        self._arguments = tuple(map(ctypes.c_ulong.from_param, values))

    def text(self, process: int, address: int, most: int) -> bytes:
        """The bytes before the first zero byte, ``most`` at most; empty if they cannot be read."""
        found = b""
        while len(found) < most:
            start = address + len(found)
            length = min(most - len(found), _PAGE_BYTES - start % _PAGE_BYTES)  # the next page may not be there
            if not self._read(process, start, length):
                return b""
            part: bytes = self._buffer.value
            found += part[:length]
            if len(part) < length:
                break
        return found

    def number(self, process: int, address: int) -> int:
        """The unsigned number of eight bytes there; 0 if it cannot be read."""
        return int.from_bytes(self._buffer.raw[:8], sys.byteorder) if self._read(process, address, 8) else 0

    def _read(self, process: int, address: int, length: int) -> bool:
        self._there.base, self._here.length, self._there.length = address, length, length
        return bool(_plain_read(process, *self._arguments) == length)


class DeathSignal:
    """Ties the life of the calling process to its parent's; made once, used in any number of forked processes."""

    def __init__(self) -> None:
        self._arguments = _prctl_arguments(PR_SET_PDEATHSIG, signal.SIGKILL, 0)

    def ask_for(self, parent: int) -> None:
        """Die when ``parent`` dies, or now if it has died before this was asked.

        Raises:
            OSError: the kernel refuses.
        """
        if _plain_prctl(*self._arguments) != 0:
            raise OSError("the kernel refuses a death signal")
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


class Seal:
    """The last layer of a test process: it dies with its parent, and can signal no process but itself.

    Made once, put on in any number of forked processes. A test process pays for every page that it is the first to
    write to, and using an object writes to it, so this uses few: two calls and a number.

    Args:
        program: a filter with a place for the process id.
        place: the offset of that place.
        reader: a process that reads its memory, or 0. For that the test process becomes dumpable. Its parent is not:
            tests are in its Landlock domain, and could open the inputs of the next ones through ``/proc/PARENT/fd``.
    """

    def __init__(self, program: bytes, place: int, reader: int = 0) -> None:
        self._death_signal = DeathSignal()
        self._filter = Filter(program)
        self._own_id = self._filter.word(place)
        self._arguments = self._filter.arguments
        is_asked = reader and os.path.exists(_YAMA)
        self._leave = [_prctl_arguments(PR_SET_DUMPABLE, 1, 0)] if reader else []
        self._leave += [_prctl_arguments(_PR_SET_PTRACER, reader, 0)] if is_asked else []

    def put_on(self, parent: int) -> None:
        """In a test process.

        Raises:
            OSError: the kernel or the container refuses.
        """
        self._death_signal.ask_for(parent)
        self._own_id.value = os.getpid()
        for leave in self._leave:
            _plain_prctl(*leave)
        if _plain_prctl(*self._arguments) != 0:
            raise OSError("the kernel refuses a filter")


def landlock_version() -> int:
    """The kernel's Landlock ABI version; 0 where there is none."""
    return max(int(libc.syscall(_SYS_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))), 0)


def create_ruleset(readable: Sequence[str], executable: Sequence[str] = ()) -> int | None:
    """A Landlock ruleset that permits reading below ``readable`` and nothing else; None without Landlock.

    The files ``executable`` can be read and executed. Memory files are beyond Landlock: whoever has a descriptor of one
    can open and execute it.

    It handles every right that this kernel knows: files, TCP (ABI 4), signals and abstract sockets (ABI 6).

    Raises:
        OSError: a rule is refused.
    """
    attributes = ruleset_attributes()
    if not attributes:
        return None
    size = ctypes.c_size_t(len(attributes))
    ruleset = int(libc.syscall(_SYS_CREATE_RULESET, attributes, size, ctypes.c_uint(0)))
    if ruleset < 0:
        return None
    for path in (*readable, *executable):
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not on this system
        rule = struct.pack("=Qi", rights_on(path, path in executable), descriptor)
        refused = libc.syscall(
            _SYS_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint(0)
        )
        os.close(descriptor)
        if refused:
            raise _error(f"landlock {path}")
    return ruleset


def ruleset_attributes() -> bytes:
    """``struct landlock_ruleset_attr`` with every right that this kernel knows; empty without Landlock."""
    version = landlock_version()
    if version == 0:
        return b""
    rights = (1 << (13 + (version >= 2) + (version >= 3))) - 1
    if version >= 5:
        rights |= 1 << 15
    attributes = struct.pack("QQQ", rights, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    return attributes[: 24 if version >= 6 else 16 if version >= 4 else 8]


def rights_on(path: str, is_executable: bool) -> int:
    """What a rule permits below a path: to read, and to execute it."""
    return (_READ_FILE | _READ_DIRECTORY if os.path.isdir(path) else _READ_FILE) | (_EXECUTE if is_executable else 0)


def restrict_paths(ruleset: int) -> None:
    """Put the calling thread under ``ruleset``; needs no_new_privs.

    Raises:
        OSError: the kernel refuses.
    """
    if libc.syscall(_SYS_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0)) != 0:
        raise _error("landlock")


def empty_bounding_set() -> None:
    """What root executes then gains no capability, which would randomize its addresses again; others gain none."""
    if os.geteuid() == 0:
        for capability in range(_MOST_CAPABILITIES):
            _prctl(*_prctl_arguments(_PR_CAPBSET_DROP, capability, 0))


def drop_capabilities() -> None:
    """Give up every capability: root then passes no permission check that another user would fail.

    Raises:
        OSError: the kernel refuses.
    """
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    if libc.syscall(_SYS_CAPSET[platform.machine()], header, b"\0" * 24) != 0:
        raise _error("capset")


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
