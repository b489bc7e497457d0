"""Families that treat some numbers of a list differently: two branches, first and last matches, places, sides."""

from __future__ import annotations

from family import Family

from families._c import CHANGE, each, folded, function, main
from families._compose import again, piece, without
from families._inputs import MORE_NUMBERS_ON_A_LINE, NUMBERS_ON_A_LINE, compose_from
from families._pieces import CHANGES, CONDITIONS, FOLDS, MAPS, idle_choice

_ORDERED = without(FOLDS, "distinct", "span")

# ``$value`` where the condition holds, else ``$value2``.
_BRANCHING = "$read\n$ys = [$value if $test else $value2 for $x in $xs]\nprint($whole)\n"
_BRANCHING_FUNCTION = """\
def change($x):
    if $test:
        return $value
    return $value2


def main():
    $read
    $start
    for $x in $xs:
        $y = change($x)
        $take
    print($show)


main()
"""

_C_BRANCHING = (
    folded("long long $y = $test ? $value : $value2;"),
    function(CHANGE, "if ($test)", "    return $value;", "return $value2;") + folded("long long $y = change($x);"),
)

CHANGE_SOME = compose_from(
    NUMBERS_ON_A_LINE,
    "change-some",
    {"test": CONDITIONS, "change": CHANGES, "fold": _ORDERED},
    (
        "If a number $when, $how, otherwise leave it. Print $fold the results.",
        "Wherever a number $when, $how. Then print $fold all of them.",
    ),
    (
        _BRANCHING.replace("$value2", "$x"),
        """\
$read
for i, $x in enumerate($xs):
    if $test:
        $xs[i] = $value
$ys = $xs
print($whole)
""",
        _BRANCHING_FUNCTION.replace("$value2", "$x"),
        """\
class Changer:
    def __init__(self, items):
        self.items = items

    def run(self):
        $ys = []
        for $x in self.items:
            if $test:
                $ys.append($value)
            else:
                $ys.append($x)
        return $ys


$read
$ys = Changer($xs).run()
print($whole)
""",
    ),
    skip=lambda test, change, fold: idle_choice(test, change),
    c_programs=tuple(program.replace("$value2", "$x") for program in _C_BRANCHING),
)

TWO_CHANGES = compose_from(
    NUMBERS_ON_A_LINE,
    "two-changes",
    {"test": CONDITIONS, "change": CHANGES, "change2": again(CHANGES), "fold": _ORDERED},
    (
        "If a number $when, $how, otherwise $how2. Print $fold the results.",
        "For each one: if it $when, $how; if not, $how2. Then print $fold the results.",
    ),
    (
        _BRANCHING,
        """\
$read
$ys = []
for $x in $xs:
    if $test:
        $ys.append($value)
    else:
        $ys.append($value2)
print($whole)
""",
        _BRANCHING_FUNCTION,
    ),
    skip=lambda test, change, change2, fold: (
        change == change2
        or idle_choice(test, change)
        or (test in ("even", "odd", "thirds", "not-thirds") and change > change2)  # as the opposite test says
    ),
    c_programs=_C_BRANCHING,
)

_ENDS = {
    "first": piece("the first number", "the first one", order="$xs", place="0", walk="int i = 0; i < count; i++"),
    "last": piece(
        "the last number", "the last one", order="reversed($xs)", place="-1", walk="int i = count - 1; i >= 0; i--"
    ),
}
_SEARCH = each("if ($test) {", "    @found", "}", walk="$walk")
MATCH = compose_from(
    NUMBERS_ON_A_LINE,
    "first-or-last-match",
    {"end": _ENDS, "test": CONDITIONS, "change": MAPS},
    (
        "Take $end that $when, $how and print it; print none if there is none.",
        "Find $end that $when (print none without one), $how and print the result.",
    ),
    (
        '$read\n$ys = [$value for $x in $xs if $test]\nprint($ys[$place] if $ys else "none")\n',
        """\
$read
for $x in $order:
    if $test:
        print($value)
        break
else:
    print("none")
""",
        """\
def find(items):
    for $x in items:
        if $test:
            return $value
    return "none"


def main():
    $read
    print(find($order))


main()
""",
    ),
    skip=lambda end, test, change: idle_choice(test, change),
    c_programs=(
        main(_SEARCH.replace("@found", 'printf("%lld\\n", $value);\n        return 0;'), 'printf("none\\n");'),
        function(
            "bool search(const long long *$xs, int count, long long *found)",
            _SEARCH.replace("@found", "*found = $value;\n        return true;"),
            "return false;",
        )
        + main(
            "long long found = 0;",
            "if (search($xs, count, &found))",
            '    printf("%lld\\n", found);',
            "else",
            '    printf("none\\n");',
        ),
    ),
)

