"""Families about parts of a list: two selections, neighbours of matches, runs, slices."""

from __future__ import annotations

from family import Family

from families._c import each, function, main
from families._c_pieces import EACH_KEPT
from families._compose import again, only, piece, without
from families._inputs import (
    MORE_NUMBERS_ON_A_LINE,
    NUMBERS_ON_A_LINE,
    compose_from,
    number_line,
)
from families._pieces import CHANGES, CONDITIONS, FOLDS, MAPS, idle, idle_choice

_COMPARISONS = {
    "minus": piece(
        "the first result minus the second", answer="first - second", c_answer='printf("%lld\\n", first - second);'
    ),
    "times": piece(
        "the product of the two results", answer="first * second", c_answer='printf("%lld\\n", first * second);'
    ),
    "both": piece(
        "both results with a space between them",
        answer="first, second",
        c_answer='printf("%lld %lld\\n", first, second);',
    ),
    "larger": piece(
        "the larger of the two results",
        answer="max(first, second)",
        c_answer='printf("%lld\\n", larger(first, second));',
    ),
}
_MEASURE = function("long long measure(const long long *$ys, int size)", "$start", EACH_KEPT, "return $result;")
_MEASURED = "long long first = measure({}, {});\nlong long second = measure({}, {});\n$answer"
TWO_KEEPS = compose_from(
    MORE_NUMBERS_ON_A_LINE,
    "two-selections",
    {
        "keep": CONDITIONS,
        "keep2": again(CONDITIONS),
        "fold": only(FOLDS, "sum", "max", "min", "alternating", "weighted"),
        "comparison": _COMPARISONS,
    },
    (
        "Find $fold $keep, then the same for $keep2. Print $comparison.",
        "Compute $fold $keep; second, do so for $keep2. Print $comparison.",
    ),
    (
        """\
$read
$ys = [$x for $x in $xs if $test]
first = $whole
$ys = [$x for $x in $xs if $test2]
second = $whole
print($answer)
""",
        """\
def measure($ys):
    return $whole


$read
first = measure([$x for $x in $xs if $test])
second = measure([$x for $x in $xs if $test2])
print($answer)
""",
        """\
def measure(items):
    $start
    for $y in items:
        $take
    return $show


def main():
    $read
    left, right = [], []
    for $x in $xs:
        if $test:
            left.append($x)
        if $test2:
            right.append($x)
    first, second = measure(left), measure(right)
    print($answer)


main()
""",
    ),
    skip=lambda keep, keep2, fold, comparison: (
        keep == keep2
        or (comparison in ("times", "larger") and keep > keep2)
        or (fold == "max" and ("above-five" in (keep, keep2) or comparison == "larger"))
    ),
    c_programs=(
        _MEASURE
        + main(
            "long long left[MAX], right[MAX];",
            "int lefts = 0, rights = 0;",
            each("if ($test)", "    left[lefts++] = $x;", "if ($test2)", "    right[rights++] = $x;"),
            _MEASURED.format("left", "lefts", "right", "rights"),
        ),
        _MEASURE
        + function("bool first_choice(long long $x)", "return $test;")
        + function("bool second_choice(long long $x)", "return $test2;")
        + function(
            "int choose(const long long *$xs, int count, bool (*wanted)(long long), long long *$ys)",
            "int size = 0;",
            each("if (wanted($x))", "    $ys[size++] = $x;"),
            "return size;",
        )
        + main(
            "long long left[MAX], right[MAX];",
            "int lefts = choose($xs, count, first_choice, left);",
            "int rights = choose($xs, count, second_choice, right);",
            _MEASURED.format("left", "lefts", "right", "rights"),
        ),
    ),
)

NEIGHBOURS = compose_from(
    MORE_NUMBERS_ON_A_LINE,
    "after-a-match",
    {"test": CONDITIONS, "change": MAPS, "fold": FOLDS},
    (
        "Take each number right after one that $when. Print $fold these$change.",
        "Of the numbers whose left neighbour $when, print $fold all$change.",
    ),
    (
        """\
$read
chosen = [$xs[i + 1] for i, $x in enumerate($xs[:-1]) if $test]
$ys = [$value for $x in chosen]
print($whole)
""",
        """\
$read
chosen = []
for i in range(1, len($xs)):
    $x = $xs[i - 1]
    if $test:
        chosen.append($xs[i])
$ys = []
for $x in chosen:
    $ys.append($value)
print($whole)
""",
        """\
def main():
    $read
    $start
    wanted = False
    for $x in $xs:
        if wanted:
            $y = $value
            $take
        wanted = $test
    print($show)


main()
""",
    ),
    skip=lambda test, change, fold: fold == "distinct" or idle("", change, fold),
    c_programs=(
        main(
            "bool wanted = false;",
            "$start",
            each("if (wanted) {", "    long long $y = $value;", "    $take", "}", "wanted = $test;"),
            "$show",
        ),
        function("bool wanted(long long $x)", "return $test;")
        + main(
            "$start",
            each(
                "if (wanted($xs[i - 1])) {",
                "    long long $y = $value;",
                "    $take",
                "}",
                walk="int i = 1; i < count; i++",
            ),
            "$show",
        ),
    ),
)

