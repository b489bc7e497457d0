"""Text from outside, made safe for a terminal or a tokenizer; escapes in command-line text; plurals."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

# The GGUF key for the Unicode normal form of a model's tokenizer; llama.cpp has no key for it.
NORMALIZER_KEY = "securecoderl_edge.normalizer"
# Tokenizers cut a text here and leave it out, so that no token goes across. It is no character, and in no language.
SEAM = "\ufdd0"
# Combining marks, among others. Two of the letters of halfwidth Katakana stand for marks.
_MARK = r"[^\x00-\x7f\w]|[\uff9e\uff9f]"
_MARKS = re.compile(rf"(?<!{_MARK})(?:{_MARK}){{256,}}")
_COMMANDS = re.compile(r"##((?:vso)?\[)", re.IGNORECASE)  # wherever they stand
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that a misspelled one probably means; empty if none is near."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), 1)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word, see `nearest`; it begins with a space, or is empty."""
    near = nearest(word, known)
    return f" Did you mean {near}?" if near else ""


def counted(number: int, noun: str) -> str:
    """Such as ``1 finding`` or ``2 findings``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def replace_surrogates(text: str) -> str:
    """``text`` with ``?`` for each half of a surrogate pair: JSON allows them, tokenizers do not."""
    return text.encode("utf-8", "replace").decode("utf-8")


def normalize(text: str, form: Literal["NFC", "NFKC"]) -> str:
    """``text`` in a Unicode normal form, in linear time."""
    return (
        text if text.isascii() else unicodedata.normalize(form, _MARKS.sub(lambda run: _in_order(run[0], form), text))
    )


def _in_order(text: str, form: Literal["NFC", "NFKC"]) -> str:
    """An equivalent text, whose combining marks need no more sorting, for which `unicodedata` takes quadratic time."""
    apart: Literal["NFD", "NFKD"] = "NFD" if form == "NFC" else "NFKD"
    parts = "".join(unicodedata.normalize(apart, each) for each in text)
    runs = itertools.groupby(parts, key=lambda each: unicodedata.combining(each) > 0)
    return "".join("".join(sorted(run, key=unicodedata.combining)) for _, run in runs)


def has_endless_marks(text: str) -> bool:
    """Whether over 1,000 combining marks follow each other. Python takes quadratic time for them in a name."""
    runs = () if text.isascii() else _MARKS.finditer(text)
    return any(sum(unicodedata.category(each)[0] in "ML" for each in run[0]) > 1000 for run in runs)


def with_seams(text: str, names: Iterable[str]) -> str:
    """``text`` with a `SEAM` within each of these names of tokens, which are only text then."""
    for name in names:
        while len(name) > 1 and SEAM not in name and name in text:  # again: a name may overlap with itself
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
    """`escape_controls`, and nothing in a log that is a command to GitHub's runner or Azure's agent.

    A line that would be one begins with ``./``, which leaves the path of a file what it is.
    """
    lines = _COMMANDS.sub(r"#\\#\1", escape_controls(text)).split("\n")
    return "\n".join(f"./{each}" if each.lstrip().startswith(("::", "##")) else each for each in lines)


def document(text: str, sign: str = "\\u0023") -> str:
    """JSON that means the same, without what is a command wherever it stands; ``sign`` spells ``#`` in other forms."""
    return _COMMANDS.sub(lambda found: f"#{sign}{found[1]}", text)


def unescaped(text: str) -> str:
    r"""Text from a command line, with ``\n``, ``\t`` and ``\\`` replaced by newline, tab and backslash."""
    return re.sub(r"\\[nt\\]", lambda match: _ESCAPES[match.group()], text)


def printable(text: str) -> str:
    """The text with a question mark for each character that a picture cannot show."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
