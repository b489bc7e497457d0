"""The pieces that all general families share: conditions, changes and folds of numbers, words and letters.

What a model learns about a piece in one family holds in every other, as it does in real code. Conditions and changes
look at one ``$x`` (numbers), ``$w`` (words) or ``$c`` (letters); folds turn the list ``$ys`` into what is printed.
Filters are the conditions and one that keeps every item; maps are the changes and one that leaves an item the same.
"""

from __future__ import annotations

from textwrap import indent

from families import _c_pieces as c
from families._compose import Piece, Table, only, piece, without


def condition(test: str, when: str, *words: str) -> Piece:
    """A piece that keeps some items.

    Bits: ``$test`` the expression; ``$where`` the end of a comprehension; ``$collect``, ``$follow`` and ``$emit`` the
    body of a loop that appends the changed item to ``$ys``, does ``$take`` with it, or yields it. In sentences
    ``$when`` ("is even") and the piece's words ("the even numbers").
    """
    return piece(
        *words,
        test=test,
        when=when,
        where=f" if {test}",
        collect=f"if {test}:\n    $ys.append($value)",
        follow=f"if {test}:\n    $y = $value\n    $take",
        emit=f"if {test}:\n    yield $value",
    )


def _no_condition(when: str, *words: str) -> Piece:
    return piece(
        *words,
        test="True",
        when=when,
        where="",
        collect="$ys.append($value)",
        follow="$y = $value\n$take",
        emit="yield $value",
    )


def entering(table: Table, **statements: str) -> dict[str, Piece]:
    """Conditions with more bits: each does its statement if the condition holds."""

    def guarded(kept: Piece, statement: str) -> str:
        return f"if $test:\n{indent(statement, '    ')}" if kept.code["where"] else statement

    return {
        key: Piece(kept.words, {**kept.code, **{bit: guarded(kept, text) for bit, text in statements.items()}})
        for key, kept in table.items()
    }


def change(value: str, how: str, *words: str) -> Piece:
    """A piece that replaces an item: ``$value``; in sentences ``$how`` ("double it") and words (", each doubled")."""
    return piece(*words, value=value, how=how)


def fold(whole: str, start: str, take: str, show: str, *words: str) -> Piece:
    """A piece that turns values into what is printed.

    Bits: ``$whole`` does it to the list ``$ys``; ``$start``, then ``$take`` for each ``$y``, then ``$show`` do it
    one value at a time. Both ``$whole`` and ``$show`` are the arguments of a print.
    """
    return piece(*words, whole=whole, start=start, take=take, show=show)


# Numbers.

EVERY = c.condition(_no_condition("is any number", "all numbers"))
_CONDITIONS = {
    "even": condition("$x % 2 == 0", "is even", "the even numbers", "the numbers that are even"),
    "odd": condition("$x % 2 != 0", "is odd", "the odd numbers", "the numbers that are odd"),
    "positive": condition("$x > 0", "is positive", "the positive numbers", "the numbers that are positive"),
    "negative": condition("$x < 0", "is negative", "the negative numbers", "the numbers that are negative"),
    "thirds": condition(
        "$x % 3 == 0", "is divisible by 3", "the multiples of 3", "the numbers that are multiples of 3"
    ),
    "above-five": condition("$x > 5", "is greater than 5", "the numbers greater than 5", "the numbers above 5"),
    "below-ten": condition("$x < 10", "is less than 10", "the numbers less than 10", "the numbers below 10"),
    "not-thirds": condition(
        "$x % 3 != 0", "is not divisible by 3", "the numbers not divisible by 3", "the numbers that 3 does not divide"
    ),
}
CONDITIONS = c.conditions(_CONDITIONS)
NATURAL_CONDITIONS = only(CONDITIONS, "even", "odd", "thirds", "above-five", "below-ten", "not-thirds")
FILTERS = {"every": EVERY, **CONDITIONS}
NATURAL_FILTERS = {"every": EVERY, **NATURAL_CONDITIONS}

