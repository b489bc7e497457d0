"""Hard families that process a log of bookings or orders with a rule for shortages."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._steps import Step, code, framed_family, step


def _draw_accounts(rng: random.Random) -> str:
    names = rng.sample(["ann", "bob", "cy", "dan"], 3)
    first, second = rng.randint(4, 13), rng.randint(10, 14)
    rows = [f"in {names[0]} {first}", f"in {names[1]} {second}"]
    for name, paid in zip(names, (first, second), strict=False):
        change = f"{name} {paid * rng.choice([1, 2]) + rng.choice([-3, 1, 5])}"
        rows.append(rng.choice([f"out {change}", f"send {change} {names[2]}"]))
    rows.append(f"in {rng.choice(names)} {rng.randint(6, 20)}")
    return "\n".join([" ".join(names), str(len(rows)), *rows]) + "\n"


_ACCOUNT_FRAMES = (
    code("""
        $d = {$k: 0 for $k in input().split()}
        short = 0
        for _ in range(int(input())):
            action, $k, $n, *rest = input().split()
            $n = int($n)
            have = $d[$k]
            if action == "in":
                $d[$k] += @0
                continue
            if $n > have:
                short += 1
                @1
            $d[$k] -= $n
            if rest:
                $d[rest[0]] += $n
        @2
    """),
    code("""
        $d = dict.fromkeys(input().split(), 0)
        short = 0
        lines = [input().split() for _ in range(int(input()))]
        for line in lines:
            $k, $n = line[1], int(line[2])
            have = $d[$k]
            if line[0] == "in":
                $d[$k] = have + @0
            else:
                if have < $n:
                    short += 1
                    @1
                $d[$k] = have - $n
                if line[0] == "send":
                    $d[line[3]] += $n
        @2
    """),
)
_DEPOSITS = {
    "plain": step("$n", "in adds the amount."),
    "bonus": step("$n + $n // 10 * 2", "in adds the amount and 2 more for each full 10."),
    "double": step("(2 * $n if have == 0 else $n)", "in adds the amount, twice if the account was at 0."),
}
_SHORTAGES = {
    "refuse": step("continue", "Taking more than an account has does nothing but add 1 to short."),
    "partial": step("$n = have", "Taking more than an account has takes all it has and adds 1 to short."),
    "half": step(
        "$n = have // 2",
        "Taking more than an account has takes half of it (rounded down) and adds 1 to short.",
    ),
}
_ACCOUNT_REPORTS = {
    "all": Step(
        ("Print name:balance in alphabetical order, one a line, then short.",),
        (
            'for $k in sorted($d):\n    print(f"{$k}:{$d[$k]}")\nprint(short)',
            'for $k, $n in sorted($d.items()):\n    print($k + ":" + str($n))\nprint(short)',
        ),
    ),
    "richest": Step(
        ("Print the name with the highest balance (of equals the first in the alphabet), that balance and short.",),
        (
            "$k = min($d, key=lambda $k: (-$d[$k], $k))\nprint($k, $d[$k], short)",
            "$t = max($d.values())\n$w = [$k for $k in sorted($d) if $d[$k] == $t]\nprint($w[0], $t, short)",
        ),
    ),
    "spread": Step(
        ("Print the highest minus the lowest balance, the number of accounts at 0 and short, one a line.",),
        (
            "$w = list($d.values())\nprint(max($w) - min($w))\nprint($w.count(0))\nprint(short)",
            '$w = sorted($d.values())\nprint($w[-1] - $w[0], sum($x == 0 for $x in $w), short, sep="\\n")',
        ),
    ),
    "above": Step(
        ("Print short, then name and balance of accounts above the average in alphabetical order, one a line.",),
        (
            code("""
                print(short)
                for $k in sorted($d):
                    if $d[$k] * len($d) > sum($d.values()):
                        print($k, $d[$k])
            """),
            code("""
                $t = sum($d.values()) / len($d)
                print(short)
                for $k, $n in sorted($d.items()):
                    if $n > $t:
                        print($k, $n)
            """),
        ),
    ),
}


def _draw_orders(rng: random.Random) -> str:
    items = rng.sample(["tea", "ice", "egg", "net"], 2)
    stock = " ".join(f"{item} {rng.randint(6, 10)}" for item in items)
    orders = [f"{rng.choice(items)} {rng.randint(2, 8)}" for _ in range(rng.randint(4, 6))]
    return "\n".join([stock, str(len(orders)), *orders]) + "\n"


_ORDER_FRAMES = (
    code("""
        words = input().split()
        $d = {words[i]: int(words[i + 1]) for i in range(0, len(words), 2)}
        orders = []
        for _ in range(int(input())):
            $k, $n = input().split()
            orders.append(($k, int($n)))
        @0
        $w = []
        for $k, $n in orders:
            if $n > $d[$k]:
                @1
            $d[$k] -= $n
            $w.append(($k, $n))
        @2
    """),
    code("""
        import sys
        first, _, *lines = sys.stdin.read().splitlines()
        words = first.split()
        $d = dict(zip(words[::2], map(int, words[1::2])))
        orders = [(line.split()[0], int(line.split()[1])) for line in lines]
        @0
        $w = []
        for order in orders:
            $k, $n = order
            if $d[$k] < $n:
                @1
            $w.append(($k, $n))
            $d[$k] = $d[$k] - $n
        @2
    """),
)
_PRIORITIES = {
    "last": step("orders.reverse()", "Serve orders from the last to the first."),
    "small": Step(
        ("Serve small orders first (equal ones as given).",),
        ("orders.sort(key=lambda order: order[1])", "orders = sorted(orders, key=lambda order: order[1])"),
    ),
    "name": step("orders.sort(reverse=True)", "Serve orders in reverse alphabetical order of item, large ones first."),
}
_LACKS = {
    "skip": step("continue", "An order that asks for more than is left is skipped."),
    "part": step("$n = $d[$k]", "An order that asks for more than is left gets what is left, maybe 0."),
    "stop": step("break", "Serving ends at the first order that asks for more than is left."),
}
_ORDER_REPORTS = {
    "log": Step(
        ("Print item and amount of each served order, one a line, then the number of served orders.",),
        (
            "for $k, $n in $w:\n    print($k, $n)\nprint(len($w))",
            'for $x in $w:\n    print(f"{$x[0]} {$x[1]}")\nprint(len($w))',
        ),
    ),
    "left": Step(
        ("Print the amounts left as item:amount in alphabetical order on one line, then the amount served in all.",),
        (
            'print(*[f"{$k}:{$d[$k]}" for $k in sorted($d)])\nprint(sum($n for _, $n in $w))',
            code("""
                $t = 0
                for _, $n in $w:
                    $t += $n
                print(" ".join($k + ":" + str($n) for $k, $n in sorted($d.items())))
                print($t)
            """),
        ),
    ),
    "items": Step(
        ("For each item in alphabetical order print item, number of served orders for it and amount left.",),
        (
            "for $k in sorted($d):\n    print($k, sum($x[0] == $k for $x in $w), $d[$k])",
            code("""
                $t = {$k: 0 for $k in $d}
                for $k, _ in $w:
                    $t[$k] += 1
                for $k in sorted($d):
                    print($k, $t[$k], $d[$k])
            """),
        ),
    ),
    "most": Step(
        ("Print the item with the most left (of equals the first in the alphabet), then the served amounts or none.",),
        (
            'print(min($d, key=lambda $k: (-$d[$k], $k)))\nprint(*[$n for _, $n in $w] or ["none"])',
            'print(max(sorted($d), key=$d.get))\nprint(" ".join(str($n) for $k, $n in $w) or "none")',
        ),
    ),
}

FAMILIES = (
    framed_family(
        "account-log",
        _draw_accounts,
        (
            "Line 1 names accounts, all at 0; line 2 is n, then n lines 'in name amount', 'out name amount' "
            "or 'send name amount other'.",
        ),
        _ACCOUNT_FRAMES,
        _DEPOSITS,
        _SHORTAGES,
        _ACCOUNT_REPORTS,
    ),
    framed_family(
        "stock-orders",
        _draw_orders,
        ("Line 1 lists items and their stock, line 2 is n, then n orders: item amount.",),
        _ORDER_FRAMES,
        _PRIORITIES,
        _LACKS,
        _ORDER_REPORTS,
        without=("part/left", "part/items"),
    ),
)
