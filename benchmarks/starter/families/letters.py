"""Families about the letters of a word or a line: which letters stay, how they change, and what is printed of them."""

from __future__ import annotations

from family import Family

from families._compose import Piece, again, only, piece
from families._frames import ending, long_pipeline, pipeline
from families._inputs import (
    WORDS_ON_A_LINE,
    Draw,
    Source,
    compose_from,
    line,
    word_line,
    words,
)
from families._pieces import (
    LETTER_CHANGES,
    LETTER_CONDITIONS,
    LETTER_FILTERS,
    LETTER_FOLDS,
    LETTER_MAPS,
    WORD_FOLDS,
    idle,
)


def _letters(sentences: tuple[str, ...], read: str, draw_input: Draw) -> Source:
    return Source(sentences, read, draw_input, f"{read}\nfor $c in $w:")


_WORD = _letters(
    ("Read a word.", "The input is one word."),
    "$w = input()",
    lambda rng: line(words(rng, (1, 2)), ""),
)
_LINE = _letters(
    ("Read a line of words and drop its spaces.", "The input is a line of words; leave out the spaces."),
    '$w = input().replace(" ", "")',
    word_line((2, 3)),
)

# Keep, change, fold.

_PIPELINE = (
    pipeline("$w", "$c")[0],
    """\
$read
$start
i = 0
while i < len($w):
    $c = $w[i]
    $follow
    i += 1
print($show)
""",
    *long_pipeline("$w", "$c"),
)


def _idle(keep: str, change: str, fold: str) -> bool:
    return idle(keep, change, fold) or (change == "place" and fold == "sorted")  # numbers sorted as text confuse


def _pipelines(name: str, source: Source) -> Family:
    return compose_from(
        source,
        name,
        {
            "keep": LETTER_FILTERS,
            "change": LETTER_MAPS,
            "fold": LETTER_FOLDS,
        },
        ("Print $fold $keep$change.", "Output $fold $keep$change."),
        _PIPELINE,
        _idle,
    )


# Keep and change the letters of each word, then fold the words.

_PER_WORD = (
    """\
$ys = ["".join($value for $c in $w if $test) for $w in input().split()]
$ys = [$y for $y in $ys if $y]
print($whole)
""",
    """\
$start
for $w in input().split():
    $y = ""
    for $c in $w:
        if $test:
            $y += $value
    if $y:
        $take
print($show)
""",
    """\
def change($w):
    $ys = []
    for $c in $w:
        $collect
    return "".join($ys)


def main():
    $read
    $ys = []
    for $w in $ws:
        $y = change($w)
        if $y:
            $ys.append($y)
    print($whole)


main()
""",
    """\
def wanted($c):
    return $test


def change($c):
    return $value


def shorten($w):
    return "".join(change($c) for $c in $w if wanted($c))


def main():
    $read
    $ys = []
    for $w in $ws:
        $y = shorten($w)
        if $y != "":
            $ys.append($y)
    print($whole)


main()
""",
)

# Change the letters that meet a condition, and the others in another way or not at all.

_OTHERWISE = {key: Piece((chosen.code["how2"],), chosen.code) for key, chosen in again(LETTER_MAPS).items()}
_CHANGE_SOME = (
    "$read\n$ys = [$value if $test else $value2 for $c in $w]\nprint($whole)\n",
    """\
$read
$start
for $c in $w:
    if $test:
        $y = $value
    else:
        $y = $value2
    $take
print($show)
""",
    """\
def change($c):
    if $test:
        return $value
    return $value2
"""
    + ending("[change($c) for $c in $w]"),
    """\
def wanted($c):
    return $test


def change_all($w):
    $ys = list($w)
    for i in range(len($ys)):
        $c = $ys[i]
        if wanted($c):
            $ys[i] = $value
        else:
            $ys[i] = $value2
    return $ys
"""
    + ending("change_all($w)"),
)


def _skip_change_some(keep: str, change: str, other: str, fold: str) -> bool:
    if change == other or (fold == "sorted" and "place" in (change, other)):
        return True
    return keep == "consonant" and other != "same"  # the same as a change of the vowels


# How often each letter occurs.

