"""Which tokens `Sampling` leaves out, and where a text ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.errors import UsageError
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.runtimes.text_writer import TextWriter, TokenText
from securecoderl_edge.runtimes.truncation import truncated

SCORES = [3.0, 2.5, 1.0, 0.5, -1.0, -7.0, 2.9, 0.1]
SETTINGS = [
    {"top_k": 1}, {"top_k": 3}, {"top_k": 50}, {"top_p": 0.5}, {"top_p": 0.9}, {"top_p": 1e-9}, {"min_p": 0.2},
    {"min_p": 1.0}, {"top_k": 4, "top_p": 0.8}, {"top_p": 0.95, "min_p": 0.3},
    {"top_k": 6, "top_p": 0.99, "min_p": 0.05},
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_the_same_tokens_are_kept_as_in_transformers(settings: dict[str, Any], temperature: float) -> None:
    torch = pytest.importorskip("torch")
    from transformers.generation.logits_process import (
        LogitsProcessorList,
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    rng = np.random.default_rng(4)
    rows = np.stack([SCORES, *rng.normal(0, 3, (20, 8))]).astype(np.float32)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if "top_k" in settings:
        warpers.append(TopKLogitsWarper(settings["top_k"]))
    if "top_p" in settings:
        warpers.append(TopPLogitsWarper(settings["top_p"]))
    if "min_p" in settings:
        warpers.append(MinPLogitsWarper(settings["min_p"]))
    expected = warpers(None, torch.from_numpy(rows.copy())).numpy()
    found = truncated(rows / np.float32(temperature), Sampling(temperature, **settings))
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_allclose(found[np.isfinite(found)], expected[np.isfinite(expected)], rtol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_likeliest_token_always_stays(kind: type) -> None:
    scores = np.array([SCORES, SCORES[::-1]], kind)
    for settings in ({"top_p": 1e-50}, {"top_p": 5e-324}, {"min_p": 1.0}, {"top_k": 1}):
        kept = np.isfinite(truncated(scores, Sampling(1.0, **settings)))
        assert kept.sum(axis=1).tolist() == [1, 1]
        assert (kept.argmax(axis=1) == scores.argmax(axis=1)).all()


def test_nothing_is_left_out_without_limits() -> None:
    scores = np.array(SCORES)
    assert truncated(scores, Sampling()) is scores


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
