"""Families about lists of words: which words stay, how they change, and what is printed of them."""

from __future__ import annotations

from family import Family

from families._compose import Piece, again, only, piece, without
from families._frames import ending, long_pipeline, pipeline
from families._inputs import (
    WORDS_ON_A_LINE,
    Source,
    compose_from,
    counted,
    line,
    words,
)
from families._pieces import (
    FOLDS,
    NUMBER_FOLDS,
    WORD_CHANGES,
    WORD_CONDITIONS,
    WORD_FILTERS,
    WORD_FOLDS,
    WORD_MAPS,
    idle,
)

_COUNTED = Source(
    ("The first line is n. Each of the next n lines holds a word.", "Read n and then n words, one on each line."),
    "n = int(input())\n$ws = [input() for _ in range(n)]",
    lambda rng: counted(words(rng)),
    "n = int(input())\nfor _ in range(n):\n    $w = input()",
)
_COMMAS = Source(
    ("Read a line of words separated by commas.", "The input is one line of words with commas between them."),
    '$ws = input().split(",")',
    lambda rng: line(words(rng), ","),
    'for $w in input().split(","):',
)
_UNTIL_END = Source(
    ('Read words, one on each line, until the line "end".', 'Each line holds a word; the last line is "end".'),
    '$ws = list(iter(input, "end"))',
    lambda rng: "".join(f"{word}\n" for word in [*words(rng), "end"]),
    'while True:\n    $w = input()\n    if $w == "end":\n        break',
)

# Keep, change, fold.

_PIPELINE = (
    pipeline("$ws", "$w")[0],
    "$start\n$loop\n    $follow\nprint($show)\n",
    *long_pipeline("$ws", "$w"),
)


def _no_a_to_star(keep: str, change: str, *rest: str) -> bool:
    return keep == "no-a" and change == "starred"


def _idle(keep: str, change: str, fold: str) -> bool:
    if fold == "letters" and change in ("upper", "title", "reversed", "starred"):
        return True
    if fold == "longest" and change == "last":
        return True  # all are equally long: a search for the first matching word
    if fold == "distinct" and change not in ("same", "last"):
        return True  # mostly as many as without the change
    return idle(keep, change, fold) or _no_a_to_star(keep, change)


def _pipelines(name: str, source: Source) -> Family:
    return compose_from(
        source,
        name,
        {
            "keep": WORD_FILTERS,
            "change": WORD_MAPS,
            "fold": WORD_FOLDS,
        },
        ("Print $fold $keep$change.", "Output $fold $keep$change."),
        _PIPELINE,
        _idle,
    )


# Change the words that meet a condition, and the others in another way or not at all.

_OTHERWISE = {
    "same": piece("leave it", value2="$w", otherwise=""),
    **{
        key: Piece((chosen.code["how2"],), {**chosen.code, "otherwise": "else:\n    $w = $value2"})
        for key, chosen in again(only(WORD_CHANGES, "upper", "reversed", "tail")).items()
    },
}
_CHANGE_SOME = (
    "$read\n$ys = [$value if $test else $value2 for $w in $ws]\nprint($whole)\n",
    """\
$start
$loop
    if $test:
        $w = $value
    $otherwise
    $y = $w
    $take
print($show)
""",
    """\
def change($w):
    if $test:
        return $value
    return $value2
"""
    + ending("[change($w) for $w in $ws]"),
    """\
def wanted($w):
    return $test


def change_all($ws):
    $ys = []
    for i in range(len($ws)):
        $w = $ws[i]
        if wanted($w):
            $y = $value
        else:
            $y = $value2
        $ys.append($y)
    return $ys
"""
    + ending("change_all($ws)"),
)


def _skip_change_some(keep: str, change: str, other: str, fold: str) -> bool:
    if change == other or _no_a_to_star(keep, change):
        return True
    return keep == "short" and (other != "same" or fold == "longest")  # the long words say the same


# The first or last word that meets a condition.

_ENDS = {
    "first": piece("first", walk="$ws", pick="0"),
    "last": piece("last", walk="$ws[::-1]", pick="-1"),
}
_FIND = (
    '$read\nprint(next(($value for $w in $walk if $test), "none"))\n',
    """\
$read
$ys = []
for $w in $ws:
    if $test:
        $ys.append($value)
print($ys[$pick] if $ys else "none")
""",
    """\
def find($ws):
    for $w in $walk:
        if $test:
            return $value
    return "none"


def main():
    $read
    print(find($ws))


main()
""",
    """\
def wanted($w):
    return $test


def change($w):
    return $value


def main():
    $read
    $t = "none"
    for $w in $walk:
        if wanted($w):
            $t = change($w)
            break
    print($t)


main()
""",
)

