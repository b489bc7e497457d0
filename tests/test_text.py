"""Text of programs and models on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.text import SEAM, escape_controls, with_seams


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


@given(
    st.lists(st.text("<|ab>", min_size=2, max_size=6), max_size=4),
    st.lists(st.text("<|ab>", max_size=3) | st.sampled_from(("<|a|>", "aaaa")), max_size=9),
)
def test_no_part_between_seams_has_a_name_and_all_are_the_text(names: list[str], pieces: list[str]) -> None:
    names, text = [*names, "<|a|>", "aa"], "".join(pieces)
    parts = with_seams(text, names).split(SEAM)
    assert "".join(parts) == text
    assert not any(name in part for name in names for part in parts)


def test_a_text_without_a_name_stays_as_it_is() -> None:
    assert with_seams("a < b |> c", ("<|a|>", "", "|")) == "a < b |> c"
