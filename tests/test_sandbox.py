"""The sandbox from outside: what comes back, what is stopped, what survives."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from securecoderl_edge.errors import SceError
from securecoderl_edge.sandbox import (
    Call,
    Execution,
    Job,
    Limits,
    SandboxPool,
    describe_layers,
    pool,
    seccomp,
    worker,
)

QUICK = Limits(cpu_seconds=0.3, wall_seconds=3)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool(workers=1) as opened:
        yield opened


def execute(sandbox: SandboxPool, program: str, stdin: str = "", limits: Limits | None = None) -> Execution:
    run = sandbox.run(textwrap.dedent(program), [stdin], limits)
    assert run.parses, run.error
    return run.executions[0]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_program_reads_its_stdin_and_its_output_comes_back(sandbox: SandboxPool) -> None:
    run = sandbox.run("print(input()[::-1])", ["abc\n", "xyz\n"])
    assert [execution.stdout for execution in run.executions] == ["cba\n", "zyx\n"]
    assert all(execution.clean for execution in run.executions)


def test_text_that_is_no_python_does_not_parse(sandbox: SandboxPool) -> None:
    run = sandbox.run("def f(:", ["1"])
    assert not run.parses
    assert run.executions == ()
    assert run.error.startswith("SyntaxError")


def test_a_return_outside_a_function_does_not_parse(sandbox: SandboxPool) -> None:
    assert not sandbox.run("return 1", [""]).parses


def test_a_byte_order_mark_is_dropped_and_a_coding_cookie_ignored(sandbox: SandboxPool) -> None:
    assert execute(sandbox, "\ufeff# coding: utf-7\n# +AAoAcAByAGkAbgB0ACgAMQAp-\nprint(2)").stdout == "2\n"


def test_a_compiler_that_does_not_end_means_that_the_text_does_not_parse(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "COMPILE_CPU_SECONDS", 0.05)
    run = sandbox.run("x = " + "+".join(["a"] * 900) + "\n" + "y = [" + "1+1," * 400_000 + "]", [""])
    assert not run.parses
    assert "took more than" in run.error


def test_lone_surrogates_in_program_and_stdin_harm_nobody(sandbox: SandboxPool) -> None:
    assert not sandbox.run("print('\ud800')", [""]).parses
    assert execute(sandbox, "print(len(input()))", "\ud800\n").returncode == 0


def test_the_exit_status_is_that_of_the_program(sandbox: SandboxPool) -> None:
    assert execute(sandbox, "raise SystemExit(7)").returncode == 7
    assert execute(sandbox, "import os; os._exit(0)").returncode == 0
    assert execute(sandbox, "import sys; sys.exit('sorry')").stderr == "sorry\n"


def test_a_program_that_loops_is_stopped_by_its_processor_time(sandbox: SandboxPool) -> None:
    assert execute(sandbox, "while True: pass", limits=QUICK).stopped_by == "cpu"


def test_a_program_that_sleeps_is_stopped_by_the_clock(sandbox: SandboxPool) -> None:
    limits = Limits(cpu_seconds=5, wall_seconds=0.3)
    assert execute(sandbox, "import time; time.sleep(60)", limits=limits).stopped_by == "wall"


def test_a_program_that_takes_too_much_memory_is_recognised(sandbox: SandboxPool) -> None:
    execution = execute(sandbox, "x = 'a' * 10**10")
    assert execution.stopped_by == "memory"
    assert "MemoryError" in execution.stderr


def test_output_beyond_the_limit_is_cut_and_recognised(sandbox: SandboxPool) -> None:
    limits = Limits(output_bytes=1000)
    execution = execute(sandbox, "while True: print('x' * 99)", limits=limits)
    assert execution.stopped_by == "output"
    assert len(execution.stdout) == 1000


def test_output_that_fills_the_limit_exactly_is_no_offence(sandbox: SandboxPool) -> None:
    execution = execute(sandbox, "print('x' * 999)", limits=Limits(output_bytes=1000))
    assert execution.clean
    assert len(execution.stdout) == 1000


def test_a_traceback_shows_the_program_and_hides_the_harness(sandbox: SandboxPool) -> None:
    stderr = execute(sandbox, "def f():\n    return 1 // 0\nf()").stderr
    assert 'File "solution.py", line 2, in f' in stderr
    assert "return 1 // 0" in stderr
    assert "testprocess" not in stderr


def test_only_the_tail_of_stderr_is_kept(sandbox: SandboxPool) -> None:
    stderr = execute(sandbox, "import sys\nsys.stderr.write('x' * 9999 + 'end')").stderr
    assert len(stderr) == 2048
    assert stderr.endswith("end")


def test_a_program_cannot_leave_anything_for_the_next_test(sandbox: SandboxPool) -> None:
    program = "import builtins\nprint(hasattr(builtins, 'left'))\nbuiltins.left = 1"
    run = sandbox.run(program, ["", ""])
    assert [execution.stdout for execution in run.executions] == ["False\n", "False\n"]


def test_inputs_of_other_tests_are_not_in_a_programs_memory(sandbox: SandboxPool) -> None:
    program = """
        import gc, sys
        secret = "".join(map(chr, [110, 101, 101, 100, 108, 101] * 4))
        frame, seen = sys._getframe(), []
        while frame:
            own = (seen, secret)
            others = [value for value in frame.f_locals.values() if not any(value is mine for mine in own)]
            seen += [repr(value) for value in others]
            frame = frame.f_back
        things = [thing for thing in gc.get_objects() if type(thing) in (dict, list, tuple)]
        seen += [repr(thing) for thing in things if thing is not seen and thing is not own]
        print(sum(secret in text.replace(repr(secret), "") for text in seen))
    """
    run = sandbox.run(textwrap.dedent(program), ["needle" * 4, "1", "needle" * 4])
    assert [execution.stdout for execution in run.executions] == ["0\n"] * 3


def test_random_numbers_and_the_order_of_sets_are_reproducible(sandbox: SandboxPool) -> None:
    program = "import random\nprint(random.random(), {'a', 'b', 'c', 'd', 'e'})"
    first = execute(sandbox, program).stdout
    with SandboxPool(workers=1) as other:
        assert execute(other, program).stdout == first


def test_secrets_in_our_environment_do_not_reach_a_program(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "xyzzy")
    with SandboxPool(workers=1) as fresh:
        assert "xyzzy" not in execute(fresh, "import os\nprint(dict(os.environ))").stdout


def test_the_zygote_has_nothing_of_ours_in_its_environment(sandbox: SandboxPool) -> None:
    sandbox.run("", [""])
    used = sandbox._idle.queue[-1]
    assert used is not None
    # Not dumpable, so that not even root's /proc shows more than the names that we passed.
    environment = Path(f"/proc/{used.pid}/environ")
    try:
        names = {entry.partition(b"=")[0] for entry in environment.read_bytes().split(b"\0") if entry}
    except PermissionError:
        return
    assert names <= {b"PYTHONHASHSEED", b"LD_BIND_NOW", b"LD_LIBRARY_PATH"}


def test_a_dead_worker_is_replaced_and_its_program_run_again(sandbox: SandboxPool) -> None:
    sandbox.run("", [""])
    used = sandbox._idle.queue[-1]
    assert used is not None
    used._process.kill()
    used._process.wait()
    assert execute(sandbox, "print(1)").stdout == "1\n"


def test_a_worker_that_dies_every_time_is_an_error_of_ours_and_no_verdict(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise worker.WorkerLost("gone")

    monkeypatch.setattr(worker.Worker, "run", die)
    with pytest.raises(SceError, match="keep dying"):
        sandbox.run("print(1)", [""])


def test_a_program_that_ends_its_supervisor_twice_has_crashed(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise worker.BoxLost("9")

    monkeypatch.setattr(worker.Worker, "run", die)
    run = sandbox.run("print(1)", ["", ""])
    assert [execution.returncode for execution in run.executions] == [-signal.SIGKILL] * 2


def test_workers_are_renewed_after_a_number_of_programs(sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PROGRAMS_PER_WORKER", 1)
    sandbox.run("print(1)", [""])
    assert sandbox._idle.queue[-1] is None
    assert execute(sandbox, "print(2)").stdout == "2\n"


def test_jobs_run_in_parallel_come_back_in_order() -> None:
    jobs = [Job(f"print({number})", [""]) for number in range(12)]
    with SandboxPool(workers=3) as three:
        runs = three.run_all(jobs)
    assert [run.executions[0].stdout for run in runs] == [f"{number}\n" for number in range(12)]


def test_many_threads_may_share_a_pool(sandbox: SandboxPool) -> None:
    seen: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: seen.append(execute(sandbox, f"print({n})").stdout)) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [f"{number}\n" for number in range(8)]


def test_closing_ends_all_processes_and_refuses_further_work() -> None:
    opened = SandboxPool(workers=1)
    opened.run("", [""])
    used = opened._idle.queue[-1]
    assert used is not None
    opened.close()
    opened.close()
    assert used._process.returncode is not None
    with pytest.raises(SceError, match="closed"):
        opened.run("print(1)", [""])


def test_closing_stops_programs_that_still_run() -> None:
    opened = SandboxPool(workers=1, limits=Limits(cpu_seconds=60, wall_seconds=60))
    opened.run("", [""])
    failures: list[Exception] = []

    def run() -> None:
        try:
            opened.run("import time; time.sleep(50)", [""])
        except SceError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not opened._running:
        pass
    opened.close()
    thread.join()
    assert len(failures) == 1


def test_when_the_parent_is_killed_no_process_stays_behind() -> None:
    script = """
        import os, threading, time
        from securecoderl_edge.sandbox import SandboxPool, Limits
        pool = SandboxPool(1, Limits(60, 60))
        threading.Thread(target=pool.run, args=("import time; time.sleep(50)", [""]), daemon=True).start()
        def children(pid):
            return [int(c) for c in open(f"/proc/{pid}/task/{pid}/children").read().split()]
        family = []
        while len(family) < 3:
            family, level = [], [os.getpid()]
            for thread in os.listdir("/proc/self/task"):
                for zygote in open(f"/proc/self/task/{thread}/children").read().split():
                    family.append(int(zygote))
                    for box in children(zygote):
                        family += [box, *children(box)]
        print(*family, flush=True)
        time.sleep(60)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        family = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(family) == 3
    for pid in family:
        wait_until_gone(pid)


