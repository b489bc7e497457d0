"""Families about positions that change step by step: lifts and bouncing values."""

from __future__ import annotations

from securecoderl_edge.starter.families._compose import compose, piece
from securecoderl_edge.starter.family import Family

LIFTS = compose(
    "lifts",
    {
        "order": {
            "given": piece("in the given order", order="order = stops", choose="stops[0]"),
            "up": piece("from the lowest floor to the highest", order="order = sorted(stops)", choose="min(stops)"),
            "sweep": piece(
                "first those at or above the start going up, then those below going down",
                order="above = [stop for stop in stops if stop >= floor]\n"
                "order = sorted(above) + sorted(set(stops) - set(above), reverse=True)",
                choose="min(stops, key=lambda stop: (stop < start, abs(stop - start)))",
            ),
            "nearest": piece(
                "always the nearest one next (the lower one if two are equally near)",
                order="order, here = [], floor\nwhile stops:\n"
                "    here = min(stops, key=lambda stop: (abs(stop - here), stop))\n"
                "    stops.remove(here)\n    order.append(here)",
                choose="min(sorted(stops), key=lambda stop: abs(stop - floor))",
            ),
        },
        "cost": {
            "distance": piece(
                "1 a floor",
                cost="abs(stop - floor)",
                trip="if stop < floor:\n    return floor - stop\nreturn stop - floor",
            ),
            "climb": piece(
                "2 a floor upwards and 1 a floor downwards",
                cost="max(2 * (stop - floor), floor - stop)",
                trip="if stop < floor:\n    return floor - stop\nreturn 2 * (stop - floor)",
            ),
            "square": piece(
                "the square of the number of floors",
                cost="(stop - floor) ** 2",
                trip="floors = stop - floor\nreturn floors * floors",
            ),
            "brake": piece(
                "1 a floor, and 5 more if it goes down",
                cost="abs(stop - floor) + (5 if stop < floor else 0)",
                trip="if stop < floor:\n    return floor - stop + 5\nreturn stop - floor",
            ),
        },
        "ask": {
            "total": piece("the total cost", "the sum of all costs", ask="sum(costs)"),
            "largest": piece("the cost of the dearest trip", "the largest cost of a trip", ask="max(costs)"),
            "list": piece("the costs of all trips in order, on one line", ask="*costs"),
        },
    },
    (
        "Read the start floor of a lift, then a line of different floors. It serves them $order. A trip "
        "from one stop to the"
        " next costs $cost. Print $ask.",
    ),
    (
        """\
floor = int(input())
stops = $ints
$order
costs = []
for stop in order:
    costs.append($cost)
    floor = stop
print($ask)
""",
        """\
def trip(floor, stop):
    $trip


start = floor = int(input())
stops, costs = $ints, []
while stops:
    stop = $choose
    stops.remove(stop)
    costs.append(trip(floor, stop))
    floor = stop
print($ask)
""",
    ),
    lambda rng: f"{rng.randint(0, 9)}\n{' '.join(map(str, rng.sample(range(12), rng.randint(3, 6))))}\n",
)

BOUNCES = compose(
    "bounces",
    {
        "wall": {
            "reflect": piece(
                "it is reflected at that end (what is left of the step goes back) and its direction turns",
                bounce="p = -p if p < 0 else 2 * w - p\nv = -v",
                bounced="(-p if p < 0 else 2 * w - p), -v",
            ),
            "wrap": piece(
                "it goes on from the other end (w + 1 is the same place as 0)",
                bounce="p %= w + 1",
                bounced="p % (w + 1), v",
            ),
            "stick": piece(
                "it stops at that end and its direction turns",
                bounce="p = 0 if p < 0 else w\nv = -v",
                bounced="max(0, min(p, w)), -v",
            ),
            "middle": piece(
                "it is put at w // 2 and its direction turns",
                bounce="p = w // 2\nv = -v",
                bounced="w // 2, -v",
            ),
        },
        "change": {
            "same": piece("the speed stays as it is", change="", sized="size"),
            "slower": piece(
                "the speed (without its sign) becomes 1 less, but at least 1",
                change="if abs(v) > 1:\n    v -= 1 if v > 0 else -1",
                sized="max(size - 1, 1)",
            ),
            "faster": piece(
                "the speed (without its sign) becomes 1 more, but at most w",
                change="if abs(v) < w:\n    v += 1 if v > 0 else -1",
                sized="min(size + 1, w)",
            ),
        },
        "ask": {
            "last": piece("p after the last step", "the final p", begin="", hit="", note="", show="p"),
            "path": piece(
                "p after every step, on one line",
                begin="path = []",
                hit="",
                note="path.append(p)",
                show="*path",
            ),
            "hits": piece(
                "in how many steps it left the range", begin="hits = 0", hit="hits += 1", note="", show="hits"
            ),
            "sum": piece("the sum of p over all steps", begin="total = 0", hit="", note="total += p", show="total"),
        },
    },
    (
        "Read p, v, w and n. In each of n steps p grows by v. When p is then below 0 or above w, $wall; "
        "$change. Print $ask.",
    ),
    (
        """\
p, v, w, n = map(int, input().split())
$begin
for _ in range(n):
    p += v
    if p < 0 or p > w:
        $hit
        $bounce
        $change
    $note
print($show)
""",
        """\
def bounce(p, v, w):
    p, v = $bounced
    size = abs(v)
    size = $sized
    return p, (size if v > 0 else -size)


p, v, w, steps = map(int, input().split())
$begin
while steps:
    steps -= 1
    p = p + v
    if not 0 <= p <= w:
        $hit
        p, v = bounce(p, v, w)
    $note
print($show)
""",
    ),
    lambda rng: f"{rng.randint(0, 5)} {rng.choice((-4, -3, -2, 2, 3, 4))} {rng.randint(5, 9)} {rng.randint(3, 9)}\n",
    # a slow value hits the ends equally often in most rules
    skip=lambda wall, change, ask: (change, ask) == ("slower", "hits"),
)

FAMILIES: tuple[Family, ...] = (LIFTS, BOUNCES)
