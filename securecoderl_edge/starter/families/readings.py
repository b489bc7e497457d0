"""Families about text that stands for something: version numbers, times of day, tokens between separators."""

from __future__ import annotations

from random import Random

from securecoderl_edge.starter.families._text_pieces import Piece, indented, keys, program
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import WORDS, name, phrase

# version-pick: which versions x which of them x what becomes of it

_VERSION_TESTS = {
    "all": Piece("", ("all versions",)),
    "stable": Piece("@[1] % 2 == 0", ("versions whose minor number is even",)),
    "patched": Piece("@[2] > 0", ("versions whose patch number is not 0",)),
    "odd": Piece("(@[0] + @[1] + @[2]) % 2 == 1", ("versions whose three numbers have an odd sum",)),
}
_VERSION_CHOICES = {
    "newest": Piece("max(@)", ("the newest",)),
    "oldest": Piece("min(@)", ("the oldest",)),
    "second": Piece("sorted(@)[-2:][0]", ("the second newest (the newest if there is only one)",)),
    "patch": Piece("max(@, key=lambda v: (v[2], v))", ("the one with the largest patch number (ties: the newest)",)),
}
_VERSION_CHANGES = {
    "same": Piece("", ("print it",)),
    "major": Piece("(@[0] + 1, 0, 0)", ("print the next major version (major plus 1, the rest 0)",)),
    "minor": Piece("(@[0], @[1] + 1, 0)", ("print the next minor version (minor plus 1, patch 0)",)),
    "patch": Piece("(@[0], @[1], @[2] + 1)", ("print it with the patch number increased by 1",)),
}


def _draft_version_pick(key: str, rng: Random) -> Draft:
    test_key, choice_key, change_key = key.split("/")
    test, choice, change = (
        _VERSION_TESTS[test_key],
        _VERSION_CHOICES[choice_key],
        _VERSION_CHANGES[change_key],
    )
    task = (
        phrase(
            rng,
            "Read versions major.minor.patch, separated by spaces. ",
            "One line holds versions like 1.10.2 (major.minor.patch). ",
        )
        + f"Compare them number by number. Of {test.say(rng)} take {choice.say(rng)} and {change.say(rng)}. "
        + phrase(rng, 'Print "none" if there is none.', 'Without such a version print "none".')
    )
    found, best = name(rng, ("found", "versions", "known")), name(rng, ("best", "v", "pick"))
    changed = change.on(best) if change.code else ""
    where = f" if {test.on('v')}" if test.code else ""
    compact = program(
        "def parse(text):",
        '    return tuple(int(part) for part in text.split("."))',
        "",
        "",
        f"{found} = [v for v in map(parse, input().split()){where}]",
        f"if {found}:",
        f"    {best} = {choice.on(found)}",
        f'    print(".".join(map(str, {changed or best})))',
        "else:",
        '    print("none")',
    )
    step = f"{found}.append((a, b, c))"
    test_parts = test.code.replace("@[0]", "a").replace("@[1]", "b").replace("@[2]", "c")
    loop = program(
        "import sys",
        "",
        f"{found} = []",
        "for text in sys.stdin.read().split():",
        '    a, b, c = map(int, text.split("."))',
        indented(*([f"if {test_parts}:", "    " + step] if test_parts else [step])),
        f"if not {found}:",
        '    print("none")',
        "else:",
        f"    {best} = {choice.on(found)}",
        *([f"    {best} = {changed}"] if changed else []),
        f'    print(f"{{{best}[0]}}.{{{best}[1]}}.{{{best}[2]}}")',
    )

    def draw_input(draws: Random) -> str:
        versions = [
            f"{draws.randint(1, 6)}.{draws.choice((0, 1, 2, 9, 10))}.{draws.choice((0, 0, 0, 1, 3, 10))}"
            for _ in range(draws.randint(4, 6))
        ]
        return " ".join(versions) + "\n"

    return Draft(task, draw_input, (compact, loop))


# clock-shift: a change of each time of day x rounding x notation

_SHIFTS = {
    "later": Piece("t + k", ("k minutes later",)),
    "earlier": Piece("t - k", ("k minutes earlier",)),
    "mirror": Piece("1440 - t + k", ("as many minutes before midnight as it was after it, and then k minutes later",)),
    "steps": Piece("t + i * k", ("i * k minutes later, where i is its place in the line (from 1)",)),
}
_ROUNDINGS = {
    "none": Piece("@", ("",)),
    "down": Piece("@ // 15 * 15", ("rounded down to a quarter of an hour",)),
    "up": Piece("-(-@ // 10) * 10", ("rounded up to a multiple of 10 minutes",)),
}
_NOTATIONS = {
    "day": Piece('f"{@ // 60:02d}:{@ % 60:02d}"', ("as hh:mm with two digits each",)),
    "half": Piece(
        "f\"{(@ // 60 - 1) % 12 + 1}{'ap'[@ >= 720]}{@ % 60:02d}\"",
        ("as the hour from 1 to 12, a (before noon) or p, and two digits of minutes (13:05 is 1p05)",),
    ),
    "minutes": Piece("str(@)", ("as the number of minutes since midnight",)),
    "left": Piece("str(1440 - @)", ("as the number of minutes until the next midnight (1 to 1440)",)),
}


