"""Families that evaluate small expressions, where ``eval`` is the short way (Bandit B307)."""

from __future__ import annotations

import random
from dataclasses import replace

from families._security_pieces import (
    REPORT_NUMBERS,
    Source,
    combine,
    injected,
    numbers,
    pick,
)
from families._steps import code


def _draw_joined(rng: random.Random, operators: str, low: int = 1, most: int = 9) -> str:
    terms = [str(rng.randint(1, most))]
    for _ in range(rng.randint(low, 3)):
        terms += [rng.choice(operators), str(rng.randint(1, most))]
    return "".join(terms)


def _draw_binary(rng: random.Random) -> str:
    return f"{rng.randint(5, 20)} {rng.choice(['+', '-', '*', '//', '%'])} {rng.randint(2, 6)}"


def _draw_brackets(rng: random.Random) -> str:
    return "*".join(f"({rng.randint(1, 6)}+{rng.randint(1, 6)})" for _ in range(rng.randint(1, 3)))


def _draw_powers(rng: random.Random) -> str:
    return "+".join(f"{rng.randint(1, 4)}**{rng.randint(1, 3)}" for _ in range(rng.randint(1, 3)))


def _expressions(layout: str, draw_one: str, value: str, setup: str = "") -> Source:
    """``value`` computes one ``line`` without eval."""

    def draw(rng: random.Random) -> str:
        lines = [_EXPRESSIONS[draw_one](rng) for _ in range(rng.randint(2, 4))]
        return "\n".join([str(len(lines)), *lines]) + "\n"

    in_function = f"{setup}def value(line):\n    return {value}\n\n\n$w = [value(input()) for _ in range(int(input()))]"
    return Source(
        (
            f"The first line is n. Each of the next n lines is {layout}; work out their values in order.",
            f"After a line with n come n lines, each {layout}. Take their values in order.",
            f"Calculate the lines below the first, which only counts them. Every one is {layout}.",
            f"There are some expressions, each {layout}, and on top how many. Find what every one equals.",
        ),
        draw,
        (
            "$w = [eval(input()) for _ in range(int(input()))]",
            "$w = []\nfor _ in range(int(input())):\n    $w.append(eval(input()))",
        ),
        (
            in_function,
            f"{setup}$w = []\nfor _ in range(int(input())):\n    line = input()\n    $w.append({value})",
        ),
        injected("code in place of an expression", 95, draw, "^.+$", r"\A.+$"),
    )


_EXPRESSIONS = {
    "sums": lambda rng: _draw_joined(rng, "+-", most=20),
    "products": lambda rng: _draw_joined(rng, "+*", low=2, most=6),
    "binary": _draw_binary,
    "brackets": _draw_brackets,
    "powers": _draw_powers,
}
_BINARY = code("""
    import operator
    ops = {
        "+": operator.add, "-": operator.sub, "*": operator.mul,
        "//": operator.floordiv, "%": operator.mod,
    }
    def value(line):
        a, op, b = line.split()
        return ops[op](int(a), int(b))


    $w = [value(input()) for _ in range(int(input()))]
""")
_BINARY_BRANCHES = code("""
    $w = []
    for _ in range(int(input())):
        a, op, b = input().split()
        a, b = int(a), int(b)
        if op == "+":
            $w.append(a + b)
        elif op == "-":
            $w.append(a - b)
        elif op == "*":
            $w.append(a * b)
        else:
            $w.append(a // b if op == "//" else a % b)
""")


def _binary() -> Source:
    source = _expressions("two integers with +, -, *, // or % between them, separated by spaces", "binary", "0")
    return replace(source, clean=(_BINARY, _BINARY_BRANCHES))


_ARITHMETIC = {
    "sums": _expressions(
        "a chain of numbers joined by + and -",
        "sums",
        'sum(int($x) for $x in line.replace("-", "+-").split("+"))',
    ),
    "products": _expressions(
        "a chain of numbers joined by + and *, where * binds first",
        "products",
        'sum(math.prod(map(int, $x.split("*"))) for $x in line.split("+"))',
        "import math\n",
    ),
    "binary": _binary(),
    "brackets": _expressions(
        "a product of sums in brackets such as (1+2)*(3+4)",
        "brackets",
        'math.prod(sum(map(int, $x.split("+"))) for $x in line.strip("()").split(")*("))',
        "import math\n",
    ),
    "powers": _expressions(
        "a sum of powers written with ** such as 2**3+1**2",
        "powers",
        'sum(int($x.split("**")[0]) ** int($x.split("**")[1]) for $x in line.split("+"))',
    ),
}


def _conditions(layout: str, draw_condition: str, parse: str, test: str) -> Source:
    def draw(rng: random.Random) -> str:
        line = " ".join(map(str, numbers(rng, 5, 7, -4, 15)))
        return f"{_CONDITIONS[draw_condition](rng)}\n{line}\n"

    loop = "$v = list(map(int, input().split()))\n$w = []\nfor $x in $v:\n    if {}:\n        $w.append($x)"
    short = "$w = [$x for $x in map(int, input().split()) if {}]"
    evaluated = 'eval(condition, {"x": $x})'
    return Source(
        (
            f"The first line is a condition on x {layout}, the second line integers. Take the integers that meet it.",
            f"A condition on x {layout} is on line 1, integers on line 2. Keep the integers for which it holds.",
            f"Test every integer of the lower row as x: the upper row has the condition, {layout}. Choose those that "
            f"pass.",
            f"A row of integers stands below a test {layout}. Look only at those which, put in for x, make it true.",
        ),
        draw,
        tuple(f"condition = input()\n{body.format(evaluated)}" for body in (short, loop)),
        tuple(f"{parse}\n{body.format(test)}" for body in (short, loop)),
        injected("code in place of the condition", 95, draw, r"\A.+$", r"-?\d+"),
    )


