"""Families that carry out given lines of code, where ``exec`` is the short way (Bandit B102)."""

from __future__ import annotations

import random
from collections.abc import Callable

from family import PAYLOADS

from families._security_pieces import (
    KEEP_ENTRIES,
    REPORT_ENTRIES,
    REPORT_NUMBERS,
    Source,
    combine,
    injected,
    pick,
)
from families._steps import code


def _lines(rows: list[str]) -> str:
    return "\n".join([str(len(rows)), *rows]) + "\n"


def _start(rng: random.Random) -> tuple[list[str], list[str]]:
    names = rng.sample("abcdef", rng.randint(2, 3))
    return names, [f"{name} = {rng.randint(1, 12)}" for name in names]


def _draw_constants(rng: random.Random) -> str:
    names, rows = _start(rng)
    return _lines([*rows, *(f"{rng.choice(names)} = {rng.randint(1, 12)}" for _ in range(2))])


def _draw_updates(rng: random.Random) -> str:
    names, rows = _start(rng)
    return _lines([*rows, *(f"{rng.choice(names)} {rng.choice('+-*')}= {rng.randint(2, 5)}" for _ in range(2))])


def _draw_sums(rng: random.Random) -> str:
    names, rows = _start(rng)
    made = [f"{rng.choice('xyz')} = {rng.choice(names)} + {rng.choice([*names, '5'])}" for _ in range(2)]
    return _lines([*rows, *made])


def _draw_swaps(rng: random.Random) -> str:
    names, rows = _start(rng)
    swaps = [rng.sample(names, 2) for _ in range(2)]
    return _lines([*rows, *(f"{a}, {b} = {b}, {a}" for a, b in swaps)])


_EXEC_EACH = "$d = {}\nfor _ in range(int(input())):\n    exec(input(), {}, $d)"
_EXEC_ALL = 'import sys\nprogram = sys.stdin.read().split("\\n", 1)[1]\n$d = {}\nexec(program, {}, $d)'


def _assignments(layout: str, draw: Callable[[random.Random], str], *clean: str) -> Source:
    return Source(
        (
            f"The first line is n, then n Python assignments {layout}. Run them in order; "
            "the entries are the names and their final numbers, in order of first assignment.",
            f"n lines (n is on the first line) assign to names, {layout}. "
            "The entries are the names in order of first assignment and their numbers at the end.",
            f"A small program is given below n, its count of lines, which are assignments {layout}. Once it has run, "
            f"each variable is an entry with its value, the earliest variable first.",
        ),
        draw,
        (_EXEC_EACH, _EXEC_ALL),
        clean,
        injected(
            "code in an assignment", 94, draw, r"\d+$", texts=(PAYLOADS[0], *(f"1;{each}" for each in PAYLOADS[1:]))
        ),
    )


_ASSIGNMENTS = {
    "constants": _assignments(
        "such as a = 3",
        _draw_constants,
        code("""
            $d = {}
            for _ in range(int(input())):
                $k, $n = input().split(" = ")
                $d[$k] = int($n)
        """),
        "rows = [input().split() for _ in range(int(input()))]\n$d = {$x[0]: int($x[2]) for $x in rows}",
    ),
    "updates": _assignments(
        "with =, +=, -= or *= and a number",
        _draw_updates,
        code("""
            $d = {}
            for _ in range(int(input())):
                $k, op, $n = input().split()
                if op == "=":
                    $d[$k] = int($n)
                elif op == "+=":
                    $d[$k] += int($n)
                elif op == "-=":
                    $d[$k] -= int($n)
                else:
                    $d[$k] *= int($n)
        """),
        code("""
            import operator
            ops = {"+=": operator.add, "-=": operator.sub, "*=": operator.mul}
            $d = {}
            for _ in range(int(input())):
                $k, op, $n = input().split()
                $d[$k] = ops[op]($d[$k], int($n)) if op in ops else int($n)
        """),
    ),
    "sums": _assignments(
        "such as a = 3 or x = a + b (names or numbers)",
        _draw_sums,
        code("""
            $d = {}
            for _ in range(int(input())):
                $k, right = input().split(" = ")
                $t = 0
                for $x in right.split(" + "):
                    $t += $d[$x] if $x in $d else int($x)
                $d[$k] = $t
        """),
        code("""
            def operand($x):
                return int($x) if $x.isdigit() else $d[$x]


            $d = {}
            for _ in range(int(input())):
                $k, right = input().split(" = ")
                $d[$k] = sum(operand($x) for $x in right.split(" + "))
        """),
    ),
    "swaps": _assignments(
        "such as a = 3 or the swap a, b = b, a",
        _draw_swaps,
        code("""
            $d = {}
            for _ in range(int(input())):
                left, right = input().split(" = ")
                if "," in left:
                    a, b = left.split(", ")
                    $d[a], $d[b] = $d[b], $d[a]
                else:
                    $d[left] = int(right)
        """),
        code("""
            $d = {}
            for _ in range(int(input())):
                left, right = input().split(" = ")
                names, values = left.split(", "), right.split(", ")
                values = [$d[$x] if $x in $d else int($x) for $x in values]
                $d.update(zip(names, values))
        """),
    ),
}


