"""Inside a test process: lock down, run the program as a fresh interpreter would, leave with its exit status.

The program shares this process with the code below and can change all of it, so nothing here decides a
verdict: the supervisor judges by exit status and bytes. A function call's value travels on a descriptor of
its own. An assertion's nonce is released only after the assertion held, which stops `os._exit(0)`. It does
not stop a program that replaces what an assertion relies on (``bool``, ``math.isclose``, its value's ``__eq__``)
or that asks for the nonce itself, which is why comparisons with literals are made outside.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
import fcntl
import gc
import io
import linecache
import math
import numbers
import os
import random
import resource
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any, NoReturn

FILE_NAME = "solution.py"
MEMORY_STATUS = 199
UNFLUSHED_STATUS = 120  # what CPython returns when stdout cannot be flushed at exit
HARNESS_STATUS = 71
FIRST_FREE_DESCRIPTOR = 3
READY, GO, REQUEST, VALUE = 3, 4, 5, 6  # descriptors of a call
STACK_BYTES = 64 << 20
MOST_DESCRIPTORS = 64
LONGEST_CPU_SECONDS = 1e9  # the kernel counts in nanoseconds
LONGEST_DECIMAL_BITS = 8192

# A program in which an object does something when it goes has one of these words: destructors, files and the
# wrappers around them, generators with a ``finally``.
_ENDS_LATE = ("__del__", "open", "FileIO", "Writer", "Wrapper", "yield")

_TYPING = "from typing import *"
# What the APPS reference solutions presume; numpy is not in the sandbox.
_CONTEST = """
import bisect, collections, copy, fractions, functools, heapq, itertools, math, operator, random, re, string
import sys, time
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from functools import lru_cache, reduce
from heapq import *
from itertools import accumulate, combinations, permutations, product
from math import ceil, cos, exp, fabs, floor, gcd, log, log2, sin, sqrt, tan
from typing import *
"""
PRELUDES = {"typing": compile(_TYPING, "prelude", "exec"), "contest": compile(_CONTEST, "prelude", "exec")}


def run_test(
    code: CodeType,
    source: str,
    descriptors: list[int],
    resources: list[tuple[int, tuple[int, int]]],
    prelude: str | None,
    layers: Any,
    box: int,
) -> NoReturn:
    """Become the program; never returns.

    Args:
        descriptors: stdin, stdout and stderr; for a call also ready, go, request and value.
        resources: arguments of ``setrlimit``, from `resource_limits`.
        prelude: a name of `PRELUDES` or "" for a call, None for a program that reads stdin.
        layers: the `Confinement`, whose last layer is put on here.
        box: process id of the parent.
    """
    status = HARNESS_STATUS
    try:
        if prelude is None:
            stdin, stdout, stderr = descriptors
            os.dup2(stdin, 0)
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            os.closerange(FIRST_FREE_DESCRIPTOR, 1 << 16)
        else:
            for target, descriptor in enumerate(_out_of_the_way(descriptors)):
                os.dup2(descriptor, target)
            os.closerange(VALUE + 1, 1 << 16)
        for kind, bounds in resources:
            resource.setrlimit(kind, bounds)
        layers.seal(box)
        gc.enable()
        # As an imported module a program does not start its `if __name__ == "__main__"` part (HumanEval, MBPP).
        module = types.ModuleType("__main__" if prelude is None else "solution")
        module.__dict__.update(__builtins__=builtins, __file__=FILE_NAME)
        sys.modules[module.__name__] = module
        status = _run(code, source, module, prelude)
        status = _finish(status, module if any(word in source for word in _ENDS_LATE) else None)
    finally:
        os._exit(status)


def _out_of_the_way(descriptors: list[int]) -> list[int]:
    """Duplicates above the targets, so that no ``dup2`` overwrites one that is still needed."""
    first_free = len(descriptors)
    return [
        fcntl.fcntl(descriptor, fcntl.F_DUPFD, first_free) if descriptor < first_free else descriptor
        for descriptor in descriptors
    ]


def set_limit(kind: int, value: int, keep_hard: bool = False) -> None:
    """Set one resource limit, at most to the hard limit; with ``keep_hard`` it can be raised again."""
    value, ceiling = _bounds(kind, value)
    resource.setrlimit(kind, (value, ceiling if keep_hard else value))


def resource_limits(cpu: float, memory: int, output: int) -> list[tuple[int, tuple[int, int]]]:
    """The ``setrlimit`` calls of a test process."""
    values = (
        (resource.RLIMIT_AS, memory),
        # One byte more than permitted tells a full output from one that was cut.
        (resource.RLIMIT_FSIZE, output + 1),
        # Only a backstop: the supervisor stops the program by the clock, to the millisecond.
        (resource.RLIMIT_CPU, math.ceil(min(cpu, LONGEST_CPU_SECONDS)) + 2),
        (resource.RLIMIT_STACK, STACK_BYTES),
        (resource.RLIMIT_NOFILE, MOST_DESCRIPTORS),
    )
    return [(kind, (_bounds(kind, value)[0],) * 2) for kind, value in values]


def _bounds(kind: int, value: int) -> tuple[int, int]:
    """``value``, or the hard limit where that is lower; and the hard limit."""
    ceiling = resource.getrlimit(kind)[1]
    if ceiling != resource.RLIM_INFINITY:
        value = ceiling if value == resource.RLIM_INFINITY else min(value, ceiling)
    return value, ceiling


def prepare() -> None:
    """In the zygote, for all test processes: what a fresh interpreter has, and the same in every test.

    The standard streams are block-buffered UTF-8 ones, as for a program that prints to a file; after the fork
    they act on whatever the descriptors then are. Nothing draws random numbers before a program does.
    """
    sys.stdin = _stream(0, "r", errors="surrogateescape")
    sys.stdout = _stream(1, "w", errors="strict")
    sys.stderr = _stream(2, "w", errors="backslashreplace", line_buffering=True)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
    sys.argv[:] = [FILE_NAME]
    # What the site module would add, which is left out for what else it does.
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    for name in ("copyright", "credits", "license"):
        setattr(builtins, name, _sitebuiltins._Printer(name, ""))
    builtins.help = _sitebuiltins._Helper()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    random.seed(0)


def _stream(descriptor: int, mode: str, errors: str, line_buffering: bool = False) -> io.TextIOWrapper:
    binary = open(descriptor, f"{mode}b", closefd=False)  # noqa: SIM115  it lives as long as the process
    return io.TextIOWrapper(binary, encoding="utf-8", errors=errors, line_buffering=line_buffering)


def _run(code: CodeType, source: str, module: ModuleType, prelude: str | None) -> int:
    """Execute the program, then its call if there is one; returns the exit status so far."""
    try:
        if prelude:
            exec(PRELUDES[prelude], module.__dict__)
        exec(code, module.__dict__)
        if prelude is not None:
            _answer(module)
    except SystemExit as leaving:
        return _exit_status(leaving) if prelude is None else 1
    except MemoryError as error:
        _show(error, source)
        return MEMORY_STATUS
    except BaseException as error:
        return _unhandled(error, source)
    return 0


def _answer(module: ModuleType) -> None:
    """Evaluate what the supervisor releases now that the program has run; write the value."""
    import json  # the programs that read stdin, which are most, need not carry it

    request = json.loads(_released())
    namespace, entry_point = module.__dict__, request["entry_point"]
    solution: Any = namespace.get("Solution")
    if entry_point and entry_point not in namespace and hasattr(solution, entry_point):
        namespace[entry_point] = getattr(solution(), entry_point)
    if request["setup"]:
        exec(compile(request["setup"], "test", "exec"), namespace)
    if request["is_assertion"]:
        try:
            exec(compile(request["expression"], "test", "exec"), namespace)
            answer = _released()
        except AssertionError:
            answer = b"it does not hold"
    else:
        value = eval(compile(request["expression"], "test", "eval"), namespace)
        if hasattr(sys, "set_int_max_str_digits"):
            sys.set_int_max_str_digits(0)
        answer = literal(value).encode("utf-8", "surrogatepass")
    while answer:
        answer = answer[os.write(VALUE, answer) :]


def _released() -> bytes:
    """Say that we are ready; wait until the supervisor has written the next piece of the request."""
    os.write(READY, b"r")
    if not os.read(GO, 1):
        raise EOFError("the supervisor has left")
    return os.pread(REQUEST, os.fstat(REQUEST).st_size, 0)


def literal(value: object) -> str:
    """Python literal text of a value; subclasses of builtin types are written as the builtin type.

    Numbers of other types are written as the int or float that they equal. Anything else gives text that is
    no literal.
    """
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, int):
        # Long integers in hexadecimal: reading long decimals back takes quadratic time and is limited.
        return hex(value) if value.bit_length() > LONGEST_DECIMAL_BITS else int.__repr__(value)
    if isinstance(value, float):
        return "-1e999" if value == -math.inf else "1e999" if value == math.inf else float.__repr__(value)
    for kind in (str, bytes, complex):
        if isinstance(value, kind):
            return kind.__repr__(value)
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(map(literal, value))}}}" if value else "set()"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
    if isinstance(value, numbers.Number):
        number: Any = value
        for plain in (int(number), float(number)):
            if plain == number:
                return literal(plain)
    return f"<{value!r}>"


def _unhandled(error: BaseException, source: str) -> int:
    """Show an error, or let the program's own hook do it; the exit status."""
    if sys.excepthook is sys.__excepthook__:
        _show(error, source)
        return 1
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as leaving:
        return _exit_status(leaving)
    except BaseException as another:
        _show(another, source)
    return 1


