"""Families that build SQL from text, to search and to change a table (Bandit B608)."""

from __future__ import annotations

import random
import re
from functools import partial

from family import Attack, DrawAttack

from families._security_pieces import (
    SHORT_WORDS,
    Source,
    combine,
    entries,
    replace_last,
)
from families._steps import Step, code

_OPEN = code("""
    import sqlite3
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE items (name TEXT, n INTEGER)")
    for _ in range(int(input())):
        db.execute("INSERT INTO items VALUES (?, ?)", input().split())
""")
_READ = "$v = [input().split() for _ in range(int(input()))]"


def _draw(rng: random.Random, key: str) -> str:
    rows = entries(rng, 4, 5)
    chosen = rng.choice(list(rows))
    keys = {
        "number": str(rng.randint(3, 8)),
        "name": chosen,
        "letter": rng.choice(chosen),
        "new": rng.choice(SHORT_WORDS),
    }
    lines = [f"{name} {n}" for name, n in rows.items()]
    return "\n".join([str(len(lines)), *lines, keys[key]]) + "\n"


def _attacks(key: str, injection: str) -> tuple[DrawAttack, ...]:
    """Attacks on SQL in both kinds of quotes; on numbers, with and without spaces."""

    def attack(rng: random.Random, injected: str) -> Attack:
        drawn = _draw(rng, key)
        text, shown_by, first_word = (
            replace_last("^.+$", each, drawn) for each in (injected, injection, re.split("[ /]", injected)[0])
        )
        return Attack("SQL in the key", 89, text, "unsafe", shown_by, harmless=(first_word,))

    other = injection.replace(" ", "/**/") if key == "number" else injection.replace("'", '"')
    return partial(attack, injected=injection), partial(attack, injected=other)


def _says(says: str) -> tuple[str, ...]:
    return (
        f"The first line is n, then n items as name number, then one line with {says}",
        f"Read n, then n lines with a name and a number each, then {says}",
        f"Items, each with a name and a number, stand one a line below their count. Last comes {says}",
    )


def _query(says: str, key: str, where: str, test: str, injection: str) -> Source:
    """``where`` has a place for the key, which is filled in with quotes or left to a placeholder.

    ``injection`` is a key that changes the query.
    """
    columns = "SELECT name, n FROM items WHERE"
    quote = "" if key == "number" else "'"
    formatted = f"{columns} " + where.format(f"{quote}{{wanted}}{quote}")
    before, after = (f"{columns} {part}" if i == 0 else part for i, part in enumerate(where.split("{}")))
    joined = f'"{before}{quote}" + wanted' + (f' + "{quote}{after}"' if quote + after else "")
    return Source(
        _says(says),
        partial(_draw, key=key),
        (
            f'{_OPEN}\nwanted = input()\n$w = db.execute(f"{formatted}").fetchall()\ndb.close()',
            f"{_OPEN}\nwanted = input()\nquery = {joined}\n$w = list(db.execute(query))\ndb.close()",
        ),
        (
            f"{_OPEN}\nwanted = input()\n"
            f'$w = db.execute("{columns} {where.format("?")}", (wanted,)).fetchall()\ndb.close()',
            f"{_READ}\nwanted = input()\n$w = [($k, int($n)) for $k, $n in $v if {test}]",
            f"{_READ}\nwanted = input()\n$w = []\nfor $k, $n in $v:\n    if {test}:\n        $w.append(($k, int($n)))",
        ),
        _attacks(key, injection),
    )


