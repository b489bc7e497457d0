"""Workers: replaced when they die, requeued, shared by threads, gone when their parent is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest
from hostile import descendants, execute
from hostile import run_all as run_jobs

from securecoderl_edge.errors import SceError
from securecoderl_edge.sandbox import Limits, SandboxJob, SandboxPool, pool, worker
from securecoderl_edge.sandbox.jobs import BoxLost, ProgramRun, WorkerLost
from securecoderl_edge.system import machine


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool(workers=1) as opened:
        yield opened


def test_a_dead_worker_is_replaced_and_its_program_run_again(sandbox: SandboxPool) -> None:
    sandbox.run("", [""])
    used = sandbox._idle.queue[-1]["python"]
    used._process.kill()
    used._process.wait()
    assert execute(sandbox, "print(1)").stdout == "1\n"


def test_a_worker_that_dies_every_time_is_an_error_of_ours_and_no_verdict(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise WorkerLost("gone")

    monkeypatch.setattr(worker.SandboxWorker, "run", die)
    with pytest.raises(SceError, match="keep dying"):
        sandbox.run("print(1)", [""])


@pytest.mark.parametrize("parses", [True, False])
def test_a_program_that_ends_its_supervisor_twice_has_crashed_or_does_not_parse(
    parses: bool, sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise BoxLost("9", parses)

    monkeypatch.setattr(worker.SandboxWorker, "run", die)
    run = sandbox.run("print(1)", ["", ""])
    assert run.parses is parses
    assert [execution.returncode for execution in run.executions] == [-signal.SIGKILL] * 2 * parses


def test_a_program_is_not_blamed_for_a_worker_that_the_system_killed(
    sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, deaths = worker.SandboxWorker.run, [WorkerLost("9"), BoxLost("9", True)]

    def run(*arguments: Any) -> ProgramRun:
        if deaths:
            raise deaths.pop()
        return real(*arguments)

    monkeypatch.setattr(worker.SandboxWorker, "run", run)
    assert execute(sandbox, "print(1)").stdout == "1\n"


@pytest.mark.parametrize(
    "program", ["x = [" + "1+1," * 60_000 + "]\nprint(1)", "import time\ntime.sleep(0.3)\nprint(1)"]
)
def test_a_box_that_somebody_killed_is_replaced(program: str, sandbox: SandboxPool) -> None:
    def kill() -> None:
        while not (below := descendants(zygote)):
            pass
        os.kill(below[0], signal.SIGKILL)

    assert execute(sandbox, "print(1)").clean  # there is a worker now
    (zygote,) = sandbox.idle_pids()
    thread = threading.Thread(target=kill)
    thread.start()
    execution = execute(sandbox, program)
    thread.join()
    assert execution.stdout == "1\n"


def test_a_test_that_somebody_killed_is_run_again(sandbox: SandboxPool) -> None:
    def kill() -> None:
        while len(below := descendants(zygote)) < 2:  # box and test
            pass
        os.kill(below[-1], signal.SIGKILL)

    assert execute(sandbox, "print(1)").clean  # there is a worker now
    (zygote,) = sandbox.idle_pids()
    thread = threading.Thread(target=kill)
    thread.start()
    execution = execute(sandbox, "import time\ntime.sleep(0.5)")
    thread.join()
    assert execution.clean


def test_a_program_that_kills_itself_has_crashed(sandbox: SandboxPool) -> None:
    execution = execute(sandbox, "import os\nos.kill(os.getpid(), 9)")
    assert (execution.returncode, execution.stopped_by) == (-signal.SIGKILL, "")


def test_workers_are_renewed_after_a_number_of_programs(sandbox: SandboxPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PROGRAMS_PER_WORKER", 1)
    sandbox.run("print(1)", [""])
    assert sandbox._idle.queue[-1] == {}
    assert execute(sandbox, "print(2)").stdout == "2\n"


def test_jobs_run_in_parallel_come_back_in_order() -> None:
    jobs = [SandboxJob(f"print({number})", [""]) for number in range(12)]
    with SandboxPool(workers=3) as three:
        runs = run_jobs(three, jobs)
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
    used = opened._idle.queue[-1]["python"]
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


def test_a_cancelled_run_ends_and_the_next_one_works(sandbox: SandboxPool) -> None:
    answers = iter([False, False])  # the first look is before the run
    with pytest.raises(SceError, match="cancelled"):
        sandbox.run("import time; time.sleep(600)", [""], Limits(600, 600), is_cancelled=lambda: next(answers, True))
    with pytest.raises(SceError, match="cancelled"):
        sandbox.run("print(1)", [""], is_cancelled=lambda: True)
    assert execute(sandbox, "print(1)").stdout == "1\n"


def test_when_the_parent_is_killed_no_process_stays_behind() -> None:
    script = """
        import os, threading, time
        from securecoderl_edge.sandbox import SandboxPool, Limits
        pool = SandboxPool(1, Limits(60, 60))
        threading.Thread(target=pool.run, args=("import time; time.sleep(50)", [""]), daemon=True).start()
        def children(pid):
            try:
                return [int(c) for c in open(f"/proc/{pid}/task/{pid}/children").read().split()]
            except OSError:  # what the zygote tried out is over
                return []
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
    assert len(family) >= 3  # the notary can be among them
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


