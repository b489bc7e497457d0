"""What a program tried in vain: the attempts that the sandbox refused, as its notary counts them (`inside.notary`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

DeniedKind = Literal["network", "read", "write", "process", "exec"]

_WORDS: dict[str, tuple[str, str]] = {  # without a path, and before one
    "network": ("open a network connection", ""),
    "read": ("read a file", "read "),
    "write": ("write a file", "write "),
    "process": ("start a process", ""),
    "exec": ("run another program", "run "),
}
_NOTE = re.compile(rf"({'|'.join(_WORDS)}):([1-9]\d{{0,9}}):((?:[0-9a-f]{{2}})*)")
_NOBODY = "-"  # took notes
MOST_SHOWN, LONGEST_SHOWN = 3, 80


@dataclass(frozen=True)
class Denied:
    """One kind of attempt.

    Attributes:
        kind: ``network`` (a socket), ``read`` (a file outside that exists), ``write`` (a file or folder), ``process``
            (a fork), ``exec`` (another program).
        path: what it was to read, write or run; empty if there is none, or it could not be read.
        count: of attempts, in all tests together; beyond the first thousand of a program not all are counted.
    """

    kind: DeniedKind
    path: str
    count: int


def denied_of(notes: str) -> tuple[Denied, ...] | None:
    """The attempts in the notary's words; None if nobody took notes.

    Raises:
        ValueError: these are no notes.
    """
    if notes == _NOBODY:
        return None
    found = []
    for word in notes.split():
        match = _NOTE.fullmatch(word)
        if match is None:
            raise ValueError(f"not a note of the sandbox: {word[:40]!r}")
        path = bytes.fromhex(match[3]).decode("utf-8", "backslashreplace")
        found.append(Denied(cast(DeniedKind, match[1]), path, int(match[2])))
    return tuple(found)


def denied_in_words(denied: Sequence[Denied] | None) -> str:
    """``tried to open a network connection, read /etc/passwd: refused``; empty without attempts.

    Of a path it has printable characters only, so that it can be shown anywhere.
    """
    if not denied:
        return ""
    told = list(dict.fromkeys(_attempt(each) for each in denied))
    more = [f"and {len(told) - MOST_SHOWN} more"] if len(told) > MOST_SHOWN else []
    return f"tried to {', '.join([*told[:MOST_SHOWN], *more])}: refused"


def _attempt(denied: Denied) -> str:
    without, before = _WORDS[denied.kind]
    if not (before and denied.path):
        return without
    path = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in denied.path)
    return before + (path if len(path) <= LONGEST_SHOWN else f"{path[:LONGEST_SHOWN]}...")
