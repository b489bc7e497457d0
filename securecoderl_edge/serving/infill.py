"""Fill in the middle: the prompt of a file with a hole, and where its filling ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from securecoderl_edge.runtimes.extras import InfillTokens
from securecoderl_edge.serving.serve_settings import LONGEST_STOP

# The share of the room for tokens before the hole; the rest is for those behind it, and for other files what is left.
_BEFORE = 0.75
# A shorter line may well be part of a filling.
_LEAST_LINE = 8
_CHARACTERS_PER_TOKEN = 32


@dataclass(frozen=True)
class Hole:
    """A file with a hole.

    Attributes:
        prefix, suffix: what is before and behind it.
        files: name and text of other files, or of parts of them.
        may_cut: leave out the text that is farthest from the hole, if there is too much; else the prompt is too long.
    """

    prefix: str
    suffix: str
    files: tuple[tuple[str, str], ...] = ()
    may_cut: bool = False

    @property
    def stop(self) -> str:
        """The text behind the hole by which a filling that goes on beyond it is known; empty without a sure sign."""
        lines = self.suffix.split("\n")[1:]
        filled = [place for place, line in enumerate(lines) if line.strip()]
        if not filled:
            return ""
        end = filled[1] if len(filled) > 1 else filled[0]
        text = "\n".join(lines[filled[0] : end + 1])
        return f"\n{text}"[:LONGEST_STOP] if len(text.strip()) >= _LEAST_LINE else ""


def infill_prompt(
    hole: Hole, tokens: InfillTokens, encode: Callable[[str], list[int]], room: int
) -> tuple[tuple[int, ...], bool]:
    """The tokens of a prompt for the middle, of at most ``room`` if it may be cut, and whether it was.

    Text of the file is encoded without special tokens: what looks like one in it is only text. The order is that of the
    models' training and of llama.cpp: other files, what is before the hole, what is behind it.
    """
    most = room * _CHARACTERS_PER_TOKEN if hole.may_cut else max(len(hole.prefix), len(hole.suffix))
    prefix, suffix = encode(hole.prefix[-most:] if most else ""), encode(hole.suffix[:most])
    frame = len(tokens.start) + 3
    is_cut = len(hole.prefix) > most or len(hole.suffix) > most
    if hole.may_cut and len(prefix) + len(suffix) + frame > room:
        is_cut, left = True, max(0, room - frame)
        behind = min(len(suffix), max(left - len(prefix), int(left * (1 - _BEFORE))))
        prefix, suffix = prefix[len(prefix) - min(len(prefix), left - behind) :], suffix[:behind]
    files, left_out = _files(hole.files, tokens, encode, room - frame - len(prefix) - len(suffix))
    found = (*tokens.start, *files, tokens.prefix, *prefix, tokens.suffix, *suffix, tokens.middle)
    return found, is_cut or left_out


def _files(
    files: Sequence[tuple[str, str]], tokens: InfillTokens, encode: Callable[[str], list[int]], room: int
) -> tuple[list[int], bool]:
    """Other files, the last ones that fit, and whether some do not; none for models without tokens for them."""
    if not files or tokens.separator is None:
        return [], bool(files)
    head = [] if tokens.repository is None else [tokens.repository, *encode("project\n")]
    tail = [tokens.separator, *encode("file\n")]
    room -= len(head) + len(tail)
    kept: list[int] = []
    count = 0
    for name, text in reversed(files):
        if len(name) + len(text) > max(0, room) * _CHARACTERS_PER_TOKEN:
            break
        own = [tokens.separator, *encode(f"{name}\n{text}\n")]
        if len(own) + len(kept) > room:
            break
        kept, count = own + kept, count + 1
    return ([*head, *kept, *tail] if count else []), count < len(files)