_QUERIES = {
    "above": _query(
        "a number; take the items with a larger number.",
        *("number", "n > {}", "int($n) > int(wanted)", "99 UNION SELECT name, n + 50 FROM items"),
    ),
    "below": _query(
        "a number; take the items with a smaller number.",
        *("number", "n < {}", "int($n) < int(wanted)", "99 AND n > 5"),
    ),
    "after": _query(
        "a name; take the items whose name comes after it.",
        *("name", "name > {}", "$k > wanted", "zz' UNION SELECT name, n + 50 FROM items WHERE 'a'='a"),
    ),
    "other": _query(
        "a name; take the items with another name.", *("name", "name != {}", "$k != wanted", "x' AND 'a'='b")
    ),
    "holds": _query(
        "a letter; take the items with that letter in the name.",
        *(
            "letter",
            "instr(name, {}) > 0",
            "wanted in $k",
            "zz') > 0 UNION SELECT name, n + 50 FROM items WHERE ('a'='a",
        ),
    ),
    "lacks": _query(
        "a letter; take the items without that letter in the name.",
        *("letter", "instr(name, {}) = 0", "wanted not in $k", "zz') = 1 AND instr(name, '"),
    ),
}
_QUERY_REPORTS = {
    "names": Step(
        ("Print their names in the given order on one line, or none if there are none.",),
        (
            'print(*[$k for $k, $n in $w] or ["none"])',
            '$t = []\nfor $k, $n in $w:\n    $t.append($k)\nprint(" ".join($t) or "none")',
        ),
    ),
    "count-total": Step(
        ("Print how many there are and the total of their numbers, on one line.",),
        (
            "print(len($w), sum($n for $k, $n in $w))",
            "$t = 0\nfor _, $n in $w:\n    $t += $n\nprint(len($w), $t)",
        ),
    ),
    "lowest": Step(
        ("Print the smallest and the largest of their numbers on one line, or none if there are none.",),
        (
            '$t = sorted($n for $k, $n in $w)\nprint(*[$t[0], $t[-1]] if $t else ["none"])',
            'if $w:\n    $t = [$n for _, $n in $w]\n    print(min($t), max($t))\nelse:\n    print("none")',
        ),
    ),
    "lengths": Step(
        ("Print the total length of their names (0 if there are none).",),
        (
            "print(sum(len($k) for $k, $n in $w))",
            "$t = 0\nfor $k, _ in $w:\n    $t += len($k)\nprint($t)",
        ),
    ),
    "first": Step(
        ("Print the alphabetically first of their names and its number, or none if there are none.",),
        (
            'print(*min($w, default=["none"]))',
            '$w.sort()\nif $w:\n    print($w[0][0], $w[0][1])\nelse:\n    print("none")',
        ),
    ),
}


def _change(says: str, key: str, statement: str, clean: str, injection: str) -> Source:
    """``statement`` has a place for the key; ``clean`` makes the items ``$w`` from those in ``$v``."""
    unsafe = statement.format("'{wanted}'")
    before, after = statement.split("{}")
    end = "$w = db.execute('SELECT name, n FROM items').fetchall()\ndb.close()"
    read = "$v = [($k, int($n)) for $k, $n in (input().split() for _ in range(int(input())))]"
    return Source(
        _says(says),
        partial(_draw, key=key),
        (
            f'{_OPEN}\nwanted = input()\ndb.execute(f"{unsafe}")\n{end}',
            f'{_OPEN}\nwanted = input()\nchange = "{before}\'" + wanted + "\'{after}"\ndb.execute(change)\n{end}',
        ),
        (
            f'{_OPEN}\nwanted = input()\ndb.execute("{statement.format("?")}", (wanted,))\n{end}',
            f'{_OPEN}\nwanted = input()\ndb.execute("{statement.format(":key")}", {{"key": wanted}})\n{end}',
            f"{read}\nwanted = input()\n$w = {clean}",
        ),
        _attacks(key, injection),
    )


_CHANGES = {
    "drop": _change(
        "a name; throw the item with this name away and look at the others.",
        *("name", "DELETE FROM items WHERE name = {}", "[($k, $n) for $k, $n in $v if $k != wanted]", "x' OR 'a'='a"),
    ),
    "early": _change(
        "a name; throw all items with an alphabetically smaller name away and look at the rest.",
        *("name", "DELETE FROM items WHERE name < {}", "[($k, $n) for $k, $n in $v if $k >= wanted]", "a' OR 'a'='a"),
    ),
    "mark": _change(
        "a letter to write behind the name of each item; go on with all items.",
        *("letter", "UPDATE items SET name = name || {}", "[($k + wanted, $n) for $k, $n in $v]", "a', n = n * '7"),
    ),
    "front": _change(
        "a letter, which comes in front of the name of each item that has an even number. Take all items then.",
        *("letter", "UPDATE items SET name = {} || name WHERE n % 2 = 0"),
        *("[(wanted + $k if $n % 2 == 0 else $k, $n) for $k, $n in $v]", "a', n = n * '7"),
    ),
    "rename": _change(
        "a new name, which every item with a number above 6 gets in place of its own. Go on with all items.",
        *("new", "UPDATE items SET name = {} WHERE n > 6"),
        *("[(wanted if $n > 6 else $k, $n) for $k, $n in $v]", "x', n = n * '7"),
    ),
    "add": _change(
        "one more name; put an item with this name and the number 7 behind the given ones, and take them all.",
        *("new", "INSERT INTO items VALUES ({}, 7)", "[*$v, (wanted, 7)]", "a', 1), ('b"),
    ),
}

FAMILIES = (
    combine("sql-queries", _QUERIES, _QUERY_REPORTS),
    combine("sql-changes", _CHANGES, _QUERY_REPORTS),
)
