"""Families that build commands from text: SQL (Bandit B608) and the shell (B602, B605).

The shell programs would run something only when the input says so. No drawn input does.
"""

from __future__ import annotations

import random

from securecoderl_edge.problems.starter.families._security_pieces import SHORT_WORDS, Source, combine, entries
from securecoderl_edge.problems.starter.families._steps import Step, code
from securecoderl_edge.problems.starter.family import Attack

_OPEN = code("""
    import sqlite3
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE items (name TEXT, n INTEGER)")
    for _ in range(int(input())):
        db.execute("INSERT INTO items VALUES (?, ?)", input().split())
""")
_READ = "$v = [input().split() for _ in range(int(input()))]"


def _query(says: str, key: str, where: str, test: str, injection: str = "") -> Source:
    """``where`` has a place for the key, which is filled in with quotes or left to a placeholder.

    ``injection`` is a key that changes the query; without one no input shows the weakness.
    """

    def draw(rng: random.Random) -> str:
        rows = entries(rng, 4, 5)
        chosen = rng.choice(list(rows))
        keys = {
            "number": str(rng.randint(3, 8)),
            "name": chosen,
            "letter": rng.choice(chosen),
            "first": chosen[0],
        }
        lines = [f"{name} {n}" for name, n in rows.items()]
        return "\n".join([str(len(lines)), *lines, keys[key]]) + "\n"

    def attack(rng: random.Random) -> Attack:
        return Attack("SQL in the key", 89, draw(rng).rstrip("\n").rpartition("\n")[0] + f"\n{injection}\n", "clean")

    columns = "SELECT name, n FROM items WHERE"
    quote = "" if key == "number" else "'"
    formatted = f"{columns} " + where.format(f"{quote}{{wanted}}{quote}")
    before, after = (f"{columns} {part}" if i == 0 else part for i, part in enumerate(where.split("{}")))
    joined = f'"{before}{quote}" + wanted' + (f' + "{quote}{after}"' if quote + after else "")
    return Source(
        (
            f"The first line is n, then n items as name number, then one line with {says}",
            f"Read n, then n lines with a name and a number each, then {says}",
            f"Items, each with a name and a number, stand one a line below their count. Last comes {says}",
        ),
        draw,
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
        attack if injection else None,
    )


# A number that is none has no right answer, and SQL compares it in its own way.
_QUERIES = {
    "above": _query("a number; take the items with a larger number.", "number", "n > {}", "int($n) > int(wanted)"),
    "below": _query("a number; take the items with a smaller number.", "number", "n < {}", "int($n) < int(wanted)"),
    "after": _query(
        "a name; take the items whose name comes after it.", *("name", "name > {}", "$k > wanted", "zz' OR 'a'='a")
    ),
    "other": _query(
        "a name; take the items with another name.", *("name", "name != {}", "$k != wanted", "x' AND 'a'='b")
    ),
    "holds": _query(
        "a letter; take the items with that letter in the name.",
        *("letter", "instr(name, {}) > 0", "wanted in $k", "zz') > 0 OR ('a'='a"),
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


def _draw_dry(rng: random.Random) -> str:
    names = [f"{rng.choice(SHORT_WORDS)}.{rng.choice(['txt', 'log', 'py'])}" for _ in range(rng.randint(3, 4))]
    names.insert(rng.randrange(3), names[-1])
    return f"dry\n{' '.join(names)}\n"


def _shell(command: str) -> Source:
    """``command`` contains F for the name of the file."""
    act = code("""
        def act($k, dry):
            command = {command}
            if dry:
                print({shown})
            else:
                {run}


    """)
    text = 'f"' + command.replace("F", "{$k}") + '"'
    words = ", ".join(
        "$k" if word == "F" else ('f"' + word.replace("F", "{$k}") + '"' if "F" in word else f'"{word}"')
        for word in command.split()
    )

    def program(module: str, made: str, shown: str, run: str) -> str:
        return f"import {module}\n" + act.format(command=made, shown=shown, run=run) + "\n\n\n"

    return Source(
        (
            f"Line 1 is dry or run, line 2 holds file names. With dry print the command {command} for "
            f"each file F, "
            "one a line; with run execute it instead.",
            f"For each file F on line 2 the command is {command}. Line 1 says run to execute the "
            f"commands or dry to "
            "only print them, one a line.",
        ),
        _draw_dry,
        (
            program("os", text, "command", "os.system(command)"),
            program("subprocess", text, "command", "subprocess.run(command, shell=True)"),
            program("os", text, "command", "os.popen(command)"),
        ),
        (
            program("subprocess", f"[{words}]", "*command", "subprocess.run(command, check=True)"),
            program("subprocess", f"[{words}]", '" ".join(command)', "subprocess.call(command)"),
        ),
    )


_COMMANDS = {
    "remove": _shell("rm F"),
    "copy": _shell("cp F F.bak"),
    "move": _shell("mv F old/F"),
    "link": _shell("ln -s F link-F"),
    "pack": _shell("gzip -k F"),
    "send": _shell("scp F host:in/F"),
}


def _order(says: str, *names: str) -> Step:
    """``names`` are expressions over the list ``$v`` of file names."""
    loop = 'dry = input() == "dry"\n$v = input().split()\nfor $x in {}:\n    act($x, dry)'
    mode = 'mode = input()\n$v = input().split()\n$w = {}\nfor $x in $w:\n    act($x, mode == "dry")'
    return Step((says,), tuple(way.format(expression) for expression in names for way in (loop, mode)))


_ORDERS = {
    "sorted": _order("Take the files in alphabetical order.", "sorted($v)"),
    "backwards": _order("Take the files from last to first.", "$v[::-1]", "list(reversed($v))"),
    "distinct": _order("Take each file once, in order of first appearance.", "list(dict.fromkeys($v))"),
    "length": _order("Take shorter names first (equally long ones in order).", "sorted($v, key=len)"),
    "ending": _order(
        "Take the files by the part after the dot, then by the whole name, alphabetically.",
        'sorted($v, key=lambda $t: ($t.split(".")[1], $t))',
    ),
}

FAMILIES = (
    combine("sql-queries", _QUERIES, _QUERY_REPORTS),
    combine("shell-commands", _COMMANDS, _ORDERS),
)
