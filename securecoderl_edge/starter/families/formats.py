"""Families about text formats: number styles, aligned tables, key=value settings, templates."""

from __future__ import annotations

from random import Random

from securecoderl_edge.starter.families._text_pieces import Piece, keys, program
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import LIST_NAMES, WORDS, name, phrase

_SHORT = [word for word in WORDS if len(word) <= 5]

# number-format: numbers derived from the input x how each is written x what stands between

_SERIES = {
    "plain": Piece("list(@)", ("the numbers as they are",)),
    "running": Piece("[sum(@[: i + 1]) for i in range(len(@))]", ("the running totals",)),
    "squares": Piece("[x * x for x in @]", ("the squares of the numbers",)),
    "sorted": Piece("sorted(@)", ("the numbers in ascending order",)),
    "gaps": Piece("[abs(y - x) for x, y in zip(@, @[1:])]", ("the absolute differences of neighbouring numbers",)),
}
_STYLES = {
    "zeros": Piece('f"{@:04d}"', ("padded with zeros to 4 digits",)),
    "dots": Piece('str(@).rjust(5, ".")', ("padded with dots on the left to width 5",)),
    "money": Piece('f"{@ // 100}.{@ % 100:02d}"', ("as an amount with the last two digits after a point (7 is 0.07)",)),
    "hex": Piece('format(@, "x")', ("in lower-case hexadecimal without a prefix",)),
    "binary": Piece("bin(@)[2:]", ("in binary without a prefix",)),
    "comma": Piece('f"{@ * 100:,}"', ("multiplied by 100, with commas between thousands",)),
}
_BETWEEN = {
    "space": Piece('" ".join(@)', ("separated by spaces",)),
    "bar": Piece('"|" + "|".join(@) + "|"', ("with | before, between and after them",)),
}


def _draft_number_format(key: str, rng: Random) -> Draft:
    series_key, style_key, between_key = key.split("/")
    series, style, between = _SERIES[series_key], _STYLES[style_key], _BETWEEN[between_key]
    task = (
        phrase(rng, "Read a line of positive integers. ", "One line holds positive integers. ")
        + phrase(rng, "Print ", "Write ")
        + f"{series.say(rng)}, each {style.say(rng)}, on one line {between.say(rng)}."
    )
    nums = name(rng, LIST_NAMES)
    functions = program(
        "def show(x):",
        f"    return {style.on('x')}",
        "",
        "",
        "def derive(xs):",
        f"    return {series.on('xs')}",
        "",
        "",
        f"{nums} = [int(part) for part in input().split()]",
        f"out = [show(x) for x in derive({nums})]",
        f"print({between.on('out')})",
    )
    loop = program(
        "import sys",
        "",
        f"{nums} = list(map(int, sys.stdin.read().split()))",
        "out = []",
        f"for value in {series.on(nums)}:",
        f"    out.append({style.on('value')})",
        f"print({between.on('out')})",
    )

    def draw_input(draws: Random) -> str:
        return " ".join(str(draws.randint(1, 120)) for _ in range(draws.randint(3, 5))) + "\n"

    return Draft(task, draw_input, (functions, loop))


# aligned-table: how names and numbers are aligned x the last line

_NAME_CELLS = {
    "left": Piece("@.ljust(wide, FILL)", ("padded on the right",)),
    "right": Piece("@.rjust(wide, FILL)", ("padded on the left",)),
    "title": Piece("@.title().ljust(wide, FILL)", ("with a capital first letter, padded on the right",)),
}
_FILLS = {"dot": Piece('"."', ("dots",)), "dash": Piece('"-"', ("dashes (-)",))}
_NUMBER_CELLS = {
    "zeros": Piece("str(@).zfill(3)", ("padded with zeros to 3 digits",)),
    "bar": Piece('"#" * @', ("as that many # signs",)),
    "share": Piece(
        'str(@ * 100 // total) + "%"', ("as its percentage of the sum of all numbers, rounded down, with %",)
    ),
}
_FOOTERS = {
    "sum": Piece('"sum " + str(total)', ("`sum` and the sum of the numbers",)),
    "top": Piece(
        '"top " + max(rows, key=lambda row: row[1])[0]', ("`top` and the first name with the largest number",)
    ),
    "rows": Piece('f"{len(rows)} rows"', ("the number of records and the word `rows`",)),
}


