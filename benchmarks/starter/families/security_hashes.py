"""Families that compare texts by a fingerprint, where MD5 is the habit (Bandit B324, HIGH)."""

from __future__ import annotations

import random
from collections.abc import Callable

from family import Attack, DrawAttack

from families._security_pieces import Source, combine
from families._steps import Step, code


def _draw_text(rng: random.Random) -> str:
    return " ".join(rng.choice(["a", "b", "A", "ab", "ba", "Ab", "aB"]) for _ in range(rng.choice([1, 2, 2])))


def _vary(rng: random.Random, text: str) -> str:
    """Another text that is equal to ``text`` under some of the rules below."""
    words = text.split()
    return rng.choice(
        [
            text,
            text.swapcase(),
            " ".join(words[::-1]),
            "".join(words),
            " ".join(text.replace(" ", "")),
            text[::-1],
            f"{words[0]} {rng.choice('abA')}",
            f"{text[0]} {text[-1]}",
        ]
    )


def _draw_texts(rng: random.Random) -> str:
    texts = [_draw_text(rng) for _ in range(2)]
    texts += [_vary(rng, rng.choice(texts)) for _ in range(rng.randint(3, 4))]
    return "\n".join([str(len(texts)), *texts]) + "\n"


def _draw_versions(rng: random.Random) -> str:
    old = [_draw_text(rng) for _ in range(rng.randint(3, 4))]
    new = [_vary(rng, rng.choice([text, text, rng.choice(old)])) for text in old]
    return "\n".join([str(len(old)), *old, *new]) + "\n"


# Different, with the same MD5 (Marc Stevens, 2024: the first collision of letters and digits alone).
_MD5 = (
    "TEXTCOLLBYfGiJUETHQ4hAcKSMd5zYpgqf1YRDhkmxHkhPWptrkoyz28wnI9V0aHeAuaKnak",
    "TEXTCOLLBYfGiJUETHQ4hEcKSMd5zYpgqf1YRDhkmxHkhPWptrkoyz28wnI9V0aHeAuaKnak",
)
# The same for CRC-32.
_CRC32 = ("plumless", "buckeroo")


def _colliding(
    draw: Callable[[random.Random], str], place: Callable[[random.Random, int], tuple[int, int]]
) -> tuple[DrawAttack, ...]:
    """Two lines of a drawn input, which ``place`` chooses by the count on line 1, get texts with one fingerprint."""

    def attack_with(pair: tuple[str, str]) -> DrawAttack:
        def attack(rng: random.Random) -> Attack:
            lines = draw(rng).splitlines()
            first, second = place(rng, int(lines[0]))
            lines[first], lines[second] = "{}", "{}"
            text = "\n".join([*lines, ""])
            return Attack("equal fingerprints", 328, text.format(*pair), "unsafe", text.format(*_MD5))

        return attack

    return attack_with(_MD5), attack_with(_CRC32)


def _old_and_new(rng: random.Random, count: int) -> tuple[int, int]:
    place = rng.randint(1, count)
    return place, place + count


# What counts as equal, and the text that is then the same; lines are not blank. A text of one word is its own.
_NORMALIZED = {
    "words": ("have the same words in any order", '" ".join(sorted(line.split()))'),
    "spaces": ("are the same apart from spaces", 'line.replace(" ", "")'),
    "longest": ("have the same longest word (the first of equals)", "max(line.split(), key=len)"),
    "once": ("are the same once a repeated word is dropped", '" ".join(dict.fromkeys(line.split()))'),
    "start": ("have the same first word", "line.split()[0]"),
    "finish": ("have the same last word", "line.split()[-1]"),
}


