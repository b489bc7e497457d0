"""Kinds of faults in C programs -> weaknesses (CWE) and their severity: one table for all tools that report them.

The severity is that of the fault if it happens: HIGH where memory is corrupted or read beyond its bounds, or input
decides what is executed; MEDIUM where a program computes with a wrong value, runs out of something or ends.
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
_BOUNDS, _LIFETIME = Weakness(119, "HIGH"), Weakness(562, "HIGH")
_NULL, _LEAK = Weakness(476, "MEDIUM"), Weakness(401, "MEDIUM")
# By the names of rules of static analyzers; the same weakness has the same number for both. Other rules do not count:
# those about style and portability, about conditions that may be redundant, and those about uninitialized values, which
# fire on safe programs (`benchmarks/c_analyzers.py`).
ANALYZERS = {
    # gcc, its analyzer and its warnings without optimization
    "-Wanalyzer-allocation-size": Weakness(131, "HIGH"),
    "-Wanalyzer-double-fclose": Weakness(1341, "MEDIUM"),
    "-Wanalyzer-double-free": Weakness(415, "HIGH"),
    "-Wanalyzer-fd-double-close": Weakness(1341, "MEDIUM"),
    "-Wanalyzer-fd-leak": Weakness(775, "MEDIUM"),
    "-Wanalyzer-fd-use-after-close": Weakness(672, "MEDIUM"),
    "-Wanalyzer-file-leak": Weakness(775, "MEDIUM"),
    "-Wanalyzer-free-of-non-heap": Weakness(590, "HIGH"),
    "-Wanalyzer-infinite-recursion": Weakness(674, "MEDIUM"),
    "-Wanalyzer-jump-through-null": _NULL,
    "-Wanalyzer-malloc-leak": _LEAK,
    "-Wanalyzer-mismatching-deallocation": Weakness(762, "MEDIUM"),
    "-Wanalyzer-null-argument": _NULL,
    "-Wanalyzer-null-dereference": _NULL,
    "-Wanalyzer-out-of-bounds": _BOUNDS,
    "-Wanalyzer-overlapping-buffers": Weakness(475, "MEDIUM"),
    "-Wanalyzer-possible-null-argument": Weakness(690, "MEDIUM"),
    "-Wanalyzer-possible-null-dereference": Weakness(690, "MEDIUM"),
    "-Wanalyzer-shift-count-negative": Weakness(1335, "MEDIUM"),
    "-Wanalyzer-shift-count-overflow": Weakness(1335, "MEDIUM"),
    "-Wanalyzer-stale-setjmp-buffer": Weakness(825, "HIGH"),
    "-Wanalyzer-unsafe-call-within-signal-handler": Weakness(479, "MEDIUM"),
    "-Wanalyzer-use-after-free": Weakness(416, "HIGH"),
    "-Wanalyzer-use-of-pointer-in-stale-stack-frame": _LIFETIME,
    "-Wanalyzer-write-to-const": Weakness(758, "MEDIUM"),
    "-Wanalyzer-write-to-string-literal": Weakness(758, "MEDIUM"),
    "-Warray-bounds": _BOUNDS,
    "-Wdiv-by-zero": Weakness(369, "MEDIUM"),
    "-Wformat-security": Weakness(134, "HIGH"),
    "-Wreturn-local-addr": _LIFETIME,
    "-Wshift-count-negative": Weakness(1335, "MEDIUM"),
    "-Wshift-count-overflow": Weakness(1335, "MEDIUM"),
    "-Wstringop-overflow=": _BOUNDS,
    "-Wstringop-overread": _BOUNDS,
    # cppcheck
    "arrayIndexOutOfBounds": _BOUNDS,
    "autoVariables": _LIFETIME,
    "autovarInvalidDeallocation": Weakness(590, "HIGH"),
    "bufferAccessOutOfBounds": _BOUNDS,
    "danglingLifetime": _LIFETIME,
    "deallocret": Weakness(416, "HIGH"),
    "deallocuse": Weakness(416, "HIGH"),
    "doubleFree": Weakness(415, "HIGH"),
    "getsCalled": Weakness(242, "HIGH"),
    "integerOverflow": Weakness(190, "MEDIUM"),
    "invalidFree": Weakness(590, "HIGH"),
    "invalidLifetime": _LIFETIME,
    "invalidScanfFormatWidth": Weakness(120, "HIGH"),
    "invalidscanf": Weakness(120, "HIGH"),
    "memleak": _LEAK,
    "memleakOnRealloc": _LEAK,
    "mismatchAllocDealloc": Weakness(762, "MEDIUM"),
    "negativeIndex": _BOUNDS,
    "negativeMemoryAllocationSize": Weakness(131, "HIGH"),
    "nullPointer": _NULL,
    "resourceLeak": Weakness(775, "MEDIUM"),
    "returnDanglingLifetime": _LIFETIME,
    "shiftNegative": Weakness(1335, "MEDIUM"),
    "shiftTooManyBits": Weakness(1335, "MEDIUM"),
    "shiftTooManyBitsSigned": Weakness(1335, "MEDIUM"),
    "sprintfOverlappingData": Weakness(475, "MEDIUM"),
    "stringLiteralWrite": Weakness(758, "MEDIUM"),
    "useClosedFile": Weakness(672, "MEDIUM"),
    "zerodiv": Weakness(369, "MEDIUM"),
}
# A report that cannot be read: a program can close its standard error, or print there what it likes.
UNKNOWN_KIND, UNKNOWN = "unknown", Weakness(119, "HIGH")

NULL_HINT = "address points to the zero page"
_SUMMARY = re.compile(
    r"^SUMMARY: (?:Address|UndefinedBehavior)Sanitizer: ([\w-]+)(?: solution\.c:(\d+))?", re.MULTILINE
)


def sanitizer_report(stderr: str, severity: str) -> tuple[str, int, Weakness]:
    """The kind, line (0 if unknown) and weakness of the report at the end of a program's standard error.

    Text decides only what the weakness is called. The exit status decides that there is one, and its severity.
    """
    *_, last = [None, *_SUMMARY.finditer(stderr)]
    kind = UNKNOWN_KIND if last is None else last[1]
    if kind == "SEGV" and NULL_HINT in stderr:
        kind = "null-pointer-use"
    weakness = SANITIZERS.get(kind)
    if last is None or weakness is None or weakness.severity != severity:
        return UNKNOWN_KIND, 0, UNKNOWN._replace(severity=severity)
    return kind, int((last[2] or "0")[:9]), weakness
