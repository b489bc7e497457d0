"""Hard families that keep and change words, then group them, take them apart or measure them."""

from __future__ import annotations

from family import Family

from families._compose import LARGE_FAMILY_SIZE, again, compose, only, piece, without
from families._inputs import word_line
from families._pieces import (
    CHANGES,
    CONDITIONS,
    FOLDS,
    LETTER_CHANGES,
    LETTER_CONDITIONS,
    WORD_CHANGES,
    WORD_CONDITIONS,
    WORD_FOLDS,
    idle,
)

_KEYS = {
    "length": piece("its length", key="len($y)"),
    "first": piece("its first character", key="$y[0]"),
    "final": piece("its last character", key="$y[-1]"),
    "vowels": piece("its number of vowels (a, e, i, o, u)", key='sum(c in "aeiou" for c in $y)'),
}


def _groups_are_idle(keep: str, change: str, by: str, fold: str) -> bool:
    return (
        (fold == "distinct" and change != "head")
        or (keep == "no-a" and change == "starred")
        or (by == "length" and (change == "head" or fold in ("longest", "letters")))
        or (by == "vowels" and change == "upper")
    )


_GROUPS = compose(
    "hard-word-groups",
    {
        "keep": only(WORD_CONDITIONS, "long", "short", "has-e", "no-a", "consonant-end", "early"),
        "change": only(WORD_CHANGES, "upper", "reversed", "head", "tail", "twice", "starred"),
        "by": _KEYS,
        "fold": WORD_FOLDS,
    },
    (
        "Read a line of words. Take $keep$change. Group what comes out: the key of a word is $by. For each key, in "
        "increasing order, print a line with the key, then $fold its words. Last print how many groups there are.",
        "The input is one line of words. Take $keep$change, and put each into a group by $by. Print a line "
        "a group, in increasing order of the key: the key, then $fold its words. Then print the number of groups.",
    ),
    (
        """\
$ws = input().split()
$d = {}
for $y in [$value for $w in $ws$where]:
    $d.setdefault($key, []).append($y)
for key in sorted($d):
    $ys = $d[key]
    print(key, $whole)
print(len($d))
""",
        """\
$ws = input().split()
$d = {}
for $w in $ws:
    if $test:
        $y = $value
        key = $key
        if key not in $d:
            $d[key] = []
        $d[key].append($y)
for key, group in sorted($d.items()):
    $start
    for $y in group:
        $take
    print(key, $show)
print(len($d))
""",
        """\
def key_of($y):
    return $key


def report(key, $ys):
    print(key, $whole)


def main():
    $ws = input().split()
    changed = []
    for $w in $ws:
        if $test:
            changed.append($value)
    keys = sorted(set(map(key_of, changed)))
    for key in keys:
        report(key, [$y for $y in changed if key_of($y) == key])
    print(len(keys))


main()
""",
    ),
    word_line(sizes=(7, 9)),
    skip=_groups_are_idle,
    size=LARGE_FAMILY_SIZE,
)


def _letters_are_idle(keep: str, letters: str, change: str, fold: str) -> bool:
    return (
        idle(letters, change, fold)
        or (fold == "letters" and change in ("upper", "next"))
        or (change == "place" and fold in ("first", "sorted"))  # text or number order would be unclear
    )


