"""Hard families over records and pieces of text: filter, aggregate, rank with tie rules."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._steps import Step, code, framed_family, step
from securecoderl_edge.starter.wording import WORDS

_SHORT = [word for word in WORDS if len(word) <= 4]


def _draw_records(rng: random.Random) -> str:
    names = rng.sample(_SHORT, rng.randint(5, 6))
    rows = [f"{name} {rng.choice('AABBC')} {rng.randint(1, 12)}" for name in names]
    return "\n".join([str(len(rows)), *rows]) + "\n"


_TEAM_FRAMES = (
    code("""
        teams = {}
        for _ in range(int(input())):
            $k, team, $n = input().split()
            $n = int($n)
            if @0:
                teams.setdefault(team, []).append(($n, $k))
        $w = []
        for team, members in teams.items():
            $v = [$n for $n, $k in members]
            $w.append((@1, team))
        $w.sort(key=lambda pair: (-pair[0], pair[1]))
        for $x, team in $w:
            members = teams[team]
            @2
        if not $w:
            print("none")
    """),
    code("""
        from collections import defaultdict
        def value_of(members):
            $v = [$n for $n, _ in members]
            return @1


        rows = [input().split() for _ in range(int(input()))]
        teams = defaultdict(list)
        for $k, team, $n in rows:
            $n = int($n)
            if @0:
                teams[team].append(($n, $k))
        for team in sorted(teams, key=lambda team: (-value_of(teams[team]), team)):
            members = teams[team]
            $x = value_of(members)
            @2
        if not teams:
            print("none")
    """),
)
_TEAM_FILTERS = {
    "even": step("$n % 2 == 0", "Drop records with an odd score.", "Use only records with an even score."),
    "high": step("$n > 3", "Drop records with a score up to 3.", "Use only records with a score above 3."),
    "short": step('len($k) == 3 or team == "A"', "Drop records with a name of 4 letters unless the team is A."),
    "vowel": step('$k[1] in "aeiou"', "Use only names with a vowel (a, e, i, o, u) as second letter."),
}
_TEAM_VALUES = {
    "total": step("sum($v)", "The value of a team is the total of its scores."),
    "span": step("max($v) - min($v)", "The value of a team is its highest minus its lowest score."),
    "mean": step("sum($v) // len($v)", "The value of a team is its average score rounded down."),
    "product": step("max($v) * len($v)", "The value of a team is its highest score times its number of members."),
}
_RANKED = "Order teams by decreasing value (equals by team name) and for each print"
_TEAM_LINES = {
    "best": Step(
        (f"{_RANKED} team, value and its name with the highest score (of equals the first in the alphabet).",),
        (
            "print(team, $x, min(members, key=lambda pair: (-pair[0], pair[1]))[1])",
            "print(team, $x, sorted(members, key=lambda pair: (-pair[0], pair[1]))[0][1])",
        ),
    ),
    "members": Step(
        (f"{_RANKED} team:value and its names in alphabetical order.",),
        (
            'print(f"{team}:{$x}", *sorted($k for _, $k in members))',
            'print(team + ":" + str($x) + " " + " ".join(sorted($k for $n, $k in members)))',
        ),
    ),
    "above": Step(
        (f"{_RANKED} team, value and how many of its scores are at least half of the value.",),
        (
            "print(team, $x, sum(2 * $n >= $x for $n, _ in members))",
            'print(f"{team} {$x} {len([$n for $n, _ in members if $n * 2 >= $x])}")',
        ),
    ),
}


def _draw_intervals(rng: random.Random) -> str:
    """Intervals of which many touch, overlap or nearly do."""
    pairs: list[tuple[int, int]] = []
    for _ in range(rng.randint(4, 6)):
        start = rng.randint(0, 25)
        if pairs and rng.random() < 0.6:
            start = rng.choice(pairs)[1] + rng.choice([-1, 0, 0, 2])
        pairs.append((start, start + rng.choice([1, 2, 3, 6])))
    rng.shuffle(pairs)
    return "\n".join([str(len(pairs)), *(f"{start} {end}" for start, end in pairs)]) + "\n"


_INTERVAL_FRAMES = (
    code("""
        $v = sorted(tuple(map(int, input().split())) for _ in range(int(input())))
        merged = []
        for start, end in $v:
            if merged and @0:
                last = merged[-1]
                merged[-1] = (last[0], max(last[1], end), last[2] + 1)
            else:
                merged.append((start, end, 1))
        $w = [(start, end) for start, end, size in merged if @1]
        @2
    """),
    code("""
        $v = []
        for _ in range(int(input())):
            a, b = input().split()
            $v.append((int(a), int(b)))
        $v.sort()
        merged = [[*$v[0], 0]]
        for start, end in $v:
            if @0:
                merged[-1][1] = max(merged[-1][1], end)
                merged[-1][2] += 1
            else:
                merged.append([start, end, 1])
        $w = []
        for start, end, size in merged:
            if @1:
                $w.append((start, end))
        @2
    """),
)
_INTERVAL_RULES = {
    "touch": step("start <= merged[-1][1]", "Join intervals that overlap or touch until no two do."),
    "overlap": step("start < merged[-1][1]", "Join intervals that overlap until no two do; touching is not enough."),
    "near": step("start - merged[-1][1] <= 2", "Join intervals that overlap or are at most 2 apart until no two are."),
}
_INTERVAL_FILTERS = {
    "long": step("end - start > 4", "Keep the resulting ones longer than 4."),
    "even": step("(start + end) % 2 == 0", "Keep the resulting ones of which start plus end is even."),
    "made": step("size > 1", "Keep those that were made of two or more."),
}
_INTERVAL_REPORTS = {
    "lines": Step(
        ("Print them by increasing start as start-end, one a line, and then their total length.",),
        (
            'for start, end in $w:\n    print(f"{start}-{end}")\nprint(sum(end - start for start, end in $w))',
            '$t = 0\nfor start, end in $w:\n    print(start, end, sep="-")\n    $t += end - start\nprint($t)',
        ),
    ),
    "longest": Step(
        ("Print how many there are, and on a second line start and end of the longest (the first of equals) or none.",),
        (
            'print(len($w))\nif $w:\n    print(*max($w, key=lambda pair: pair[1] - pair[0]))\nelse:\n    print("none")',
            '$w.sort(key=lambda pair: pair[0] - pair[1])\nprint(len($w))\nprint(*$w[0] if $w else ["none"])',
        ),
    ),
    "gaps": Step(
        ("Print the gaps between neighbours among them on one line (none if there are none), then their starts' sum.",),
        (
            'print(*[b[0] - a[1] for a, b in zip($w, $w[1:])] or ["none"])\nprint(sum(start for start, _ in $w))',
            code("""
                $t = []
                for i in range(1, len($w)):
                    $t.append($w[i][0] - $w[i - 1][1])
                print(" ".join(map(str, $t)) or "none")
                print(sum([pair[0] for pair in $w]))
            """),
        ),
    ),
    "inside": Step(
        (
            "For each of them print the number of given intervals that start inside it (ends count), "
            "then how many exist.",
        ),
        (
            code("""
                for start, end in $w:
                    print(sum(start <= a <= end for a, _ in $v))
                print(len($w))
            """),
            code("""
                for start, end in $w:
                    $t = [a for a, b in $v if a >= start and a <= end]
                    print(len($t))
                print(len($w))
            """),
        ),
    ),
}


def _draw_text(rng: random.Random) -> str:
    pool = rng.sample(_SHORT, 4)
    lines = [" ".join(rng.choice(pool) for _ in range(rng.randint(2, 4))) for _ in range(rng.randint(2, 3))]
    return "\n".join([str(len(lines)), *lines]) + "\n"


_RANK_FRAMES = (
    code("""
        $d = {}
        for i in range(1, int(input()) + 1):
            for j, word in enumerate(input().split()):
                $k = @0
                $d[$k] = $d.get($k, 0) + @1
        $w = sorted($d.items(), key=lambda pair: @2)
        @3
    """),
    code("""
        from collections import defaultdict
        def order(pair):
            return @2


        $d = defaultdict(int)
        lines = [input().split() for _ in range(int(input()))]
        for i, line in enumerate(lines, 1):
            for j in range(len(line)):
                word = line[j]
                $d[@0] += @1
        $w = list($d.items())
        $w.sort(key=order)
        @3
    """),
)
_RANK_KEYS = {
    "word": step("word", "The key of a word is the word itself."),
    "ends": step("word[0] + word[-1]", "The key of a word is its first and its last letter."),
    "sorted": step('"".join(sorted(word))', "The key of a word is its letters in alphabetical order."),
}
_RANK_WEIGHTS = {
    "lines": step("i", "Each word adds the number of its line (from 1) to its key."),
    "letters": step("len(word)", "Each word adds its length to its key."),
    "places": step("j + 1", "Each word adds its position in its line (from 1) to its key."),
    "signs": step("(1 if i % 2 == 1 else -1)", "Each word adds 1 to its key on lines 1, 3 and takes 1 off on line 2."),
}
_RANK_ORDERS = {
    "high": step("(-pair[1], pair[0])", "Order keys by decreasing total (equals alphabetically)."),
    "low": step("(pair[1], pair[0][::-1])", "Order keys by increasing total (equals by the key read backwards)."),
}
_RANK_PRINTS = {
    "three": Step(
        ("Print the first three (or all if there are fewer) as key total, one a line.",),
        ("for $k, $n in $w[:3]:\n    print($k, $n)", 'for $k, $n in $w[:3]:\n    print(f"{$k} {$n}")'),
    ),
    "split": Step(
        ("Print the keys with an even total on one line and the others on the next (none for an empty line).",),
        (
            'for i in (0, 1):\n    print(*[$k for $k, $n in $w if $n % 2 == i] or ["none"])',
            "$t = [[], []]\nfor $k, $n in $w:\n    $t[$n % 2].append($k)\nfor line in $t:\n"
            '    print(" ".join(line) or "none")',
        ),
    ),
}

FAMILIES = (
    framed_family(
        "team-ranking",
        _draw_records,
        (
            "The first line is n, then n records: name team score.",
            "Read n and n lines with a name, a team and a score.",
        ),
        _TEAM_FRAMES,
        _TEAM_FILTERS,
        _TEAM_VALUES,
        _TEAM_LINES,
    ),
    framed_family(
        "interval-union",
        _draw_intervals,
        (
            "The first line is n, then n intervals: start end.",
            "Read n and n lines with start and end of an interval.",
        ),
        _INTERVAL_FRAMES,
        _INTERVAL_RULES,
        _INTERVAL_FILTERS,
        _INTERVAL_REPORTS,
    ),
    framed_family(
        "key-ranking",
        _draw_text,
        ("The first line is n, then n lines of words.", "Read n and n lines of words."),
        _RANK_FRAMES,
        _RANK_KEYS,
        _RANK_WEIGHTS,
        _RANK_ORDERS,
        _RANK_PRINTS,
    ),
)