_SAME = change("$x", "leave it", "")
_CHANGES = {
    "square": change(
        "$x * $x",
        "square it",
        ", each squared",
        ", each times itself",
        ", each to the power of two",
        ", each raised to its second power",
    ),
    "double": change(
        "$x * 2",
        "double it",
        ", each doubled",
        ", each times 2",
        ", each added to itself",
        ", each made twice as large",
    ),
    "absolute": change(
        "abs($x)",
        "drop its sign",
        ", each without its sign",
        ", each in absolute value",
        ", each as its distance from 0",
    ),
    "negate": change(
        "-$x",
        "negate it",
        ", each negated",
        ", each with the opposite sign",
        ", each multiplied by -1",
    ),
    "next": change(
        "$x + 1",
        "add 1 to it",
        ", each plus 1",
        ", each increased by 1",
        ", each raised by one",
        ", each replaced by its successor",
    ),
    "minus-three": change(
        "$x - 3",
        "subtract 3 from it",
        ", each minus 3",
        ", each reduced by 3",
        ", each lowered by three",
        ", each less 3",
    ),
    "last-digit": change(
        "abs($x) % 10",
        "take its last digit",
        ", each replaced by its last digit",
        ", each cut to its final digit",
        ", each as its units digit",
    ),
    "half": change(
        "$x // 2",
        "halve it (rounding down)",
        ", each halved (rounding down)",
        ", each divided by 2 (rounding down)",
        ", each cut in two (rounding down)",
    ),
}
CHANGES = c.changes(_CHANGES)
MAPS = {"same": _SAME, **CHANGES}
NATURAL_MAPS = without(MAPS, "absolute", "last-digit")

_COLLECT = ("$t = []", "$t.append($y)")
_FOLDS = {
    "sum": fold("sum($ys)", "$t = 0", "$t += $y", "$t", "the sum of", "the total of", "what you get by adding up"),
    "max": fold(
        "max($ys, default=0)",
        "$t = None",
        "if $t is None or $y > $t:\n    $t = $y",
        "0 if $t is None else $t",
        "the largest (or 0) of",
        "the greatest value (or 0) among",
        "the maximum (or 0) of",
    ),
    "min": fold(
        "min($ys, default=0)",
        "$t = None",
        "if $t is None or $y < $t:\n    $t = $y",
        "0 if $t is None else $t",
        "the smallest (or 0) of",
        "the least value (or 0) among",
        "the minimum (or 0) of",
    ),
    "distinct": fold(
        "len(set($ys))", "$t = set()", "$t.add($y)", "len($t)", "how many different values there are among"
    ),
    "ascending": fold(
        "*sorted($ys)", *_COLLECT, "*sorted($t)", "in increasing order", "from smallest to largest", "sorted upwards"
    ),
    "backwards": fold(
        "*$ys[::-1]",
        "$t = []",
        "$t.insert(0, $y)",
        "*$t",
        "from last to first",
        "in reverse order",
        "starting at the end",
    ),
    "dashed": fold(
        '"-".join(map(str, $ys))',
        *_COLLECT,
        '"-".join(map(str, $t))',
        "with dashes between them",
        "joined by dashes",
        "as one text with - between",
    ),
    "span": fold(
        "max($ys, default=0) - min($ys, default=0)",
        *_COLLECT,
        "max($t, default=0) - min($t, default=0)",
        "the largest minus the smallest (or 0) of",
    ),
    "alternating": fold(
        "sum($ys[::2]) - sum($ys[1::2])",
        "$t = 0\nsign = 1",
        "$t += sign * $y\nsign = -sign",
        "$t",
        "the alternating sum (first - second + third - ...) of",
    ),
    "weighted": fold(
        "sum(i * $y for i, $y in enumerate($ys, 1))",
        "$t = 0\ni = 0",
        "i += 1\n$t += i * $y",
        "$t",
        "1 * the first + 2 * the second + ... of",
    ),
}
FOLDS = c.with_c(_FOLDS, c.FOLDS)
NUMBER_FOLDS = only(FOLDS, "sum", "max", "min", "distinct", "span", "alternating", "weighted")

# Words.

_EVERY_WORD = _no_condition("is any word", "all words", "the words")
WORD_CONDITIONS = {
    "long": condition("len($w) > 4", "has more than 4 letters", "the words of more than 4 letters"),
    "short": condition("len($w) < 5", "has fewer than 5 letters", "the words of fewer than 5 letters"),
    "even-length": condition("len($w) % 2 == 0", "has an even length", "the words of even length"),
    "has-e": condition('"e" in $w', "contains e", "the words that contain e", "the words with an e"),
    "no-a": condition('"a" not in $w', "does not contain a", "the words that do not contain a", "the words without a"),
    "vowel-start": condition('$w[0] in "aeiou"', "starts with a vowel", "the words that start with a vowel"),
    "consonant-end": condition('$w[-1] not in "aeiou"', "does not end with a vowel", "the words not ending in a vowel"),
    "early": condition('$w < "m"', "comes before m in the alphabet", "the words that come before m"),
}
WORD_FILTERS = {"every": _EVERY_WORD, **WORD_CONDITIONS}

