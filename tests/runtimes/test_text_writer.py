"""Settings of sampling that are refused, and where a text ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.errors import UsageError
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.runtimes.text_writer import TextWriter, TokenText


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 0}, {"temperature": -0.1}, {"temperature": float("nan")}, {"temperature": float("inf")},
        {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_p": float("nan")}, {"min_p": -0.1}, {"min_p": 1.5},
        {"stop": ("",)}, {"stop": ("a", "")},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Sampling(**settings)


# Text


@given(
    st.lists(st.text(alphabet="ab\n#", max_size=4), max_size=12),
    st.lists(st.text(alphabet="ab\n#", min_size=1, max_size=4), max_size=3),
)
def test_a_text_ends_at_its_first_stop_string_however_it_comes(pieces: list[str], stops: list[str]) -> None:
    shown: list[str] = []
    writer = TextWriter(stops, shown.append)
    whole, ended = "", False
    for piece in pieces:
        whole += piece
        ended = writer.add(piece)
        places = [whole.find(stop) for stop in stops if stop in whole]
        assert ended == bool(places)
        # Nothing is ever shown that is taken back.
        assert whole.startswith("".join(shown))
        if ended:
            assert writer.text == whole[: min(places)]
            break
    assert writer.end() == "".join(shown)
    if not ended:
        assert writer.text == whole


def test_stop_strings_are_compared_only_where_one_may_begin() -> None:
    compared = []

    class Noted(str):
        __slots__ = ()

        def startswith(self, *given: Any) -> bool:
            compared.append(given)
            return super().startswith(*given)

    writer = TextWriter([Noted(f"#{number}{'x' * 190}") for number in range(32)])
    for piece in ["x = 1\n"] * 100:
        assert not writer.add(piece)
    assert compared == []
    writer.add("#1")
    assert compared


def test_what_cannot_begin_a_stop_string_is_shown_at_once() -> None:
    shown: list[str] = []
    writer = TextWriter(("\n###",), shown.append)
    for piece in ("x = 1", "\n", "y", "\n##", "\n"):
        writer.add(piece)
    assert shown == ["x = 1", "\ny", "\n##"]
    assert writer.end() == "x = 1\ny\n##\n"


def test_half_a_character_waits_for_its_other_half() -> None:
    content = "é🙂a".encode()

    def decode(ids: list[int]) -> str:
        return bytes(content[token] for token in ids).decode("utf-8", "replace")

    text = TokenText(decode, {})
    assert [text.add(token) for token in range(len(content))] == ["", "é", "", "", "", "🙂", "a"]
    assert text.end() == ""
    cut = TokenText(decode, {})
    assert (cut.add(0), cut.end()) == ("", "\ufffd")
    tagged = TokenText(decode, {7: "<think>"})
    assert [tagged.add(token) for token in (0, 1, 7, 6, 0, 7, 6)] == ["", "é", "<think>", "a", "", "\ufffd<think>", "a"]
    assert tagged.end() == ""