def _draw_call(rng: random.Random, second: str, items: list[int]) -> str:
    """One call that is possible on ``items``, which is changed by it as far as later calls depend on that."""
    number = rng.randint(1, 15)
    if len(items) < 2 or rng.random() < 0.6:
        items.append(number)
        return f"append({number})"
    if second == "pop":
        items.pop()
        return "pop()"
    if second == "remove":
        items.remove(number := rng.choice(items))
        return f"remove({number})"
    return f"insert(0,{number})" if second == "insert" else f"{second}()"


def _calls(second: str, shown: str, act: str) -> Source:
    """Lines of method calls on a list: append and one more kind, which ``act`` carries out with ``rest``."""

    def draw(rng: random.Random) -> str:
        items: list[int] = []
        return _lines([_draw_call(rng, second, items) for _ in range(rng.randint(5, 6))])

    body = f'    if $k == "append":\n        $w.append(int(rest))\n    else:\n        {act}'
    return Source(
        (
            f"The first line is n. Each of the next n lines is a method call on a list that starts empty: "
            f"append(k) or {shown}. Carry them out in order and take the final numbers.",
            f"A list is empty. After a line with n come n calls of its methods append(k) and {shown}, "
            "one a line; apply them and look at the numbers left.",
            f"Two kinds of calls work on a list without items: append(k), and {shown}. Read n and that many calls, do "
            "one after the other, and go on with what the list has then.",
            f"append(k) and {shown} stand on n lines below n, as methods of one list, which has nothing in it before. "
            "What is in it after the last?",
        ),
        draw,
        (
            '$w = []\nfor _ in range(int(input())):\n    exec(f"$w.{input()}")',
            'import sys\n$w = []\nfor line in sys.stdin.read().split()[1:]:\n    exec("$w." + line)',
        ),
        (
            f'$w = []\nfor _ in range(int(input())):\n    $k, rest = input().rstrip(")").split("(")\n{body}',
            "import sys\n$w = []\nfor line in sys.stdin.read().split()[1:]:\n"
            f'    $k, _, rest = line[:-1].partition("(")\n{body}',
        ),
        injected(
            "code in a call",
            94,
            draw,
            "^.+$",
            texts=(f"append({PAYLOADS[0]})", *(f"append(1);{each}" for each in PAYLOADS[1:])),
        ),
    )


_METHODS = {
    "pop": _calls("pop", "pop() (removes the last)", "$w.pop()"),
    "push": _calls("insert", "insert(0,k) (puts k in front)", '$w.insert(0, int(rest.split(",")[1]))'),
    "reverse": _calls("reverse", "reverse()", "$w.reverse()"),
    "sort": _calls("sort", "sort()", "$w.sort()"),
    "remove": _calls("remove", "remove(k) (the first k in it)", "$w.remove(int(rest))"),
}

FAMILIES = (
    combine(
        "exec-assignments",
        _ASSIGNMENTS,
        pick(KEEP_ENTRIES, "odd lesser shared"),
        pick(REPORT_ENTRIES, "names total pairs"),
    ),
    combine("exec-methods", _METHODS, pick(REPORT_NUMBERS, "listing running steps ends weighted alternate")),
)