def wait_until_gone(pid: int) -> None:
    """Returns once the process has ended; a test that hangs here says that it does not."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import select

    events = select.poll()
    events.register(descriptor, select.POLLIN)
    gone = events.poll(30_000)
    os.close(descriptor)
    assert gone, f"process {pid} is still there"


def test_a_call_gives_its_value_as_a_literal(sandbox: SandboxPool) -> None:
    program = "from collections import Counter, namedtuple\nP = namedtuple('P', 'x y')"
    expressions = {
        "Counter('aab')": "{'a': 2, 'b': 1}",
        "P(1, (2,))": "(1, (2,))",
        "[float('inf'), True, None, b'x', set()]": "[1e999, True, None, b'x', set()]",
        "object": "<<class 'object'>>",
    }
    run = sandbox.run(program, calls=[Call(expression) for expression in expressions])
    assert [execution.value for execution in run.executions] == list(expressions.values())


def test_what_a_program_prints_does_not_mix_with_the_value(sandbox: SandboxPool) -> None:
    execution = sandbox.run("def f():\n    print(7)\n    return 8", calls=[Call("f()")]).executions[0]
    assert (execution.stdout, execution.value) == ("7\n", "8")


def test_the_main_part_of_a_program_does_not_run_for_calls(sandbox: SandboxPool) -> None:
    program = "def f(): return __name__\nif __name__ == '__main__': raise SystemExit(1)"
    assert sandbox.run(program, calls=[Call("f()")]).executions[0].value == "'solution'"


def test_a_method_of_class_solution_answers_for_its_function(sandbox: SandboxPool) -> None:
    program = "class Solution:\n    def double(self, x: List[int]): return 2 * x"
    run = sandbox.run(program, calls=[Call("double([1])", entry_point="double")])
    assert run.executions[0].value == "[1, 1]"


def test_an_assertion_holds_only_if_its_nonce_came_back(sandbox: SandboxPool) -> None:
    calls = [Call("assert f() == 1", True), Call("assert f() == 2", True)]
    run = sandbox.run("def f(): return 1", calls=calls)
    assert [execution.value for execution in run.executions] == ["True", "False"]


def test_a_program_that_leaves_early_gives_no_value(sandbox: SandboxPool) -> None:
    calls = [Call("f()"), Call("assert f() == 1", True)]
    run = sandbox.run("import os\ndef f(): os._exit(0)", calls=calls)
    assert [execution.value for execution in run.executions] == [None, None]


def test_long_values_come_back_whole(sandbox: SandboxPool) -> None:
    execution = sandbox.run("", calls=[Call("10**20000"), Call("'x' * 500_000")]).executions
    assert execution[0].value == hex(10**20000)
    assert len(execution[1].value or "") == 500_002


def test_layers_are_described_and_unknown_systems_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = describe_layers()
    assert layers["level"] in ("full", "no-landlock")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(SceError, match="riscv64"):
        describe_layers()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SceError, match="Linux"):
        SandboxPool()


def simulate(program: bytes, machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel would return for a system call under a seccomp filter."""
    values = [*arguments, *[0] * (6 - len(arguments))]
    real = seccomp.AUDIT_ARCHITECTURES[machine]
    data = struct.pack("IIQ6Q", number, architecture or real, 0, *values)
    rules = [struct.unpack_from("HBBI", program, offset) for offset in range(0, len(program), 8)]
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
    assert answer("ioctl", 0, 0x5412) == ENOTTY
    assert simulate(program, machine, execve) == simulate(program, machine, socket_call) == EPERM
    assert simulate(program, machine, 0, architecture=0x40000003) == KILLED
    if machine == "x86_64":
        assert simulate(program, machine, 0x40000000) == KILLED


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_second_filter_leaves_a_program_no_power_over_other_processes(machine: str) -> None:
    column = list(seccomp.AUDIT_ARCHITECTURES).index(machine)
    number = {name: numbers[column] for table in TABLES for name, numbers in table.items()}
    template, offsets = seccomp.program_filter_template(machine)
    program = bytearray(template)
    for offset in offsets:
        program[offset : offset + 4] = struct.pack("I", 4321)
    assert bytes(program) == seccomp.program_filter(4321, machine)

    def answer(name: str, *arguments: int) -> int:
        value = number[name]
        assert value is not None
        return simulate(bytes(program), machine, value, *arguments)

    assert answer("kill", 4321, 9) == answer("tgkill", 4321, 1, 9) == ALLOWED
    assert answer("kill", 1, 9) == answer("kill", 0, 9) == answer("kill", 2**32 - 1, 9) == EPERM
    assert answer("clone", 0x00010000) == ALLOWED
    assert answer("clone", signal.SIGCHLD) == EPERM
    assert answer("fcntl", 0, 4, os.O_NONBLOCK) == answer("fcntl", 0, 1) == ALLOWED
    assert answer("fcntl", 0, 8) == answer("fcntl", 0, 10) == answer("fcntl", 0, 4, 0o20000) == EPERM
    assert answer("prlimit64", 0, 9, 0) == ALLOWED
    assert answer("prlimit64", 0, 9, 1) == answer("prlimit64", 0, 9, 1 << 40) == EPERM
    for name in seccomp.SUPERVISING:
        if number[name] is not None:
            assert answer(name) == EPERM
    assert answer("read") == ALLOWED


TABLES = (seccomp.COMPUTING, seccomp.INSPECTED, seccomp.SUPERVISING, seccomp.UNKNOWN)


def test_system_call_numbers_are_those_of_the_kernel_headers() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("needs the kernel's headers (linux-libc-dev) on x86_64")
    defined = dict(line.split()[1:3] for line in header.read_text().splitlines() if line.startswith("#define __NR_"))
    ours = {f"__NR_{name}": str(numbers[0]) for table in TABLES for name, numbers in table.items()}
    assert {name: defined.get(name) for name in ours} == ours