def _draft_clock_shift(key: str, rng: Random) -> Draft:
    shift_key, rounding_key, notation_key = key.split("/")
    shift, rounding, notation = _SHIFTS[shift_key], _ROUNDINGS[rounding_key], _NOTATIONS[notation_key]
    rounded = rounding.say(rng)
    task = (
        phrase(rng, "The first line holds k, the second times hh:mm. ", "Read k, then a line of times hh:mm. ")
        + f"For each time print the time {shift.say(rng)}"
        + (f", {rounded}" if rounded else "")
        + ", wrapped around at 24 hours, "
        + f"{notation.say(rng)}; all on one line with spaces."
    )
    out = name(rng, ("out", "result", "times"))
    numbered = shift_key == "steps"
    loop = program(
        "k = int(input())",
        f"{out} = []",
        f"for {'i, text in enumerate(input().split(), 1)' if numbered else 'text in input().split()'}:",
        '    hours, minutes = text.split(":")',
        "    t = int(hours) * 60 + int(minutes)",
        f"    t = {shift.code}",
        *([f"    t = {rounding.on('t')}"] if rounded else []),
        "    t %= 1440",
        f"    {out}.append({notation.on('t')})",
        f'print(" ".join({out}))',
    )
    moved = rounding.on("(" + shift.code + ")") if rounded else f"({shift.code})"
    functions = program(
        "import sys",
        "",
        "",
        "def minutes(text):",
        "    return int(text[:2]) * 60 + int(text[3:])",
        "",
        "",
        f"def move({'i, t' if numbered else 't'}, k):",
        f"    return {moved} % 1440",
        "",
        "",
        "def show(t):",
        f"    return {notation.on('t')}",
        "",
        "",
        "k, *texts = sys.stdin.read().split()",
        f"{out} = [move(i, minutes(text), int(k)) for i, text in enumerate(texts, 1)]"
        if numbered
        else f"{out} = [move(minutes(text), int(k)) for text in texts]",
        f"print(*map(show, {out}))",
    )

    def draw_input(draws: Random) -> str:
        times = [f"{draws.randint(0, 23):02d}:{draws.randint(0, 59):02d}" for _ in range(draws.randint(1, 3))]
        return f"{draws.randint(5, 99)}\n" + " ".join(times) + "\n"

    return Draft(task, draw_input, (loop, functions))


# token-report: how a line is cut x the kind of token x what is printed

_CUTS = {
    "comma": Piece('@.split(",")', ("separated by commas",)),
    "mixed": Piece('@.replace(";", ",").split(",")', ("separated by commas or semicolons",)),
    "pairs": Piece('[p for part in @.split(",") for p in part.split("=")]', ("separated by commas or = signs",)),
}
_TOKEN_KINDS = {
    "number": Piece("@.isdigit()", ("tokens of digits only",)),
    "word": Piece("@.isalpha()", ("tokens of letters only",)),
    "blend": Piece("not @.isdigit() and not @.isalpha()", ("tokens that are neither all letters nor all digits",)),
    "name": Piece("not @[0].isdigit()", ("tokens that do not start with a digit",)),
}
_TOKEN_REPORTS = {
    "join": Piece('" ".join(@) or "none"', ('them with spaces, or "none"',)),
    "sizes": Piece('"+".join(str(len(t)) for t in @) or "none"', ('their lengths joined by +, or "none"',)),
    "ends": Piece('@[-1] + ">" + @[0] if @ else "none"', ('the last one, > and the first one, or "none"',)),
    "sorted": Piece(
        '"/".join(sorted(@, key=lambda t: (len(t), t))) or "none"',
        ('them sorted by length, then in text order, joined by /, or "none"',),
    ),
}


def _draft_token_report(key: str, rng: Random) -> Draft:
    cut_key, kind_key, report_key = key.split("/")
    cut, kind, report = _CUTS[cut_key], _TOKEN_KINDS[kind_key], _TOKEN_REPORTS[report_key]
    task = (
        phrase(rng, "Read a line of tokens ", "One line holds tokens ")
        + f"{cut.say(rng)}. Find the {kind.say(rng)} and print {report.say(rng)}."
    )
    found, token = name(rng, ("found", "hits", "chosen")), name(rng, ("field", "part", "piece"))
    functions = program(
        "def tokens(text):",
        f"    return {cut.on('text')}",
        "",
        "",
        "def wanted(token):",
        f"    return {kind.on('token')}",
        "",
        "",
        f"{found} = [t for t in tokens(input().strip()) if wanted(t)]",
        f"print({report.on(found)})",
    )
    marks = {"comma": ",", "mixed": ",;", "pairs": ",="}[cut_key]
    scanner = program(
        f"{found} = []",
        f'{token} = ""',
        'for c in input().strip() + ",":',
        f'    if c not in "{marks}":',
        f"        {token} += c",
        "    else:",
        f"        if {kind.on(token)}:",
        f"            {found}.append({token})",
        f'        {token} = ""',
        f"print({report.on(found)})",
    )

    def draw_token(draws: Random) -> str:
        word = draws.choice([word for word in WORDS if len(word) <= 4])
        number = str(draws.randint(1, 250))
        return draws.choice((word, number, word[:2] + number, number + word[:1]))

    def draw_input(draws: Random) -> str:
        text = draw_token(draws)
        for _ in range(draws.randint(4, 6)):
            text += draws.choice("," + marks[-1]) + draw_token(draws)
        return text + "\n"

    return Draft(task, draw_input, (functions, scanner))


FAMILIES = (
    Family(
        "version-pick",
        keys(_VERSION_TESTS, _VERSION_CHOICES, _VERSION_CHANGES, drop=("patched/patch/*",), size=56),
        _draft_version_pick,
    ),
    Family(
        "clock-shift",
        keys(_SHIFTS, _ROUNDINGS, _NOTATIONS, drop=("mirror/none/left", "mirror/none/minutes")),
        _draft_clock_shift,
    ),
    Family("token-report", keys(_CUTS, _TOKEN_KINDS, _TOKEN_REPORTS), _draft_token_report),
)
