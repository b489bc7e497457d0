"""Child processes, and waiting for the result of a future, which a signal must be able to end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from securecoderl_edge.system.processes import child_environment, module_command, result_of


class Signalled(Exception):
    pass


def test_a_signal_that_does_not_wake_the_wait_for_a_lock_ends_the_wait_for_a_result() -> None:
    """As one that comes just before that wait: here another thread gets it, so no system call of ours returns."""
    future, raised = Future[str](), threading.Event()

    def handle(*_: object) -> None:
        raise Signalled

    def signal_another_thread() -> None:
        time.sleep(0.2)  # until the main thread waits; earlier, any wait would end
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        raised.wait(20)
        future.set_result("late")

    earlier = signal.signal(signal.SIGUSR1, handle)
    other = threading.Thread(target=signal_another_thread)
    try:
        other.start()
        with pytest.raises(Signalled):
            result_of(future)
        assert not future.done()
    finally:
        raised.set()
        other.join()
        signal.signal(signal.SIGUSR1, earlier)


def test_a_result_and_an_exception_are_those_of_the_future() -> None:
    good, bad = Future[str](), Future[str]()
    good.set_result("here")
    bad.set_exception(ValueError("why"))
    assert result_of(good) == "here"
    with pytest.raises(ValueError, match="why"):
        result_of(bad)


def test_a_child_runs_no_file_of_the_current_folder(tmp_path: Path) -> None:
    """There a model may have written a program of the name of a module, which would run outside of the sandbox."""
    for name in sys.stdlib_module_names:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was executed')")
    done = subprocess.run(
        module_command("securecoderl_edge.scoring.own_reward_worker"),
        cwd=tmp_path,
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
