"""Child processes, and waiting for the results of futures, which a signal must be able to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from securecoderl_edge.system.processes import child_environment, in_order, module_command, result_of


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


def test_behind_an_item_that_takes_long_others_are_begun_until_so_many_wait_for_it() -> None:
    begun, taken = list[Future[int]](), list[int]()

    def begin(item: int) -> Future[int]:
        begun.append(Future())
        assert len(begun) - len(taken) <= 10
        if item:
            begun[item].set_result(item)
        if item == 9:
            begun[0].set_result(0)
        return begun[item]

    for results in in_order(begin, range(30), running=2, kept=10):
        taken += results
    assert taken == list(range(30))


def test_no_more_items_run_than_are_allowed_and_none_is_read_before_it_begins() -> None:
    begun, may_end = list[Future[int]](), threading.Event()

    def items() -> Iterator[int]:
        for item in range(6):
            assert len(begun) == item
            yield item

    def begin(item: int) -> Future[int]:
        begun.append(Future())
        assert sum(not each.done() for each in begun) <= 3
        if item == 2:
            may_end.set()
        elif item > 2:
            begun[item].set_result(item)
        return begun[item]

    def end() -> None:
        may_end.wait(20)
        for item, each in enumerate(begun[:3]):
            each.set_result(item)

    other = threading.Thread(target=end)
    other.start()
    assert [item for results in in_order(begin, items(), running=3, kept=10) for item in results] == list(range(6))
    other.join()


def test_an_exception_comes_where_the_result_of_its_item_would() -> None:
    def begin(item: int) -> Future[int]:
        done = Future[int]()
        if item == 2:
            done.set_exception(ValueError("why"))
        else:
            done.set_result(item)
        return done

    results = in_order(begin, range(4), running=1, kept=1)
    assert [next(results), next(results)] == [[0], [1]]
    with pytest.raises(ValueError, match="why"):
        next(results)


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


def test_the_module_of_the_package_runs_no_file_of_the_current_folder(tmp_path: Path) -> None:
    for name in sys.stdlib_module_names:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was executed')")
    done = subprocess.run(
        [sys.executable, "-m", "securecoderl_edge", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
