"""The seccomp filters, run through a simulator of the kernel's, for every architecture on any."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
from functools import cache
from pathlib import Path

import pytest

from securecoderl_edge.sandbox.inside import profiles, seccomp


@cache
def rules_of(program: bytes) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack("HBBI", program))


def simulate(program: bytes, machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel would return for a system call under a seccomp filter."""
    values = [*arguments, *[0] * (6 - len(arguments))]
    real = seccomp.AUDIT_ARCHITECTURES[machine]
    data = struct.pack("IIQ6Q", number, architecture or real, 0, *values)
    rules = rules_of(program)
    accumulator = position = 0
    while True:
        code, true, false, value = rules[position]
        position += 1
        if code == 0x20:
            accumulator = struct.unpack_from("I", data, value)[0]
        elif code == 0x06:
            return int(value)
        else:
            taken = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            position += true if taken else false


ALLOWED, EPERM, EACCES, ENOSYS, ENOTTY, KILLED = 0x7FFF0000, 0x50001, 0x5000D, 0x50026, 0x50019, 0x80000000
EINVAL = 0x50016


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_first_filter_allows_reading_and_refuses_what_a_program_has_no_use_for(machine: str) -> None:
    column = list(seccomp.AUDIT_ARCHITECTURES).index(machine)
    number = {name: numbers[column] for table in TABLES for name, numbers in table.items()}
    program = seccomp.supervisor_filter(machine)
    execve, socket_call = {"x86_64": (59, 41), "aarch64": (221, 198)}[machine]
    write_flags = os.O_WRONLY | os.O_CREAT

    def answer(name: str, *arguments: int) -> int:
        value = number[name]
        assert value is not None
        return simulate(program, machine, value, *arguments)

    assert answer("read") == answer("wait4") == answer("openat", 0, 0, os.O_RDONLY) == ALLOWED
    assert answer("openat", 0, 0, write_flags) == EACCES
    assert answer("clone3") == answer("openat2") == ENOSYS
    own_descriptors = THREAD & ~0x400
    assert answer("clone", THREAD) == answer("clone", signal.SIGCHLD) == ALLOWED
    assert answer("clone", own_descriptors) == answer("close_range", 3, 9, 2) == answer("close_range", 3, 9, 6) == EPERM
    assert answer("close_range", 3, 9, 0) == answer("close_range", 3, 9, 4) == ALLOWED
    assert answer("ioctl", 0, 0x5401) == answer("ioctl", 0, 0x5451) == ALLOWED
    assert answer("ioctl", 0, 0x5412) == ENOTTY
    # Duplicating and reading flags, but no signals to others: F_SETOWN, F_SETSIG, O_ASYNC, F_NOTIFY, F_SETLEASE.
    assert [answer("fcntl", 0, command) for command in (0, 1, 2, 3, 1030)] == [ALLOWED] * 5
    assert answer("fcntl", 0, 4, os.O_NONBLOCK) == ALLOWED
    assert answer("fcntl", 0, 4, 0o20000) == EPERM
    assert [answer("fcntl", 0, command) for command in (5, 8, 10, 1024, 1026)] == [EPERM] * 5
    # What allocators ask for; not MADV_HUGEPAGE, _COLD, _PAGEOUT, _POPULATE_*, _COLLAPSE, _GUARD_*.
    assert [answer("madvise", 0, 0, advice) for advice in (0, 4, 8, 15, 16)] == [ALLOWED] * 5
    assert {answer("madvise", 0, 0, advice) for advice in (14, 20, 21, 22, 23, 25, 102, 103)} == {EINVAL}
    assert simulate(program, machine, {"x86_64": 27, "aarch64": 232}[machine]) == EPERM  # mincore
    assert simulate(program, machine, execve) == simulate(program, machine, socket_call) == EPERM
    assert simulate(program, machine, 0, architecture=0x40000003) == KILLED
    if machine == "x86_64":
        assert simulate(program, machine, 0x40000000) == KILLED


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_second_filter_leaves_a_program_no_power_over_other_processes(machine: str) -> None:
    column = list(seccomp.AUDIT_ARCHITECTURES).index(machine)
    number = {name: numbers[column] for table in TABLES for name, numbers in table.items()}
    template, place = seccomp.program_filter_template(machine)
    program = bytearray(template)
    program[place : place + 4] = struct.pack("I", 4321)
    assert bytes(program) == seccomp.program_filter(4321, machine)

    def answer(name: str, *arguments: int) -> int:
        value = number[name]
        assert value is not None
        return simulate(bytes(program), machine, value, *arguments)

    assert answer("kill", 4321, 9) == answer("tgkill", 4321, 1, 9) == ALLOWED
    assert answer("kill", 1, 9) == answer("kill", 0, 9) == answer("kill", 2**32 - 1, 9) == EPERM
    assert answer("clone", 0x00010000) == ALLOWED
    assert answer("clone", signal.SIGCHLD) == EPERM
    assert answer("prlimit64", 0, 9, 0) == ALLOWED
    assert answer("prlimit64", 0, 9, 1) == answer("prlimit64", 0, 9, 1 << 40) == EPERM
    for name in seccomp.SUPERVISING:
        if number[name] is not None:
            assert answer(name) == EPERM
    assert answer("read") == ALLOWED


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("may_write", [False, True])
def test_a_compiled_program_keeps_nothing_that_only_we_need_before_it(machine: str, may_write: bool) -> None:
    column = list(seccomp.AUDIT_ARCHITECTURES).index(machine)
    first = seccomp.supervisor_filter(machine, native=True)
    second = seccomp.native_filter(4321, 500, machine, may_write)

    def answers(name: str, *arguments: int) -> list[int]:
        number = {each: numbers[column] for table in TABLES for each, numbers in table.items()}[name]
        assert number is not None
        return [simulate(program, machine, number, *arguments) for program in (first, second)]

    for name in (*seccomp.SUPERVISING, *seccomp.BECOMING):
        if (seccomp.SUPERVISING | seccomp.BECOMING)[name][column] is not None:
            assert answers(name) == [ALLOWED, ALLOWED if name in seccomp.LINKS else EPERM]
    assert answers("execve") == [ALLOWED, EPERM]
    empty_path = 0x1000
    assert answers("execveat", 500, 1, 1, 1, empty_path) == [ALLOWED, ALLOWED]  # what the launcher does
    assert answers("execveat", 501, 1, 1, 1, empty_path) == answers("execveat", 500, 1, 1, 1, 0) == [ALLOWED, EPERM]
    assert answers("openat", 0, 0, os.O_RDONLY) == [ALLOWED, ALLOWED]
    assert answers("openat", 0, 0, os.O_RDWR) == [ALLOWED, ALLOWED if may_write else EACCES]
    assert answers("clone", signal.SIGCHLD) == [ALLOWED, EPERM]
    assert answers("kill", 1, 9) == [ALLOWED, EPERM]
    assert answers("prlimit64", 0, 9, 1) == [ALLOWED, EPERM]
    socket_call, chmod, unlink = {"x86_64": (41, 268, 263), "aarch64": (198, 53, 35)}[machine]
    assert [simulate(first, machine, number) for number in (socket_call, chmod, unlink)] == [EPERM] * 3