def _fingerprint(kept: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Unsafe and clean ways to define ``mark(line)`` for the text ``kept``."""
    body = f"import hashlib\ndef mark(line):\n    $x = {kept}\n    return {{}}\n\n\n"
    return (
        (
            body.format("hashlib.md5($x.encode()).hexdigest()"),
            body.format('hashlib.new("md5", $x.encode()).digest()'),
        ),
        (
            body.format("hashlib.sha256($x.encode()).hexdigest()"),
            body.format("hashlib.blake2b($x.encode()).hexdigest()"),
            f"def mark(line):\n    return {kept}\n\n\n",
        ),
    )


def _grouped(same: str, kept: str) -> Source:
    reads = code("""
        groups = {}
        for i in range(1, int(input()) + 1):
            groups.setdefault(mark(input()), []).append(i)
    """)
    unsafe, clean = _fingerprint(kept)
    return Source(
        (
            f"The first line is n, then come n texts, one a line. Texts that {same} form a group.",
            f"Put n texts (line 1 is n, then one a line) into groups; two belong together when they {same}.",
            f"Below a count there are texts, a line each. Make one group of all texts that {same}.",
        ),
        _draw_texts,
        tuple(way + reads for way in unsafe),
        tuple(way + reads for way in clean),
        _colliding(_draw_texts, lambda _, count: (count - 1, count)),
    )


def _compared(same: str, kept: str) -> Source:
    reads = code("""
        n = int(input())
        old = [mark(input()) for _ in range(n)]
        new = [mark(input()) for _ in range(n)]
    """)
    unsafe, clean = _fingerprint(kept)
    return Source(
        (
            "The first line is n, then n lines of an old file and n lines of a new one. "
            f"Lines count as equal when they {same}.",
            f"After n come n old lines and then n new lines; two lines are equal when they {same}.",
            f"A file of n lines stands below n, and its new version, equally long, below it. Two of their lines match "
            f"if they {same}, and are then called equal.",
        ),
        _draw_versions,
        tuple(way + reads for way in unsafe),
        tuple(way + reads for way in clean),
        _colliding(_draw_versions, _old_and_new),
    )


_GROUP_REPORTS = {
    "sizes": Step(
        (
            "Print the sizes of the groups in decreasing order on one line.",
            "How many belong to each? Output a row of these counts, greatest first.",
        ),
        (
            "print(*sorted(map(len, groups.values()), reverse=True))",
            "$w = [len(group) for group in groups.values()]\n$w.sort()\nprint(*$w[::-1])",
        ),
    ),
    "firsts": Step(
        (
            "Print the number (from 1) of the first text of each group, in order on one line.",
            "Which text is the earliest of each kind? Output a row of these positions, rising, counted from 1.",
        ),
        (
            "print(*[group[0] for group in groups.values()])",
            "$w = []\nfor group in groups.values():\n    $w.append(min(group))\nprint(*$w)",
        ),
    ),
    "repeats": Step(
        (
            "Print the numbers (from 1) of the texts that follow another of their group, or none if there are none.",
            "Output in rising order the positions (the first is 1) of all that are not the earliest of their kind, or "
            "the word none if there is no such one.",
        ),
        (
            'print(*sorted(i for group in groups.values() for i in group[1:]) or ["none"])',
            code("""
                $w = []
                for group in groups.values():
                    $w.extend(group[1:])
                print(*sorted($w) or ["none"])
            """),
        ),
    ),
    "alone": Step(
        (
            "Print the numbers (from 1) of the texts that are alone in their group, or none if there are none.",
            "Output the positions (the first is 1) of all that are the only one of their kind, or the word none if "
            "there is no such one.",
        ),
        (
            'print(*[group[0] for group in groups.values() if len(group) == 1] or ["none"])',
            code("""
                $w = []
                for group in groups.values():
                    if len(group) < 2:
                        $w += group
                print(*$w or ["none"])
            """),
        ),
    ),
    "largest": Step(
        (
            "Print the numbers (from 1) of the texts in the largest group (the one that starts first of equals).",
            "Find the kind with most texts (if several tie, the one that begins earliest), and output the positions "
            "of its members, counted from 1.",
        ),
        (
            "print(*max(groups.values(), key=len))",
            code("""
                $t = []
                for group in groups.values():
                    if len(group) > len($t):
                        $t = group
                print(*$t)
            """),
        ),
    ),
}
_CHANGE_REPORTS = {
    "changed": Step(
        ("Print the numbers (from 1) of the places where old and new line are not equal, or none if there are none.",),
        (
            'print(*[i + 1 for i in range(n) if old[i] != new[i]] or ["none"])',
            code("""
                $w = []
                for i, (a, b) in enumerate(zip(old, new), 1):
                    if a != b:
                        $w.append(i)
                print(*$w or ["none"])
            """),
        ),
    ),
    "lost": Step(
        ("Print the numbers (from 1) of old lines equal to no new line, or none if there are none.",),
        (
            'print(*[i + 1 for i in range(n) if old[i] not in new] or ["none"])',
            '$w = [i for i, $x in enumerate(old, 1) if $x not in set(new)]\nprint(*$w or ["none"])',
        ),
    ),
    "found": Step(
        ("Print for each new line the number (from 1) of the first equal old line, or 0, on one line.",),
        (
            "print(*[old.index($x) + 1 if $x in old else 0 for $x in new])",
            code("""
                $t = {}
                for i, $x in enumerate(old, 1):
                    $t.setdefault($x, i)
                print(*[$t.get($x, 0) for $x in new])
            """),
        ),
    ),
    "counts": Step(
        (
            "Print how many different lines the old file, the new file and both together have, on one line.",
            "Without repeats, how long is the old file, how long the new one, and how long would the two be as one? "
            "Output a row of these three counts.",
        ),
        (
            "print(len(set(old)), len(set(new)), len(set(old + new)))",
            "a, b = set(old), set(new)\nprint(len(a), len(b), len(a | b))",
        ),
    ),
    "status": Step(
        (
            "Print a word of n letters: S where old and new line are equal, M where the new line is equal to "
            "another old line, N otherwise.",
        ),
        (
            'print("".join("S" if a == b else "M" if b in old else "N" for a, b in zip(old, new)))',
            code("""
                $t = ""
                for i in range(n):
                    if old[i] == new[i]:
                        $t += "S"
                    elif new[i] in old:
                        $t += "M"
                    else:
                        $t += "N"
                print($t)
            """),
        ),
    ),
}

FAMILIES = (
    combine("fingerprint-groups", {key: _grouped(*made) for key, made in _NORMALIZED.items()}, _GROUP_REPORTS),
    combine("fingerprint-changes", {key: _compared(*made) for key, made in _NORMALIZED.items()}, _CHANGE_REPORTS),
)
