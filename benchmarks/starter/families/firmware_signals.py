"""Firmware families about signals: filters in fixed point, saturating arithmetic, calibration."""

from __future__ import annotations

import random

from family import Family

from families._compose import piece
from families._firmware import FLAG_REPORTS, firmware
from families._inputs import line


def _samples(rng: random.Random) -> str:
    level = rng.randint(0, 900)
    return line([min(1023, max(0, level + rng.randint(-120, 120))) for _ in range(rng.randint(5, 9))])


# The filters see a sample ``$x`` after ``$before`` has changed it.
_FILTERS = {
    "low-pass": piece(
        "keep an accumulator, 0 at first: take a quarter of it (rounded down) away from it, then add the sample; the "
        "output is a quarter of the accumulator, rounded down",
        "a low-pass with the state s = 0 does s = s - s // 4 + sample and gives s // 4 (// rounds down)",
        filtered="a += $x - a // 4\n$ys.append(a // 4)",
        memory="uint32_t a = 0;",
        run="a = a - (a >> 2) + sample;",
        gives="(int32_t)(a >> 2)",
    ),
    "kernel": piece(
        "weigh the sample, the one before and the one before that with 1, 2, 1 and divide the sum by 4, rounding down "
        "(before the first sample all were 0)",
        "the FIR filter with the taps 1 2 1 over the newest three samples, missing ones being 0, is divided by four "
        "without the fraction",
        filtered="$ys.append(($x + 2 * a + b) // 4)\na, b = $x, a",
        memory="uint16_t a = 0, b = 0;",
        run="uint32_t sum = sample + 2u * a + b;\nb = a;\na = sample;",
        gives="(int32_t)(sum / 4)",
    ),
    "one-pole": piece(
        "in Q8 arithmetic the output becomes (77 * sample + 179 * the output before) / 256 without the fraction, where "
        "the first output before is 0",
        "every new output is 77 times the sample plus 179 times its predecessor (at first 0), shifted right by 8 bits",
        filtered="a = (77 * $x + 179 * a) >> 8\n$ys.append(a)",
        memory="uint16_t a = 0;",
        run="a = (uint16_t)((77u * sample + 179u * a) >> 8);",
        gives="a",
    ),
    "median": piece(
        "the output is the median of the sample and the two before it, which are 0 as long as there were none",
        "a filter with a window of three samples, filled with zeros, gives the middle one in size",
        filtered="$ys.append(sorted(($x, a, b))[1])\na, b = $x, a",
        memory="uint16_t a = 0, b = 0;",
        run="uint16_t low = a < b ? a : b;\nuint16_t high = a < b ? b : a;\nb = a;\na = sample;",
        gives="sample < low ? low : sample > high ? high : sample",
    ),
    "peak": piece(
        "a peak detector, first 0, loses an eighth of its level (rounded down) before each sample and jumps to the "
        "sample if that is higher",
        "an envelope starts at 0; each time subtract envelope // 8 from it, and then take the larger of it and the "
        "sample",
        filtered="a = max($x, a - a // 8)\n$ys.append(a)",
        memory="uint16_t a = 0;",
        run="a -= a >> 3;\nif (sample > a)\n    a = sample;",
        gives="a",
    ),
}
_BEFORE = {
    "raw": piece("The samples are used as they come", "Nothing is done to them beforehand", prepare="", c_prepare="$x"),
    "limited": piece(
        "Samples above 800 count as 800",
        "First clip each one to 800 at most",
        prepare="$x = min($x, 800)",
        c_prepare="$x > 800 ? 800 : $x",
    ),
    "halved": piece(
        "Each sample loses its lowest bit by a shift to the right",
        "First drop bit 0 with a right shift by one",
        prepare="$x >>= 1",
        c_prepare="$x >> 1",
    ),
    "inverted": piece(
        "The sensor is inverted, so use 1023 minus the sample",
        "First turn every value v into 1023 - v",
        prepare="$x = 1023 - $x",
        c_prepare="1023 - $x",
    ),
}
FILTER = firmware(
    "fixed-point-filter",
    (
        "Read a line of 10-bit ADC samples. $before. Then filter them with integers: $filter.",
        "The input is one line of samples from 0 to 1023. $before; after that $filter.",
        "On one line stand the readings of a converter with ten bits. $before. For all of them, $filter.",
    ),
    {"before": _BEFORE, "filter": _FILTERS},
    ("the outputs", "values that the filter gives", "the filtered values"),
    _samples,
    setup="a = b = 0",
    python="$prepare\n$filtered",
    state="$memory",
    step="uint16_t sample = $prepare;\n$run\nemit($gives);",
    skip=lambda before, filter, report: filter in ("median", "kernel") and report == "min",
)


def _readings(rng: random.Random) -> str:
    return line([rng.randint(-90, 90) for _ in range(rng.randint(6, 9))])