TABLES = (
    seccomp.COMPUTING, seccomp.INSPECTED, seccomp.SUPERVISING, seccomp.BECOMING, seccomp.STARTING, seccomp.UNKNOWN,
    seccomp.LISTENING, {name: numbers for name, (_, *numbers, _) in seccomp.REPORTED.items()},
)  # fmt: skip
ASKED = 0x7FC00000  # a notification
THREAD = 0x3D0F00  # the flags of a thread of the C library
# What a filter may look at in an argument, and what it may not.
ARGUMENTS = [
    0, 1, 4, 4321, 500, 502, 1030, 0o2000, 0o100, 1 << 16, 0x5401, 1 << 40, THREAD,
    seccomp.FORK_OF_A_BOX, seccomp.NOTIFICATION_SEND, signal.SIGCHLD,
]  # fmt: skip


def test_system_call_numbers_are_those_of_the_kernel_headers() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("needs the kernel's headers (linux-libc-dev) on x86_64")
    defined = dict(line.split()[1:3] for line in header.read_text().splitlines() if line.startswith("#define __NR_"))
    ours = {f"__NR_{name}": str(numbers[0]) for table in TABLES for name, numbers in table.items()}
    assert {name: defined.get(name) for name in ours} == ours


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_without_landlock_a_program_can_open_nothing(machine: str) -> None:
    column = list(seccomp.AUDIT_ARCHITECTURES).index(machine)
    program = seccomp.program_filter(4321, machine, may_open=False)
    calls = [numbers[column] for name, numbers in seccomp.INSPECTED.items() if name in seccomp.OPENING]
    assert {simulate(program, machine, number) for number in calls if number is not None} == {EACCES}


@pytest.mark.parametrize("name", seccomp.SUPERVISING)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_supervising_needs_is_taken_from_programs(name: str, machine: str) -> None:
    number = seccomp.SUPERVISING[name][list(seccomp.AUDIT_ARCHITECTURES).index(machine)]
    if number is not None:
        assert simulate(seccomp.supervisor_filter(machine), machine, number) == ALLOWED
        assert simulate(seccomp.program_filter(4321, machine), machine, number) == EPERM


def verdict(programs: list[bytes], machine: str, number: int, *arguments: int) -> int:
    """What the kernel makes of several filters: the least of their answers, as signed numbers."""
    answers = [simulate(program, machine, number, *arguments) for program in programs]
    return min(answers, key=lambda each: each & 0xFFFF0000 if each < KILLED else -1)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("language", ["python", "python without landlock", "c"])