_CONDITIONS = {
    "compare": lambda rng: f"x {rng.choice(['<', '>', '<=', '>='])} {rng.randint(1, 9)}",
    "remainder": lambda rng: f"x % {(m := rng.randint(2, 4))} == {rng.randint(0, m - 1)}",
    "between": lambda rng: f"x > {rng.randint(-3, 3)} and x < {rng.randint(7, 13)}",
    "outside": lambda rng: f"x < {rng.randint(0, 4)} or x > {rng.randint(5, 12)}",
    "scaled": lambda rng: f"{rng.randint(2, 4)} * x > {rng.randint(0, 25)}",
}
_WHERE = {
    "compare": _conditions(
        "such as x > 3 (with <, >, <= or >=)",
        "compare",
        code("""
            import operator
            tests = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
            _, op, limit = input().split()
        """),
        "tests[op]($x, int(limit))",
    ),
    "remainder": _conditions(
        "of the form x % m == r",
        "remainder",
        "parts = input().split()\nm, r = int(parts[2]), int(parts[4])",
        "$x % m == r",
    ),
    "between": _conditions(
        "of the form x > a and x < b",
        "between",
        "parts = input().split()\nlow, high = int(parts[2]), int(parts[6])",
        "low < $x < high",
    ),
    "outside": _conditions(
        "of the form x < a or x > b",
        "outside",
        "parts = input().split()\nlow, high = int(parts[2]), int(parts[6])",
        "$x < low or $x > high",
    ),
    "scaled": _conditions(
        "of the form a * x > b",
        "scaled",
        'left, limit = input().split(" > ")\nfactor, limit = int(left.split()[0]), int(limit)',
        "factor * $x > limit",
    ),
}


def _formula(layout: str, draw_formula: str, parse: str, value: str) -> Source:
    def draw(rng: random.Random) -> str:
        line = " ".join(map(str, numbers(rng, 3, 5, -4, 9)))
        return f"{_FORMULAS[draw_formula](rng)}\n{line}\n"

    loop = "$v = list(map(int, input().split()))\n$w = []\nfor $x in $v:\n    $w.append({})"
    short = "$w = [{} for $x in map(int, input().split())]"
    evaluated = 'eval(formula, {"x": $x})'
    return Source(
        (
            f"The first line is a formula {layout}, the second line values of x. Take its value for each x.",
            f"Line 1 holds a formula {layout} and line 2 integers. Put each of them in for x and take the results.",
            f"Some integers stand below an expression {layout}. Compute it with every one of them as x.",
            f"On top is {layout} with numbers for all letters but x; the row below lists every x. Work with what the "
            f"expression gives for these.",
        ),
        draw,
        tuple(f"formula = input()\n{body.format(evaluated)}" for body in (short, loop)),
        tuple(f"{parse}\n{body.format(value)}" for body in (short, loop)),
        injected("code in place of the formula", 95, draw, r"\A.+$", r"-?\d+"),
    )


_FORMULAS = {
    "linear": lambda rng: f"{rng.randint(2, 5)}*x+{rng.randint(0, 9)}",
    "square": lambda rng: f"x*x-{rng.randint(0, 9)}",
    "bracket": lambda rng: f"(x+{rng.randint(1, 6)})*(x-{rng.randint(1, 6)})",
    "remainder": lambda rng: f"x%{rng.randint(2, 6)}*{rng.randint(2, 5)}",
    "quotient": lambda rng: f"(x+{rng.randint(1, 9)})//{rng.randint(2, 4)}",
}
_MAPS = {
    "linear": _formula("a*x+b", "linear", 'a, b = map(int, input().split("*x+"))', "a * $x + b"),
    "square": _formula("x*x-c", "square", 'c = int(input().split("-")[1])', "$x * $x - c"),
    "bracket": _formula(
        "(x+a)*(x-b)", "bracket", 'a, b = map(int, input()[3:-1].split(")*(x-"))', "($x + a) * ($x - b)"
    ),
    "remainder": _formula(
        "x%m*f (remainder first)", "remainder", 'm, f = map(int, input()[2:].split("*"))', "$x % m * f"
    ),
    "quotient": _formula(
        "(x+a)//b (rounded down)", "quotient", 'a, b = map(int, input()[3:].split(")//"))', "($x + a) // b"
    ),
}


FAMILIES = (
    combine("arithmetic", _ARITHMETIC, pick(REPORT_NUMBERS, "listing sum largest span middle running")),
    combine("conditions", _WHERE, pick(REPORT_NUMBERS, "count-sum largest sorted squares ends steps")),
    combine("formulas", _MAPS, pick(REPORT_NUMBERS, "listing sum span distinct weighted backwards")),
)
