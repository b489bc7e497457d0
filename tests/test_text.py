"""Text of programs and models on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.text import escape_controls


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb", "a\\rb"),
        ("\x00\x07\x7f", "\\x00\\x07\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_could_steer_a_terminal_becomes_visible(text: str, escaped: str) -> None:
    assert escape_controls(text) == escaped


@pytest.mark.parametrize("text", ["", "plain", "two\nlines\tand a tab", "Größe 数 🙂", "back\\slash"])
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert escape_controls(text) == text


@given(st.text(st.characters()))
def test_escaped_text_is_printable_and_can_be_encoded(text: str) -> None:
    escaped = escape_controls(text)
    assert all(character in "\n\t" or character.isprintable() for character in escaped)
    escaped.encode("utf-8")