def test_a_notary_permits_no_call_that_is_refused_without_one(machine: str, language: str) -> None:
    """Whatever the number and the arguments; what is asked is a refusal, or opening to read, or starting a thread."""
    if language == "c":
        plain = [seccomp.supervisor_filter(machine, native=True), seccomp.native_filter(4321, 500, machine)]
        noted = [
            seccomp.supervisor_filter(machine, native=True, reports=True),
            seccomp.native_filter(4321, 500, machine, reports=True),
        ]
    else:
        may_open = language == "python"
        plain = [seccomp.supervisor_filter(machine), seccomp.program_filter(4321, machine, may_open)]
        noted = [
            seccomp.supervisor_filter(machine, reports=True),
            seccomp.reporting_filter(machine),
            seccomp.program_filter(4321, machine, may_open, reports=True),
        ]
    name_of = {number: name for name, number in seccomp._numbers(machine, *TABLES).items()}
    asked = set()
    for number in range(512):
        for value in ARGUMENTS:
            for arguments in ((value,) * 6, (0, value), (0, 0, value), (value, 0, 0, 0, 0x1000)):
                before = verdict(plain, machine, number, *arguments)
                after = verdict(noted, machine, number, *arguments)
                name = name_of.get(number, "")
                if after == ASKED:
                    asked.add(name)
                    is_thread = name == "clone" and arguments[0] == THREAD
                    assert before != ALLOWED or name in seccomp.OPENING or is_thread, (name, arguments)
                elif (name, value) not in NEEDED:
                    assert after == before or (before != ALLOWED and after not in (ALLOWED, KILLED)), (name, arguments)
    known = seccomp._numbers(machine, {name: numbers for name, (_, *numbers, _) in seccomp.REPORTED.items()})
    assert asked == set(known)


# Of a notary, with a descriptor that no program has: it answers, and a launcher in C sends its listener away.
NEEDED = {("ioctl", seccomp.NOTIFICATION_SEND), ("sendmsg", 502)}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_box_forks_and_reads_by_itself_and_takes_no_second_listener(machine: str) -> None:
    number = seccomp._numbers(machine, *TABLES)
    box = [seccomp.supervisor_filter(machine, reports=True), seccomp.reporting_filter(machine)]
    assert verdict(box, machine, number["clone"], seccomp.FORK_OF_A_BOX) == ALLOWED
    assert verdict(box, machine, number["clone"], signal.SIGCHLD) == ASKED
    assert verdict(box, machine, number["clone"], THREAD) == ASKED
    assert verdict(box, machine, number["openat"], 0, 0, os.O_RDONLY) == ASKED
    assert verdict(box, machine, number["wait4"]) == verdict(box, machine, number["prctl"]) == ALLOWED
    assert [verdict(box, machine, number[name]) for name in seccomp.LISTENING] == [EPERM, EPERM]
    test = [*box, seccomp.program_filter(4321, machine, reports=True)]
    assert verdict(test, machine, number["clone"], seccomp.FORK_OF_A_BOX) == EPERM


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_only_reading_of_a_path_at_a_known_address_asks_nobody(machine: str) -> None:
    address, column = 0x7FFF_F7FF_30B1, list(seccomp.AUDIT_ARCHITECTURES).index(machine)
    addresses = [address, *(0x7FFF_0000_0000 + place for place in range(profiles.MOST_TEXTS - 1))]
    program = seccomp.native_filter(4321, 500, machine, reports=True, unasked=addresses)
    for name, position in (("open", 0), ("openat", 1)):
        number = seccomp.INSPECTED[name][column]
        if number is None:
            continue
        for path in (*addresses, address + 1, address + (1 << 32), address & 0xFFFFFFFF, 0):
            for flags in (os.O_RDONLY, os.O_CLOEXEC, os.O_WRONLY, os.O_RDWR, os.O_CREAT):
                is_free = path in addresses and not flags & seccomp.WRITING
                arguments = [*[0] * position, path, flags]
                assert simulate(program, machine, number, *arguments) == (ALLOWED if is_free else ASKED)


def test_texts_are_found_where_a_process_has_them_and_cannot_write() -> None:
    text = os.path.basename(__file__)  # in no file that is mapped
    known = "/etc/ld.so.cache"
    found = profiles.texts_in(Path("/proc/self/maps").read_bytes(), [text, known])
    if platform.libc_ver()[0] == "glibc":
        assert found
    assert all(ctypes.string_at(address) == known.encode() for address in found)
    assert profiles.texts_in(b"1000-2000 rw-p 00000000 00:01 7 /etc/passwd\n", [""]) == []
    assert profiles.texts_in(b"1000-2000 r--p 00000000 00:01 7 /memfd:sandbox (deleted)\n", [""]) == []
    assert profiles.texts_in(b"1000-2000 rw-p 00000000 00:01 7\n", [""]) == []
