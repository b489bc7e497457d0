"""Families about the characters of a line: classes, shifts in the alphabet, neighbours."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from securecoderl_edge.starter.families._text_pieces import Piece, indented, keys, program
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import name, phrase

_MIXED = "aeiouaeiuobcdklmnrstxyBCDLMRSTAEIOU0123456789-!?.+"


def _spell(rng: Random, alphabet: str, low: int, high: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(low, high)))


# line-characters: a class of characters x what to do with them, for each of n lines

_CLASSES = {
    "vowel": Piece('@.lower() in "aeiou"', ("vowels (a, e, i, o, u in either case)", "vowels (either case)")),
    "consonant": Piece(
        '@.isalpha() and @.lower() not in "aeiou"',
        ("consonants (letters other than a, e, i, o, u)", "consonants"),
    ),
    "digit": Piece("@.isdigit()", ("digits", "digit characters")),
    "upper": Piece("@.isupper()", ("upper-case letters", "capital letters")),
    "lower": Piece("@.islower()", ("lower-case letters", "small letters")),
    "sign": Piece("not @.isalnum()", ("characters that are neither letters nor digits", "non-alphanumeric characters")),
}


class _Action(NamedTuple):
    """What to do with the characters of a class, as an expression on ``s`` and as a loop over ``c``."""

    texts: tuple[str, ...]
    result: str
    start: str
    hit: str
    miss: str
    final: str


_ACTIONS = {
    "count": _Action(
        ("how many {} it has", "the number of {} in it"),
        "sum(1 for c in s if wanted(c))",
        "total = 0",
        "total += 1",
        "",
        "total",
    ),
    "keep": _Action(
        (
            'only its {}, joined together, or "none" if it has none',
            'its {} in order without the rest ("none" if empty)',
        ),
        '"".join(c for c in s if wanted(c)) or "none"',
        'out = ""',
        "out += c",
        "",
        'out or "none"',
    ),
    "remove": _Action(
        (
            'the line without its {}, or "none" if nothing is left',
            'what is left after deleting all {} ("none" if empty)',
        ),
        '"".join(c for c in s if not wanted(c)) or "none"',
        'out = ""',
        "",
        "out += c",
        'out or "none"',
    ),
    "mask": _Action(
        ("the line with all {} replaced by *", "the line where * stands for each of its {}"),
        '"".join("*" if wanted(c) else c for c in s)',
        'out = ""',
        'out += "*"',
        "out += c",
        "out",
    ),
    "double": _Action(
        ("the line with all {} written twice", "the line after doubling each of its {} in place"),
        '"".join(c * 2 if wanted(c) else c for c in s)',
        'out = ""',
        "out += c * 2",
        "out += c",
        "out",
    ),
    "positions": _Action(
        (
            'the positions (from 1) of its {}, space separated, or "none"',
            'where its {} are (from 1, spaced), or "none"',
        ),
        '" ".join(str(i) for i, c in enumerate(s, 1) if wanted(c)) or "none"',
        "out = []",
        "out.append(str(i))",
        "",
        '" ".join(out) or "none"',
    ),
    "front": _Action(
        (
            "the line with all {} moved to the front, order kept",
            "its {} first, then the other characters, order kept",
        ),
        '"".join(sorted(s, key=lambda c: not wanted(c)))',
        'out, rest = "", ""',
        "out += c",
        "rest += c",
        "out + rest",
    ),
    "flip": _Action(
        (
            "the line with its {} in reverse order, the other characters in place",
            "the line after reversing only its {}",
        ),
        '"".join(stack.pop() if wanted(c) else c for c in s)',
        'out = ""',
        "out += stack.pop()",
        "out += c",
        "out",
    ),
    "run": _Action(
        (
            "the length of its longest stretch of consecutive {}, 0 if none",
            "how long its longest block of {} is (0 if none)",
        ),
        'max(len(part) for part in "".join(c if wanted(c) else " " for c in s).split(" "))',
        "best = size = 0",
        "size += 1; best = max(best, size)",
        "size = 0",
        "best",
    ),
}


def _draft_line_characters(key: str, rng: Random) -> Draft:
    class_key, action_key = key.split("/")
    kind, action = _CLASSES[class_key], _ACTIONS[action_key]
    what = rng.choice(action.texts).format(kind.say(rng))
    task = phrase(
        rng,
        f"The first line holds n; n lines without spaces follow. For each of them print {what}.",
        f"Read n and then n lines of text (no spaces). For every line print {what}.",
    )
    line = name(rng, ("line", "text", "row", "word"))
    reverses = action_key == "flip"
    stack = ["    stack = [c for c in s if wanted(c)]"] if reverses else []
    functions = program(
        "import sys",
        "",
        "",
        "def wanted(c):",
        f"    return {kind.on('c')}",
        "",
        "",
        "def solve(s):",
        *stack,
        f"    return {action.result}",
        "",
        "",
        f"for {line} in sys.stdin.read().split()[1:]:",
        f"    print(solve({line}))",
    )
    test = kind.on("c")
    if action.hit:
        branch = [f"if {test}:", *("    " + step for step in action.hit.split("; "))]
        branch += ["else:", "    " + action.miss] if action.miss else []
    else:
        branch = [f"if not ({test}):", "    " + action.miss]
    loop = "for i, c in enumerate" if action_key == "positions" else "for c in "
    over = f"{loop}({line}, 1):" if action_key == "positions" else f"{loop}{line}:"
    loops = program(
        "n = int(input())",
        "for _ in range(n):",
        f"    {line} = input().strip()",
        *([f"    stack = [c for c in {line} if {test}]"] if reverses else []),
        "    " + action.start,
        "    " + over,
        indented(*branch, by=2),
        f"    print({action.final})",
    )

    def draw_input(draws: Random) -> str:
        lines = [_spell(draws, _MIXED, 4, 9) for _ in range(draws.randint(2, 3))]
        return "\n".join([str(len(lines)), *lines]) + "\n"

    return Draft(task, draw_input, (functions, loops))


# letter-shift: which letters of a word x by how much they move in the alphabet

_TARGETS = {
    "all": Piece("True", ("every letter", "each letter")),
    "vowel": Piece('c in "aeiou"', ("every vowel (a, e, i, o, u)", "each vowel")),
    "consonant": Piece('c not in "aeiou"', ("every consonant (letters other than a, e, i, o, u)", "each consonant")),
    "even": Piece("i % 2 == 0", ("every letter at an even position", "each letter whose position is even")),
    "early": Piece('c <= "m"', ("every letter from a to m", "each letter of the first half of the alphabet (a to m)")),
    "repeated": Piece("word.count(c) > 1", ("every letter that occurs more than once", "each repeated letter")),
}
_AMOUNTS = {
    "forward": Piece("k", ("k places forward", "forward by k letters")),
    "backward": Piece("-k", ("k places backward", "back by k letters")),
    "position": Piece("i", ("forward by its position", "as many places forward as its position")),
    "growing": Piece("k * i", ("forward by k times its position", "k * position places forward")),
    "length": Piece("len(word) - k", ("forward by the length of the word minus k", "by (word length - k) places")),
    "swing": Piece(
        "k if i % 2 else -k",
        (
            "k places forward at odd positions and k backward at even ones",
            "by +k at odd positions, by -k at even ones",
        ),
    ),
    "mirror": Piece(
        "25 - 2 * (ord(c) - 97) - k", ("to its mirror letter (a<->z, b<->y, ...), then k places backward",)
    ),
}


def _draft_letter_shift(key: str, rng: Random) -> Draft:
    target_key, amount_key = key.split("/")
    target, amount = _TARGETS[target_key], _AMOUNTS[amount_key]
    usual = target_key in ("all", "even", "early")
    task = (
        phrase(
            rng,
            "Read a number k and a lower-case word on one line.",
            "One line holds k and a lower-case word.",
        )
        + f" Move {target.say(rng)} {amount.say(rng)}, wrapping around between z and a; "
        + phrase(rng, "leave the others as they are", "other letters stay" if not usual else "anything else stays")
        + ". Positions count from 1 and refer to the word as read. Print the new word."
    )
    out = name(rng, ("out", "result", "coded", "answer"))
    condition = [] if target_key == "all" else [f"    if {target.code}:"]
    depth = 2 if condition else 1
    loop = program(
        "k, word = input().split()",
        "k = int(k)",
        f'{out} = ""',
        "for i, c in enumerate(word, 1):",
        *condition,
        indented(f"shift = {amount.code}", "c = chr((ord(c) - 97 + shift) % 26 + 97)", by=depth),
        f"    {out} += c",
        f"print({out})",
    )
    guard = [] if target_key == "all" else [f"    if not ({target.code}):", "        return c"]
    functions = program(
        'ALPHABET = "abcdefghijklmnopqrstuvwxyz"',
        "",
        "",
        "def move(i, c, word, k):",
        *guard,
        f"    shift = {amount.code}",
        "    return ALPHABET[(ALPHABET.index(c) + shift) % 26]",
        "",
        "",
        "first, word = input().split()",
        f"{out} = [move(i, c, word, int(first)) for i, c in enumerate(word, 1)]",
        f'print("".join({out}))',
    )

    def draw_input(draws: Random) -> str:
        return f"{draws.randint(1, 9)} {_spell(draws, 'aeiouabcdlmnprstxyz', 4, 9)}\n"

    return Draft(task, draw_input, (loop, functions))


# adjacent-letters: a relation between neighbouring letters x what is reported of such pairs

_RELATIONS = {
    "equal": Piece("a == b", ("are equal", "are the same letter")),
    "rise": Piece("a < b", ("rise (the second comes later in the alphabet)", "are in strict alphabetical order")),
    "fall": Piece("a > b", ("fall (the second comes earlier in the alphabet)", "go strictly back in the alphabet")),
    "vowels": Piece('a in "aeiou" and b in "aeiou"', ("are both vowels (a, e, i, o, u)", "are two vowels")),
    "opens": Piece('a in "aeiou" and b not in "aeiou"', ("are a vowel followed by a consonant",)),
    "closes": Piece('a not in "aeiou" and b in "aeiou"', ("are a consonant followed by a vowel",)),
    "next": Piece("abs(ord(a) - ord(b)) == 1", ("stand next to each other in the alphabet, in either order",)),
}


class _PairReport(NamedTuple):
    """What is printed of the pairs, from the (0-based) places ``spots`` of their first letters."""

    result: str
    texts: tuple[str, ...]


_PAIR_REPORTS = {
    "count": _PairReport("len(spots)", ("how many such pairs there are", "the number of such pairs")),
    "list": _PairReport(
        '" ".join(s[i : i + 2] for i in spots) or "none"',
        (
            'these pairs with spaces between, or "none"',
            'all such pairs, space separated ("none" without any)',
        ),
    ),
    "dash": _PairReport(
        '"".join("-" + c if i - 1 in spots else c for i, c in enumerate(s))',
        (
            "the word with a - inside every such pair",
            "the word after putting - between the letters of such pairs",
        ),
    ),
    "delete": _PairReport(
        '"".join(c for i, c in enumerate(s) if i - 1 not in spots)',
        (
            "the word without the second letter of every such pair",
            "what is left without their second letters",
        ),
    ),
    "positions": _PairReport(
        '" ".join(str(i + 1) for i in spots) or "none"',
        ('the positions (from 1) of their first letters with spaces, or "none"',),
    ),
    "capital": _PairReport(
        '"".join(c.upper() if i in spots or i - 1 in spots else c for i, c in enumerate(s))',
        ("the word with the letters of all such pairs in upper case",),
    ),
    "last": _PairReport(
        's[: spots[-1] + 2] if spots else "none"',
        ('the word cut off after the last such pair, or "none" without one',),
    ),
}


def _draft_adjacent_letters(key: str, rng: Random) -> Draft:
    relation_key, report_key = key.split("/")
    relation, report = _RELATIONS[relation_key], _PAIR_REPORTS[report_key]
    task = (
        phrase(rng, "Read a lower-case word and look at ", "One line holds a word of small letters. Consider ")
        + phrase(rng, "all pairs of neighbouring letters", "every two letters next to each other")
        + f" that {relation.say(rng)}. Pairs may overlap. Print {rng.choice(report.texts)}."
    )
    test, result = relation.code, report.result
    loop = program(
        "s = input().strip()",
        "spots = []",
        "for i in range(len(s) - 1):",
        "    a, b = s[i], s[i + 1]",
        f"    if {test}:",
        "        spots.append(i)",
        f"print({result})",
    )
    functions = program(
        "import sys",
        "",
        "",
        "def matches(a, b):",
        f"    return {test}",
        "",
        "",
        "def solve(s):",
        "    spots = {i for i, pair in enumerate(zip(s, s[1:])) if matches(*pair)}"
        if report_key in ("dash", "delete", "capital")
        else "    spots = [i for i in range(len(s) - 1) if matches(s[i], s[i + 1])]",
        f"    return {result}",
        "",
        "",
        "print(solve(sys.stdin.readline().strip()))",
    )

    def draw_input(draws: Random) -> str:
        return _spell(draws, "aeiobcddeeffaab", 5, 9) + "\n"

    return Draft(task, draw_input, (loop, functions))


FAMILIES = (
    Family("line-characters", keys(_CLASSES, _ACTIONS), _draft_line_characters),
    Family("letter-shift", keys(_TARGETS, _AMOUNTS, drop=("even/swing",)), _draft_letter_shift),
    Family("adjacent-letters", keys(_RELATIONS, _PAIR_REPORTS), _draft_adjacent_letters),
)
