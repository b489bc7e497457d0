"""Text from outside, made safe for a terminal or a tokenizer; and escapes in command-line text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# The GGUF key for the Unicode normal form of a model's tokenizer; llama.cpp has no key for it.
NORMALIZER_KEY = "securecoderl_edge.normalizer"
# Tokenizers cut a text here and leave it out, so that no token goes across. It is no character, and in no language.
SEAM = "\ufdd0"
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


def replace_surrogates(text: str) -> str:
    """``text`` with ``?`` for each half of a surrogate pair: JSON allows them, tokenizers do not."""
    return text.encode("utf-8", "replace").decode("utf-8")


def normalize(text: str, form: str | None) -> str:
    """``text`` in the Unicode normal form ``NFC``, or as it is without a form."""
    return unicodedata.normalize("NFC", text) if form == "NFC" else text


def with_seams(text: str, names: Iterable[str]) -> str:
    """``text`` with a `SEAM` within each of these names of tokens, which are only text then."""
    for name in names:
        while len(name) > 1 and name in text:  # again: a name may overlap with itself
            text = text.replace(name, f"{name[0]}{SEAM}{name[1:]}")
    return text


def escape_controls(text: str) -> str:
    """Replace control and bidirectional-override characters by visible escapes; newlines and tabs stay.

    Output of an untrusted program could otherwise move the cursor, set the window title or hide what it
    printed.
    """
    return "".join(
        each if each in "\n\t" or each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode("ascii")
        for each in text
    )


def on_one_line(text: str) -> str:
    """`escape_controls`, with newlines and tabs escaped too, as in the name of a file that shall not end a line."""
    return escape_controls(text).replace("\n", "\\n").replace("\t", "\\t")


def without_commands(text: str) -> str:
    """`escape_controls`, and no line that GitHub's runner takes for a command in a log; it ignores spaces before one.

    A line that would be one begins with ``./``, which leaves the path of a file what it is.
    """
    lines = escape_controls(text).replace("##[", "#\\#[").split("\n")
    return "\n".join(f"./{each}" if each.lstrip().startswith(("::", "##")) else each for each in lines)


def unescaped(text: str) -> str:
    r"""Text from a command line, with ``\n``, ``\t`` and ``\\`` replaced by newline, tab and backslash."""
    return re.sub(r"\\[nt\\]", lambda match: _ESCAPES[match.group()], text)


def printable(text: str) -> str:
    """The text with a question mark for each character that a picture cannot show."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
