"""Frames of programs that families share: styles of one and the same program, and what is put into them.

``@name`` in a style stands for what `expand` puts there.
"""

from __future__ import annotations

import re
from itertools import cycle
from textwrap import indent


def expand(styles: tuple[str, ...], loop: str = "", **parts: str) -> tuple[str, ...]:
    """The styles with each ``@name`` replaced by that part; one alone on its line keeps its indent.

    A line ``@loop(statement)`` becomes ``loop`` with the statement in place of its ``@each``.
    """

    def expanded(row: str) -> str:
        text = row.lstrip()
        margin = row[: len(row) - len(text)]
        if text.startswith("@loop("):
            return indent(loop.replace("@each", text.removeprefix("@loop(")[:-1]), margin)
        return indent(re.sub(r"@(\w+)", lambda match: parts[match[1]], text), margin)

    return tuple("\n".join(map(expanded, style.split("\n"))) for style in styles)


def reading(reads: tuple[str, ...], programs: tuple[str, ...]) -> tuple[str, ...]:
    """The programs, which read in these ways by turns."""
    return tuple(
        program.replace("    $read", indent(read, "    ")).replace("$read", read)
        for read, program in zip(cycle(reads), programs, strict=False)
    )


def ending(call: str) -> str:
    """The end of a program of functions: its ``main()`` reads, calls one of them and prints."""
    return f"\n\ndef main():\n    $read\n    $ys = {call}\n    print($whole)\n\n\nmain()\n"


# From a comprehension to a small class.

_PIPELINE = (
    "$read\n$ys = [$value for @item in @items$where]\nprint($whole)\n",
    "$read\n$ys = []\nfor @item in @items:\n    $collect\nprint($whole)\n",
    "$read\n$start\nfor @item in @items:\n    $follow\nprint($show)\n",
    """\
def select(items):
    return [$value for @item in items$where]


def main():
    $read
    $ys = select(@items)
    print($whole)


main()
""",
    """\
def chosen(items):
    for @item in items:
        $emit


def main():
    $read
    $start
    for $y in chosen(@items):
        $take
    print($show)


if __name__ == "__main__":
    main()
""",
    """\
class Collector:
    def __init__(self):
        self.items = []

    def add(self, @item):
        $ys = self.items
        $collect

    def report(self):
        $ys = self.items
        print($whole)


$read
collector = Collector()
for @item in @items:
    collector.add(@item)
collector.report()
""",
)


def pipeline(items: str = "$xs", item: str = "$x") -> tuple[str, ...]:
    """Programs that ``$read`` a list, keep and change some of its items, and print a fold of what came out."""
    return expand(_PIPELINE, items=items, item=item)


_LONG_PIPELINE = (
    """\
def keep(@items):
    $ys = []
    for @item in @items:
        $collect
    return $ys


def report($ys):
    print($whole)


def main():
    $read
    $ys = keep(@items)
    report($ys)


main()
""",
    """\
class Box:
    def __init__(self):
        self.items = []

    def add(self, @item):
        $ys = self.items
        $collect

    def show(self):
        $ys = self.items
        print($whole)


def main():
    box = Box()
    $loop
        box.add(@item)
    box.show()


main()
""",
)


def long_pipeline(items: str, item: str) -> tuple[str, ...]:
    """Longer programs of the meaning of `pipeline`; they need ``$loop``, which opens a loop over the items, too."""
    return expand(_LONG_PIPELINE, items=items, item=item)