def _draft_aligned_table(key: str, rng: Random) -> Draft:
    cell_key, fill_key, number_key, footer_key = key.split("/")
    cell, fill = _NAME_CELLS[cell_key], _FILLS[fill_key]
    number, footer = _NUMBER_CELLS[number_key], _FOOTERS[footer_key]
    task = (
        phrase(
            rng,
            "Read n, then n lines `name number`. ",
            "The first line is n; n lines with a name and a number follow. ",
        )
        + f"For each print the name, {cell.say(rng)} with {fill.say(rng)} to the length of the longest name, "
        + f"a space, and the number {number.say(rng)}. End with a line of {footer.say(rng)}."
    )
    label = cell.code.replace("FILL", fill.code)
    needs_total = "total" in number.code + footer.code
    loop = program(
        "rows = []",
        "for _ in range(int(input())):",
        "    who, number = input().split()",
        "    rows.append((who, int(number)))",
        "wide = max(len(who) for who, _ in rows)",
        *(["total = sum(x for _, x in rows)"] if needs_total else []),
        "for who, x in rows:",
        f"    print({label.replace('@', 'who')}, {number.on('x')})",
        f"print({footer.code})",
    )
    functions = program(
        "import sys",
        "",
        "",
        "def cells(rows):",
        "    wide = max(len(row[0]) for row in rows)",
        *(["    total = sum(row[1] for row in rows)"] if needs_total else []),
        "    for who, x in rows:",
        f'        yield {label.replace("@", "who")} + " " + {number.on("x")}',
        f"    yield {footer.code}",
        "",
        "",
        "parts = sys.stdin.read().split()[1:]",
        "rows = [(who, int(x)) for who, x in zip(parts[::2], parts[1::2])]",
        'print("\\n".join(cells(rows)))',
    )

    def draw_input(draws: Random) -> str:
        rows = [f"{word} {draws.randint(1, 9)}" for word in draws.sample(_SHORT, draws.randint(2, 3))]
        return f"{len(rows)}\n" + "\n".join(rows) + "\n"

    return Draft(task, draw_input, (loop, functions))


# settings: key=value parts x repeated keys x parts without a value x what is printed

_REPEATED = {
    "last": Piece("value", ("the last one wins", "the last value counts")),
    "first": Piece("settings.get(key, value)", ("the first one wins", "the first value counts")),
    "sum": Piece("settings.get(key, 0) + value", ("the values are added",)),
    "max": Piece("max(settings.get(key, 0), value)", ("the largest value counts",)),
}
_BARE = {
    "ignore": Piece("", ("parts without = are ignored",)),
    "one": Piece("1", ("a part without = has the value 1",)),
    "length": Piece("len(part)", ("a part without = has its length as value",)),
}
_SETTING_REPORTS = {
    "list": Piece(
        '" ".join(f"{k}={@[k]}" for k in sorted(@)) or "none"',
        ('all as key=value by key, spaced, or "none"',),
    ),
    "values": Piece(
        '"+".join(str(v) for v in @.values()) or "none"',
        ('the values by first use of their key, joined by +, or "none"',),
    ),
    "sum": Piece("sum(@.values()) * 10 + len(@)", ("ten times the sum of all values plus the number of keys",)),
    "keys": Piece(
        '" ".join(sorted(@, key=lambda k: (@[k], k))) or "none"',
        ('the keys by ascending value, ties by name, with spaces, or "none"',),
    ),
}


def _draft_settings(key: str, rng: Random) -> Draft:
    repeated_key, bare_key, report_key = key.split("/")
    repeated, bare, report = _REPEATED[repeated_key], _BARE[bare_key], _SETTING_REPORTS[report_key]
    task = (
        phrase(
            rng,
            "Read settings like `a=3;b=4` from a line. ",
            "One line holds parts key=number, split by semicolons. ",
        )
        + phrase(rng, "If a key is repeated, ", "When a key occurs again, ")
        + f"{repeated.say(rng)}; {bare.say(rng)}. Print {report.say(rng)}."
    )
    part = name(rng, ("part", "piece", "field"))
    if bare_key == "ignore":
        reading = [
            f'    if "=" not in {part}:',
            "        continue",
            f'    key, text = {part}.split("=")',
            "    value = int(text)",
        ]
    else:
        reading = [
            f'    if "=" in {part}:',
            f'        key, text = {part}.split("=")',
            "        value = int(text)",
            "    else:",
            f"        key, value = {part}, {bare.code.replace('part', part)}",
        ]
    loop = program(
        "settings = {}",
        f'for {part} in input().strip().split(";"):',
        *reading,
        f"    settings[key] = {repeated.code}",
        f"print({report.on('settings')})",
    )
    default = bare.code or "None"
    functions = program(
        "import sys",
        "",
        "",
        "def parse(part):",
        '    key, sign, text = part.partition("=")',
        f"    return key, int(text) if sign else {default}",
        "",
        "",
        "settings = {}",
        'for key, value in map(parse, sys.stdin.readline().strip().split(";")):',
        *(
            ["    if value is not None:", f"        settings[key] = {repeated.code}"]
            if bare_key == "ignore"
            else [f"    settings[key] = {repeated.code}"]
        ),
        f"print({report.on('settings')})",
    )

    def draw_input(draws: Random) -> str:
        pool = draws.sample(_SHORT, 3)
        parts = [f"{draws.choice(pool)}={draws.randint(1, 9)}" for _ in range(draws.randint(3, 5))]
        parts.insert(draws.randint(0, len(parts)), draws.choice(pool))
        return ";".join(parts) + "\n"

    return Draft(task, draw_input, (loop, functions))


