"""Families about paths and addresses, where the obvious literal draws a finding (Bandit B104, B108)."""

from __future__ import annotations

import random
from functools import partial

from families._security_pieces import (
    REPORT_ENTRIES,
    SHORT_WORDS,
    Source,
    combine,
    injected,
    pick,
)
from families._steps import Step, code

_FOLDERS = (
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/tmpx",
    "/var",
    "/home/tmp",
    "/tmp/a",
    "/var/tmp/b",
    "/dev/shm/c",
)
_ENDINGS = ("txt", "log", "py")


def _draw_paths(rng: random.Random, folder: str) -> str:
    paths = []
    for word in rng.sample(SHORT_WORDS, rng.randint(3, 5)):
        place = rng.choice([folder, folder + "/a", rng.choice(_FOLDERS)])
        paths.append(f"{place}/{word}.{rng.choice(_ENDINGS)}")
    return "\n".join([str(len(paths)), *paths]) + "\n"


def _inside(folder: str, inside: bool) -> Source:
    parts = folder.strip("/").split("/")
    if len(parts) == 1:
        clean = f'normpath("/" + {{}}.lstrip("/")).split("/")[1] {"==" if inside else "!="} "{parts[0]}"'
    else:
        clean = f'normpath("/" + {{}}.lstrip("/")).split("/")[1:3] {"==" if inside else "!="} {parts}'.replace("'", '"')
    draw = partial(_draw_paths, folder=folder)
    unsafe = f'{"" if inside else "not "}{{}}.startswith("{folder}/")'

    short = "paths = [input() for _ in range(int(input()))]\n$w = [$x for $x in paths if {}]"
    loop = "$w = []\nfor _ in range(int(input())):\n    path = input()\n    if {}:\n        $w.append(path)"
    where = "anywhere below" if inside else "not below"
    return Source(
        (
            f"The first line is n, then come n file paths, one a line. Take those {where} the folder {folder}.",
            f"Of n paths of files (n on line 1, then one a line) keep those {where} the folder {folder}.",
            f"Files are listed by path below their number. Look only at files {where} the folder {folder}.",
        ),
        draw,
        (short.format(unsafe.format("$x")), loop.format(unsafe.format("path"))),
        (
            f"from os.path import normpath\n{short.format(clean.format('$x'))}",
            f"from posixpath import normpath\n{loop.format(clean.format('path'))}",
        ),
        injected(
            *("path through ..", 22, draw, "^.+/"),
            texts=(f"{folder}/../srv/", f"{folder}/./a/../../{'../' * (len(parts) - 1)}srv/"),
            judged="unsafe",
        ),
    )


_PLACES = {
    f"{'in' if inside else 'out'}-{folder.strip('/').replace('/', '-')}": _inside(folder, inside)
    for folder in ("/tmp", "/var/tmp", "/dev/shm")
    for inside in (True, False)
}
_PATH_REPORTS = {
    "names": Step(
        (
            "Print their file names without folders in alphabetical order on one line, or none if there are none.",
            "Cut off the folders, sort from a to z and output a row of what is left (the word none if empty).",
        ),
        (
            'print(*sorted($x.split("/")[-1] for $x in $w) or ["none"])',
            '$t = []\nfor $x in $w:\n    $t.append($x.rsplit("/", 1)[1])\n$t.sort()\nprint(" ".join($t) or "none")',
        ),
    ),
    "endings": Step(
        (
            "Print how many end in .txt, in .log and in .py, on one line.",
            "Output three counts in a row, by ending: first txt, then log, then py.",
        ),
        (
            'print(*[sum($x.endswith($k) for $x in $w) for $k in (".txt", ".log", ".py")])',
            '$t = {"txt": 0, "log": 0, "py": 0}\nfor $x in $w:\n    $t[$x.split(".")[-1]] += 1\nprint(*$t.values())',
        ),
    ),
    "longest": Step(
        (
            "Print the number of characters of the longest of these paths, or 0 if there are none.",
            "How many characters has the path with most? Output this number, 0 if empty.",
        ),
        (
            "print(max(map(len, $w), default=0))",
            "$t = 0\nfor $x in $w:\n    if len($x) > $t:\n        $t = len($x)\nprint($t)",
        ),
    ),
    "depths": Step(
        (
            "Print for each the number of folders in its path, on one line, or none if there are none.",
            "How many folders lead to each from the root? Output a row of these counts (the word none if empty).",
        ),
        (
            'print(*[$x.count("/") - 1 for $x in $w] or ["none"])',
            '$t = []\nfor $x in $w:\n    $t.append(len($x.split("/")) - 2)\nprint(" ".join(map(str, $t)) or "none")',
        ),
    ),
    "stems": Step(
        (
            "Print their file names up to the dot in the given order, joined by +, or none if there are none.",
            "Cut off the folders and, from the dot on, the ending; output the rest with + between (the word none if "
            "empty).",
        ),
        (
            'print("+".join($x.split("/")[-1].split(".")[0] for $x in $w) or "none")',
            '$t = []\nfor $x in $w:\n    $k = $x[$x.rindex("/") + 1 :]\n'
            '    $t.append($k[: $k.index(".")])\nprint("+".join($t) or "none")',
        ),
    ),
}