RUNS = compose_from(
    NUMBERS_ON_A_LINE._replace(draw_input=number_line(sizes=(7, 10))),
    "run-lengths",
    {"test": CONDITIONS, "fold": FOLDS},
    (
        "Find the lengths of all runs of neighbours each of which $when. Print $fold these lengths.",
        "A run is a longest stretch where each number $when. Print $fold the lengths of all runs.",
    ),
    (
        """\
$read
marks = "".join("x" if $test else " " for $x in $xs)
$ys = [len(run) for run in marks.split()]
print($whole)
""",
        """\
$read
$ys = []
length = 0
for $x in $xs:
    if $test:
        length += 1
    elif length:
        $ys.append(length)
        length = 0
if length:
    $ys.append(length)
print($whole)
""",
        """\
def runs(items):
    length = 0
    for $x in items:
        if $test:
            length += 1
        else:
            if length > 0:
                yield length
            length = 0
    if length > 0:
        yield length


def main():
    $read
    $start
    for $y in runs($xs):
        $take
    print($show)


main()
""",
    ),
    skip=lambda test, fold: fold in ("distinct", "min"),
    c_programs=(
        main(
            "long long $ys[MAX];",
            "int size = 0, length = 0;",
            each(
                "if ($test) {",
                "    length++;",
                "} else if (length > 0) {",
                "    $ys[size++] = length;",
                "    length = 0;",
                "}",
            ),
            "if (length > 0)",
            "    $ys[size++] = length;",
            "$whole",
        ),
        function("bool wanted(long long $x)", "return $test;")
        + main(
            "$start",
            "for (int i = 0; i < count; i++) {",
            "    int $y = 0;",
            "    while (i < count && wanted($xs[i])) {",
            "        $y++;",
            "        i++;",
            "    }",
            "    if ($y > 0) {",
            "        $take",
            "    }",
            "}",
            "$show",
        ),
    ),
)

_SLICES = {
    "second": piece("every second number, from the first on", part="$xs[::2]", pick="i % 2 == 0"),
    "others": piece("every second number, from the second on", part="$xs[1::2]", pick="i % 2 == 1"),
    "third": piece("every third number, from the first on", part="$xs[::3]", pick="i % 3 == 0"),
    "tail": piece("all but the first two numbers", part="$xs[2:]", pick="i >= 2"),
    "head": piece("the first four numbers", part="$xs[:4]", pick="i < 4"),
    "inner": piece(
        "all but the first and the last number",
        part="$xs[1:-1]",
        pick="0 < i < len($xs) - 1",
        c_pick="i > 0 && i < count - 1",
    ),
}
SLICES = compose_from(
    NUMBERS_ON_A_LINE._replace(draw_input=number_line(sizes=(7, 9))),
    "slices",
    {"part": _SLICES, "keep": CONDITIONS, "change": CHANGES, "fold": without(FOLDS, "distinct", "span")},
    ("Take $part. Of these, print $fold $keep$change.", "Of $part, print $fold $keep$change."),
    (
        "$read\n$ys = [$value for $x in $part if $test]\nprint($whole)\n",
        """\
$read
$ys = []
for i, $x in enumerate($xs):
    if $pick and $test:
        $ys.append($value)
print($whole)
""",
        """\
def part(items):
    return [$value for $x in items if $test]


def main():
    $read
    $start
    for $y in part($part):
        $take
    print($show)


main()
""",
    ),
    skip=lambda part, keep, change, fold: idle_choice(keep, change),
    c_programs=(
        main("$start", each("if ($pick && $test) {", "    long long $y = $value;", "    $take", "}"), "$show"),
        function(
            "int choose(const long long *$xs, int count, long long *$ys)",
            "int size = 0;",
            each("if ($pick && $test)", "    $ys[size++] = $value;"),
            "return size;",
        )
        + main("long long $ys[MAX];", "int size = choose($xs, count, $ys);", "$whole"),
    ),
)

FAMILIES: tuple[Family, ...] = (TWO_KEEPS, NEIGHBOURS, RUNS, SLICES)