_LETTERS = compose(
    "hard-letters",
    {
        "keep": without(WORD_CONDITIONS, "vowel-start", "even-length"),
        "letters": again(LETTER_CONDITIONS),
        "change": again(LETTER_CHANGES),
        "fold": WORD_FOLDS,
    },
    (
        "Read a line of words. From each of $keep take $letters$change, and glue them together to one new word. Drop "
        "the new words that are empty. Print $fold the others, then on a second line how many there are.",
        "The input is one line of words. Take $keep. Replace each of them by $letters in it$change, written without "
        "spaces; leave out empty results. Print $fold the results and, on the next line, the number of results.",
        "Some words form a row. Out of $keep make new ones: each shrinks to $letters in it$change, joined without "
        "gaps. New words with no character do not count. The upper line of output has $fold those that count, the "
        "lower one only how many count.",
    ),
    (
        """\
def rewrite($w):
    return "".join($value2 for c in $w$where2)


$ws = input().split()
$ys = [rewrite($w) for $w in $ws$where]
$ys = [$y for $y in $ys if $y]
print($whole)
print(len($ys))
""",
        """\
$ws = input().split()
$ys = []
for $w in $ws:
    if $test:
        $y = ""
        for c in $w:
            if $test2:
                $y += $value2
        if $y:
            $ys.append($y)
print($whole)
print(len($ys))
""",
        """\
def rewrite($w):
    letters = []
    for c in $w:
        if $test2:
            letters.append($value2)
    return "".join(letters)


def main():
    $ws = input().split()
    count = 0
    $start
    for $w in $ws:
        if not ($test):
            continue
        $y = rewrite($w)
        if $y != "":
            count += 1
            $take
    print($show)
    print(count)


main()
""",
    ),
    word_line(sizes=(7, 9)),
    skip=_letters_are_idle,
    code={"c": "c"},  # what the programs above call a letter
    size=LARGE_FAMILY_SIZE,
)

_MEASURES = {
    "letter-sum": piece("the sum of its letters' places (a is 1)", measured="sum(ord(c) - 96 for c in $w)"),
    "first": piece("the place of its first letter (a is 1)", measured="ord($w[0]) - 96"),
    "first-long": piece(
        "the place of its first letter (a is 1) plus its length",
        measured="ord($w[0]) - 96 + len($w)",
    ),
    "last-long": piece("the place of its last letter (a is 1) plus its length", measured="ord($w[-1]) - 96 + len($w)"),
}


def _measures_are_idle(keep: str, measure: str, keep2: str, change: str, fold: str, fold2: str) -> bool:
    return idle(keep2, change, fold) or (keep == "short" and keep2 == "odd")


_MEASURED = compose(
    "hard-measures",
    {
        "keep": only(WORD_CONDITIONS, "long", "short", "has-e", "no-a", "consonant-end", "early"),
        "measure": _MEASURES,
        "keep2": again(only(CONDITIONS, "even", "odd", "not-thirds", "above-five")),
        "change": again(only(CHANGES, "square", "double", "negate", "minus-three", "half")),
        "fold": only(FOLDS, "sum", "max", "distinct", "alternating"),
        "fold2": again(only(FOLDS, "ascending", "backwards", "dashed")),
    },
    (
        "Read a line of words. For each of $keep find $measure. From these numbers take $keep2$change. Print $fold "
        "the results and, on a second line, $fold2 the results.",
        "The input is one line of words. Take $keep; replace each by $measure. From this list take $keep2$change. "
        "Print $fold the numbers left and, on the next line, $fold2 the numbers left.",
    ),
    (
        """\
def measure($w):
    return $measured


$xs = [measure($w) for $w in input().split()$where]
$ys = [$value2 for $x in $xs$where2]
print($whole)
print($whole2)
""",
        """\
$ws = input().split()
$ys = []
for $w in $ws:
    if $test:
        $x = $measured
        if $test2:
            $ys.append($value2)
$start
for $y in $ys:
    $take
print($show)
print($whole2)
""",
        """\
def measure($w):
    return $measured


def report($ys):
    print($whole)
    print($whole2)


def main():
    $ws = input().split()
    $ys = []
    for $w in $ws:
        if not ($test):
            continue
        $x = measure($w)
        if $test2:
            $ys.append($value2)
    report($ys)


main()
""",
    ),
    word_line(sizes=(7, 9)),
    skip=_measures_are_idle,
    size=LARGE_FAMILY_SIZE,
)

FAMILIES: tuple[Family, ...] = (_GROUPS, _LETTERS, _MEASURED)
