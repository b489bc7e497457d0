"""Text that came from a program or a model, made safe for a terminal."""

from __future__ import annotations


def escape_controls(text: str) -> str:
    """Replace control and bidirectional-override characters by visible escapes; newlines and tabs stay.

    Output of an untrusted program could otherwise move the cursor, set the window title or hide what it
    printed.
    """
    return "".join(character if _is_harmless(character) else _escaped(character) for character in text)


def _is_harmless(character: str) -> bool:
    return character in "\n\t" or character.isprintable()


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