def _exit_status(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        # What does not fit into a C long is an error of its own, as in the interpreter.
        return leaving.code & 255 if -(2**63) <= leaving.code < 2**63 else 255
    sys.stderr.write(f"{leaving.code}\n")
    return 1


def _show(error: BaseException, source: str) -> None:
    """Print the traceback without our own frames; it informs people and decides nothing."""
    try:
        lines = source.splitlines(keepends=True)
        linecache.cache[FILE_NAME] = (len(source), None, lines, FILE_NAME)
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename not in (FILE_NAME, "test"):
            trace = trace.tb_next
        # Without this, an error while the first one was being handled would still show ours.
        traceback.print_exception(type(error), error.with_traceback(trace), trace, limit=-6)
    except BaseException:
        os.write(2, f"{type(error).__name__}\n".encode("utf-8", "replace"))


def _finish(status: int, module: ModuleType | None) -> int:
    """What the interpreter does at exit: join threads, run atexit functions, flush, let go of all objects.

    Letting go costs time, so ``module`` is None for a program that cannot tell.
    """
    if len(threading._active) > 1 or threading._threading_atexits:  # type: ignore[attr-defined]
        _at_exit(threading._shutdown)  # type: ignore[attr-defined]
    if atexit._ncallbacks():
        _at_exit(atexit._run_exitfuncs)
    status = _flush(sys.stdout, status)
    if module is not None:
        _let_go(module)
    # Where a program has put another stream in its place, the first one may hold output still.
    status = _flush(sys.__stdout__, status)
    _flush(sys.stderr, 0)
    return status


def _let_go(module: ModuleType) -> None:
    """Take a program's objects away, so that they close files, flush and run ``__del__``; private names first."""
    namespace = module.__dict__
    try:
        for private in (True, False):
            for name in [name for name in namespace if name.startswith("_") is private and name != "__builtins__"]:
                namespace[name] = None
        gc.collect()
    except BaseException:
        pass  # a program may have filled its namespace with anything


def _flush(stream: Any, status: int) -> int:
    """Flush a stream that may be anything by now; the exit status after that."""
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except BaseException:
        return status or UNFLUSHED_STATUS
    return status


def _at_exit(step: Callable[[], None]) -> None:
    try:
        step()
    except BaseException as error:
        _show(error, "")
