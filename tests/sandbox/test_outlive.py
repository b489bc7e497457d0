"""Nothing of a program is left when its run is cancelled, or when whoever started it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from quick import few
from sleepers import SLEEPERS, has_begun, is_over

from securecoderl_edge.errors import SceError
from securecoderl_edge.sandbox import Limits, SandboxPool

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(params=["python", "c"])
def language(request: pytest.FixtureRequest) -> str:
    if request.param == "c":
        request.getfixturevalue("c_compiler")
    return str(request.param)


@pytest.mark.parametrize("number", few(["few", "many"], "few"))
def test_cancelled_runs_leave_no_process(language: str, number: str) -> None:
    runs = {"few": 9, "many": 200 if language == "c" else 40}[number]
    with SandboxPool(1, Limits(cpu_seconds=60, wall_seconds=60), has_analyzers=False) as pool:
        for run in range(runs):
            pool.prepare(language)
            (leader,) = pool.idle_pids()
            program, cancelled = SLEEPERS[language][run % len(SLEEPERS[language])], threading.Event()
            with ThreadPoolExecutor(1) as thread:
                running = thread.submit(pool.run, program, [""], is_cancelled=cancelled.is_set, language=language)
                assert has_begun(leader, language), "the program never started"
                cancelled.set()
                assert isinstance(running.exception(), SceError)
            assert is_over(leader), "something is left"


@pytest.mark.parametrize("number", range(3))
def test_a_killed_supervisor_leaves_no_process(language: str, number: int) -> None:
    script = textwrap.dedent("""
        import sys
        from securecoderl_edge.sandbox import Limits, SandboxPool
        if __name__ == "__main__":
            pool = SandboxPool(1, Limits(cpu_seconds=60, wall_seconds=60), has_analyzers=False)
            pool.prepare(sys.argv[2])
            print(*pool.idle_pids(), flush=True)
            pool.run(sys.argv[1], [""], language=sys.argv[2])
    """)
    words = [sys.executable, "-c", script, SLEEPERS[language][number], language]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        leader = int(process.stdout.readline())
        assert has_begun(leader, language), "the program never started"
        os.kill(process.pid, signal.SIGKILL)
    assert is_over(leader), "something is left"
