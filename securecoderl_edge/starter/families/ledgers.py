"""Families about tables kept while reading: an inverted index, stock going in and out, ballots."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from securecoderl_edge.starter.families._text_pieces import Piece, indented, keys, program
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import WORDS, name, phrase

# inverted-index: on which lines words stand

_LINE_TESTS = {
    "many": Piece("len(@) >= 2", ("stand on at least two lines",)),
    "one": Piece("len(@) == 1", ("stand on only one line",)),
    "first": Piece("1 in @", ("stand on the first line",)),
    "not-last": Piece("n not in @", ("do not stand on the last line",)),
    "gap": Piece("min(@) > 1", ("do not stand on the first line",)),
}
_INDEX_ITEMS = {
    "lines": Piece(
        'w + ":" + ",".join(map(str, @))', ("word:numbers with the line numbers (from 1) joined by commas",)
    ),
    "latest": Piece("w + str(max(@))", ("the word followed by its last line number (from 1), without a space",)),
    "number": Piece("str(len(@)) + w", ("the number of lines it stands on followed by the word, without a space",)),
}
_INDEX_ORDERS = {
    "up": Piece("sorted(index)", ("in alphabetical order",)),
    "down": Piece("sorted(index, reverse=True)", ("in reverse alphabetical order",)),
    "back": Piece("sorted(index, key=lambda w: w[::-1])", ("ordered as if read backwards (by last letter first)",)),
}


def _draft_inverted_index(key: str, rng: Random) -> Draft:
    test_key, item_key, order_key = key.split("/")
    test, item, order = _LINE_TESTS[test_key], _INDEX_ITEMS[item_key], _INDEX_ORDERS[order_key]
    task = (
        phrase(rng, "Read n, then n lines of words. ", "The first line holds n; n lines of words follow. ")
        + f"Take the different words that {test.say(rng)}, {order.say(rng)}. "
        + f'Print {item.say(rng)}, all on one line with spaces ("none" if there are none).'
    )
    places, out = name(rng, ("places", "lines", "where")), name(rng, ("out", "parts", "result"))
    loop = program(
        "n = int(input())",
        "index = {}",
        "for i in range(1, n + 1):",
        "    for w in input().split():",
        f"        {places} = index.setdefault(w, [])",
        f"        if i not in {places}:",
        f"            {places}.append(i)",
        f"{out} = []",
        f"for w in {order.code}:",
        f"    {places} = index[w]",
        f"    if {test.on(places)}:",
        f"        {out}.append({item.on(places)})",
        f'print(" ".join({out}) or "none")',
    )
    compact = program(
        "import sys",
        "",
        "rows = [line.split() for line in sys.stdin.read().splitlines()[1:]]",
        "n = len(rows)",
        "index = {w for row in rows for w in row}",
        "",
        "",
        f"def {places}(w):",
        "    return [i for i, row in enumerate(rows, 1) if w in row]",
        "",
        "",
        f"chosen = [(w, {places}(w)) for w in {order.code}]",
        f"{out} = [{item.on('p')} for w, p in chosen if {test.on('p')}]",
        f'print(" ".join({out}) or "none")',
    )

    def draw_input(draws: Random) -> str:
        pool = draws.sample(WORDS, 5)
        rows = [" ".join(draws.choices(pool, k=draws.randint(2, 4))) for _ in range(draws.randint(2, 3))]
        return f"{len(rows)}\n" + "\n".join(rows) + "\n"

    return Draft(task, draw_input, (loop, compact))


# stock: items going in and out x a shortage rule x a limit x what is reported


class _Rule(NamedTuple):
    """Lines that turn the wanted amount ``q`` and what is ``have`` into the new stock ``new``."""

    lines: tuple[str, ...]
    texts: tuple[str, ...]


_SHORTAGES = {
    "refuse": _Rule(
        ("new = have - q if q <= have else have",),
        ("if there is not enough, nothing is taken", "too large takings are ignored"),
    ),
    "partial": _Rule(("new = max(0, have - q)",), ("if there is not enough, all that is there is taken",)),
    "debt": _Rule(("new = have - q",), ("the stock may become negative", "stocks below zero are allowed")),
    "half": _Rule(
        ("new = have - q if q <= have else have // 2",),
        ("if there is not enough, the stock becomes its half, rounded down",),
    ),
}
_LIMITS = {
    "none": _Rule(("new = have + q",), ("",)),
    "cut": _Rule(("new = min(10, have + q)",), ("at most 10 of an item are kept, the rest is thrown away",)),
    "reject": _Rule(
        ("new = have + q if have + q <= 10 else have",), ("an addition that would lead above 10 is ignored",)
    ),
}
_STOCK_REPORTS = {
    "list": Piece(
        '" ".join(k + str(v) for k, v in sorted(@.items()))',
        ("every item followed by its stock, by name, spaced",),
    ),
    "total": Piece("sum(@.values())", ("the sum of all stocks",)),
    "top": Piece(
        "max(sorted(@), key=@.get) + str(max(@.values()))",
        ("the item with the largest stock (alphabetically first if tied) and that stock, without a space",),
    ),
    "spread": Piece("max(@.values()) - min(@.values())", ("the difference between the largest and smallest stock",)),
}


def _draft_stock(key: str, rng: Random) -> Draft:
    shortage_key, limit_key, report_key = key.split("/")
    shortage, limit, report = _SHORTAGES[shortage_key], _LIMITS[limit_key], _STOCK_REPORTS[report_key]
    rules = "; ".join(text for text in (rng.choice(shortage.texts), rng.choice(limit.texts)) if text)
    task = (
        phrase(
            rng,
            "Read n, then n lines `item q`. ",
            "The first line is n; then come n lines with an item and a number q. ",
        )
        + phrase(rng, "A positive q is added to the item's stock (0 at first), a negative one is taken out. ")
        + f"Here {rules}. Print {report.say(rng)}, for all items named."
    )
    stock = name(rng, ("stock", "store", "left", "amounts"))
    loop = program(
        f"{stock} = {{}}",
        "for _ in range(int(input())):",
        "    item, number = input().split()",
        "    q = int(number)",
        f"    have = {stock}.get(item, 0)",
        "    if q >= 0:",
        indented(*limit.lines, by=2),
        "    else:",
        "        q = -q",
        indented(*shortage.lines, by=2),
        f"    {stock}[item] = new",
        f"print({report.on(stock)})",
    )
    functions = program(
        "import sys",
        "",
        "",
        "def add(have, q):",
        f"    return {limit.lines[0].removeprefix('new = ')}",
        "",
        "",
        "def take(have, q):",
        f"    return {shortage.lines[0].removeprefix('new = ')}",
        "",
        "",
        f"{stock} = {{}}",
        "for line in sys.stdin.read().splitlines()[1:]:",
        "    item, q = line.split()",
        '    change, size = (take, int(q[1:])) if q[0] == "-" else (add, int(q))',
        f"    {stock}[item] = change({stock}.get(item, 0), size)",
        f"print({report.on(stock)})",
    )

    def draw_input(draws: Random) -> str:
        items = draws.sample([word for word in WORDS if len(word) == 3], 2)
        amounts = [draws.choice((1, -1)) * draws.randint(3, 9) for _ in range(draws.randint(4, 5))]
        rows = [f"{draws.choice(items)} {amount}" for amount in (draws.randint(4, 9), *amounts)]
        return f"{len(rows)}\n" + "\n".join(rows) + "\n"

    return Draft(task, draw_input, (loop, functions))


# ballots: several votes of one voter x ties x what is reported

_REPEATS = {
    "every": Piece("", ("every vote counts, even of the same voter",)),
    "first": Piece("", ("only the first vote of each voter counts",)),
    "last": Piece("", ("only the last vote of each voter counts",)),
    "single": Piece("", ("voters with more than one vote do not count at all",)),
}
_REPEAT_LOOPS = {
    "every": ("counted = [choice for voter, choice in votes]",),
    "first": (
        "seen = {}",
        "for voter, choice in votes:",
        "    if voter not in seen:",
        "        seen[voter] = choice",
        "counted = list(seen.values())",
    ),
    "last": (
        "seen = {}",
        "for voter, choice in votes:",
        "    seen[voter] = choice",
        "counted = list(seen.values())",
    ),
    "single": (
        "voters = [voter for voter, choice in votes]",
        "counted = []",
        "for voter, choice in votes:",
        "    if voters.count(voter) == 1:",
        "        counted.append(choice)",
    ),
}
_REPEAT_EXPRESSIONS = {
    "every": "[c for v, c in votes]",
    "first": "dict(reversed(votes)).values()",
    "last": "dict(votes).values()",
    "single": "[c for v, c in votes if sum(v == other for other, _ in votes) == 1]",
}
_BALLOT_ORDERS = {
    "alphabet": Piece("(-tally[c], c)", ("more votes first, ties alphabetically",)),
    "backward": Piece("(-tally[c], -ord(c))", ("more votes first, ties in reverse alphabetical order",)),
    "fewest": Piece("(tally[c], c)", ("fewer votes first, ties alphabetically",)),
}
_BALLOT_REPORTS = {
    "ranking": Piece('"".join(@)', ("the ranking as one word", "the ordered letters together")),
    "scores": Piece('" ".join(c + str(tally[c]) for c in @)', ("the ranking with votes, like B3 A1",)),
    "head": Piece(
        "@[0] + str(sum(tally.values()))",
        ("the first of the ranking followed by the number of all counted votes",),
    ),
    "gap": Piece(
        "@[0] + str(abs(tally[@[0]] - tally[@[1]]))",
        ("the first of the ranking followed by how many votes it differs from the second",),
    ),
}


def _draft_ballots(key: str, rng: Random) -> Draft:
    repeat_key, order_key, report_key = key.split("/")
    order, report = _BALLOT_ORDERS[order_key], _BALLOT_REPORTS[report_key]
    task = (
        phrase(
            rng,
            "One line holds votes like x:A, meaning that voter x chose A. ",
            "Read votes `voter:choice` from a line. ",
        )
        + f"Choices are A, B and C; {_REPEATS[repeat_key].say(rng)}. "
        + f"Rank A, B and C by counted votes (0 is possible), {order.say(rng)}, and print {report.say(rng)}."
    )
    ranking = name(rng, ("ranking", "order", "places"))
    loop = program(
        'votes = [part.split(":") for part in input().split()]',
        *_REPEAT_LOOPS[repeat_key],
        'tally = {"A": 0, "B": 0, "C": 0}',
        "for choice in counted:",
        "    tally[choice] += 1",
        f"{ranking} = sorted(tally, key=lambda c: {order.code})",
        f"print({report.on(ranking)})",
    )
    compact = program(
        "import sys",
        "",
        "",
        "def counted(votes):",
        f"    return list({_REPEAT_EXPRESSIONS[repeat_key]})"
        if repeat_key in ("first", "last")
        else f"    return {_REPEAT_EXPRESSIONS[repeat_key]}",
        "",
        "",
        'parts = [part.split(":") for part in sys.stdin.read().split()]',
        "choices = counted(parts)",
        'tally = {c: choices.count(c) for c in "ABC"}',
        f'{ranking} = sorted("ABC", key=lambda c: {order.code})',
        f"print({report.on(ranking)})",
    )

    def draw_input(draws: Random) -> str:
        return " ".join(f"{draws.choice('xyzuvw')}:{draws.choice('ABC')}" for _ in range(draws.randint(6, 8))) + "\n"

    return Draft(task, draw_input, (loop, compact))


FAMILIES = (
    Family("inverted-index", keys(_LINE_TESTS, _INDEX_ITEMS, _INDEX_ORDERS), _draft_inverted_index),
    Family("stock", keys(_SHORTAGES, _LIMITS, _STOCK_REPORTS), _draft_stock),
    Family("ballots", keys(_REPEATS, _BALLOT_ORDERS, _BALLOT_REPORTS), _draft_ballots),
)
