"""How programs in C are written: what every program may use, and the frames of those about numbers.

A family's programs in C are filled with the same bits of code as its programs in Python. Where C says a bit in another
way, the bit stands a second time under its name with ``c_`` before it (`in_c`). ``$read`` leaves ``count`` numbers in
``$xs``; ``$start``, ``$take`` and ``$show`` fold one ``$y`` after the other, and ``$whole`` folds the ``size`` numbers
in ``$ys``. Unlike in Python, ``$whole`` and ``$show`` are statements that print.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import indent

_PREFIX = "c_"
_HEADERS = {
    "ctype.h": ("isdigit", "islower", "toupper"),
    "inttypes.h": ("PRId32", "PRIu32", "PRIu16", "PRIX32", "SCNd32", "SCNu32", "SCNx32", "PRId64", "SCNd64"),
    "stdbool.h": ("bool",),
    "stdint.h": tuple(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "stdio.h": ("printf", "scanf", "getchar", "putchar", "fgets", "puts", "snprintf", "sscanf"),
    "stdlib.h": ("llabs", "atoi", "abs", "strtol"),
    "string.h": ("strlen", "strcmp", "strcspn", "strcpy", "strchr", "memcpy", "memset", "memmove", "strcat"),
}
_CONSTANTS = {"MAX": 64, "SIZE": 64}
# Functions that a program gets if it calls them. Python's division rounds down; C's rounds toward zero.
_HELPERS = {
    "floor_div": """\
static long long floor_div(long long a, long long b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
""",
    "floor_mod": """\
static long long floor_mod(long long a, long long b)
{
    return (a % b + b) % b;
}
""",
    "gcd": """\
static long long gcd(long long a, long long b)
{
    while (b != 0) {
        long long rest = a % b;
        a = b;
        b = rest;
    }
    return llabs(a);
}
""",
    "larger": """\
static long long larger(long long a, long long b)
{
    return a > b ? a : b;
}
""",
    "smaller": """\
static long long smaller(long long a, long long b)
{
    return a < b ? a : b;
}
""",
    "sort": """\
static void sort(long long *items, int size)
{
    for (int i = 1; i < size; i++) {
        long long item = items[i];
        int j = i;
        for (; j > 0 && items[j - 1] > item; j--)
            items[j] = items[j - 1];
        items[j] = item;
    }
}
""",
    "read_line": """\
static int read_line(long long *items)
{
    int size = 0;
    int next = ' ';
    while (next != '\\n' && size < MAX && scanf("%lld", &items[size]) == 1) {
        size++;
        next = getchar();
    }
    return size;
}
""",
    "find": """\
static int find(char names[][SIZE], int count, const char *name)
{
    int i = 0;
    while (i < count && strcmp(names[i], name) != 0)
        i++;
    return i;
}
""",
}


def in_c(bits: Mapping[str, str]) -> dict[str, str]:
    """The bits of code as programs in C have them."""
    own = {label.removeprefix(_PREFIX): text for label, text in bits.items() if label.startswith(_PREFIX)}
    return {**bits, **own}


def complete(text: str) -> str:
    """A program with the headers, constants and functions that it uses."""
    known = _words(text)
    text = "\n".join([*(code for name, code in _HELPERS.items() if name in known), text.lstrip()])
    known = _words(text)
    includes = "".join(f"#include <{header}>\n" for header, names in _HEADERS.items() if not known.isdisjoint(names))
    constants = "".join(f"#define {name} {value}\n" for name, value in _CONSTANTS.items() if name in known)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(filter(None, (includes, constants, text))))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


NUMBERS = "long long $xs[MAX];\nint count = 0;\n$read"
_SIMPLE = """\
int main(void)
{
    $numbers
    $start
    for (int i = 0; i < count; i++) {
        long long $x = $xs[i];
        $follow
    }
    $show
    return 0;
}
"""
_TWO_FUNCTIONS = """\
static int keep(const long long *$xs, int count, long long *$ys)
{
    int size = 0;
    for (int i = 0; i < count; i++) {
        long long $x = $xs[i];
        $collect
    }
    return size;
}

static void report(long long *$ys, int size)
{
    $whole
}

int main(void)
{
    $numbers
    long long $ys[MAX];
    int size = keep($xs, count, $ys);
    report($ys, size);
    return 0;
}
"""
_CHANGE_FUNCTION = """\
static long long change(long long $x)
{
    return $value;
}

int main(void)
{
    $numbers
    long long $ys[MAX];
    int size = 0;
    for (int i = 0; i < count; i++) {
        long long $x = $xs[i];
        $change_and_collect
    }
    $whole
    return 0;
}
"""
# Keep, change and fold the numbers that ``$read`` leaves.
PIPELINE = (_SIMPLE, _TWO_FUNCTIONS, _CHANGE_FUNCTION)


def main(*statements: str, numbers: str = "$numbers") -> str:
    """The main function of a program that reads numbers and goes on with these statements."""
    return f"int main(void)\n{{\n{indent(chr(10).join((numbers, *statements, 'return 0;')), '    ')}\n}}\n"


def each(*statements: str, walk: str = "int i = 0; i < count; i++") -> str:
    """A loop that does the statements with each ``$x`` of the numbers."""
    body = indent("\n".join(("long long $x = $xs[i];", *statements)), "    ")
    return f"for ({walk}) {{\n{body}\n}}"


def function(head: str, *statements: str) -> str:
    """A function, with the empty line after it."""
    return f"static {head}\n{{\n{indent(chr(10).join(statements), '    ')}\n}}\n\n"


def folded(*statements: str) -> str:
    """A main function that folds each ``$y`` that the statements make of ``$x``."""
    return main("$start", each(*statements, "$take"), "$show")


CHANGE = "long long change(long long $x)"
