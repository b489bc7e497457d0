"""Child processes that run modules of this package: their start, requests and answers.

A message is a JSON object after its length in four bytes. `ask` sends one request to a process, whose crash is a valid
answer too; `runtimes.gguf` keeps a process for several requests and sends the same messages.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import IO, Any, TypeVar

from securecoderl_edge.errors import SceError

_START = (
    "import sys, json, runpy; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "del sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
_LENGTH = struct.Struct(">I")
_SECONDS_TO_RAISE_AGAIN = 0.02
_SECONDS_BETWEEN_LOOKS = 1  # at the parent
_TURN_SECONDS = 0.5
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def module_command(module: str, *folders: Path) -> list[str]:
    """The command line that runs ``module`` with the imports of this process; the module's own arguments can follow.

    The current folder is not searched, where a user may have a ``queue.py`` of their own, or a ``json.py`` that a model
    wrote: that would run outside of the sandbox.

    Args:
        folders: are searched first.
    """
    paths = [*map(str, folders), *(path for path in sys.path if path)]
    return [sys.executable, "-P", "-c", _START, json.dumps(paths), module]


def child_environment() -> dict[str, str]:
    """Our environment with variables for llama.cpp; those that the user has set stay.

    OpenMP threads that spin while they wait slow decoding down to a tenth if other programs use the CPU too. And ggml
    would start a debugger for a backtrace when it aborts.
    """
    return {"GOMP_SPINCOUNT": "1000", "GGML_NO_BACKTRACE": "1", **os.environ}


def is_first_process() -> bool:
    """Whether this process, perhaps of several that a launcher such as torchrun started, writes files and messages."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def on_ending_signals(handler: Callable[[int, FrameType | None], None], seconds: float | None = None) -> Iterator[None]:
    """Handle the signals that end this process. Outside the main thread, which alone may handle signals, do nothing.

    A shell starts background jobs with Ctrl-C ignored, and children inherit that unless it is set here. A process that
    nohup started continues without its terminal.

    In a destructor or another callback Python can only report the KeyboardInterrupt of a handler, and goes on as if
    there was none. Then SIGINT follows, after which it comes where it is not lost.

    Args:
        seconds: after these, SIGALRM comes too.
    """
    ends = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *([] if seconds is None else [signal.SIGALRM])]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        ends.remove(signal.SIGHUP)
    if threading.current_thread() is not threading.main_thread():
        ends = []
    report, again = sys.unraisablehook, list[threading.Timer]()

    def report_or_repeat(lost: sys.UnraisableHookArgs) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            report(lost)
            return
        place = threading.main_thread().ident, signal.SIGINT
        again.append(threading.Timer(_SECONDS_TO_RAISE_AGAIN, signal.pthread_kill, place))
        again[-1].start()

    before = {number: signal.signal(number, handler) for number in ends}
    if ends:
        sys.unraisablehook = report_or_repeat
    if seconds is not None and signal.SIGALRM in before:
        signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        for timer in again:
            timer.cancel()
        if signal.SIGALRM in before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, earlier in before.items():
            signal.signal(number, earlier)
        if ends:
            sys.unraisablehook = report


def result_of(future: Future[_Result], is_cancelled: Callable[[], bool] = lambda: False) -> _Result:
    """The result of a future, once it is there, or its exception.

    A signal that comes just before Python waits for a lock is handled after that wait only: so wait in short turns.

    Raises:
        SceError: nobody waits for it any more, as ``is_cancelled`` says.
    """
    while not future.done():
        if is_cancelled():
            future.cancel()
            raise SceError("the wait was cancelled")
        wait([future], timeout=_TURN_SECONDS)
    return future.result()


def in_order(
    begin: Callable[[_Item], Future[_Result]],
    items: Iterable[_Item],
    running: int,
    kept: int,
    has_room: Callable[[], bool] = lambda: True,
) -> Iterator[list[_Result]]:
    """The results of items, in their order; yields those that are there, so that they can be kept.

    Behind an item that takes long, others are begun until ``kept`` of them wait for it. Waits as `result_of`.

    Args:
        begin: starts the work on an item, which is read only then.
        running: items that are begun and not done, at most.
        has_room: whether one more may wait for others.
    """
    left: Iterator[_Item] | None = iter(items)
    begun, free = deque[Future[_Result]](), threading.Semaphore(running)
    while left is not None or begun:
        done = []
        while begun and begun[0].done():
            done.append(begun.popleft().result())
        if done:
            yield done
        elif left is None or len(begun) >= kept or (begun and not has_room()):
            wait(list(islice(begun, 1)), timeout=_TURN_SECONDS)
        elif free.acquire(timeout=_TURN_SECONDS):
            for item in left:
                begun.append(begin(item))
                begun[-1].add_done_callback(lambda _: free.release())
                break
            else:
                left = None


