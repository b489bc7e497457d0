"""Families that follow a small system step by step: accounts, queues and stocks."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._compose import compose, piece
from securecoderl_edge.starter.family import Family


def _draw_changes(rng: random.Random) -> str:
    deposits = [rng.choice((10, 20, 25, 30, 40)) for _ in range(rng.randint(2, 4))]
    withdrawals = [-rng.choice((10, 15, 20, 25, 30, 33, 40)) for _ in range(rng.randint(2, 4))]
    changes = deposits + withdrawals
    rng.shuffle(changes)
    return " ".join(map(str, changes)) + "\n"


ACCOUNTS = compose(
    "accounts",
    {
        "deposit": {
            "plain": piece("a deposit is added", "deposits are added in full", deposit="balance + amount"),
            "bonus": piece(
                "a deposit is added with half of it (rounded down) on top",
                deposit="balance + amount + amount // 2",
            ),
            "capped": piece(
                "a deposit is added, but the balance is cut to at most 40",
                deposit="min(balance + amount, 40)",
            ),
        },
        "withdraw": {
            "refuse": piece(
                "a withdrawal larger than the balance is refused",
                given="wanted if wanted <= balance else 0",
                charge="given",
            ),
            "partial": piece(
                "a withdrawal larger than the balance pays out the whole balance instead",
                given="min(wanted, balance)",
                charge="given",
            ),
            "overdraft": piece(
                "a withdrawal that would bring the balance below -10 is refused",
                given="wanted if balance - wanted >= -10 else 0",
                charge="given",
            ),
            "fee": piece(
                "a withdrawal costs 1 more, and is refused if the balance is too small for both",
                given="wanted if wanted < balance else 0",
                charge="(given + 1 if given else 0)",
            ),
        },
        "ask": {
            "balance": piece(
                "the final balance", "the balance at the end", begin="", watch="", note="", show="balance"
            ),
            "payouts": piece(
                "the amount paid out for each withdrawal, on one line",
                begin="payouts = []",
                watch="payouts.append(given)",
                note="",
                show="*payouts",
            ),
            "paid": piece(
                "how much was paid out in total",
                begin="paid = 0",
                watch="paid += given",
                note="",
                show="paid",
            ),
            "history": piece(
                "the balance after every transaction, on one line",
                begin="history = []",
                watch="",
                note="history.append(balance)",
                show="*history",
            ),
        },
    },
    (
        "Read a line of transactions of an account that starts at 0: positive numbers are deposits, "
        "negative ones withdrawals."
        " The rules: $deposit; $withdraw. Print $ask.",
        "An account starts with 0. The input line has deposits (positive) and withdrawals (negative); "
        "$deposit; $withdraw."
        " Print $ask.",
    ),
    (
        """\
balance = 0
$begin
for amount in $ints:
    if amount > 0:
        balance = $deposit
    else:
        wanted = -amount
        given = $given
        balance -= $charge
        $watch
    $note
print($show)
""",
        """\
def payout(balance, wanted):
    return $given


balance = 0
$begin
changes = [int(part) for part in input().split()]
while changes:
    amount = changes.pop(0)
    if amount > 0:
        balance = $deposit
    else:
        wanted = abs(amount)
        given = payout(balance, wanted)
        $watch
        balance = balance - $charge
    $note
