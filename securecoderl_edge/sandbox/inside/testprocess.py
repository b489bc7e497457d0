"""Inside a test process: lock down, run the script and its call if there is one, leave with the exit status.

The program shares this process with the code below and can change all of it, so nothing here decides a
verdict: the supervisor judges by exit status and bytes. A function call's value travels on a descriptor of
its own. An assertion's nonce is released only after the assertion held, which stops `os._exit(0)`. It does
not stop a program that replaces what an assertion relies on (``bool``, ``math.isclose``, its value's ``__eq__``)
or that asks for the nonce itself, which is why comparisons with literals are made outside.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import fcntl
import math
import numbers
import os
import resource
import sys
from collections import ChainMap, UserDict, UserList, UserString
from collections.abc import Iterable
from itertools import islice
from types import MappingProxyType, ModuleType
from typing import Any, NoReturn

HARNESS_STATUS = 71
FIRST_FREE_DESCRIPTOR = 3
READY, GO, REQUEST, VALUE = 3, 4, 5, 6  # descriptors of a call
# The first character of what a call leaves; the third if its function returned None, see `noting`.
RETURNED, RAISED, RETURNED_NONE = "=", "!", "-"
NOTE = "_sce_note"
STACK_BYTES = 64 << 20
MOST_DESCRIPTORS = 64
# The kernel counts those of a user together: one process that has them all keeps the others from making timers.
MOST_PENDING_SIGNALS = 64
LONGEST_CPU_SECONDS = 1e9  # the kernel counts in nanoseconds
LONGEST_DECIMAL_BITS = 8192
_KEYS: Any = type({}.keys())
_ITEMS: Any = type({}.items())
MOST_ITEMS = 1 << 13  # of what can only be searched, and may be endless

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
    script: Any,
    descriptors: list[int],
    resources: list[tuple[int, tuple[int, int]]],
    prelude: str | None,
    layers: Any,
    box: int,
) -> NoReturn:
    """Become the program; never returns.

    Args:
        script: the `Script` to run.
        descriptors: stdin, stdout and stderr; for a call also ready, go, request and value.
        resources: arguments of ``setrlimit``, from `resource_limits`.
        prelude: a name of `PRELUDES` or "" for a call, None for a program that reads stdin.
        layers: the `Confinement`, whose last layer is put on here.
        box: process id of the parent.
    """
    status, leave = HARNESS_STATUS, os._exit
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
        status = script.run() if prelude is None else script.run(PRELUDES.get(prelude), _answer)
    finally:
        leave(status)


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
        *([(resource.RLIMIT_SIGPENDING, MOST_PENDING_SIGNALS)] if sys.platform == "linux" else []),
    )
    return [(kind, (_bounds(kind, value)[0],) * 2) for kind, value in values]


def _bounds(kind: int, value: int) -> tuple[int, int]:
    """``value``, or the hard limit where that is lower; and the hard limit."""
    ceiling = resource.getrlimit(kind)[1]
    if ceiling != resource.RLIM_INFINITY:
        value = ceiling if value == resource.RLIM_INFINITY else min(value, ceiling)
    return value, ceiling


def request_text(expression: str, is_assertion: bool, setup: str, entry_point: str) -> str:
    """What a call is to evaluate, as text.

    Not JSON: its import would cost each test two milliseconds, and fail where a test cannot open files.
    """
    return f"{int(is_assertion)} {len(setup)} {len(entry_point)}\n{setup}{entry_point}{expression}"


def _request(text: bytes) -> dict[str, Any]:
    """The reverse of `request_text`."""
    head, _, rest = text.decode("utf-8", "surrogatepass").partition("\n")
    is_assertion, setup, name = map(int, head.split())
    return {
        "is_assertion": bool(is_assertion),
        "setup": rest[:setup],
        "entry_point": rest[setup : setup + name],
        "expression": rest[setup + name :],
    }


def _answer(module: ModuleType) -> None:
    """Evaluate what the supervisor releases now that the program has run; write the value."""
    request = _request(_released())
    namespace, entry_point = module.__dict__, request["entry_point"]
    solution: Any = namespace.get("Solution")
    is_own = getattr(namespace.get(entry_point), "__module__", None) == namespace.get("__name__")
    if entry_point and not is_own and hasattr(solution, entry_point):  # `from heapq import *` has a ``merge`` as well
        namespace[entry_point] = getattr(solution(), entry_point)
    if request["setup"]:
        exec(compile(request["setup"], "test", "exec"), namespace)
    notes: list[bool] = []

    def note(value: object) -> object:
        notes.append(value is None)
        return value

    namespace[NOTE] = note
    if request["is_assertion"]:
        try:
            exec(compile(request["expression"], "test", "exec"), namespace)
            answer = _released()
        except AssertionError:
            answer = _kind(notes).encode()
        _write(answer)
        return
    code = compile(request["expression"], "test", "eval")
    # Exceptions are always noted, so that a program cannot see whether one is expected.
    try:
        value = eval(code, namespace)
    except BaseException as error:
        # Not `__mro__`, and not `__name__`: a metaclass of the program can change both.
        names = map(type.__dict__["__name__"].__get__, type.mro(type(error)))
        _write((RAISED + "\n".join(names)).encode("utf-8", "surrogatepass"))
        raise
    _write((_kind(notes) + literal(value)).encode("utf-8", "surrogatepass"))


def _kind(notes: list[bool]) -> str:
    return RETURNED if not notes or False in notes else RETURNED_NONE


def _write(answer: bytes) -> None:
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

    Numbers of other types are written as the int or float that they equal, and wrappers of a list or dict as that.
    What is compared by other rules has a name before its items: ``range``, ``bytearray``, ``dict_keys``,
    ``dict_items``, ``frozenset``, ``nan``, and ``items`` for what can only be searched, or ``first_items`` if it is
    long, perhaps endless. Anything else is ``other``, which equals nothing.
    """
    try:
        return _literal(value)
    except RecursionError:
        return "other('nested too deeply')"