def describe_end(status: int) -> str:
    """How a process with this return code ended: ``signal SIGKILL``, ``exit status 1``."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:  # most real-time signals have no name
        return f"signal {-status}"


@dataclass(frozen=True)
class Answers:
    """The messages of a child, in order, and its end if it failed.

    Attributes:
        death: in a few words, such as ``signal SIGILL`` or the last line of a traceback; empty after a normal end.
        last_words: the last line that it wrote to standard error.
    """

    messages: list[dict[str, Any]]
    death: str = ""
    last_words: str = ""

    def crash_report(self) -> str:
        """How the child failed, with its last message, as the predicate of a sentence: ``failed with ...``."""
        how = self.death if self.death.startswith("signal ") else "an error"
        return f"failed with {how}: {self.last_words or 'no message'}"


def ask(module: str, request: dict[str, Any], seconds: float | None = None, **environment: str) -> Answers:
    """Run ``module`` as a fresh process with one ``request``, and wait for its end, for ``seconds`` at most.

    Args:
        environment: variables for the child in addition to `child_environment`.
    """
    question = io.BytesIO()
    write_message(question, request)
    try:
        ended = subprocess.run(
            module_command(module),
            input=question.getvalue(),
            capture_output=True,
            check=False,
            timeout=seconds,
            env=child_environment() | environment,
        )
    except subprocess.TimeoutExpired as late:
        return Answers(_messages(late.stdout or b""), f"no end within {seconds:g} s")
    return _answers(_messages(ended.stdout), ended.returncode, ended.stderr)


def ask_watched(module: str, request: dict[str, Any], on_message: Callable[[dict[str, Any]], None]) -> Answers:
    """As `ask`, without a limit of time; ``on_message`` is called with each message when it comes."""
    messages = []
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            module_command(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=child_environment(),
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError), process.stdin:
                write_message(process.stdin, request)
            while (message := read_message(process.stdout)) is not None:
                messages.append(message)
                on_message(message)
            status = process.wait()
        except BaseException:
            process.kill()
            raise
        errors.seek(0)
        return _answers(messages, status, errors.read())


def _answers(messages: list[dict[str, Any]], status: int, errors: bytes) -> Answers:
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    last_words = lines[-1].strip()[:300] if lines else ""
    death = describe_end(status) if status else ""
    if status > 0:
        death = last_words or death
    return Answers(messages, death, last_words)


def request() -> dict[str, Any]:
    """In a child: the request that `ask` sent; `EOFError` if there is none."""
    message = read_message(sys.stdin.buffer)
    if message is None:
        raise EOFError("no request on standard input")
    return message


def answers() -> IO[bytes]:
    """In a child, once: the stream for its messages. Output of libraries goes to stderr; a crash leaves no core file.

    From now on it ends with its parent.
    """
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stream


def end_with_parent() -> None:
    """In a child: end soon after the process that started it, also in a call that takes long or never returns."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serve_once(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """In a child: send the answer to the request, or ``{"error"}`` with the text of its `SceError`."""
    question, stream = request(), answers()
    try:
        write_message(stream, answer(question))
    except SceError as error:
        write_message(stream, {"error": str(error)})


def write_message(stream: IO[bytes], message: dict[str, Any]) -> None:
    """Send one message.

    Raises:
        BrokenPipeError: the other side has closed or died.
    """
    body = json.dumps(message).encode("ascii")
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def read_message(stream: IO[bytes]) -> dict[str, Any] | None:
    """Receive one message, or None when the other side has closed or died, in the middle of a message too."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    if len(body) < length:
        return None
    message: dict[str, Any] = json.loads(body)
    return message


def _messages(output: bytes) -> list[dict[str, Any]]:
    stream, messages = io.BytesIO(output), []
    while (message := read_message(stream)) is not None:
        messages.append(message)
    return messages


def allow_files(count: int) -> None:
    """Let this process open at least so many files, as far as the system permits."""
    limit, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if highest == resource.RLIM_INFINITY else min(count, highest)
    if limit != resource.RLIM_INFINITY and limit < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, highest))