def _draw_services(rng: random.Random) -> str:
    hosts = ("0.0.0.0", "0.0.0.0", "0.0.0.0", "10.0.0.1", "0.0.0.9")
    names = rng.sample([word for word in SHORT_WORDS if len(word) <= 4], rng.randint(4, 5))
    rows = [f"{name} {rng.choice(hosts)}:{rng.choice([22, 53, 80, 110, 443, 8080, 9001])}" for name in names]
    return "\n".join([str(len(rows)), *rows]) + "\n"


def _services(which: str, rule: str) -> Source:
    """``rule`` has a place for the test whether ``host`` is all zeros; ``$n`` is the port."""
    program = code("""
        {setup}$w = []
        for _ in range(int(input())):
            $k, place = input().split()
            host, $n = place.split(":")
            $n = int($n)
            if {test}:
                $w.append(($k, $n))
    """)

    def with_test(test: str, setup: str = "") -> str:
        return program.replace("{setup}", setup).replace("{test}", rule.format(test))

    function = "def is_open(host):\n    return {}\n\n\n"
    return Source(
        (
            "The first line is n, then n services as name address:port. A service is open when its "
            "address is all "
            f"zeros. Take those that are {which}; their numbers are the ports.",
            "n services (n on line 1) come one a line as name address:port; one with four zeros as "
            "address is open. "
            f"Take the services that are {which}, with the port as number.",
            "Below their number there are rows name address:port, each a service; 0.0.0.0 as address makes it open. "
            f"Choose the ones that are {which}, and use their ports as numbers.",
            "Every service (one a row, name address:port, after a count) listens on its address, and is open if that "
            f"is 0.0.0.0. Look at those which are {which}; the number of each is its port.",
        ),
        _draw_services,
        (
            with_test('host == "0.0.0.0"'),
            with_test("is_open(host)", function.format('host == "0.0.0.0"')),
        ),
        (
            with_test('set(host) == set("0.")'),
            with_test("is_open(host)", function.format('not any(int($x) for $x in host.split("."))')),
            with_test(
                "is_open(host)",
                function.format('sum(map(int, host.split("."))) == 0'),
            ),
        ),
        # Another way to write the same address.
        injected(
            *("leading zeros", 1389, _draw_services, r"\d+(?:\.\d+){3}"),
            texts=("00.0.0.0", "0.0.0.000"),
            judged="unsafe",
        ),
    )


_SERVICES = {
    "open": _services("open", "{}"),
    "closed": _services("not open", "not {}"),
    "open-low": _services("open with a port below 1024", "{} and $n < 1024"),
    "open-even": _services("open with an even port", "{} and $n % 2 == 0"),
    "closed-even": _services("not open and have an even port", "not {} and $n % 2 == 0"),
}

FAMILIES = (
    combine("temporary-paths", _PLACES, _PATH_REPORTS),
    combine("open-services", _SERVICES, pick(REPORT_ENTRIES, "names total top ranked pairs initials")),
)
