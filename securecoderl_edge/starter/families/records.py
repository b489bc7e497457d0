"""Families about records, one a line: sorting, aggregates, computed columns, joins."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from securecoderl_edge.starter.families._text_pieces import Piece, indented, keys, program
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import WORDS, name, phrase

_SHORT = [word for word in WORDS if len(word) <= 4]
_ROWS = ("rows", "records", "table", "data")


def _draw_rows(draws: Random, separator: str, columns: int, *, rows: tuple[int, int] = (3, 5), top: int = 20) -> str:
    """``n`` and then ``n`` lines of a different name each and small numbers."""
    names = draws.sample(_SHORT, draws.randint(*rows))
    lines = [separator.join([each, *(str(draws.randint(1, top)) for _ in range(columns))]) for each in names]
    return f"{len(lines)}\n" + "\n".join(lines) + "\n"


# record-sort: which records x their order x how they are shown

_WANTED = {
    "big": Piece("v > 20", ("with a number above 20", "whose number is greater than 20")),
    "even": Piece("v % 2 == 0", ("with an even number", "whose number is even")),
    "short": Piece("len(k) == 3", ("with a name of 3 letters", "whose name has three letters")),
    "more": Piece("v % 10 > len(k)", ("whose number ends in a digit greater than the length of the name",)),
}
_ORDERS = {
    "up": Piece("(v, k)", ("by number ascending, ties by name", "smallest number first, ties by name")),
    "down": Piece("(-v, k)", ("by number descending, ties by name", "largest number first, ties by name")),
    "final": Piece("(k[-1], k)", ("by the last letter of the name, ties by name",)),
    "digit": Piece("(v % 10, v, k)", ("by the last digit of the number, then by number, then by name",)),
}
_SHOWS = {
    "names": Piece("k", ("their names", "just the names")),
    "pairs": Piece('f"{k}={v}"', ("them as name=number",)),
    "code": Piece(
        "k[0].upper() + str(v)", ("for each the upper-case first letter of the name and the number, like A7",)
    ),
}


def _draft_record_sort(key: str, rng: Random) -> Draft:
    wanted_key, order_key, show_key = key.split("/")
    wanted, order, show = _WANTED[wanted_key], _ORDERS[order_key], _SHOWS[show_key]
    task = (
        phrase(
            rng,
            "Read n, then n lines `name number`. ",
            "The first line is n; n lines with a name and a number follow. ",
        )
        + f"Take the ones {wanted.say(rng)}, sort them {order.say(rng)}, and print {show.say(rng)}, "
        + phrase(rng, 'with spaces between ("none" if there are none).', 'on one line, space separated, or "none".')
    )
    rows, out = name(rng, _ROWS), name(rng, ("out", "shown", "result"))
    loop = program(
        f"{rows} = []",
        "for _ in range(int(input())):",
        "    k, number = input().split()",
        "    v = int(number)",
        f"    if {wanted.code}:",
        f"        {rows}.append(({order.code}, {show.code}))",
        f"{rows}.sort()",
        f"{out} = [text for _, text in {rows}]",
        f'print(" ".join({out}) or "none")',
    )
    functions = program(
        "import sys",
        "",
        "",
        "def order(record):",
        "    k, v = record",
        f"    return {order.code}",
        "",
        "",
        "lines = sys.stdin.read().splitlines()[1:]",
        f"{rows} = [(line.split()[0], int(line.split()[1])) for line in lines]",
        f"{rows} = [(k, v) for k, v in {rows} if {wanted.code}]",
        f"{out} = [{show.code} for k, v in sorted({rows}, key=order)]",
        f'print(*({out} or ["none"]))',
    )
    return Draft(task, lambda draws: _draw_rows(draws, " ", 1, top=50), (loop, functions))


# record-aggregate: which records x a value of each x what is computed of the values

_CSV_WANTED = {
    "all": Piece("", ("all records",)),
    "less": Piece("a < b", ("records with a < b",)),
    "odd": Piece("(a + b) % 2 == 1", ("records where a + b is odd",)),
    "high": Piece("a >= 10 or b >= 10", ("records where a or b is at least 10",)),
}
_CSV_VALUES = {
    "gap": Piece("abs(a - b)", ("the distance between a and b", "|a - b|")),
    "product": Piece("a * b", ("the product a * b",)),
    "larger": Piece("max(a, b)", ("the larger of a and b",)),
    "weighted": Piece("a + 2 * b", ("a plus twice b", "a + 2 * b")),
}
_CSV_REDUCES = {
    "sum": Piece("sum(@)", ("the sum", "the total")),
    "top": Piece("max(@, default=0)", ("the maximum (0 without records)",)),
    "mean": Piece("sum(@) // len(@) if @ else 0", ("the average rounded down (0 without records)",)),
    "range": Piece("max(@) - min(@) if @ else 0", ("the maximum minus the minimum (0 without records)",)),
}


def _draft_record_aggregate(key: str, rng: Random) -> Draft:
    wanted_key, value_key, reduce_key = key.split("/")
    wanted, value, reduce = _CSV_WANTED[wanted_key], _CSV_VALUES[value_key], _CSV_REDUCES[reduce_key]
    task = (
        phrase(
            rng,
            "Read n, then n lines `name,a,b` with integers a and b. ",
            "n is on the first line; n lines name,a,b follow. ",
        )
        + f"Take {wanted.say(rng)}, compute {value.say(rng)} for each, "
        + f"and print {reduce.say(rng)} of these values."
    )
    rows, values = name(rng, _ROWS), name(rng, ("values", "found", "results"))
    step = f"{values}.append({value.code})"
    loop = program(
        "n = int(input())",
        f"{values} = []",
        "for _ in range(n):",
        '    parts = input().split(",")',
        "    a, b = int(parts[1]), int(parts[2])",
        indented(*([f"if {wanted.code}:", "    " + step] if wanted.code else [step])),
        f"print({reduce.on(values)})",
    )
    functions = program(
        "import sys",
        "",
        "",
        "def parse(line):",
        '    _, a, b = line.strip().split(",")',
        "    return int(a), int(b)",
        "",
        "",
        f"{rows} = [parse(line) for line in sys.stdin.readlines()[1:]]",
        f"{values} = [{value.code} for a, b in {rows}{' if ' + wanted.code if wanted.code else ''}]",
        f"print({reduce.on(values)})",
    )
    return Draft(task, lambda draws: _draw_rows(draws, ",", 2), (loop, functions))


# record-column: a value of each record x a column that looks at the other records x the line order

_COLUMNS = {
    "running": Piece("sum(@[: i + 1])", ("the running total of the values so far",)),
    "delta": Piece("@[i] - @[i - 1] if i else 0", ("the value minus the one of the record before (0 for the first)",)),
    "rank": Piece("1 + sum(x > @[i] for x in @)", ("the rank: 1 plus the number of larger values",)),
    "missing": Piece("max(@) - @[i]", ("how much the value lies below the largest value",)),
    "record": Piece("max(@[: i + 1])", ("the largest value so far",)),
}
_COLUMN_VALUES = {
    "gap": Piece("abs(a - b)", ("|a - b|",)),
    "sum": Piece("a + b", ("a + b",)),
    "rest": Piece("a * b % 10", ("the last digit of a * b",)),
}
_LINE_FORMS = {
    "colon": Piece('f"{k}:{@}"', ("name:column", "the name, a colon and the column")),
    "value": Piece('f"{v}/{@}"', ("value/column", "the value, a slash and the column")),
    "bars": Piece('k[0] + "|" + str(@)', ("the first letter of the name, a | and the column",)),
}


def _draft_record_column(key: str, rng: Random) -> Draft:
    column_key, value_key, form_key = key.split("/")
    column, value, form = _COLUMNS[column_key], _COLUMN_VALUES[value_key], _LINE_FORMS[form_key]
    task = (
        phrase(
            rng,
            "Read n, then n lines `name a b`. ",
            "The first line holds n, each of the next n a name and integers a, b. ",
        )
        + f"The value of a record is {value.say(rng)}, its column {column.say(rng)}. "
        + f"Print {form.say(rng)} for every record in input order, one a line."
    )
    values, names = name(rng, ("values", "vals", "xs")), name(rng, ("names", "labels", "who"))
    loop = program(
        f"{names}, {values} = [], []",
        "for _ in range(int(input())):",
        "    k, a, b = input().split()",
        "    a, b = int(a), int(b)",
        f"    {names}.append(k)",
        f"    {values}.append({value.code})",
        f"for i, k in enumerate({names}):",
        *([f"    v = {values}[i]"] if form_key == "value" else []),
        f"    column = {column.on(values)}",
        f"    print({form.on('column')})",
    )
    functions = program(
        "import sys",
        "",
        "",
        "def value(a, b):",
        f"    return {value.code}",
        "",
        "",
        f"def column({values}, i):",
        f"    return {column.on(values)}",
        "",
        "",
        "rows = [line.split() for line in sys.stdin.read().splitlines()[1:]]",
        f"{values} = [value(int(a), int(b)) for _, a, b in rows]",
        f"for i, v in enumerate({values}):",
        *([] if form_key == "value" else ["    k = rows[i][0]"]),
        f"    new = column({values}, i)",
        f"    print({form.on('new')})",
    )
    return Draft(task, lambda draws: _draw_rows(draws, " ", 2, rows=(3, 4)), (loop, functions))


# order-prices: orders joined with prices x what an unknown price means x the cost rule x the report


class _Missing(NamedTuple):
    """What to do with an order without a price, as lines inside the loop over orders."""

    lines: tuple[str, ...]
    texts: tuple[str, ...]


_MISSING = {
    "skip": _Missing(
        ("if item not in prices:", "    continue", "p = prices[item]"),
        ("orders of items without a price are ignored",),
    ),
    "default": _Missing(("p = prices.get(item, 5)",), ("an item without a price costs 5",)),
    "highest": _Missing(
        ("p = prices.get(item, max(prices.values()))",),
        ("an item without a price costs as much as the dearest one",),
    ),
}
_COSTS = {
    "plain": Piece("p * q", ("the price times q", "q times the price")),
    "bulk": Piece("p * q - (q >= 5) * q", ("the price times q, or (price - 1) times q when q is at least 5",)),
    "third": Piece("p * (q - q // 3)", ("the price times q, where every third piece is free",)),
    "fee": Piece("p * q + 2", ("the price times q plus 2",)),
}
_BILLS = {
    "total": Piece("sum(@)", ("the sum of all costs",)),
    "top": Piece("max(@, default=0)", ("the highest cost (0 if there is none)",)),
    "list": Piece('" ".join(map(str, @)) or "none"', ('the costs in order with spaces, or "none"',)),
    "span": Piece(
        'f"{min(@)}-{max(@)}" if @ else "none"',
        ('the lowest and the highest cost as low-high, or "none" if there is none',),
    ),
}


def _draft_order_prices(key: str, rng: Random) -> Draft:
    missing_key, cost_key, bill_key = key.split("/")
    missing, cost, bill = _MISSING[missing_key], _COSTS[cost_key], _BILLS[bill_key]
    task = (
        phrase(
            rng,
            "Line one holds prices `item=price`, line two orders `item*q`, both with spaces between. ",
            "Read a line of prices (item=price) and a line of orders (item*q), space separated. ",
        )
        + f"The cost of an order is {cost.say(rng)}; {rng.choice(missing.texts)}. Print {bill.say(rng)}."
    )
    costs, order = name(rng, ("costs", "bills", "amounts")), name(rng, ("order", "part", "entry"))
    result = bill.on(costs)
    loop = program(
        "prices = {}",
        f"for {order} in input().split():",
        f'    item, price = {order}.split("=")',
        "    prices[item] = int(price)",
        f"{costs} = []",
        f"for {order} in input().split():",
        f'    item, number = {order}.split("*")',
        "    q = int(number)",
        indented(*missing.lines),
        f"    {costs}.append({cost.code})",
        f"print({result})",
    )
    fallback = missing.lines[0].removeprefix("p = ") if missing_key != "skip" else "prices[item]"
    only = " if item in prices" if missing_key == "skip" else ""
    functions = program(
        "def read(mark):",
        "    pairs = [part.split(mark) for part in input().split()]",
        "    return [(item, int(number)) for item, number in pairs]",
        "",
        "",
        "def cost(p, q):",
        f"    return {cost.code}",
        "",
        "",
        'prices = dict(read("="))',
        f'{costs} = [cost({fallback}, q) for item, q in read("*"){only}]',
        f"print({result})",
    )

    def draw_input(draws: Random) -> str:
        items = draws.sample(_SHORT, 3)
        prices = [f"{item}={draws.randint(2, 9)}" for item in items[:2]]
        orders = [f"{draws.choice(items)}*{draws.randint(1, 7)}" for _ in range(draws.randint(2, 4))]
        return " ".join(prices) + "\n" + " ".join(orders) + "\n"

    return Draft(task, draw_input, (loop, functions))


FAMILIES = (
    Family("record-sort", keys(_WANTED, _ORDERS, _SHOWS), _draft_record_sort),
    Family(
        "record-aggregate",
        keys(_CSV_WANTED, _CSV_VALUES, _CSV_REDUCES, drop=("high/*/top",), size=56),
        _draft_record_aggregate,
    ),
    Family("record-column", keys(_COLUMNS, _COLUMN_VALUES, _LINE_FORMS), _draft_record_column),
    Family("order-prices", keys(_MISSING, _COSTS, _BILLS), _draft_order_prices),
)