_ORDERS = {
    "appearance": piece("in order of first appearance", order="$d"),
    "alphabet": piece("in alphabetical order", order="sorted($d)"),
    "frequency": piece(
        "by falling count (equal ones by first appearance)",
        order="sorted($d, key=$d.get, reverse=True)",
    ),
}
_ENTRIES = {
    "after": piece("the letter and the count (like a2)", entry="$c + str($d[$c])"),
    "before": piece("the count and the letter (like 2a)", entry="str($d[$c]) + $c"),
    "repeated": piece("the letter repeated as often as it occurs", entry="$c * $d[$c]"),
    "colon": piece("the capital letter, a colon and the count (like A:2)", entry='$c.upper() + ":" + str($d[$c])'),
}
_COUNTS = (
    """\
$read
$d = {$c: $w.count($c) for $c in $w if $test}
print(*[$entry for $c in $order] or ["none"])
""",
    """\
$read
$d = {}
for $c in $w:
    if $test:
        $d[$c] = $d.get($c, 0) + 1
$ys = []
for $c in $order:
    $ys.append($entry)
print(" ".join($ys) or "none")
""",
    """\
def count($w):
    $d = {}
    for $c in $w:
        if $c in $d:
            $d[$c] += 1
        elif $test:
            $d[$c] = 1
    return $d


def main():
    $read
    $d = count($w)
    $ys = [$entry for $c in $order]
    print(*$ys or ["none"])


main()
""",
    """\
def wanted($c):
    return $test


def count($w):
    $d = {}
    for $c in $w:
        if not wanted($c):
            continue
        if $c not in $d:
            $d[$c] = 0
        $d[$c] += 1
    return $d


def main():
    $read
    $d = count($w)
    if not $d:
        print("none")
    else:
        print(" ".join($entry for $c in $order))


main()
""",
)

# A condition on the letter next to the one that is kept.

_NEAR = {
    key: Piece(chosen.words, {label: text.replace("$c", "near") for label, text in chosen.code.items()})
    for key, chosen in LETTER_CONDITIONS.items()
}
_SIDES = {
    "next": piece("next", two="$c, near", reach="len($w) - 1", at="i + 1"),
    "previous": piece("previous", two="near, $c", reach="1, len($w)", at="i - 1"),
}
_NEIGHBOURS = (
    "$read\n$ys = [$value for $two in zip($w, $w[1:]) if $test]\nprint($whole)\n",
    """\
$read
$start
for i in range($reach):
    $c = $w[i]
    near = $w[$at]
    $follow
print($show)
""",
    """\
def wanted(near):
    return $test


def keep($w):
    $ys = []
    for $two in zip($w, $w[1:]):
        if wanted(near):
            $ys.append($value)
    return $ys
"""
    + ending("keep($w)"),
    """\
def wanted(near):
    return $test


def change($c):
    return $value


def main():
    $read
    $ys = []
    for i in range($reach):
        if wanted($w[$at]):
            $ys.append(change($w[i]))
    print($whole)


main()
""",
)

FAMILIES: tuple[Family, ...] = (
    _pipelines("word-letters", _WORD),
    _pipelines("line-letters", _LINE),
    compose_from(
        WORDS_ON_A_LINE._replace(draw_input=word_line((3, 5))),
        "letters-of-each-word",
        {
            "keep": LETTER_CONDITIONS,
            "change": LETTER_MAPS,
            "fold": only(WORD_FOLDS, "spaced", "dashed", "backwards", "longest", "first"),
        },
        (
            "In each word keep only $keep$change. Print $fold the words that are not empty then.",
            "Reduce each word to $keep$change; drop the words with nothing left. Output $fold the others.",
        ),
        _PER_WORD,
        lambda keep, change, fold: change == "place" and fold == "first",
    ),
    compose_from(
        _WORD,
        "change-some-letters",
        {
            "keep": LETTER_CONDITIONS,
            "change": LETTER_CHANGES,
            "other": _OTHERWISE,
            "fold": only(LETTER_FOLDS, "glued", "spaced", "dashed", "backwards"),
        },
        (
            "If a letter $when, $how; otherwise $other. Print $fold the results.",
            "For each letter: if it $when, $how, else $other. Output $fold what you get.",
        ),
        _CHANGE_SOME,
        _skip_change_some,
    ),
    compose_from(
        _LINE,
        "letter-counts",
        {"keep": LETTER_CONDITIONS, "entry": _ENTRIES, "order": _ORDERS},
        (
            "For each different letter that $when, $order, print $entry, with spaces (or none).",
            "Count the letters. For each one that $when, $order, print $entry on one line (or none).",
        ),
        _COUNTS,
    ),
    compose_from(
        _WORD,
        "letter-neighbours",
        {
            "side": _SIDES,
            "keep": _NEAR,
            "change": LETTER_MAPS,
            "fold": LETTER_FOLDS,
        },
        (
            "Print $fold the letters whose $side letter $when$change.",
            "Keep the letters whose $side letter exists and $when. Output $fold the kept letters$change.",
        ),
        _NEIGHBOURS,
        lambda side, keep, change, fold: _idle(keep, change, fold),
    ),
)
