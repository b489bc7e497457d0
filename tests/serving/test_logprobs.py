"""Reports of tokens that are parts of characters, or of none."""

from __future__ import annotations

import random
from typing import Any

import pytest

from securecoderl_edge.runtimes.extras import TokenReport
from securecoderl_edge.runtimes.text_writer import BytesText
from securecoderl_edge.serving.logprobs import of_message, of_text

PIECES = [b"a", b"\n", "\u00e9".encode(), *(bytes([byte]) for byte in "\u65e5\U0001f389".encode()), b"\xff", b"b\xc3"]


def written(pieces: list[bytes]) -> tuple[str, list[int]]:
    """The text of tokens as it is streamed, and its length before each of them."""
    decoder, text, starts = BytesText(pieces.__getitem__), "", []
    for place in range(len(pieces)):
        starts.append(len(text))
        text += decoder.add(place)
    return text + decoder.end(), starts


def reports_of(pieces: list[bytes]) -> list[TokenReport]:
    return [TokenReport(piece.decode("latin-1"), -0.5) for piece in pieces]


@pytest.mark.parametrize("seed", range(30))
def test_offsets_are_places_in_the_text_whatever_its_bytes(seed: int) -> None:
    chance = random.Random(seed)
    before, after = (chance.choices(PIECES, k=chance.randint(1, 12)) for _ in range(2))
    echo, starts = written(before)
    text, others = written(after)
    found = of_text(reports_of(before), reports_of(after), text)
    assert found["text_offset"] == [*starts, *(len(echo) + start for start in others)]


def test_a_start_token_is_before_the_text() -> None:
    found = of_text(reports_of([b"<s>", b" ab", b"c"]), reports_of([b"d", b"e"]), "de", "abc")
    assert found["text_offset"] == [0, 0, 2, 3, 4]
    assert found["tokens"] == ["<s>", " ab", "c", "d", "e"]


@pytest.mark.parametrize("seed", range(30))
def test_of_a_text_that_was_cut_those_tokens_are_reported_that_made_it(seed: int) -> None:
    chance = random.Random(seed)
    pieces = chance.choices(PIECES, k=12)
    text, starts = written(pieces)
    for end in range(len(text) + 1):
        content: list[dict[str, Any]] = of_message(reports_of(pieces), text[:end])["content"]
        assert len(content) == sum(start < end for start in starts)


@pytest.mark.parametrize("stop", [b"!", b"?!"])
def test_of_a_stop_string_no_token_is_reported(stop: bytes) -> None:
    reports = reports_of([b"a", b"b", *(bytes([byte]) for byte in stop)])
    assert of_text([], reports, "ab", stop=stop.decode())["tokens"] == ["a", "b"]
    assert of_text([], reports_of([b"a", b"</s>"]), "a")["tokens"] == ["a", "</s>"]
