"""Families that read lists which Python has stored, where loading them is the short way (Bandit B301, B302)."""

from __future__ import annotations

import marshal
import pickle
import random
from collections.abc import Callable

from family import PAYLOADS

from families._security_pieces import (
    KEEP_NUMBERS,
    REPORT_NUMBERS,
    Source,
    combine,
    injected,
    numbers,
    pick,
)

_PICKLED = (
    "starts with 80025d710028, then has 4b and two digits for each number, and ends with 652e",
    "has 12 digits before and 4 behind the numbers, each of which is two digits after 4b",
)
_MARSHALLED = (
    "starts with 5b and 8 digits; then each number is 69 and four bytes, the lowest first",
    "has 10 digits in front; behind them come the numbers, each as 69 and 8 digits for four bytes from low to high",
)


def _pickled(rng: random.Random) -> str:
    return pickle.dumps(numbers(rng, 3, 5, 0, 19), 2).hex()


def _marshalled(rng: random.Random) -> str:
    return marshal.dumps(numbers(rng, 3, 4, 0, 19), 2).hex()


def _stored(
    module: str,
    describes: tuple[str, str],
    draw_one: Callable[[random.Random], str],
    hostile: tuple[bytes, bytes],
    *reads: str,
    count: int = 1,
) -> Source:
    """Lists in ``count`` lines, one joined to the other; ``reads`` define ``parse(line)``, which gives one of them."""

    def draw(rng: random.Random) -> str:
        return "".join(f"{draw_one(rng)}\n" for _ in range(count))

    given = (
        "One line is a list of integers that {module} has written, in hexadecimal. It {describes}.",
        "Each of two lines is a list of integers as {module} writes it, in hexadecimal; join them. Each {describes}.",
    )[count - 1]
    joined = " + ".join([f"{module}.loads(bytes.fromhex(input()))"] * count)
    return Source(
        tuple(given.format(module=module, describes=each) for each in describes),
        draw,
        (f"import {module}\n$v = {joined}",),
        tuple(f"{read}\n\n\n$v = {' + '.join(['parse(input())'] * count)}" for read in reads),
        injected(
            *("bytes that load as something else", 502, draw, "^.+$", r"\A.+$"),
            texts=(hostile[0].hex(), hostile[1].hex()),
        ),
    )


def _text(code: str) -> bytes:
    return b"X%b%b" % (len(code).to_bytes(4, "little"), code.encode())


# A call in what starts and ends as a list does; another by the opcode that has the name of its function.
_PICKLES = (
    b"\x80\x02]q\x00(K\x01cbuiltins\neval\n(" + _text(PAYLOADS[0]) + b"tRe.",
    b"(" + _text(PAYLOADS[1]) + b"ibuiltins\nexec\n.",
)
# Short texts that ask for gigabytes: a list, and a tuple behind a number.
_LONG = (
    b"[\xff\xff\xff\x7fi\x01\x00\x00\x00",
    b"[\x02\x00\x00\x00i\x01\x00\x00\x00(\xff\xff\xff\x7f",
)


def _pickles(count: int) -> Source:
    return _stored(
        "pickle",
        _PICKLED,
        _pickled,
        _PICKLES,
        "def parse(line):\n    data = bytes.fromhex(line)\n    return list(data[7:-2:2])",
        "def parse(line):\n    return [int(line[i : i + 2], 16) for i in range(14, len(line) - 4, 4)]",
        count=count,
    )


def _marshals(count: int) -> Source:
    return _stored(
        "marshal",
        _MARSHALLED,
        _marshalled,
        _LONG,
        "def parse(line):\n    data = bytes.fromhex(line)\n"
        '    return [int.from_bytes(data[i : i + 4], "little") for i in range(6, len(data), 5)]',
        "import struct\n\n\ndef parse(line):\n"
        '    return [$x for _, $x in struct.iter_unpack("<ci", bytes.fromhex(line)[5:])]',
        count=count,
    )


FAMILIES = (
    combine(
        "pickled-lists",
        {"one": _pickles(1), "joined": _pickles(2)},
        pick(KEEP_NUMBERS, "even threes above"),
        pick(REPORT_NUMBERS, "squares steps running weighted alternate"),
    ),
    combine(
        "marshalled-lists",
        {"one": _marshals(1), "joined": _marshals(2)},
        pick(KEEP_NUMBERS, "odd small repeated"),
        pick(REPORT_NUMBERS, "listing count-sum ends distinct middle"),
    ),
)
