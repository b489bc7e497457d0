"""Firmware families about time: debouncing a contact, time stamps of a timer that wraps around."""

from __future__ import annotations

import random

from family import Family

from families._compose import piece
from families._firmware import FLAG_REPORTS, firmware
from families._inputs import line

_LIMITS = {"two": 2, "three": 3, "four": 4}


def _bouncing(rng: random.Random) -> str:
    levels: list[int] = []
    while len(levels) < 12:
        levels += [len(levels) % 2 ^ rng.randint(0, 1)] * rng.randint(1, 5)
    return line(levels)


_DEBOUNCE = {
    "consecutive": piece(
        "The stable level changes only after $limit equal samples in a row that differ from it",
        "A new level is accepted when it was seen in $limit samples without a break",
        settle="count = count + 1 if $x != level else 0\nif count == $limit:\n    level, count = $x, 0",
        c_settle="if ($x != level)\n    count++;\nelse\n    count = 0;\n"
        "if (count == $limit) {\n    level = (uint8_t)$x;\n    count = 0;\n}",
    ),
    "integrator": piece(
        "A counter goes up by one for a 1 (never above $limit) and down by one for a 0 (never below 0); the stable "
        "level becomes 1 when it is at $limit and 0 when it is at 0",
        "An integrator between 0 and $limit follows the samples one step at a time, and the level switches only at its "
        "two ends",
        settle="count = min(count + 1, $limit) if $x else max(count - 1, 0)\n"
        "if count == $limit:\n    level = 1\nelif count == 0:\n    level = 0",
        c_settle="if ($x && count < $limit)\n    count++;\nelse if (!$x && count > 0)\n    count--;\n"
        "if (count == $limit)\n    level = 1;\nelse if (count == 0)\n    level = 0;",
    ),
}
_BEFORE_IT = "uint8_t before = level;"
_SEEN = {
    "levels": piece(
        "stable levels, one after each sample",
        "levels after every sample",
        note="$ys.append(level)",
        c_note="emit(level);",
        memory="uint8_t level = 0, count = 0;",
        remember="",
    ),
    "places": piece(
        "places (the first sample is 0) at which the stable level changes",
        "indices, from 0, of the samples that change the level",
        note="if level != before:\n    $ys.append(place)",
        c_note="if (level != before)\n    emit(place);\nplace++;",
        memory="uint8_t level = 0, count = 0, place = 0;",
        remember=_BEFORE_IT,
    ),
    "presses": piece(
        "running counts of presses (changes from 0 to 1), one after each sample",
        "press counts after every sample, where a press is a change of the level to 1",
        note="presses += level > before\n$ys.append(presses)",
        c_note="if (level > before)\n    presses++;\nemit(presses);",
        memory="uint8_t level = 0, count = 0, presses = 0;",
        remember=_BEFORE_IT,
    ),
}
DEBOUNCE = firmware(
    "debouncing",
    (
        "Read a line of samples 0 and 1 of a bouncing button. The stable level is 0 at first. $method.",
        "The input is one line with the raw level of a switch, 0 or 1, tick by tick. From a level of 0: $method.",
        "A contact that bounces was sampled; its zeros and ones stand on a line. Begin at 0. $method.",
    ),
    {
        "limit": {name: piece(str(limit), limit=str(limit)) for name, limit in _LIMITS.items()},
        "method": _DEBOUNCE,
        "seen": _SEEN,
    },
    ("the $seen", "these: $seen", "$seen"),
    _bouncing,
    setup="level = count = presses = 0\nplace = -1",
    python="place += 1\nbefore = level\n$settle\n$note",
    state="$memory",
    step="$remember\n$settle\n$note",
    skip=lambda limit, method, seen, report: (
        (seen == "levels" and report not in FLAG_REPORTS) or (seen == "presses" and report in ("min", "max"))
    ),
)


def _ticks(rng: random.Random) -> str:
    now, stamps = rng.randint(0, 255), []
    for _ in range(rng.randint(5, 8)):
        stamps.append(now)
        now = (now + rng.randint(3, 140)) % 256
    return line(stamps)


_WIDTHS = {
    "eight": piece(
        "an 8-bit timer", "a timer of one byte, which wraps after 255", unsigned="uint8_t", modulus="256", mask=""
    ),
    "sixteen": piece(
        "a 16-bit timer", "a timer of two bytes, which wraps after 65535", unsigned="uint16_t", modulus="65536", mask=""
    ),
    "four": piece(
        "the low 4 bits of a timer",
        "a timer cut to 4 bits, which wraps after 15",
        unsigned="uint8_t",
        modulus="16",
        mask=" & 0x0F",
    ),
}
_PERIODS = {
    "ticks": piece("in ticks", "counted in ticks", period="1"),
    "four": piece("in ms, at 4 ms per tick", "in milliseconds, four per tick", period="4"),
    "ten": piece("in us, at 10 us per tick", "in microseconds, ten per tick", period="10"),
}
_SPANS = {
    "steps": piece(
        "times from each stamp to the next",
        "pauses between neighboring stamps",
        note="elapsed",
        after="previous = $x",
        c_after="previous = (uint16_t)$x;",
    ),
    "since": piece(
        "times from the first stamp to each later one, modulo the timer's range",
        "ages of the later stamps, as the timer would show them if the first were 0",
        note="elapsed",
        after="",
    ),
    "late": piece(
        "flags (1 if more than 90 ticks passed since the stamp before, else 0) times the length of a tick",
        "lengths of a tick for each stamp more than 90 ticks behind the one before it, and 0 for each other",
        note="(elapsed > 90)",
        after="previous = $x",
        c_after="previous = (uint16_t)$x;",
    ),
    "excess": piece(
        "times beyond 20 ticks since the stamp before, else 0",
        "delays, that is what a pause between neighbors has beyond 20 ticks (0 if nothing)",
        note="max(elapsed - 20, 0)",
        c_note="(elapsed > 20 ? elapsed - 20 : 0)",
        after="previous = $x",
        c_after="previous = (uint16_t)$x;",
    ),
}
TIMERS = firmware(
    "timer-stamps",
    (
        "Read a line of time stamps of $width, which may wrap around between two of them.",
        "The input is one line with values of $width; between neighbors there can be an overflow to 0.",
        "Events were stamped with $width. Their stamps are on a line, and a smaller one means that it wrapped.",
    ),
    {"width": _WIDTHS, "span": _SPANS, "period": _PERIODS},
    ("the $span, $period", "$period the $span", "($period) $span"),
    _ticks,
    setup="previous = None",
    python="if previous is None:\n    previous = $x\nelse:\n    elapsed = ($x - previous) % $modulus\n"
    "    $ys.append($note * $period)\n    $after",
    state="uint16_t previous = 0;\nbool started = false;",
    step="if (started) {\n    $unsigned elapsed = ($unsigned)($x - previous)$mask;\n    emit($note * $period);\n"
    "    $after\n} else {\n    previous = (uint16_t)$x;\n    started = true;\n}",
    skip=lambda width, span, period, report: (
        (span == "late" and (width == "four" or report not in FLAG_REPORTS))
        or (width == "four" and span == "excess")
        or (report == "odd" and period != "ticks")
    ),
)

FAMILIES: tuple[Family, ...] = (DEBOUNCE, TIMERS)
