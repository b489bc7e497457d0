"""A program run as a fresh interpreter would run it, from its first statement to its exit status.

    run       the statements, and what happens when one of them raises
    _finish   what Python does at exit: flush, join threads, atexit functions, let go of all objects, flush

The order of the steps and what a failure in one of them does to the exit status are those of CPython
(``Py_RunMain``, ``Py_FinalizeEx``). Whatever a program did to the interpreter, the steps that are left are taken,
and nothing here decides a verdict. This file is loaded by path in an interpreter without the package, so it imports
the standard library only.
"""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
import gc
import io
import linecache
import os
import random
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

FILE_NAME = "solution.py"
# Exit statuses by which a process reports the reason of its end; only a label for readers depends on them.
MEMORY_STATUS, THREADS_STATUS = 199, 198
# Of a call: the program itself ended with an error, and the call came after that.
OWN_ERROR_STATUS = 197
UNFLUSHED_STATUS = 120  # what CPython returns when stdout cannot be flushed at exit

# A program in which an object does something when it goes has one of these words: destructors, files and the
# wrappers around them, generators with a ``finally``.
_ENDS_LATE = ("__del__", "open", "FileIO", "Writer", "Wrapper", "yield")

_NO_THREAD = "can't start new thread"  # CPython's message if the system refuses a thread

# The first standard streams of a process: output, errors, and the bytes under the output, for programs that lose it
# with output inside.
_first_streams: list[Any] = []


def prepare() -> None:
    """In the zygote, for all test processes: what a fresh interpreter has, and the same in every test.

    The standard streams are block-buffered UTF-8 ones, as for a program that prints to a file; after the fork
    they use the descriptors of that time. No random numbers are generated before the program runs.
    """
    sys.stdin = _stream(0, "r", errors="surrogateescape")
    sys.stdout = _stream(1, "w", errors="strict")
    sys.stderr = _stream(2, "w", errors="backslashreplace", line_buffering=True)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
    _first_streams[:] = sys.stdout, sys.stderr, sys.stdout.buffer
    sys.argv[:] = [FILE_NAME]
    # What the site module would add, which is left out for what else it does.
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    for name in ("copyright", "credits", "license"):
        setattr(builtins, name, _sitebuiltins._Printer(name, ""))
    builtins.help = _sitebuiltins._Helper()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # As judges do: data sets have longer numbers than the 4,300 digits that Python converts by default.
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    random.seed(0)


def _stream(descriptor: int, mode: str, errors: str, line_buffering: bool = False) -> io.TextIOWrapper:
    binary = open(descriptor, f"{mode}b", closefd=False)  # noqa: SIM115  it lives as long as the process
    stream = io.TextIOWrapper(binary, encoding="utf-8", errors=errors, line_buffering=line_buffering)
    setattr(stream, "mode", mode)  # noqa: B010  as the interpreter sets it; the type has no such attribute
    return stream


