"""Families of small games and rules: two players in turn, a number that changes k times."""

from __future__ import annotations

from family import Family

from families._c import CHANGE, NUMBERS, each, function, main
from families._compose import again, compose, only, piece, without
from families._inputs import C_READ_NUMBERS, line, number_line
from families._pieces import CHANGES, CONDITIONS, FOLDS, MAPS

GAMES = compose(
    "two-players",
    {
        "keep": CONDITIONS,
        "change": MAPS,
        "ask": {
            "scores": piece(
                "Ann's score and Bob's score",
                "both scores, Ann's first",
                ask="ann, bob",
                c_ask='printf("%lld %lld\\n", ann, bob);',
            ),
            "lead": piece("Ann's score minus Bob's", ask="ann - bob", c_ask='printf("%lld\\n", ann - bob);'),
            "high": piece("the higher score", ask="max(ann, bob)", c_ask='printf("%lld\\n", larger(ann, bob));'),
            "winner": piece(
                "who has more (Ann, Bob or draw)",
                ask='"Ann" if ann > bob else "Bob" if bob > ann else "draw"',
                c_ask='printf("%s\\n", ann > bob ? "Ann" : bob > ann ? "Bob" : "draw");',
            ),
        },
    },
    (
        "Read a line of integers. Ann and Bob take them in turn from the left, Ann first, but after a number that $when"
        " the same player goes again. A score is the sum of the numbers taken$change. Print $ask.",
        "The input is one line of integers. Ann and Bob take the next number in turn, Ann first; whoever takes a number"
        " that $when takes the next one too. Scores are sums of the numbers taken$change. Print $ask.",
    ),
    (
        """\
scores = [0, 0]
player = 0
for $x in map(int, input().split()):
    scores[player] += $value
    if not ($test):
        player = 1 - player
ann, bob = scores
print($ask)
""",
        """\
$xs = list(map(int, input().split()))
ann = bob = 0
turn = "Ann"
for $x in $xs:
    if turn == "Ann":
        ann += $value
    else:
        bob += $value
    if $test:
        continue
    turn = "Bob" if turn == "Ann" else "Ann"
print($ask)
""",
        """\
def again($x):
    return $test


def play($xs):
    scores = {"Ann": 0, "Bob": 0}
    player, other = "Ann", "Bob"
    for $x in $xs:
        scores[player] += $value
        if not again($x):
            player, other = other, player
    return scores["Ann"], scores["Bob"]


ann, bob = play(list(map(int, input().split())))
print($ask)
""",
    ),
    number_line(-9, 15),
    skip=lambda keep, change, ask: ask == "winner" and change == "double",
    code={"numbers": NUMBERS, "c_read": C_READ_NUMBERS},
    c_programs=(
        main(
            "long long ann = 0, bob = 0;",
            "bool is_ann = true;",
            each(
                "if (is_ann)",
                "    ann += $value;",
                "else",
                "    bob += $value;",
                "if (!($test))",
                "    is_ann = !is_ann;",
            ),
            "$ask",
        ),
        function("bool again(long long $x)", "return $test;")
        + main(
            "long long scores[2] = {0, 0};",
            "int player = 0;",
            each("scores[player] += $value;", "if (!again($x))", "    player = 1 - player;"),
            "long long ann = scores[0], bob = scores[1];",
            "$ask",
        ),
    ),
)

_RULES = only(CHANGES, "double", "next", "minus-three", "half", "negate", "last-digit")

RULES = compose(
    "step-rule",
    {
        "keep": CONDITIONS,
        "change": _RULES,
        "other": again(_RULES),
        "fold": without(FOLDS, "distinct"),
    },
    (
        "Read a line with a number and k. Do this k times: if the number $when, $how; otherwise $how2. Print $fold"
        " the k numbers that you get.",
        "The input line has an integer and k. k times, change the integer: if it $when, $how; if not, $how2. Print"
        " $fold the integers after each change.",
    ),
    (
        """\
$x, k = map(int, input().split())
$ys = []
for _ in range(k):
    $x = $value if $test else $value2
    $ys.append($x)
print($whole)
""",
        """\
$x, k = map(int, input().split())
$start
while k > 0:
    if $test:
        $y = $value
    else:
        $y = $value2
    $take
    $x = $y
    k -= 1
print($show)
""",
        """\
def change($x):
    if $test:
        return $value
    return $value2


def main():
    $x, k = map(int, input().split())
    $ys = []
    while len($ys) < k:
        $x = change($x)
        $ys.append($x)
    print($whole)


main()
""",
        """\
def walk($x, k):
    if k == 0:
        return []
    if $test:
        $y = $value
    else:
        $y = $value2
    return [$y] + walk($y, k - 1)


def main():
    $x, k = map(int, input().split())
    $ys = walk($x, k)
    print($whole)


main()
""",
    ),
    lambda rng: line([rng.randint(-9, 15), rng.randint(3, 6)]),
    skip=lambda keep, change, other, fold: change == other,
    code={"numbers": 'long long $x;\nint k;\nif (scanf("%lld %d", &$x, &k) != 2)\n    return 1;'},
    c_programs=(
        main(
            "$start",
            "while (k-- > 0) {",
            "    $x = $test ? $value : $value2;",
            "    long long $y = $x;",
            "    $take",
            "}",
            "$show",
        ),
        function(CHANGE, "if ($test)", "    return $value;", "return $value2;")
        + main(
            "long long $ys[MAX];",
            "int size = 0;",
            "for (; size < k && size < MAX; size++) {",
            "    $x = change($x);",
            "    $ys[size] = $x;",
            "}",
            "$whole",
        ),
    ),
)

FAMILIES: tuple[Family, ...] = (GAMES, RULES)
