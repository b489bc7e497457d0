"""A family that calls functions by their given names, where ``eval`` is the short way (Bandit B307)."""

from __future__ import annotations

import random
from collections.abc import Callable

from family import PAYLOADS, DrawAttack

from families._security_pieces import (
    REPORT_NUMBERS,
    Source,
    combine,
    injected,
    numbers,
    pick,
)
from families._steps import code


def _draw_named_rows(rng: random.Random) -> str:
    rows = [
        f"{rng.choice(['max', 'min', 'sum', 'len'])} " + " ".join(map(str, numbers(rng, 2, 4, -5, 9)))
        for _ in range(rng.randint(2, 3))
    ]
    return "\n".join([str(len(rows)), *rows]) + "\n"


def _draw_names_on_shared(rng: random.Random) -> str:
    names = [rng.choice(["max", "min", "sum", "len"]) for _ in range(rng.randint(3, 5))]
    return f"{' '.join(map(str, numbers(rng, 3, 5)))}\n{' '.join(names)}\n"


def _draw_names_on_prefixes(rng: random.Random) -> str:
    names = [rng.choice(["max", "min", "sum"]) for _ in range(rng.randint(3, 5))]
    return f"{' '.join(names)}\n{' '.join(map(str, [rng.randint(-5, 12) for _ in names]))}\n"


def _draw_binary_calls(rng: random.Random) -> str:
    calls = [
        f"{rng.choice(['max', 'min', 'pow'])} {rng.randint(2, 6)} {rng.randint(1, 4)}" for _ in range(rng.randint(3, 4))
    ]
    return "\n".join([str(len(calls)), *calls]) + "\n"


def _code_in(draw: Callable[[random.Random], str]) -> tuple[DrawAttack, ...]:
    codes = (f"(lambda*_:{PAYLOADS[0]})", *(f"[{payload},max][1]" for payload in PAYLOADS[1:]))
    functions = injected("code in place of a function", 95, draw, r"\b[a-z]+\b", texts=codes)
    return (*functions, *injected("code in place of a number", 95, draw, r"-?\d+")[:1])


_PICK = '{"max": max, "min": min, "sum": sum, "len": len}'
_ROWS = code("""
    $w = []
    for _ in range(int(input())):
        name, *rest = input().split()
        $w.append({}(list(map(int, rest))))
""")
_PREFIXES = code("""
    names = input().split()
    $v = list(map(int, input().split()))
    $w = [{}($v[: i + 1]) for i, name in enumerate(names)]
""")
_BRANCHES = code("""
    def apply(name, $v):
        if name == "max":
            return max($v)
        if name == "min":
            return min($v)
        return sum($v) if name == "sum" else len($v)


""")
_CALLS = {
    "rows": Source(
        (
            "The first line is n. Each of n lines is max, min, sum or len and the integers to apply it to.",
            "After a count come rows that begin with a function (sum, len, max or min); apply it to the integers "
            "behind it, and go on with what each gives.",
        ),
        _draw_named_rows,
        (_ROWS.format("eval(name)"), _ROWS.format("eval(name)")),
        (
            f"functions = {_PICK}\n" + _ROWS.format("functions[name]"),
            _BRANCHES + "\n\n\n" + _ROWS.replace("{}(", "apply(name, "),
        ),
        _code_in(_draw_named_rows),
    ),
    "shared": Source(
        (
            "Line 1 holds integers, line 2 names among max, min, sum and len. Apply each named function to all of "
            "them.",
            "Below a row of integers there are functions (len, sum, min, max): what does every one give for the whole "
            "row?",
        ),
        _draw_names_on_shared,
        ("$v = list(map(int, input().split()))\n$w = [eval(name)($v) for name in input().split()]",),
        (
            f"functions = {_PICK}\n$v = [int($x) for $x in input().split()]\n"
            "$w = [functions[name]($v) for name in input().split()]",
            _BRANCHES + "\n\n\n$v = list(map(int, input().split()))\n"
            "$w = [apply(name, $v) for name in input().split()]",
        ),
        _code_in(_draw_names_on_shared),
    ),
    "prefixes": Source(
        (
            "Line 1 holds names among max, min and sum, line 2 as many integers. "
            "Apply the i-th named function to the first i integers.",
            "A row of functions (sum, min, max) stands above equally many integers. Apply each function to the "
            "integer below it and all earlier ones.",
        ),
        _draw_names_on_prefixes,
        (_PREFIXES.format("eval(name)"),),
        (
            'functions = {"max": max, "min": min, "sum": sum}\n' + _PREFIXES.format("functions[name]"),
            _BRANCHES + "\n\n\n" + _PREFIXES.replace("{}(", "apply(name, "),
        ),
        _code_in(_draw_names_on_prefixes),
    ),
    "binary": Source(
        (
            "The first line is n. Each of n lines is max, min or pow (the power a to the b) and two integers a and b.",
            "After a count come calls, a row each: max, min or pow, then two arguments. Evaluate every call, where "
            "pow raises the first argument to the second.",
        ),
        _draw_binary_calls,
        (
            "$w = []\nfor _ in range(int(input())):\n    name, a, b = input().split()\n"
            "    $w.append(eval(name)(int(a), int(b)))",
            "$w = []\nfor _ in range(int(input())):\n    name, a, b = input().split()\n"
            '    $w.append(eval(f"{name}({a}, {b})"))',
        ),
        (
            'functions = {"max": max, "min": min, "pow": pow}\n$w = []\nfor _ in range(int(input())):\n'
            "    name, a, b = input().split()\n    $w.append(functions[name](int(a), int(b)))",
            code("""
                $w = []
                for _ in range(int(input())):
                    name, a, b = input().split()
                    pair = [int(a), int(b)]
                    if name == "pow":
                        $w.append(pair[0] ** pair[1])
                    else:
                        $w.append(max(pair) if name == "max" else min(pair))
            """),
        ),
        _code_in(_draw_binary_calls),
    ),
}

FAMILIES = (combine("named-functions", _CALLS, pick(REPORT_NUMBERS, "listing sum largest sorted span steps weighted")),)
