"""Families that move numbers in and out of a list: stacks, queues, a switch."""

from __future__ import annotations

from family import Family

from families._c import NUMBERS, each, function, main
from families._compose import compose, piece, without
from families._inputs import C_READ_NUMBERS, line, number_line, numbers
from families._pieces import CHANGES, CONDITIONS, FOLDS, MAPS, idle, idle_outside

# A list that grows and shrinks: ``$step`` handles one ``$x``.

_LISTED = (
    """\
$ys = []
$setup
for $x in map(int, input().split()):
    $step
print($whole)
""",
    """\
$xs = list(map(int, input().split()))
$ys = []
$setup
while $xs:
    $x = $xs.pop(0)
    $step
$start
for $y in $ys:
    $take
print($show)
""",
    """\
def run($xs):
    $ys = []
    $setup
    for $x in $xs:
        $step
    return $ys


def main():
    $ys = run(list(map(int, input().split())))
    print($whole)


main()
""",
)

_C_LISTED = (
    main("long long $ys[MAX];", "int size = 0;", "$setup", each("$step"), "$whole"),
    function(
        "int run(const long long *$xs, int count, long long *$ys)",
        "int size = 0;",
        "$setup",
        each("$step"),
        "return size;",
    )
    + main("long long $ys[MAX];", "int size = run($xs, count, $ys);", "$whole"),
)
_C = {"numbers": NUMBERS, "c_read": C_READ_NUMBERS}

STACKS = compose(
    "number-stack",
    {
        "keep": CONDITIONS,
        "change": MAPS,
        "fold": FOLDS,
    },
    (
        "Read a line of integers. From left to right, append to an empty list $keep$change. Any other number removes"
        " the last item of the list, if there is one. Print $fold the items left.",
        "The input is one line of integers. Go through them with a stack: push $keep$change; at every other number pop"
        " the last one pushed (if any). Print $fold the numbers left, in the order they were pushed.",
    ),
    _LISTED,
    number_line(-9, 15),
    skip=idle,
    code={
        **_C,
        "setup": "",
        "step": "if $test:\n    $ys.append($value)\nelif $ys:\n    $ys.pop()",
        "c_step": "if ($test)\n    $ys[size++] = $value;\nelse if (size > 0)\n    size--;",
    },
    c_programs=_C_LISTED,
)

SWITCHES = compose(
    "switch",
    {
        "first": {
            "off": piece("off", setup="on = False", c_setup="bool on = false;"),
            "on": piece("on", setup="on = True", c_setup="bool on = true;"),
        },
        "keep": without(CONDITIONS, "below-ten"),
        "change": MAPS,
        "fold": FOLDS,
    },
    (
        "Read a line of integers. A switch is $first at first, and each number that $when flips it. Print $fold the"
        " other numbers that come while it is on$change.",
        "The input is one line of integers. Every number that $when flips a switch, which is $first at the start. Of"
        " the rest take those that come while the switch is on. Print $fold these numbers$change.",
        "Some integers stand on one line. Begin with a switch that is $first; a number that $when only turns it over. "
        "Any remaining number counts if the switch is on when it comes: output $fold the numbers that count$change.",
    ),
    _LISTED,
    number_line(-9, 15),
    skip=lambda first, keep, change, fold: idle_outside(keep, change, fold),
    code={
        **_C,
        "step": "if $test:\n    on = not on\nelif on:\n    $ys.append($value)",
        "c_step": "if ($test)\n    on = !on;\nelse if (on)\n    $ys[size++] = $value;",
    },
    c_programs=_C_LISTED,
)

_TURN = "if ($test)\n    $xs[count++] = $value;\n$tail"
_REST = "for (int i = head; i < count; i++) {\n    long long $y = $xs[i];\n    $take\n}"
QUEUES = compose(
    "turning-queue",
    {
        "keep": CONDITIONS,
        "change": CHANGES,
        "other": {
            "stay": piece(
                "put it at the end unchanged", tail="else:\n    queue.append($x)", c_tail="else\n    $xs[count++] = $x;"
            ),
            "drop": piece("throw it away", tail=""),
            "zero": piece(
                "put 0 at the end instead", tail="else:\n    queue.append(0)", c_tail="else\n    $xs[count++] = 0;"
            ),
        },
        "fold": FOLDS,
    },
    (
        "Read k, then a line of integers: a queue. k times, or until it is empty, take its first number out: if it"
        " $when, $how and put it at the end; otherwise $other. Print $fold the final queue.",
        "The first line has k, the second a queue of integers. Repeat k times (stop when the queue is empty): take the"
        " first number; if it $when, $how and put it at the end; if not, $other. Print $fold the queue then.",
        "Integers wait in a line, given after a row with k. Do k rounds, fewer if nobody waits: whoever stands in front"
        " leaves, and for a number that $when, $how and put it behind the last; for any other, $other. After all"
        " rounds show $fold the numbers still waiting.",
        "Given k and, on the next line, some integers, move k times (or until none is left) the front one away. "
        "Whenever the moved number $when, $how, then append it; else $other. Of what remains at the end print $fold "
        "the numbers.",
    ),
    (
        """\
k = int(input())
queue = list(map(int, input().split()))
while queue and k > 0:
    $x = queue.pop(0)
    if $test:
        queue.append($value)
    $tail
    k -= 1
$ys = queue
print($whole)
""",
        """\
k = int(input())
queue = list(map(int, input().split()))
for _ in range(k):
    if not queue:
        break
    $x, *queue = queue
    if $test:
        queue.append($value)
    $tail
$start
for $y in queue:
    $take
print($show)
""",
        """\
from collections import deque


def turn(queue):
    $x = queue.popleft()
    if $test:
        queue.append($value)
    $tail


k = int(input())
queue = deque(map(int, input().split()))
for _ in range(k):
    if queue:
        turn(queue)
$ys = list(queue)
print($whole)
""",
    ),
    lambda rng: f"{rng.randint(2, 6)}\n" + line(numbers(rng, -9, 15, (3, 5))),
    skip=lambda keep, change, other, fold: idle(keep, change),
    code={
        "numbers": NUMBERS,
        "turn": _TURN,
        "c_read": 'int k;\nif (scanf("%d", &k) != 1)\n    return 1;\n' + C_READ_NUMBERS,
    },
    c_programs=(
        main(
            "int head = 0;",
            "for (; k > 0 && head < count && count < MAX; k--) {",
            "    long long $x = $xs[head++];",
            "    $turn",
            "}",
            "$start",
            _REST,
            "$show",
        ),
        function("int turn(long long *$xs, int count, long long $x)", "$turn", "return count;")
        + main(
            "int head = 0;",
            "while (k-- > 0 && head < count && count < MAX) {",
            "    count = turn($xs, count, $xs[head]);",
            "    head++;",
            "}",
            "$start",
            _REST,
            "$show",
        ),
    ),
)

FAMILIES: tuple[Family, ...] = (STACKS, QUEUES, SWITCHES)