print($show)
""",
    ),
    _draw_changes,
)


def _draw_arrivals(rng: random.Random) -> str:
    numbers = [str(rng.randint(1, 20)) for _ in range(rng.randint(5, 6))]
    later = [*numbers[4:], *"-" * rng.randint(3, 5)]
    rng.shuffle(later)
    return " ".join(numbers[:4] + later) + "\n"


QUEUES = compose(
    "queues",
    {
        "next": {
            "first": piece(
                "the number that came first",
                index="0",
                imports="from collections import deque\n\n",
                make="deque()",
                push="waiting.append(int(token))",
                pop="waiting.popleft()",
            ),
            "latest": piece(
                "the number that came last",
                index="-1",
                imports="",
                make="[]",
                push="waiting.append(int(token))",
                pop="waiting.pop()",
            ),
            "smallest": piece(
                "the smallest number",
                index="waiting.index(min(waiting))",
                imports="",
                make="[]",
                push="heapq.heappush(waiting, int(token))",
                pop="heapq.heappop(waiting)",
            ),
            "largest": piece(
                "the largest number",
                index="waiting.index(max(waiting))",
                imports="",
                make="[]",
                push="heapq.heappush(waiting, -int(token))",
                pop="-heapq.heappop(waiting)",
            ),
        },
        "full": {
            "none": piece("Any number of them can wait", full="", full_call=""),
            "ignore": piece(
                "While 3 are waiting, new numbers are ignored",
                full="if len(waiting) == 3:\n    continue",
                full_call="if len(waiting) == 3:\n    continue",
            ),
            "serve": piece(
                "If 3 are waiting when a number comes, one is served first",
                full="if len(waiting) == 3:\n    served.append(waiting.pop($index))",
                full_call="if len(waiting) == 3:\n    serve()",
            ),
        },
        "ask": {
            "served": piece("the served numbers in order, or none", ask='" ".join(map(str, served)) or "none"'),
            "weighted": piece(
                "the sum of every served number times its place in the order of serving (from 1)",
                ask="sum(place * number for place, number in enumerate(served, 1))",
            ),
            "jump": piece(
                "the largest difference of two numbers served one after the other (0 if there are not two)",
                ask="max((abs(a - b) for a, b in zip(served, served[1:])), default=0)",
            ),
            "alternating": piece(
                "the first served number minus the second plus the third and so on (0 if none)",
                ask="sum(served[::2]) - sum(served[1::2])",
            ),
        },
    },
    (
        "Read a line of numbers and '-'. A number starts to wait; '-' serves $next of those waiting, or "
        "does nothing if there is"
        " none. $full. Print $ask.",
    ),
    (
        """\
waiting, served = [], []
for token in input().split():
    if token == "-":
        if waiting:
            served.append(waiting.pop($index))
        continue
    $full
    waiting.append(int(token))
print($ask)
""",
        """\
$imports
def serve():
    served.append($pop)


waiting = $make
served = []
for token in input().split():
    if token != "-":
        $full_call
        $push
    elif waiting:
        serve()
print($ask)
""",
    ),
    _draw_arrivals,
)

STOCK_NAMES = ("tea", "ice", "egg")


def _draw_stock(rng: random.Random) -> str:
    events = [f"{rng.choice(STOCK_NAMES)}{rng.choice('++-')}{rng.randint(1, 9)}" for _ in range(rng.randint(4, 7))]
    return " ".join(events) + "\n"


STOCKS = compose(
    "stocks",
    {
        "short": {
            "ignore": piece(
                "an event that would bring it below 0 is ignored",
                after="stock[item] if stock[item] + change < 0 else stock[item] + change",
                low="if have + change < 0:\n    return have",
            ),
            "empty": piece(
                "it never goes below 0",
                after="max(stock[item] + change, 0)",
                low="if have + change < 0:\n    return 0",
            ),
            "negative": piece("it may go below 0", after="stock[item] + change", low=""),
        },
        "limit": {
            "none": piece("has no upper limit", limit="", high="return have + change"),
            "cut": piece(
                "is cut to 9 when it is larger",
                limit="stock[item] = min(stock[item], 9)",
                high="return min(have + change, 9)",
            ),
            "tens": piece(
                "drops by 10 when it is 10 or more",
                limit="if stock[item] >= 10:\n    stock[item] -= 10",
                high="have += change\nreturn have - 10 if have >= 10 else have",
            ),
        },
        "ask": {
            "list": piece(
                "the items that occur, in alphabetical order, as item=amount on one line",
                ask='*[f"{item}={stock[item]}" for item in sorted(stock)]',
            ),
            "total": piece("the sum of all amounts", ask="sum(stock.values())"),
            "most": piece(
                "the item with the largest amount (the first in alphabetical order of those) and that amount",
                ask="*max(sorted(stock.items()), key=lambda pair: pair[1])",
            ),
            "squares": piece(
                "the sum of the squares of the amounts", ask="sum(amount**2 for amount in stock.values())"
            ),
            "spread": piece(
                "the largest amount minus the smallest of the items that occur",
                ask="max(stock.values()) - min(stock.values())",
            ),
        },
    },
    (
        "Read a line of events such as tea+3 or ice-2: an item of three letters and the change of its "
        "amount. Every amount starts"
        " at 0; $short, and the amount $limit. Print $ask.",
    ),
    (
        """\
stock = {}
for event in input().split():
    item, change = event[:3], int(event[3:])
    stock.setdefault(item, 0)
    stock[item] = $after
    $limit
print($ask)
""",
        """\
def update(have, change):
    $low
    $high


stock = {}
for event in input().split():
    item, amount = event[:3], int(event[4:])
    change = amount if event[3] == "+" else -amount
    stock[item] = update(stock.get(item, 0), change)
print($ask)
""",
    ),
    _draw_stock,
)

FAMILIES: tuple[Family, ...] = (ACCOUNTS, QUEUES, STOCKS)