_BASES = {"zero": piece("0", base="0", place="i"), "one": piece("1", base="1", place="i + 1")}
PLACES = compose_from(
    MORE_NUMBERS_ON_A_LINE,
    "places-of-matches",
    {
        "test": CONDITIONS,
        "base": _BASES,
        "fold": without(FOLDS, "distinct"),
    },
    (
        "Find the places (counted from $base) where the number $when and print $fold them.",
        "Counting places from $base, print $fold the places of every number that $when.",
        "Give each number its index, the leftmost has index $base. Output $fold the indices at which a number stands "
        "that $when.",
        "Which positions hold a number that $when? The first position is $base. Show $fold these positions.",
    ),
    (
        "$read\n$ys = [i for i, $x in enumerate($xs, $base) if $test]\nprint($whole)\n",
        """\
$read
$ys = []
for i in range(len($xs)):
    $x = $xs[i]
    if $test:
        $ys.append($place)
print($whole)
""",
        """\
def main():
    $read
    $start
    $y = $base
    for $x in $xs:
        if $test:
            $take
        $y += 1
    print($show)


main()
""",
    ),
    skip=lambda test, base, fold: (base, fold) == ("one", "span"),
    c_programs=(
        main("$start", each("if ($test) {", "    long long $y = $place;", "    $take", "}"), "$show"),
        function(
            "int places(const long long *$xs, int count, long long *$ys)",
            "int size = 0;",
            each("if ($test)", "    $ys[size++] = $place;"),
            "return size;",
        )
        + main("long long $ys[MAX];", "int size = places($xs, count, $ys);", "$whole"),
    ),
)

_SIDES = {
    "before": piece(
        "before the first one that",
        "up to, not including, the first that",
        part="before",
        walk="int i = 0; i < end; i++",
    ),
    "after": piece(
        "after the first one that",
        "that come later than the first that",
        part="after",
        walk="int i = end + 1; i < count; i++",
    ),
}
_AROUND = each("long long $y = $value;", "$take", walk="$walk")
SIDES = compose_from(
    MORE_NUMBERS_ON_A_LINE,
    "before-or-after",
    {"side": _SIDES, "test": CONDITIONS, "change": MAPS, "fold": _ORDERED},
    (
        "Take the numbers $side $when (if none does, all come before) and print $fold these$change.",
        "Print $fold the numbers $side $when$change. (Without such a number, all are before it.)",
    ),
    (
        """\
$read
end = next((i for i, $x in enumerate($xs) if $test), len($xs))
before, after = $xs[:end], $xs[end + 1:]
$ys = [$value for $x in $part]
print($whole)
""",
        """\
$read
before, after = [], []
found = False
for $x in $xs:
    if found:
        after.append($x)
    elif $test:
        found = True
    else:
        before.append($x)
$ys = []
for $x in $part:
    $ys.append($value)
print($whole)
""",
        """\
def split(items):
    for i, $x in enumerate(items):
        if $test:
            return items[:i], items[i + 1:]
    return items, []


def main():
    $read
    before, after = split($xs)
    $start
    for $x in $part:
        $y = $value
        $take
    print($show)


main()
""",
    ),
    skip=lambda side, test, change, fold: side == "before" and (test, change) == ("negative", "absolute"),
    c_programs=(
        main(
            "int end = count;",
            each("if ($test)", "    end = i;", walk="int i = count - 1; i >= 0; i--"),
            "$start",
            _AROUND,
            "$show",
        ),
        function("bool wanted(long long $x)", "return $test;")
        + main("int end = 0;", "while (end < count && !wanted($xs[end]))", "    end++;", "$start", _AROUND, "$show"),
    ),
)

FAMILIES: tuple[Family, ...] = (CHANGE_SOME, TWO_CHANGES, MATCH, PLACES, SIDES)
