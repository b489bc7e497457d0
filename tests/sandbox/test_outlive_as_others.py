"""As `test_outlive`, at each level and as an ordinary user."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
from pathlib import Path

import pytest
from other_users import as_whom, open_house, python_for
from quick import few
from sleepers import SLEEPERS, has_begun, in_session, is_over, wait_until

from securecoderl_edge.sandbox import describe_levels

__all__ = ["open_house"]  # a fixture
pytestmark = pytest.mark.timeout(900)

# A thread of the program goes on when its first one has left by the system call, which neither C nor Python has.
FIRST_THREAD_LEAVES = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(99,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""
PROGRAMS = {
    **{f"python {number}": ("python", text) for number, text in enumerate([*SLEEPERS["python"], FIRST_THREAD_LEAVES])},
    **{f"c {number}": ("c", text) for number, text in enumerate(SLEEPERS["c"])},
}
SLOW = ("full, this user", "no-landlock, this user", "no-landlock, ordinary user")
SCRIPT = textwrap.dedent("""
    import sys, threading
    from securecoderl_edge.errors import SceError
    from securecoderl_edge.sandbox import Limits, SandboxPool
    if __name__ == "__main__":
        program, language, level = sys.argv[1:]
        pool = SandboxPool(1, Limits(cpu_seconds=60, wall_seconds=60), level, has_analyzers=False)
        pool.prepare(language)
        print(*pool.idle_pids(), flush=True)
        cancelled = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.readline(), cancelled.set()), daemon=True).start()
        try:
            pool.run(program, [""], is_cancelled=cancelled.is_set, language=language)
        except SceError:
            print("cancelled", flush=True)
        sys.stdin.readline()
""")


@pytest.mark.parametrize("ends_by", ["cancelling", "kill"])
@pytest.mark.parametrize("name", few(PROGRAMS, "python 3", "c 2"))
@pytest.mark.parametrize("house", as_whom(slow=SLOW))
def test_a_program_ends_with_its_run(
    house: tuple[str, int | None], name: str, ends_by: str, open_house: Path, request: pytest.FixtureRequest
) -> None:
    (level, user), (language, program) = house, PROGRAMS[name]
    if level == "full" and describe_levels()["level"] != "full":
        pytest.skip("this kernel has no Landlock")
    if language == "c":
        request.getfixturevalue("c_compiler")
        if level != "full":
            pytest.skip("C programs need level full")
    environment = {"PYTHONPATH": str(open_house), "PATH": os.environ["PATH"]}
    words = [python_for(user), "-B", "-c", SCRIPT, program, language, level]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd="/", user=user, group=user
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        leader = int(process.stdout.readline())
        assert has_begun(leader, language), "the program never started"
        if ends_by == "kill":
            process.send_signal(signal.SIGKILL)
        else:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "cancelled\n"
            assert wait_until(lambda: not in_session(leader)), "something is left while its supervisor lives on"
        process.stdin.close()
    assert is_over(leader), "something is left"
