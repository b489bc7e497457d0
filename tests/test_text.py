"""Text of programs and models on a terminal."""

from __future__ import annotations

import time
import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.text import SEAM, escape_controls, has_endless_marks, normalize, with_seams


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


def test_a_name_with_a_seam_in_it_stands_in_no_text() -> None:
    assert with_seams("ab", ("ab", f"a{SEAM}", SEAM * 2)) == f"a{SEAM}b"


# Marks of several classes, some that are two of them, and letters that are marks in another form.
MARKS = "\u0301\u0315\u0316\u0344\u0f73\u0f71\u3099\uff9e"


@given(st.lists(st.text(MARKS, min_size=1, max_size=9), min_size=1, max_size=4), st.sampled_from(("NFC", "NFKC")))
def test_a_normal_form_is_that_of_python(runs: list[str], form: Literal["NFC", "NFKC"]) -> None:
    text = "e\u0301 x ─" + "\uac00".join(run * (300 // len(run)) for run in runs)
    assert normalize(text, form) == unicodedata.normalize(form, text)


@pytest.mark.parametrize("marks", ["\u0315\u0316", "\u0f73", "\uff9e\u0301", "x" + "\u0315\u0316" * 127])
def test_a_text_of_marks_takes_linear_time(marks: str) -> None:
    started = time.process_time()
    normalize(marks * (400_000 // len(marks)), "NFKC")
    assert time.process_time() - started < 10  # when `unicodedata` sorts them: minutes
    assert has_endless_marks(marks * 2000) == (len(marks) < 9)


@pytest.mark.parametrize("text", ["é" * 2000, "─" * 2000, "🙂" * 2000, "a\u0301" * 2000, "\u0301" * 1000])
def test_a_text_of_few_marks_in_a_row_is_usual(text: str) -> None:
    assert not has_endless_marks(text)