class Script:
    """One program.

    Args:
        code: compiled.
        source: its text, for tracebacks.
    """

    def __init__(self, code: CodeType, source: str) -> None:
        self._code = code
        self._source = source
        self._ends_late = any(word in source for word in _ENDS_LATE)
        self._module = ModuleType("")

    def stage(self, name: str) -> None:
        """Before the forks: an empty module ``name`` for the program, the same for every test."""
        if self._module.__name__ == name:
            return
        module = self._module = ModuleType(name)
        module.__dict__.update(__builtins__=builtins, __file__=FILE_NAME)
        if sys.version_info < (3, 14):  # since then a module has none before it annotates something
            module.__dict__.update(__annotations__={})
        sys.modules[name] = module

    def run(self, prelude: CodeType | None = None, then: Callable[[ModuleType], None] | None = None) -> int:
        """Run the program in its module, after ``prelude`` and before ``then``, to its end; the exit status.

        With ``then`` the program is a library. If it ends with an error or leaves, as tests and examples do that models
        append, ``then`` still follows: removing them must not pay.
        """
        ended = 0
        try:
            if prelude is not None:
                exec(prelude, self._module.__dict__)
            try:
                exec(self._code, self._module.__dict__)
            except (Exception, SystemExit) as error:
                if then is None or _is_limit(error):
                    raise
                self._show(error)
                ended = OWN_ERROR_STATUS
            if then is not None:
                then(self._module)
            status = ended
        except SystemExit as leaving:
            _flush_quietly()
            status = _exit_status(leaving) if then is None else 1
        except MemoryError as error:
            _flush_quietly()
            self._show(error)
            status = MEMORY_STATUS
        except BaseException as error:
            _flush_quietly()
            status = ended or self._unhandled(error)
            # A program can run out of room for threads between two looks of the supervisor.
            if _is_limit(error):
                status = THREADS_STATUS
        return self._finish(status) if self._ends_late or not _has_ended() else status

    def _finish(self, status: int) -> int:
        """Do what the interpreter does at exit; returns the final exit status.

        Destroying objects takes time, so it is skipped for programs that do not depend on it.
        """
        _flush_quietly()
        self._at_exit(_join_threads)
        self._at_exit(_run_atexit_functions)
        if not all([_flush("stdout"), _flush("stderr")]):
            status = status or UNFLUSHED_STATUS
        for stream in ("stdin", "stdout", "stderr"):
            setattr(sys, stream, getattr(sys, f"__{stream}__", None))
        if self._ends_late:
            self._at_exit(self._let_go)
        # What a program printed last, and what is left in a stream that it put another in place of. As when the
        # interpreter destroys a stream, a failure is nobody's.
        stdout, _, buffer = _first_streams
        for step in (_flush_quietly, stdout.flush, buffer.flush):
            _attempt(step)
        return status

    def _let_go(self) -> None:
        """Take the program's objects away, so that they close files, flush and run ``__del__``.

        Their methods still see the program's globals. Only in a module that something else keeps alive are the names
        set to None instead, private ones first.
        """
        module = weakref.ref(sys.modules.pop(self._module.__name__))
        del self._module
        gc.collect()
        kept = module()
        if kept is not None:
            namespace = kept.__dict__
            for private in (True, False):
                for each in [each for each in namespace if each.startswith("_") is private and each != "__builtins__"]:
                    namespace[each] = None
            gc.collect()

    def _at_exit(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:
            self._show(error)

    def _unhandled(self, error: BaseException) -> int:
        """Show an error, or let the program's own hook do it; the exit status."""
        hook = getattr(sys, "excepthook", sys.__excepthook__)
        if hook is sys.__excepthook__:
            self._show(error)
            return 1
        try:
            hook(type(error), error, error.__traceback__)
        except SystemExit as leaving:
            return _exit_status(leaving)
        except BaseException as another:
            self._show(another)
        return 1

    def _show(self, error: BaseException) -> None:
        """Print the traceback without our own frames; it informs people and decides nothing."""
        try:
            lines = self._source.splitlines(keepends=True)
            linecache.cache[FILE_NAME] = (len(self._source), None, lines, FILE_NAME)
            trace = error.__traceback__
            while trace and trace.tb_frame.f_code.co_filename not in (FILE_NAME, "test"):
                trace = trace.tb_next
            # Without this, an error while the first one was being handled would still show ours.
            traceback.print_exception(type(error), error.with_traceback(trace), trace, limit=-6)
        except BaseException:
            os.write(2, f"{type(error).__name__}\n".encode("utf-8", "replace"))


def _is_limit(error: BaseException) -> bool:
    """Whether it tells of too little memory, or of no room for threads."""
    return isinstance(error, MemoryError) or (type(error) is RuntimeError and error.args == (_NO_THREAD,))


def _has_ended() -> bool:
    """Flush the standard streams; whether nothing else is left to do, as after most programs.

    The steps of `Script._finish` touch pages that the process has to copy first, for a sixth of a short test's time.
    """
    try:
        stdout, stderr, buffer = _first_streams
        if sys.stdout is not stdout or sys.stderr is not stderr or _has_threads() or atexit._ncallbacks():
            return False
        stderr.flush()
        stdout.flush()
        buffer.flush()
    except BaseException:
        return False
    return True


def _exit_status(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        # What does not fit into a C long is an error of its own, as in the interpreter.
        return leaving.code & 255 if -(2**63) <= leaving.code < 2**63 else 255
    _attempt(lambda: sys.stderr.write(f"{leaving.code}\n"))
    return 1


def _has_threads() -> bool:
    return len(threading._active) > 1 or bool(threading._threading_atexits)  # type: ignore[attr-defined]


def _join_threads() -> None:
    if _has_threads():
        threading._shutdown()  # type: ignore[attr-defined]


def _run_atexit_functions() -> None:
    if atexit._ncallbacks():
        atexit._run_exitfuncs()


def _flush(name: str) -> bool:
    """Flush what is a standard stream by now; False when that fails."""
    stream = getattr(sys, name, None)
    if stream is None:
        return True
    try:
        is_closed = bool(stream.closed)
    except BaseException:
        is_closed = False  # not every writable object knows
    return is_closed or _attempt(lambda: stream.flush())


def _attempt(step: Callable[[], Any]) -> bool:
    """Whether a step was taken without an error."""
    try:
        step()
    except BaseException:
        return False
    return True


def _flush_quietly() -> None:
    _flush("stderr")
    _flush("stdout")
