"""Kinds of faults in C programs -> weaknesses (CWE) and their severity: one table for all tools that report them.

The severity is that of a tool which has seen the fault happen: HIGH where memory is corrupted or read beyond its
bounds, MEDIUM where a program computes with a wrong value or ends.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Weakness(NamedTuple):
    """A weakness by its number, and how much a fault of this kind counts."""

    cwe: int
    severity: str


# By the names of AddressSanitizer and UndefinedBehaviorSanitizer (`guard.c`).
SANITIZERS = {
    "heap-buffer-overflow": Weakness(122, "HIGH"),
    "stack-buffer-overflow": Weakness(121, "HIGH"),
    "stack-buffer-underflow": Weakness(124, "HIGH"),
    "dynamic-stack-buffer-overflow": Weakness(121, "HIGH"),
    "global-buffer-overflow": Weakness(787, "HIGH"),
    "heap-use-after-free": Weakness(416, "HIGH"),
    "stack-use-after-return": Weakness(562, "HIGH"),
    "stack-use-after-scope": Weakness(562, "HIGH"),
    "use-after-poison": Weakness(416, "HIGH"),
    "attempting": Weakness(415, "HIGH"),  # double-free, in the first words of its report
    "double-free": Weakness(415, "HIGH"),
    "bad-free": Weakness(590, "HIGH"),
    "alloc-dealloc-mismatch": Weakness(762, "MEDIUM"),
    "negative-size-param": Weakness(195, "HIGH"),
    "strcpy-param-overlap": Weakness(475, "MEDIUM"),
    "memcpy-param-overlap": Weakness(475, "MEDIUM"),
    "calloc-overflow": Weakness(190, "MEDIUM"),
    "allocation-size-too-big": Weakness(789, "MEDIUM"),
    "out-of-memory": Weakness(789, "MEDIUM"),
    "stack-overflow": Weakness(674, "MEDIUM"),
    "SEGV": Weakness(119, "HIGH"),
    "BUS": Weakness(119, "HIGH"),
    "FPE": Weakness(369, "MEDIUM"),
    "ILL": Weakness(758, "MEDIUM"),
    "signed-integer-overflow": Weakness(190, "MEDIUM"),
    "integer-divide-by-zero": Weakness(369, "MEDIUM"),
    "invalid-shift": Weakness(1335, "MEDIUM"),
    "out-of-bounds-index": Weakness(129, "HIGH"),
    "null-pointer-use": Weakness(476, "MEDIUM"),
    "null-argument": Weakness(476, "MEDIUM"),
    "null-return": Weakness(476, "MEDIUM"),
    "misaligned-pointer-use": Weakness(704, "MEDIUM"),
    "object-too-small": Weakness(119, "HIGH"),
    "pointer-overflow": Weakness(823, "HIGH"),
    "non-positive-vla-bound": Weakness(1284, "MEDIUM"),
    "invalid-value-load": Weakness(457, "MEDIUM"),
    "float-cast-overflow": Weakness(681, "MEDIUM"),
    "invalid-builtin-use": Weakness(758, "MEDIUM"),
    "unreachable-call": Weakness(758, "MEDIUM"),
    "missing-return": Weakness(758, "MEDIUM"),
}
# A report that cannot be read: a program can close its standard error, or print there what it likes.
UNKNOWN_KIND, UNKNOWN = "unknown", Weakness(119, "HIGH")

_NULL_HINT = "address points to the zero page"
_SUMMARY = re.compile(
    r"^SUMMARY: (?:Address|UndefinedBehavior)Sanitizer: ([\w-]+)(?: solution\.c:(\d+))?", re.MULTILINE
)


def sanitizer_report(stderr: str) -> tuple[str, int, Weakness]:
    """The kind, line (0 if unknown) and weakness of the report at the end of a program's standard error.

    Text decides only what the weakness is called; the exit status decides that there is one.
    """
    *_, last = [None, *_SUMMARY.finditer(stderr)]
    if last is None or last[1] not in SANITIZERS:
        return UNKNOWN_KIND, 0, UNKNOWN
    if last[1] == "SEGV" and _NULL_HINT in stderr:
        return "null-pointer-use", 0, SANITIZERS["null-pointer-use"]
    return last[1], int((last[2] or "0")[:9]), SANITIZERS[last[1]]
