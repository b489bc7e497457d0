"""How slow this processor is at running Python, so that time limits mean the same work everywhere."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

from securecoderl_edge.errors import SceError
from securecoderl_edge.system.files import read_json_if_there, write_atomically
from securecoderl_edge.system.machine import cpu_model

# Processor seconds of `_work` in Python 3.11 on the virtual Xeon (Sapphire Rapids) where the limits were chosen.
REFERENCE_SECONDS = 0.017
CALIBRATION_FILE = "calibration.json"
_TRIES, _REPEATS = 7, 10
_WORDS = 3000


def time_factor(folder: Path | None = None) -> float:
    """What time limits are multiplied by: 1 on a processor as fast as the reference or faster, else a power of √2.

    Args:
        folder: of a bench that may be continued. What was found there on this kind of processor holds again: next to
            a step a second look could say something else, and rows with other limits do not belong together.

    Raises:
        SceError: what the folder says cannot be read, or the folder cannot be written.
    """
    if folder is None:
        return factor_for(min(_seconds() for _ in range(_TRIES)))
    path, processor = folder / CALIBRATION_FILE, cpu_model()
    known = read_json_if_there(path)
    if processor not in known:
        known[processor] = time_factor()
        with write_atomically(path) as file:
            file.write(json.dumps(known, indent=1) + "\n")
    factor = known[processor]
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor < math.inf:
        raise SceError(f"{path}: {factor!r} is no factor for time limits; remove the file to measure it again")
    return float(factor)


def factor_for(seconds: float) -> float:
    """`time_factor` of a processor that takes so long for the work."""
    # A fifth slower is within what one and the same processor varies.
    steps = math.ceil(2 * math.log2(max(1.0, seconds / REFERENCE_SECONDS / 1.2)))
    return round(2 ** (steps / 2), 3)


def _seconds() -> float:
    started = time.process_time()
    for _ in range(_REPEATS):
        _work()
    return time.process_time() - started


def _work() -> int:
    """What programs that solve problems do: count, look up, sort, build text."""
    counts: dict[str, int] = {}
    for number in range(_WORDS):
        word = str(number * 7919 % 1009)
        counts[word] = counts.get(word, 0) + 1
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    total, text = 0, []
    for word, count in ordered:
        for digit in word:
            total += int(digit) * count
        text.append(f"{word}:{count}")
    sieve = [True] * 20_000
    for number in range(2, 142):
        if sieve[number]:
            for multiple in range(number * number, len(sieve), number):
                sieve[multiple] = False
    return total + len(" ".join(text)) + sum(sieve)
