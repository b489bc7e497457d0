"""Families that keep, change and fold numbers which come from text: letters, words, parts that are numbers."""

from __future__ import annotations

import random

from family import Family

from families._compose import without
from families._inputs import WORDS, counted, line, numbers, word_line, words
from families.lists import (
    DIGIT_FILTERS,
    NATURAL_FOLDS,
    ONE_WAY_FOLDS,
    ORDER_FOLDS,
    SMALL_FILTERS,
    from_naturals,
    from_numbers,
)

SHORT_WORDS = tuple(word for word in WORDS if len(word) == 3)

_ORDER_OR_SUM = without(NATURAL_FOLDS, "max", "min", "span")


def _glued(rng: random.Random) -> str:
    return line(["".join(rng.choices(WORDS, k=rng.randint(1, 2))) for _ in range(rng.randint(4, 5))])


def _word(rng: random.Random) -> str:
    return line(words(rng, (1, 2)), "")


def _few_letters(rng: random.Random) -> str:
    return line(rng.choices("abcd", weights=(1, 2, 3, 3), k=rng.randint(14, 22)), "")


def _letter_and_text(rng: random.Random) -> str:
    text = _few_letters(rng)
    return f"{rng.choice(text.strip())}\n{text}"


def _marks(rng: random.Random) -> str:
    return line(["x" * rng.randint(1, 9) for _ in range(rng.randint(3, 5))], rng.choice((".", "..")))


def _mixed(rng: random.Random) -> str:
    parts = [*map(str, numbers(rng, 0, 30, (4, 6))), *rng.sample(SHORT_WORDS, rng.randint(2, 3))]
    rng.shuffle(parts)
    return line(parts)


def _tagged(rng: random.Random) -> str:
    return line([rng.choice("aab") + str(number) for number in numbers(rng, sizes=(6, 8))])


def _lines_of_words(rng: random.Random) -> str:
    return counted([" ".join(words(rng, (1, 2))) for _ in range(rng.randint(3, 5))])


FAMILIES: tuple[Family, ...] = (
    from_naturals(
        "initial-places",
        (
            "Read a line of words. The numbers are the places in the alphabet (a is 1) of their first letters.",
            "The first letters of the words on the line, as places in the alphabet (a is 1), are the numbers.",
        ),
        "$xs = [ord($w[0]) - 96 for $w in input().split()]",
        word_line(),
    ),
    from_naturals(
        "letter-places",
        (
            "Read a word. The numbers are the places of its letters in the alphabet (a is 1).",
            "The letters of the word on the line, as places in the alphabet (a is 1), are the numbers.",
        ),
        "$xs = [ord($c) - 96 for $c in input()]",
        _word,
    ),
    from_numbers(
        "letter-steps",
        (
            "Read a word. The numbers are the steps in the alphabet from each letter to the next (c to a is -2).",
            "In a word, the alphabet steps from each letter to the next (a to c is 2, c to a is -2) are the numbers.",
        ),
        "line = input()\n$xs = [ord(b) - ord(a) for a, b in zip(line, line[1:])]",
        _word,
    ),
    from_naturals(
        "letter-positions",
        (
            "Read a letter, then a text. The numbers are the positions (from 0) of the letter in the text.",
            "Line 1 is a letter, line 2 a text; the numbers are the positions (from 0) where the letter stands.",
        ),
        "letter = input()\n$xs = [i for i, $c in enumerate(input()) if $c == letter]",
        _letter_and_text,
        folds=ONE_WAY_FOLDS,
    ),
    from_naturals(
        "mark-runs",
        (
            "Read a line of x and dots. The numbers are the lengths of the runs of x.",
            "Runs of x stand between dots; the lengths of the runs are the numbers.",
        ),
        '$xs = [len(part) for part in input().replace(".", " ").split()]',
        _marks,
        filters=DIGIT_FILTERS,
        folds=_ORDER_OR_SUM,
    ),
    from_naturals(
        "letter-frequencies",
        (
            "Read a text. The numbers are the counts of its different letters, in order of first appearance.",
            "How often each different letter of a text occurs, in order of first appearance, are the numbers.",
        ),
        "$d = {}\nfor $c in input():\n    $d[$c] = $d.get($c, 0) + 1\n$xs = list($d.values())",
        _few_letters,
        filters=DIGIT_FILTERS,
        folds=ONE_WAY_FOLDS,
    ),
    from_naturals(
        "numbers-among-words",
        (
            "Read a line of words and numbers. Leave out the words.",
            "Numbers stand among words on a line; take only the numbers.",
        ),
        "$xs = [int(part) for part in input().split() if part.isdigit()]",
        _mixed,
    ),
    from_numbers(
        "tagged-numbers",
        (
            "Read entries such as a12 or b-7. The numbers are those that come after an a.",
            "The line holds entries such as a12 or b-7; take the numbers of those with an a.",
        ),
        '$xs = [int(entry[1:]) for entry in input().split() if entry[0] == "a"]',
        _tagged,
    ),
    from_naturals(
        "lengths-falling",
        (
            "Read a line of words. The numbers are their lengths, longest first.",
            "The lengths of the words on the line, sorted from longest to shortest, are the numbers.",
        ),
        "$xs = sorted([len($w) for $w in input().split()], reverse=True)",
        _glued,
        folds=without(ORDER_FOLDS, "backwards"),  # which is the ascending one of word-lengths
    ),
    from_naturals(
        "line-lengths",
        (
            "Read n, then n lines of text. The numbers are the lengths of these lines (spaces count).",
            "The first line is n; the lengths of the n lines after it, spaces included, are the numbers.",
        ),
        "n = int(input())\n$xs = [len(input()) for _ in range(n)]",
        _lines_of_words,
    ),
    from_naturals(
        "vowel-counts",
        (
            "Read a line of words. The numbers are how many vowels (a, e, i, o, u) each of them has.",
            "Count the vowels (a, e, i, o, u) in each word on the line to get the numbers.",
        ),
        '$xs = [sum($c in "aeiou" for $c in $w) for $w in input().split()]',
        _glued,
        filters=SMALL_FILTERS,
        folds=_ORDER_OR_SUM,
    ),
    from_naturals(
        "shared-letters",
        (
            "Read a line of words. "
            "The numbers are how many different letters each but the first shares with the one before.",
            "Count the different letters that each two neighbouring words share to get the numbers.",
        ),
        "$ws = input().split()\n$xs = [len(set(a) & set(b)) for a, b in zip($ws, $ws[1:])]",
        _glued,
        filters=SMALL_FILTERS,
        folds=_ORDER_OR_SUM,
    ),
)
