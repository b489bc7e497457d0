"""Families about time: clocks, leaky buckets and cooldowns."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._compose import compose, piece
from securecoderl_edge.starter.family import Family


def _draw_clock(rng: random.Random) -> str:
    minutes = " ".join(str(rng.randint(1, 60) * rng.choice((1, 5, 12))) for _ in range(rng.randint(2, 5)))
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}\n{minutes}\n"


CLOCKS = compose(
    "clocks",
    {
        "rule": {
            "add": piece("the clock goes on by that many minutes", later="now + minutes"),
            "turns": piece(
                "the clock goes on by the 1st number, back by the 2nd, on by the 3rd, and so on",
                later="now + (minutes if i % 2 == 0 else -minutes)",
            ),
            "quarter": piece(
                "the clock goes on by that many minutes and then to the next full quarter hour (if not at one)",
                later="-(-(now + minutes) // 15) * 15",
            ),
            "back": piece("the clock goes back by that many minutes", later="now - minutes"),
            "double": piece(
                "the clock goes on by twice that number if its hour is below 12, else by the number itself",
                later="now + (2 * minutes if now % 1440 < 720 else minutes)",
            ),
        },
        "ask": {
            "last": piece("the final time as HH:MM", ask="show(times[-1])"),
            "all": piece("the time after each change as HH:MM, on one line", ask="*[show(time) for time in times[1:]]"),
            "latest": piece(
                "the latest time of day after a change, as HH:MM", ask="max(show(time) for time in times[1:])"
            ),
            "days": piece(
                "how many days after (below 0: before) the first day the clock ends", ask="times[-1] // 1440"
            ),
            "hours": piece(
                "the hours after each change, without leading zeros, in 12-hour style (0 counts as 12)",
                ask="*[time // 60 % 12 or 12 for time in times[1:]]",
            ),
            "minutes": piece(
                "the sum of the minutes past the hour after each change",
                ask="sum(time % 60 for time in times[1:])",
            ),
            "full": piece(
                "in how many of the times, with the first, the minutes are below 30",
                ask="sum(time % 60 < 30 for time in times)",
            ),
        },
    },
    (
        "Read a time HH:MM (24 hours) and a line of minutes. For each number, $rule. Print $ask.",
        "The first line is a time of day HH:MM, the second has numbers of minutes. For every number in "
        "turn, $rule. Print $ask.",
    ),
    (
        """\
def show(time):
    return f"{time // 60 % 24:02}:{time % 60:02}"


hour, minute = map(int, input().split(":"))
now = 60 * hour + minute
times = [now]
for i, minutes in enumerate($ints):
    now = $later
    times.append(now)
print($ask)
""",
        """\
def show(time):
    hours, minutes = divmod(time % 1440, 60)
    return str(hours).zfill(2) + ":" + str(minutes).zfill(2)


def change(i, now, minutes):
    return $later


$s = input().strip()
times = [int($s[:2]) * 60 + int($s[3:])]
for i, part in enumerate(input().split()):
    times.append(change(i, times[-1], int(part)))
print($ask)
""",
    ),
    _draw_clock,
    # mostly 0 or -1, or the same as for add
    skip=lambda rule, ask: rule in ("turns", "back", "quarter") and ask == "days",
)

BUCKETS = compose(
    "leaky-buckets",
    {
        "over": {
            "spill": piece("what does not fit is lost", taken="min(amount, size - level)"),
            "refuse": piece(
                "an amount that does not fit as a whole is lost",
                taken="amount if level + amount <= size else 0",
            ),
            "half": piece(
                "an amount that does not fit as a whole is first halved (rounded down, the rest is "
                "lost), and is lost if even that does not fit",
                taken="next((part for part in (amount, amount // 2) if level + part <= size), 0)",
            ),
        },
        "leak": {
            "before": piece(
                "Before each amount, 2 leak out (or what is there)",
                early="level = max(level - 2, 0)",
                late="",
            ),
            "after": piece(
                "After each amount, 3 leak out (or what is there)", early="", late="level = max(level - 3, 0)"
            ),
            "share": piece(
                "After each amount, half of the content leaks out (rounded down)",
                early="",
                late="level -= level // 2",
            ),
            "full": piece(
                "Before each amount, a full bucket is emptied",
                early="if level == size:\n    level = 0",
                late="",
            ),
        },
        "ask": {
            "level": piece("the final content", begin="", note="", show="level"),
            "lost": piece("how much is lost in total", begin="lost = 0", note="lost += amount - taken", show="lost"),
            "levels": piece(
                "the content right after each amount came, on one line",
                begin="levels = []",
                note="levels.append(level)",
                show="*levels",
            ),
            "sum": piece(
                "the sum of the contents right after each amount came",
                begin="total = 0",
                note="total += level",
                show="total",
            ),
        },
    },
    ("Read the size of an empty bucket, then a line of amounts that come in; $over. $leak. Print $ask.",),
    (
        """\