def test_there_are_no_more_workers_than_memory_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "cpu_count", lambda: 64)
    monkeypatch.setattr(pool, "available_memory_bytes", lambda: 5 << 30)
    assert pool.default_workers(Limits(memory_mib=1024)) == 5
    monkeypatch.setattr(pool, "available_memory_bytes", lambda: 1 << 20)
    assert pool.default_workers(Limits(memory_mib=1024)) == 1


def test_a_containers_limit_counts_as_what_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    group = tmp_path_factory.mktemp("cgroup")
    monkeypatch.setattr(machine, "CGROUP", group)
    monkeypatch.setattr(machine, "OWN_CGROUPS", group / "own")
    free = machine.available_memory_bytes()
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("500\n")
    assert machine.available_memory_bytes() > free // 2
    (group / "memory.max").write_text("4000\n")
    assert machine.available_memory_bytes() == 3500
    (group / "memory.current").write_text("9000\n")
    assert machine.available_memory_bytes() == 0


@pytest.mark.parametrize(
    ("own", "folder", "limit", "used", "cached"),
    [
        ("0::/slurm/job_7\n", "slurm/job_7", "memory.max", "memory.current", "inactive_file"),
        ("0::/slurm/job_7/step_0\n", "slurm/job_7", "memory.max", "memory.current", "inactive_file"),
        (
            "7:cpu:/x\n4:memory:/slurm/job_7\n", "memory/slurm/job_7", "memory.limit_in_bytes", "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ],
)  # fmt: skip
def test_the_limit_of_a_job_counts_and_what_files_left_in_memory_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str, folder: str, limit: str, used: str, cached: str
) -> None:
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(machine, "OWN_CGROUPS", tmp_path / "own")
    (tmp_path / "own").write_text(own)
    group = tmp_path / folder
    group.mkdir(parents=True)
    (group / limit).write_text("4000\n")
    (group / used).write_text("3000\n")
    (group / "memory.stat").write_text(f"rss 1\n{cached} 2500\n")
    assert machine.available_memory_bytes() == 3500
    assert machine.memory_limit_bytes() == 4000


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_thousands_of_programs_leave_nothing_behind() -> None:
    """A short form of ``benchmarks/reward_leaks.py``."""
    programs = ["print(input())", "x = [0] * 10**6", "import json, os\nos._exit(3)", "raise ValueError", "def f(:"]
    with SandboxPool(1) as opened:
        run_all(opened, programs * 20)
        files, processes = len(os.listdir("/proc/self/fd")), descendants(os.getpid())
        run_all(opened, programs * 200)
        assert len(os.listdir("/proc/self/fd")) == files
        assert descendants(os.getpid()) == processes


def run_all(opened: SandboxPool, programs: list[str]) -> None:
    for program in programs:
        opened.run(program, ["1\n"])


@pytest.mark.parametrize("may_write", [True, False])
def test_what_a_zygote_loads_is_compiled_before_as_an_import_would(
    may_write: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "inside"
    shutil.copytree(worker.INSIDE, inside, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(worker, "INSIDE", inside)
    monkeypatch.setattr(sys, "dont_write_bytecode", not may_write)
    worker._compile_inside.__wrapped__()
    compiled = {each for each in inside.glob("*.py") if Path(cache_from_source(str(each))).is_file()}
    assert compiled == (set(inside.glob("*.py")) if may_write else set())