# template: filling {slots} x what an unknown slot becomes x how a value is written

_UNKNOWN = {
    "keep": Piece('"{" + @ + "}"', ("stays as it is, with braces",)),
    "mark": Piece('"?"', ("becomes ?",)),
    "shout": Piece("@.upper()", ("becomes its name in upper case",)),
    "length": Piece("str(len(@))", ("becomes the length of its name",)),
}
_WRITTEN = {
    "plain": Piece("@", ("as it is",)),
    "upper": Piece("@.upper()", ("in upper case",)),
    "reverse": Piece("@[::-1]", ("backwards",)),
    "quoted": Piece('"<" + @ + ">"', ("between < and >",)),
    "short": Piece("@[:2]", ("cut to its first two letters",)),
    "twice": Piece("@ * 2", ("twice in a row",)),
}
_ENDINGS = {
    "text": Piece("@", ("Print the result",)),
    "back": Piece('" ".join(@.split()[::-1])', ("Print its words in reverse order",)),
}


def _draft_template(key: str, rng: Random) -> Draft:
    unknown_key, written_key, ending_key = key.split("/")
    unknown, written, ending = _UNKNOWN[unknown_key], _WRITTEN[written_key], _ENDINGS[ending_key]
    task = (
        phrase(
            rng,
            "Line one is a text with slots like {key}, line two holds key=value pairs with spaces. ",
            "Read a text with {key} slots, then a line of key=value pairs, space separated. ",
        )
        + f"Replace every slot by its value {written.say(rng)}; a slot without a value {unknown.say(rng)}. "
        + f"{ending.say(rng)}."
    )
    values, out = name(rng, ("values", "table", "known")), name(rng, ("out", "result", "filled"))
    loop = program(
        "text = input().strip()",
        f'{values} = dict(pair.split("=") for pair in input().split())',
        f'{out} = ""',
        'for part in text.split("{"):',
        '    slot, brace, rest = part.partition("}")',
        "    if not brace:",
        "        rest = part",
        f"    elif slot in {values}:",
        f"        {out} += {written.on(values + '[slot]')}",
        "    else:",
        f"        {out} += {unknown.on('slot')}",
        f"    {out} += rest",
        f"print({ending.on(out)})",
    )
    regular = program(
        "import re",
        "",
        "",
        "def fill(match):",
        "    slot = match.group(1)",
        f"    if slot not in {values}:",
        f"        return {unknown.on('slot')}",
        f"    return {written.on(values + '[slot]')}",
        "",
        "",
        "text = input().strip()",
        f'{values} = dict(pair.split("=") for pair in input().split())',
        f'{out} = re.sub(r"\\{{(\\w+)\\}}", fill, text)',
        f"print({ending.on(out)})",
    )

    def draw_input(draws: Random) -> str:
        slots = draws.sample(("name", "pet", "city", "tool"), 3)
        text = [f"{{{slot}}}" for slot in slots] + draws.sample(("has", "a", "in", "the"), 2)
        draws.shuffle(text)
        pairs = [f"{slot}={draws.choice(_SHORT)}" for slot in slots[:2]]
        return " ".join(text) + "\n" + " ".join(pairs) + "\n"

    return Draft(task, draw_input, (loop, regular))


FAMILIES = (
    Family("number-format", keys(_SERIES, _STYLES, _BETWEEN), _draft_number_format),
    Family("aligned-table", keys(_NAME_CELLS, _FILLS, _NUMBER_CELLS, _FOOTERS), _draft_aligned_table),
    Family("settings", keys(_REPEATED, _BARE, _SETTING_REPORTS), _draft_settings),
    Family("template", keys(_UNKNOWN, _WRITTEN, _ENDINGS), _draft_template),
)