# Positions of words.

_COUNT_FROM = {
    "one": piece("1", base="1", after=", 1", plus=" + 1"),
    "zero": piece("0", base="0", after="", plus=""),
}
_POSITIONS = (
    "$read\n$ys = [i for i, $w in enumerate($ws$after) if $test]\nprint($whole)\n",
    """\
$start
place = $base
$loop
    if $test:
        $y = place
        $take
    place += 1
print($show)
""",
    """\
def positions($ws):
    $ys = []
    for i in range(len($ws)):
        $w = $ws[i]
        if $test:
            $ys.append(i$plus)
    return $ys
"""
    + ending("positions($ws)"),
    """\
class Finder:
    def __init__(self):
        self.place = $base
        self.found = []

    def look(self, $w):
        if $test:
            self.found.append(self.place)
        self.place += 1


def main():
    finder = Finder()
    $loop
        finder.look($w)
    $ys = finder.found
    print($whole)


main()
""",
)

# A word and the one after it.

_MAKE = {
    "both": piece("both glued together", value="$w + after"),
    "swapped": piece("the second and then the first glued together", value="after + $w"),
    "initials": piece("their first letters", value="$w[0] + after[0]"),
    "touching": piece("the last letter of the first and the first letter of the second", value="$w[-1] + after[0]"),
    "next": piece("the second", value="after"),
}
_PAIRS = (
    "$read\n$ys = [$value for $w, after in zip($ws, $ws[1:])$where]\nprint($whole)\n",
    """\
$read
$start
for i in range(len($ws) - 1):
    $w = $ws[i]
    after = $ws[i + 1]
    $follow
print($show)
""",
    """\
def join_pairs($ws):
    $ys = []
    for $w, after in zip($ws, $ws[1:]):
        $collect
    return $ys
"""
    + ending("join_pairs($ws)"),
    """\
def wanted($w):
    return $test


def make($w, after):
    return $value


def main():
    $read
    $ys = []
    $w = ""
    for after in $ws:
        if $w and wanted($w):
            $ys.append(make($w, after))
        $w = after
    print($whole)


main()
""",
)

FAMILIES: tuple[Family, ...] = (
    _pipelines("line-words", WORDS_ON_A_LINE),
    _pipelines("counted-words", _COUNTED),
    _pipelines("comma-words", _COMMAS),
    _pipelines("words-until-end", _UNTIL_END),
    compose_from(
        WORDS_ON_A_LINE,
        "change-some-words",
        {
            "keep": WORD_CONDITIONS,
            "change": WORD_CHANGES,
            "other": _OTHERWISE,
            "fold": only(WORD_FOLDS, "spaced", "dashed", "backwards", "sorted", "longest"),
        },
        (
            "If a word $when, $how; otherwise $other. Print $fold the new words.",
            "For each word: if it $when, $how, else $other. Output $fold the words after that.",
        ),
        _CHANGE_SOME,
        _skip_change_some,
    ),
    compose_from(
        _COUNTED,
        "first-matching-word",
        {"keep": WORD_CONDITIONS, "change": WORD_CHANGES, "end": _ENDS},
        (
            "Find the $end word that $when, and $how. Print the result, or none if there is no such word.",
            "Take the $end word that $when and $how. Output what you get (none if no word fits).",
        ),
        _FIND,
        _no_a_to_star,
    ),
    compose_from(
        WORDS_ON_A_LINE,
        "word-positions",
        {
            "keep": WORD_CONDITIONS,
            "origin": _COUNT_FROM,
            "fold": {**without(NUMBER_FOLDS, "distinct"), **only(FOLDS, "backwards", "dashed")},
        },
        (
            "Print $fold the positions (the first word is at $origin) of $keep.",
            "Words are numbered from $origin. Output $fold the numbers of $keep.",
        ),
        _POSITIONS,
        lambda keep, origin, fold: fold == "span" and origin == "zero",
    ),
    compose_from(
        _COMMAS,
        "word-pairs",
        {
            "keep": WORD_CONDITIONS,
            "make": _MAKE,
            "fold": only(WORD_FOLDS, "spaced", "dashed", "backwards", "sorted", "longest", "first"),
        },
        (
            "From each two neighbouring words of which the first $when, take $make. Print $fold the results.",
            "For each word and the next: if the first $when, take $make. Output $fold what you took.",
        ),
        _PAIRS,
        lambda _, make, fold: make in ("initials", "touching") and fold == "longest",
    ),
)