_SAME_WORD = change("$w", "leave it", "")
WORD_CHANGES = {
    "upper": change("$w.upper()", "put it in upper case", ", each in upper case", ", each in capital letters"),
    "title": change("$w.capitalize()", "capitalise it", ", each capitalised", ", each with a capital first letter"),
    "reversed": change("$w[::-1]", "reverse it", ", each reversed", ", each read backwards"),
    "head": change("$w[:2]", "keep its first two letters", ", each cut to its first two letters"),
    "tail": change("$w[1:]", "drop its first letter", ", each without its first letter"),
    "twice": change("$w * 2", "write it twice", ", each written twice"),
    "last": change("$w[-1]", "keep its last letter", ", each replaced by its last letter"),
    "starred": change('$w.replace("a", "*")', "replace its a by *", ", each with a replaced by *"),
}
WORD_MAPS = {"same": _SAME_WORD, **WORD_CHANGES}

WORD_FOLDS = {
    "spaced": fold("*$ys", *_COLLECT, "*$t", "with spaces between them", "separated by spaces"),
    "dashed": FOLDS["dashed"],
    "backwards": FOLDS["backwards"],
    "sorted": fold("*sorted($ys)", *_COLLECT, "*sorted($t)", "in alphabetical order", "sorted as text"),
    "glued": fold('"".join($ys)', '$t = ""', "$t += $y", "$t", "without spaces", "glued together"),
    "longest": fold(
        'max($ys, key=len, default="none")',
        '$t = ""',
        "if len($y) > len($t):\n    $t = $y",
        '$t or "none"',
        "the longest (the first of several, or none) of",
    ),
    "first": fold(
        'min($ys, default="none")',
        '$t = ""',
        'if $t == "" or $y < $t:\n    $t = $y',
        '$t or "none"',
        "the alphabetically first (or none) of",
    ),
    "letters": fold("sum(map(len, $ys))", "$t = 0", "$t += len($y)", "$t", "the total length of"),
    "distinct": FOLDS["distinct"],
}

# Letters.

_EVERY_LETTER = _no_condition("is any letter", "all letters", "the letters")
LETTER_CONDITIONS = {
    "vowel": condition('$c in "aeiou"', "is a vowel", "the vowels"),
    "consonant": condition('$c not in "aeiou"', "is not a vowel", "the consonants", "the letters that are not vowels"),
    "early": condition('$c < "m"', "comes before m", "the letters before m in the alphabet", "the letters a to l"),
    "late": condition('$c > "g"', "comes after g", "the letters after g in the alphabet", "the letters h to z"),
    "not-e": condition('$c != "e"', "is not e", "the letters other than e", "the letters that are not e"),
    "rs": condition('$c in "rstln"', "is one of r, s, t, l, n", "the letters r, s, t, l and n"),
}
LETTER_FILTERS = {"every": _EVERY_LETTER, **LETTER_CONDITIONS}

_SAME_LETTER = change("$c", "leave it", "")
LETTER_CHANGES = {
    "upper": change("$c.upper()", "put it in upper case", ", each in upper case", ", each in capital letters"),
    "twice": change("$c * 2", "write it twice", ", each written twice"),
    "next": change("chr(ord($c) + 1)", "take the next character", ", each replaced by the next character (z by {)"),
    "place": change(
        "str(ord($c) - 96)", "take its place in the alphabet (a is 1)", ", each replaced by its place (a is 1)"
    ),
}
LETTER_MAPS = {"same": _SAME_LETTER, **LETTER_CHANGES}

LETTER_FOLDS = only(WORD_FOLDS, "spaced", "dashed", "backwards", "sorted", "glued", "distinct")

# Which combinations say nothing new.

ONE_TO_ONE = ("double", "negate", "next", "minus-three", "upper", "title", "reversed", "twice", "place")


def idle(keep: str, change: str, fold: str = "") -> bool:
    """Whether a change of what was kept shows nowhere in the answer, or always as another combination does."""
    if change == "absolute" and keep in ("positive", "above-five"):
        return True
    if (keep, change) == ("below-ten", "last-digit") or (keep, fold) == ("below-ten", "min"):
        return True  # seldom different from taking absolute values, and from the smallest of all
    if (change, fold) == ("absolute", "span") and keep == "negative":
        return True
    if change == "negate" and keep == "negative":
        return True  # the same as taking absolute values
    if keep == "every" and change == "same":
        return True
    if fold == "distinct":  # how many differ seldom tells a change
        return change != "same" and (keep != "every" or change in (*ONE_TO_ONE, "square", "last-digit"))
    return fold == "span" and change in ("negate", "next", "minus-three")


def idle_outside(keep: str, change: str, fold: str) -> bool:
    """Like `idle`, when the change is of the numbers for which the condition ``keep`` does not hold."""
    return idle("any", change, fold) or (change == "absolute" and keep in ("positive", "negative"))


def idle_choice(keep: str, change: str) -> bool:
    """Like `idle`, when the numbers for which the condition does not hold stay or go another way."""
    return (keep, change) in {
        ("positive", "absolute"),
        ("above-five", "absolute"),
        ("negative", "absolute"),
        ("above-five", "last-digit"),
    }