def _literal(value: object) -> str:
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, int):
        # Long integers in hexadecimal: reading long decimals back takes quadratic time and is limited.
        return hex(value) if value.bit_length() > LONGEST_DECIMAL_BITS else int.__repr__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return "nan()" if math.isnan(value) else "1e999" if value > 0 else "-1e999"
        return float.__repr__(value)
    for kind in (str, bytes, complex):
        if isinstance(value, kind):
            return kind.__repr__(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, frozenset):
        return f"frozenset({_literal(set(value))})"
    if isinstance(value, set):
        return f"{{{', '.join(map(_literal, value))}}}" if value else "set()"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(item)}' for key, item in value.items())}}}"
    if isinstance(value, numbers.Number):
        plain = _plain(value)
        if plain is not None:
            return _literal(plain)
    if isinstance(value, range):
        return repr(value)
    if isinstance(value, (bytearray, memoryview)):
        return f"bytearray({bytes(value)!r})"
    if isinstance(value, (UserList, UserString)):
        return _literal(value.data)
    if isinstance(value, (UserDict, ChainMap, MappingProxyType)):
        return _literal(dict(value))
    for name, view in (("dict_keys", _KEYS), ("dict_items", _ITEMS)):
        if isinstance(value, view):
            return f"{name}({_literal(list(value))})"
    if isinstance(value, Iterable):
        first = list(islice(iter(value), MOST_ITEMS + 1))
        return f"{'first_items' if len(first) > MOST_ITEMS else 'items'}({_literal(first[:MOST_ITEMS])})"
    return f"other({repr(value)!r})"


def _plain(number: Any) -> float | int | None:
    """The float or int that a number of another type equals; None if there is none."""
    try:
        as_float = float(number)
        if as_float == number:
            return as_float
        if math.isinf(as_float):
            return None  # Decimal("1e999999999") has an int, but not in our lifetime
    except (TypeError, ValueError, ArithmeticError):
        pass
    try:
        as_int = int(number)
        return as_int if as_int == number else None
    except (TypeError, ValueError, ArithmeticError):
        return None
