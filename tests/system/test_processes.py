"""Waiting for the result of a future, which a signal must be able to end."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import Future

import pytest

from securecoderl_edge.system.processes import result_of


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