_TYPES = {
    "int8": piece("a signed 8-bit integer (-128 to 127)", "an int8_t, from -128 to 127", low="-128", high="127"),
    "uint8": piece("an unsigned 8-bit integer (0 to 255)", "a uint8_t, from 0 to 255", low="0", high="255"),
    "seven": piece(
        "a signed 7-bit field (-64 to 63)", "seven bits in two's complement, -64 to 63", low="-64", high="63"
    ),
}
_OPERATIONS = {
    "accumulate": piece(
        "Add each number to an accumulator, 0 at first",
        "From 0 on, the number is added to what is stored",
        wide="state + $x",
    ),
    "difference": piece(
        "Subtract from each number what is stored, 0 at first, and store that",
        "From 0 on, replace the stored value s by number - s",
        wide="$x - state",
    ),
    "triple": piece(
        "Store three times each number",
        "Multiply the number by 3 for storage",
        wide="3 * $x",
    ),
    "leak": piece(
        "Take 5 from what is stored, 0 at first, and add twice the number",
        "From 0 on, what is stored becomes itself - 5 + 2 * number",
        wide="state - 5 + 2 * $x",
    ),
}
_KEPT = {
    "values": piece("stored values", "values stored, in order", note="state", c_note="state"),
    "flags": piece(
        "flags, 1 where saturation was needed and 0 elsewhere",
        "overflow flags (1 for a value that had to be limited, else 0)",
        note="int(state != wide)",
        c_note="state != wide",
    ),
    "lost": piece(
        "amounts that saturation cut off, 0 where it did nothing",
        "distances between exact and stored values",
        note="abs(wide - state)",
        c_note="wide > state ? wide - state : state - wide",
    ),
}
SATURATION = firmware(
    "saturating-arithmetic",
    (
        "Read a line of integers. $operation, as $type with saturation: beyond its range the nearest end is stored.",
        "The input is one line of integers. $operation. The storage is $type, which saturates and never wraps around.",
        "Integers arrive on a line. $operation; the result has to fit $type, so clamp it to the range.",
    ),
    {"type": _TYPES, "operation": _OPERATIONS, "kept": _KEPT},
    ("the $kept", "these: $kept", "$kept"),
    _readings,
    setup="state = 0",
    python="wide = $wide\nstate = max($low, min($high, wide))\n$ys.append($note)",
    constants="static int32_t saturate(int32_t value)\n{\n    if (value < $low)\n        return $low;\n"
    "    return value > $high ? $high : value;\n}",
    state="int16_t state = 0;",
    step="int32_t wide = $wide;\nstate = (int16_t)saturate(wide);\nemit($note);",
    skip=lambda type, operation, kept, report: kept == "flags" and report not in FLAG_REPORTS,
)


_CURVES = {
    "linear": (0, 100, 200, 300, 400),
    "steep": (0, 20, 90, 250, 600),
    "flat": (50, 180, 260, 300, 320),
    "falling": (900, 610, 400, 270, 200),
    "bump": (10, 160, 240, 130, 60),
}
_ROUNDS = {
    "down": piece("rounded down", "without the fraction", half="0"),
    "nearest": piece("rounded to the nearest integer, halves up", "plus one half and then rounded down", half="128"),
}
_USES = {
    "plain": piece("the result", "what the curve gives", use="value"),
    "offset": piece("that minus 100", "100 less than the curve gives", use="value - 100"),
    "tenths": piece(
        "a tenth of the result, rounded down",
        "what the curve gives, divided by 10 and cut",
        use="value // 10",
        c_use="value / 10",
    ),
}
CALIBRATION = firmware(
    "calibration-curve",
    (
        "Read a line of raw values from 0 to 1023. A table at 0, 256, 512, 768 and 1024 holds $curve. Between two "
        "entries interpolate linearly in integers, $round. For each value take $use.",
        "The input is one line of 10-bit readings. With the points $curve at every multiple of 256 from 0 to 1024, "
        "interpolate along straight lines, $round; $use is the calibrated reading.",
        "Sensor counts below 1024 stand on a line. Calibrate them: $curve are the values at counts 0, 256, 512, 768, "
        "1024; in between it is a straight line, $round. Then use $use.",
    ),
    {
        "curve": {
            name: piece(" ".join(map(str, points)), ", ".join(map(str, points)), points=", ".join(map(str, points)))
            for name, points in _CURVES.items()
        },
        "round": _ROUNDS,
        "use": _USES,
    },
    ("the calibrated values", "all that comes out", "the readings then"),
    _samples,
    setup="table = [$points]",
    python="i, part = divmod($x, 256)\nvalue = (table[i] * (256 - part) + table[i + 1] * part + $half) // 256\n"
    "$ys.append($use)",
    constants="static const uint16_t table[] = {$points};",
    state="uint32_t part = 0;",
    step="const uint16_t *point = &table[$x >> 8];\npart = $x & 0xFF;\n"
    "int32_t value = (int32_t)((point[0] * (256 - part) + point[1] * part + $half) >> 8);\nemit($use);",
)

FAMILIES: tuple[Family, ...] = (FILTER, SATURATION, CALIBRATION)
