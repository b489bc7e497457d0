"""Families about parts of a word: runs of equal letters, substrings with a property, levels of brackets."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from securecoderl_edge.starter.families._text_pieces import Piece, indented, keys, program
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import TEXT_NAMES, name, phrase

# letter-runs: maximal runs of equal letters, filtered and reported

_RUN_TESTS = {
    "all": Piece("", ("every run", "all runs")),
    "long": Piece("n >= 2", ("the runs of at least two letters", "runs of length 2 or more")),
    "even": Piece("n % 2 == 0", ("the runs of even length", "runs whose length is even")),
    "odd": Piece("n % 2 == 1", ("the runs of odd length", "runs whose length is odd")),
    "vowel": Piece('c in "aeiou"', ("the runs of a vowel (a, e, i, o, u)", "runs made of a vowel")),
    "consonant": Piece('c not in "aeiou"', ("the runs of a consonant (not a, e, i, o, u)", "runs made of a consonant")),
    "second": Piece("i % 2 == 0", ("every second run (the 2nd, 4th, ...)", "the runs number 2, 4, 6, ...")),
}


class _Report(NamedTuple):
    """What is printed of the chosen runs: an item for each, and the expression on the list ``@`` of items."""

    item: str
    result: str
    texts: tuple[str, ...]


_RUN_REPORTS = {
    "pair": _Report(
        "c + str(n)",
        '"".join(@) or "none"',
        (
            'their letter and length without spaces (like a3b1), or "none"',
            'letter then length of each, joined, or "none"',
        ),
    ),
    "lengths": _Report("str(n)", '" ".join(@) or "none"', ('their lengths with spaces, or "none"',)),
    "once": _Report("c", '"".join(@) or "none"', ('the letter of each once, joined, or "none"',)),
    "keep": _Report("c * n", '"-".join(@) or "none"', ('them in full joined by "-", or "none"',)),
    "count": _Report("c", "len(@)", ("how many there are", "their number")),
    "total": _Report("n", "sum(@)", ("how many letters they have together", "the sum of their lengths")),
    "longest": _Report("n", "max(@, default=0)", ("the length of the longest of them, 0 if there is none",)),
}


def _draft_letter_runs(key: str, rng: Random) -> Draft:
    test_key, report_key = key.split("/")
    test, report = _RUN_TESTS[test_key], _RUN_REPORTS[report_key]
    task = (
        phrase(
            rng,
            "Read a lower-case word and split it into runs, ",
            "One line holds a word. Cut it into runs, ",
        )
        + phrase(rng, "longest stretches of equal letters. ", "maximal blocks of one repeated letter. ")
        + f"Take {test.say(rng)} and print {rng.choice(report.texts)}."
    )
    word, chosen = name(rng, TEXT_NAMES), name(rng, ("chosen", "parts", "out", "picked"))
    numbered = test_key == "second"
    source = "i, (c, n) in enumerate(runs, 1)" if numbered else "c, n in runs"
    where = f" if {test.code}" if test.code else ""
    grouped = program(
        "from itertools import groupby",
        "",
        f"{word} = input().strip()",
        f"runs = [(c, len(list(group))) for c, group in groupby({word})]",
        f"{chosen} = [{report.item} for {source}{where}]",
        f"print({report.result.replace('@', chosen)})",
    )
    step = f"{chosen}.append({report.item})"
    body = [f"if {test.code}:", "    " + step] if test.code else [step]
    loops = program(
        f"{word} = input().strip()",
        "runs = []",
        f"for c in {word}:",
        "    if runs and runs[-1][0] == c:",
        "        runs[-1][1] += 1",
        "    else:",
        "        runs.append([c, 1])",
        f"{chosen} = []",
        f"for {source}:",
        indented(*body),
        f"print({report.result.replace('@', chosen)})",
    )

    def draw_input(draws: Random) -> str:
        return "".join(draws.choice("aeiobcdx") * draws.randint(1, 4) for _ in range(draws.randint(4, 7))) + "\n"

    return Draft(task, draw_input, (grouped, loops))


# substrings: parts of a word x a property x a summary

_PARTS = {
    "all": Piece("", ("all substrings of at least 2 letters (equal ones at different places count separately)",)),
    "prefix": Piece("", ("all its prefixes of at least 2 letters, itself included",)),
    "suffix": Piece("", ("all its suffixes of at least 2 letters, itself included",)),
    "window": Piece("", ("all its substrings of exactly 3 letters, from left to right",)),
}
_PART_LISTS = {
    "all": "[w[i:j] for i in range(len(w)) for j in range(i + 2, len(w) + 1)]",
    "prefix": "[w[:j] for j in range(2, len(w) + 1)]",
    "suffix": "[w[i:] for i in range(len(w) - 1)]",
    "window": "[w[i : i + 3] for i in range(len(w) - 2)]",
}
_PROPERTIES = {
    "palindrome": Piece("@ == @[::-1]", ("are palindromes", "read the same backwards")),
    "ends": Piece("@[0] == @[-1]", ("start and end with the same letter", "have equal first and last letters")),
    "distinct": Piece("len(set(@)) == len(@)", ("have no repeated letter", "consist of different letters")),
    "vowels": Piece('sum(c in "aeiou" for c in @) >= 2', ("hold at least two vowels (a, e, i, o, u)",)),
    "ordered": Piece("list(@) == sorted(@)", ("have their letters in alphabetical order (equal allowed)",)),
    "both": Piece('"a" in @ and "b" in @', ("contain both a and b", "hold an a and also a b")),
}
_SUMMARIES = {
    "count": Piece("len(@)", ("how many there are", "their number")),
    "greatest": Piece('max(@, default="none")', ('the alphabetically largest of them, or "none"',)),
    "longest": Piece('max(@, key=len, default="none")', ('the first longest of them, or "none"',)),
    "least": Piece('min(@, default="none")', ('the alphabetically smallest of them, or "none"',)),
    "total": Piece("sum(len(p) for p in @)", ("the sum of their lengths", "how many letters they have together")),
}
# What makes the parts in nested or single loops, each `p` one part.
_PART_LOOPS = {
    "all": ("for i in range(n):", "    for j in range(i + 2, n + 1):", "        p = w[i:j]"),
    "prefix": ("for j in range(2, n + 1):", "    p = w[:j]"),
    "suffix": ("for i in range(n - 1):", "    p = w[i:]"),
    "window": ("for i in range(n - 2):", "    p = w[i : i + 3]"),
}


def _draft_substrings(key: str, rng: Random) -> Draft:
    part_key, property_key, summary_key = key.split("/")
    wanted, summary = _PROPERTIES[property_key], _SUMMARIES[summary_key]
    task = (
        phrase(rng, "Read a word and consider ", "One line holds a lower-case word. Look at ")
        + _PARTS[part_key].say(rng)
        + phrase(rng, ". Of those that ", ". Among the ones that ")
        + f"{wanted.say(rng)}, print {summary.say(rng)}."
    )
    found = name(rng, ("found", "good", "matches", "hits"))
    functions = program(
        "def good(part):",
        f"    return {wanted.on('part')}",
        "",
        "",
        "def parts(w):",
        f"    return {_PART_LISTS[part_key]}",
        "",
        "",
        f"{found} = [p for p in parts(input().strip()) if good(p)]",
        f"print({summary.on(found)})",
    )
    depth = len(_PART_LOOPS[part_key]) - 1
    loops = program(
        "w = input().strip()",
        "n = len(w)",
        f"{found} = []",
        *_PART_LOOPS[part_key],
        indented(f"if {wanted.on('p')}:", f"    {found}.append(p)", by=depth),
        f"print({summary.on(found)})",
    )

    def draw_input(draws: Random) -> str:
        return "".join(draws.choice("aabbceio") for _ in range(draws.randint(4, 7))) + "\n"

    return Draft(task, draw_input, (functions, loops))


# bracket-depth: which characters at which level of nested brackets x what to print of them

_KINDS = {
    "letter": Piece("@.isalpha()", ("letters",)),
    "vowel": Piece('@ in "aeiou"', ("vowels (a, e, i, o, u)",)),
    "digit": Piece("@.isdigit()", ("digits",)),
}
_LEVELS = {
    "exact": Piece("d == k", ("at depth k", "inside exactly k brackets")),
    "deep": Piece("d >= k", ("at depth k or more", "inside at least k brackets")),
    "shallow": Piece("d < k", ("at a depth below k", "inside fewer than k brackets")),
    "odd": Piece("d % 2 == 1", ("at an odd depth", "inside an odd number of brackets")),
    "even": Piece("d % 2 == 0", ("at an even depth (0 counts)", "inside an even number of brackets (0 counts)")),
    "deepest": Piece("d == k", ("at the greatest depth that the line reaches",)),
}
_LEVEL_REPORTS = {
    "count": Piece("len(@)", ("how many there are", "their number")),
    "join": Piece('"".join(c for c, i in @) or "none"', ('them without spaces, or "none"',)),
    "places": Piece("sum(i for c, i in @)", ("the sum of their positions (from 1, brackets included)",)),
}


def _nested(draws: Random, depth: int) -> str:
    text = ""
    for _ in range(draws.randint(1, 3)):
        text += draws.choice("aeiobcd123")
        if depth and draws.random() < 0.5:
            text += f"({_nested(draws, depth - 1)})"
    return text


def _draft_bracket_depth(key: str, rng: Random) -> Draft:
    kind_key, level_key, report_key = key.split("/")
    kind, level, report = _KINDS[kind_key], _LEVELS[level_key], _LEVEL_REPORTS[report_key]
    needs_k = "k" in level.code and level_key != "deepest"
    task = (
        phrase(rng, "Read a line with balanced brackets", "One line holds text with matching ( and )")
        + (", then a number k on the next line. " if needs_k else ". ")
        + phrase(
            rng,
            "A character's depth is the number of brackets around it. ",
            "Depth means how many brackets enclose it. ",
        )
        + f"Take the {kind.say(rng)} {level.say(rng)} and print {report.say(rng)}."
    )
    found, line = name(rng, ("found", "hits", "picked")), name(rng, ("line", "s", "text"))
    test = f"{kind.on('c')} and {level.code}"
    if needs_k:
        reading = ["k = int(input())"]
    elif level_key == "deepest":
        reading = [f'k = max({line}[:i].count("(") - {line}[:i].count(")") for i in range(len({line})))']
    else:
        reading = []
    loop = program(
        f"{line} = input().strip()",
        *reading,
        "d = 0",
        f"{found} = []",
        f"for i, c in enumerate({line}, 1):",
        '    if c == "(":',
        "        d += 1",
        '    elif c == ")":',
        "        d -= 1",
        f"    elif {test}:",
        f"        {found}.append((c, i))",
        f"print({report.on(found)})",
    )
    functions = program(
        "def depths(s):",
        "    d = 0",
        "    for c in s:",
        '        d += (c == "(") - (c == ")")',
        "        yield d",
        "",
        "",
        f"{line} = input().strip()",
        *([f"k = max(depths({line}))"] if level_key == "deepest" else reading),
        f"pairs = enumerate(zip({line}, depths({line})), 1)",
        f"{found} = [(c, i) for i, (c, d) in pairs if {test}]",
        f"print({report.on(found)})",
    )

    def draw_input(draws: Random) -> str:
        text = ""
        while "(" not in text:
            text = _nested(draws, 3)
        return f"{text}\n{draws.randint(1, 2)}\n" if needs_k else f"{text}\n"

    return Draft(task, draw_input, (loop, functions))


FAMILIES = (
    Family("letter-runs", keys(_RUN_TESTS, _RUN_REPORTS, drop=("all/total", "long/longest")), _draft_letter_runs),
    Family(
        "substrings",
        keys(
            _PARTS,
            _PROPERTIES,
            _SUMMARIES,
            drop=(
                "window/ends/*",
                "window/*/longest",
                "window/*/total",
                "prefix/*/greatest",
                "window/*/greatest",
                "all/vowels/greatest",
                "all/both/greatest",
                "suffix/palindrome/greatest",
                "all/vowels/longest",
                "all/both/longest",
                "suffix/ends/least",
                "prefix/*/least",
                "prefix/*/total",
                "suffix/*/total",
            ),
            size=56,
        ),
        _draft_substrings,
    ),
    Family("bracket-depth", keys(_KINDS, _LEVELS, _LEVEL_REPORTS), _draft_bracket_depth),
)