def accept(level, amount):
    return $taken


size = int(input())
level = 0
$begin
for amount in $ints:
    $early
    taken = accept(level, amount)
    level += taken
    $note
    $late
print($show)
""",
        """\
size, *amounts = map(int, sys.stdin.read().split())
level = 0
$begin
while amounts:
    amount = amounts.pop(0)
    $early
    taken = $taken
    level = level + taken
    $note
    $late
print($show)
""",
    ),
    lambda rng: f"{rng.randint(6, 15)}\n{' '.join(str(rng.randint(1, 10)) for _ in range(rng.randint(4, 7)))}\n",
)


def _draw_times(rng: random.Random) -> str:
    times = sorted(rng.sample(range(40), rng.randint(5, 9)))
    return f"{rng.randint(2, 8)}\n{' '.join(map(str, times))}\n"


COOLDOWNS = compose(
    "cooldowns",
    {
        "rule": {
            "accepted": piece("at least k after the last accepted one", rest="time - accepted[-1] >= k"),
            "seen": piece("at least k after the request before it, accepted or not", rest="time - seen[-1] >= k"),
            "window": piece(
                "when at most one of the accepted times is k or less before it",
                rest="sum(time - old <= k for old in accepted) <= 1",
            ),
            "growing": piece(
                "at least k + m after the last accepted one, where m are accepted so far",
                rest="time - accepted[-1] >= k + len(accepted)",
            ),
            "multiple": piece(
                "at least k after the last accepted one or at a multiple of k",
                rest="time % k == 0 or time - accepted[-1] >= k",
            ),
            "slots": piece(
                "in a slot without an accepted one (slots are times 0 to k - 1, k to 2k - 1, and so on)",
                rest="all(old // k != time // k for old in accepted)",
            ),
        },
        "ask": {
            "list": piece("the accepted times", ask="*accepted"),
            "rejected": piece(
                "the times of the rejected ones, or none",
                ask='" ".join(str(time) for time in seen if time not in accepted) or "none"',
            ),
            "count": piece(
                "how many are accepted and how many are not", ask="len(accepted), len(seen) - len(accepted)"
            ),
            "sum": piece("the sum of the accepted times", ask="sum(accepted)"),
            "gap": piece(
                "the largest gap between accepted times in a row (0 if there is only one)",
                ask="max((b - a for a, b in zip(accepted, accepted[1:])), default=0)",
            ),
            "pattern": piece(
                "a string with A for each accepted and R for each rejected one",
                ask='"".join("A" if time in accepted else "R" for time in seen)',
            ),
            "last": piece(
                "the last accepted time and its number among all requests (from 1)",
                ask="accepted[-1], seen.index(accepted[-1]) + 1",
            ),
        },
    },
    (
        "Read k, then a line of increasing times of requests. The first request is accepted, and a later "
        "one if it comes $rule. Print $ask.",
    ),
    (
        """\
k = int(input())
accepted, seen = [], []
for time in $ints:
    if not accepted or $rest:
        accepted.append(time)
    seen.append(time)
print($ask)
""",
        """\
def is_accepted(time, seen, accepted):
    if not accepted:
        return True
    return $rest


k, *seen = map(int, sys.stdin.read().split())
accepted = []
for i, time in enumerate(seen):
    if is_accepted(time, seen[:i], accepted):
        accepted.append(time)
print($ask)
""",
    ),
    _draw_times,
)

FAMILIES: tuple[Family, ...] = (CLOCKS, BUCKETS, COOLDOWNS)
