"""Calibration of time limits: they are scaled by the speed of the CPU, so that they allow the same work everywhere."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

from securecoderl_edge.errors import SceError
from securecoderl_edge.system.files import read_json_if_there, write_atomically
from securecoderl_edge.system.machine import cpu_model

# CPU seconds of `_work` in Python 3.11 on the virtual Xeon (Sapphire Rapids) where the limits were chosen.
REFERENCE_SECONDS = 0.017
CALIBRATION_FILE = "calibration.json"
_TRIES, _REPEATS = 7, 10
_WORDS = 3000


def time_factor(folder: Path | None = None) -> float:
    """The factor for time limits: 1 on a CPU at least as fast as the reference, else a power of √2.

    Args:
        folder: of an evaluation that may be resumed. A factor that it holds for this CPU model is used again: near a
            step a second measurement could differ, and rows with different limits must not be mixed.

    Raises:
        SceError: the folder's file cannot be read, or the folder cannot be written.
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
        raise SceError(f"{path}: {factor!r} is not a factor for time limits; remove the file to measure it again")
    return float(factor)


def factor_for(seconds: float) -> float:
    """`time_factor` of a CPU that takes ``seconds`` for the work."""
    # One and the same CPU varies by up to a fifth.
    steps = math.ceil(2 * math.log2(max(1.0, seconds / REFERENCE_SECONDS / 1.2)))
    return round(2 ** (steps / 2), 3)


def _seconds() -> float:
    started = time.process_time()
    for _ in range(_REPEATS):
        _work()
    return time.process_time() - started


def _work() -> int:
    """The work that typical solutions do: count, look up, sort, build text."""
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
