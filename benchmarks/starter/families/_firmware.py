"""What the firmware families share: how values are reported, and the frames of their programs.

Every program reads items one by one, as firmware reads samples or bytes, and brings a small state from one to the next.
Steps make values, of which a report is printed; in C a step calls ``emit`` with each. The state has types of a fixed
width, there is no heap, and no floating point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from textwrap import indent

from family import Family

from families._compose import FAMILY_SIZE, Piece, Table, compose, only, piece, said
from families._inputs import Draw

TAG = "firmware"


def _report(whole: str, start: str, take: str, show: str, *words: str) -> Piece:
    return piece(*words, whole=whole, c_start=start, c_statics=as_static(start), c_take=take, c_show=show)


def as_static(declarations: str) -> str:
    """The declarations, one a line, as those of a file."""
    return re.sub(r"(?m)^(?=\w|\$(?!memory))", "static ", declarations).replace("$memory", "$static_memory")


def _with_static(table: Table) -> dict[str, Piece]:
    """Pieces that bring declarations, ``$memory``, have them for the top of a file as well."""
    return {
        key: Piece(chosen.words, {**chosen.code, "static_memory": as_static(chosen.code["memory"])})
        if "memory" in chosen.code
        else chosen
        for key, chosen in table.items()
    }


def _printed(value: str, format: str = "PRId32") -> str:
    return f'printf("%" {format} "\\n", {value});'


_TOTAL = "int32_t $t = 0;"
_FOUND = f"{_TOTAL}\nbool found = false;"


def _best(sign: str) -> tuple[str, str, str]:
    return _FOUND, f"if (!found || $y {sign} $t)\n    $t = $y;\nfound = true;", _printed("$t")


REPORTS = {
    "all": _report(
        '*$ys, sep="\\n"',
        "",
        _printed("$y"),
        "",
        "on lines of their own, all",
        "line by line, each of",
        "one below the other, all",
    ),
    "last": _report(
        "$ys[-1] if $ys else 0",
        _TOTAL,
        "$t = $y;",
        _printed("$t"),
        "the last (0 if there is none) of",
        "only the final one (without any, 0) among",
        "just what comes last (0 when nothing does) of",
    ),
    "max": _report(
        "max($ys, default=0)",
        *_best(">"),
        "the largest (0 if there is none) of",
        "only the highest one (without any, 0) among",
        "the maximum (0 when nothing comes) of",
    ),
    "min": _report(
        "min($ys, default=0)",
        *_best("<"),
        "the smallest (0 if there is none) of",
        "only the lowest one (without any, 0) among",
        "the minimum (0 when nothing comes) of",
    ),
    "sum": _report(
        "sum($ys)",
        _TOTAL,
        "$t += $y;",
        _printed("$t"),
        "the sum of",
        "what you get by adding up",
        "the total over",
    ),
    "odd": _report(
        "sum($y % 2 for $y in $ys)",
        _TOTAL,
        "$t += $y & 1;",
        _printed("$t"),
        "how many are odd among",
        "the count of odd ones among",
        "a counter that goes up by 1 for each one not divisible by 2 of",
    ),
    "changes": _report(
        "sum(a != b for a, b in zip($ys, $ys[1:]))",
        f"{_TOTAL}\nint32_t before = 0;\nbool found = false;",
        "if (found && $y != before)\n    $t++;\nbefore = $y;\nfound = true;",
        _printed("$t"),
        "how often one differs from the one before it among",
        "the number of changes between neighbors among",
        "a counter that goes up by 1 wherever a new one is not equal to its predecessor, over",
    ),
}
# Of values that are 0 or 1.
FLAG_REPORTS = only(REPORTS, "all", "sum", "changes")
XOR = _report(
    "__import__('functools').reduce(lambda a, b: a ^ b, $ys, 0)",
    _TOTAL,
    "$t ^= $y;",
    _printed("$t"),
    "the exclusive or (XOR) of",
    "as one number the bitwise XOR over",
    "what XOR makes of",
)
HEX = _report(
    'f"{$ys[-1]:X}"',
    "uint32_t $t = 0;",
    "$t = (uint32_t)$y;",
    _printed("$t", "PRIX32"),
    "in hexadecimal (capital letters, no leading zeros) the last of",
    "only the final one, as a hexadecimal number in capitals without leading zeros, among",
    "just what comes last, written in base 16 with the digits 0 to F and no zeros in front, of",
)


# How items are read: the head of a loop in Python, the type of an item in C, and the test in C that reads one.
NUMBERS = ("for $x in map(int, input().split()):", "int32_t", 'scanf("%" SCNd32, &$x) == 1')
HEX_NUMBERS = (
    "for $x in [int(part, 16) for part in input().split()]:",
    "uint32_t",
    'scanf("%" SCNx32, &$x) == 1',
)
LETTERS = ("for $x in input().split():", "char", 'scanf(" %c", &$x) == 1')

# The state in main, and a function that reports each value as it comes.
_IN_MAIN = """\
$constants

$statics

static void emit(int32_t $y)
{
    $take
}

int main(void)
{
    $state
    $type $x;
    while ($next) {
        $step
    }
    $show
    return 0;
}
"""
# The state of a module, a function that handles one item, and a buffer of fixed size for what it makes.
_MODULE = """\
$constants

$module
static int32_t results[MAX];
static int size = 0;

static void emit(int32_t $y)
{
    if (size < MAX)
        results[size++] = $y;
}

static void handle($type $x)
{
    $step
}

int main(void)
{
    $type $x;
    while ($next)
        handle($x);
    $start
    for (int i = 0; i < size; i++) {
        int32_t $y = results[i];
        $take
    }
    $show
    return 0;
}
"""


def firmware(
    name: str,
    sentences: tuple[str, ...],
    tables: Mapping[str, Table],
    nouns: tuple[str, ...],
    draw_input: Draw,
    *,
    python: str,
    state: str,
    step: str,
    items: tuple[str, str, str] = NUMBERS,
    setup: str = "",
    constants: str = "",
    reports: Table = REPORTS,
    skip: Callable[..., bool] = lambda *choices: False,
    size: int = FAMILY_SIZE,
) -> Family:
    """A family whose programs make values item by item and report them.

    Args:
        sentences: what is read and what happens, before ``Print $report`` the values.
        nouns: the values, in several wordings.
        python: the body of the reference's loop over ``$x``; it appends to ``$ys``, as ``setup`` before it may.
        state: declarations in C, one a line.
        step: the same as ``python`` in C, for one ``$x``.
        items: how items are read.
        constants: lines in C before all functions.
    """
    asks = tuple(f"{verb} $report {noun}." for verb, noun in zip(("Print", "Output", "Show"), nouns * 3, strict=False))
    loop, type, next = items
    return compose(
        name,
        {**{label: _with_static(table) for label, table in tables.items()}, "report": reports},
        said(sentences, asks),
        (f"$ys = []\n$setup\n{loop}\n{indent(python, '    ')}\nprint($whole)\n",),
        draw_input,
        skip=skip,
        code={
            "setup": setup,
            "type": type,
            "next": next,
            "constants": constants,
            "state": state,
            "module": as_static(state),
            "step": step,
        },
        size=size,
        c_programs=(_IN_MAIN, _MODULE),
        tags=(TAG,),
    )
