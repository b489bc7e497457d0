"""The next token: which are left out, how often each other is drawn, and its log-probability."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.models.drawing import draw, draw_tokens, first_above, truncated
from securecoderl_edge.runtimes.protocol import Sampling

VOCABULARY = 700  # more than two blocks, the last one not whole
PARTS = st.floats(0, math.nextafter(1, 0))


def drawn_by(logits: np.ndarray, sampling: Sampling, random: np.random.Generator) -> tuple[int, float]:
    return draw(logits, sampling.temperature, random, sampling.truncate)


def some_logits(seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, VOCABULARY).astype(np.float32)


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=VOCABULARY).filter(any), PARTS)
def test_the_token_is_the_one_in_whose_part_of_the_sum_the_number_falls(weights: list[float], part: float) -> None:
    token = first_above(np.array(weights, np.float32), part)
    before, wanted, slack = math.fsum(weights[:token]), part * math.fsum(weights), 1e-9
    assert weights[token] > 0
    assert before <= wanted + slack
    assert wanted <= before + weights[token] + slack


@given(st.integers(0, VOCABULARY - 1), PARTS)
def test_the_only_token_with_a_weight_is_always_drawn(only: int, part: float) -> None:
    weights = np.zeros(VOCABULARY, np.float32)
    weights[only] = 1e-30
    assert first_above(weights, part) == only


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits, random, draws = some_logits(), np.random.default_rng(1), 40_000
    expected = np.exp(logits.astype(np.float64) / 1.4)
    expected /= expected.sum()
    drawn = [drawn_by(logits, Sampling(1.4), random)[0] for _ in range(draws)]
    rates = np.bincount(drawn, minlength=VOCABULARY) / draws
    # Five standard deviations, and room for the discreteness of small counts.
    assert (abs(rates - expected) < 5 * np.sqrt(expected * (1 - expected) / draws) + 3 / draws).all()


def test_log_probabilities_are_those_at_temperature_one_whatever_is_left_out() -> None:
    logits, random = some_logits(), np.random.default_rng(2)
    exact = logits.astype(np.float64)
    exact -= math.log(math.fsum(np.exp(exact)))
    for sampling in (Sampling(0.0), Sampling(1.0), Sampling(0.3), Sampling(1.7, top_k=9, top_p=0.8, min_p=0.01)):
        for _ in range(20):
            token, logprob = drawn_by(logits, sampling, random)
            assert abs(logprob - exact[token]) < 1e-5
    certain = np.zeros(VOCABULARY, np.float32)
    certain[3] = 200
    assert drawn_by(certain, Sampling(1.0), random) == (3, 0.0)


def test_greedy_decoding_takes_no_random_number_and_the_other_one_per_token() -> None:
    random, alone = np.random.default_rng(3), np.random.default_rng(3)
    assert drawn_by(some_logits(), Sampling(0.0), random)[0] == int(some_logits().argmax())
    drawn_by(some_logits(), Sampling(0.8, top_k=4), random)
    alone.random()
    assert random.random() == alone.random()


def test_the_logits_stay_as_they_were() -> None:
    logits = some_logits()
    drawn_by(logits, Sampling(0.7, top_k=3), np.random.default_rng(4))
    assert (logits == some_logits()).all()


def test_a_very_low_temperature_draws_the_likeliest_token_without_a_warning() -> None:
    logits = some_logits()
    for temperature in (1e-6, 1e-30, 1e-36):
        assert drawn_by(logits, Sampling(temperature), np.random.default_rng(5))[0] == int(logits.argmax())


# What is left out


KEEP_ALL: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
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
    found = truncated(rows / np.float32(temperature), **(KEEP_ALL | settings))
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_allclose(found[np.isfinite(found)], expected[np.isfinite(expected)], rtol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_likeliest_token_always_stays(kind: type) -> None:
    scores = np.array([SCORES, SCORES[::-1]], kind)
    for settings in ({"top_p": 1e-50}, {"top_p": 5e-324}, {"min_p": 1.0}, {"top_k": 1}):
        kept = np.isfinite(truncated(scores, **(KEEP_ALL | settings)))
        assert kept.sum(axis=1).tolist() == [1, 1]
        assert (kept.argmax(axis=1) == scores.argmax(axis=1)).all()


def test_nothing_is_left_out_without_limits() -> None:
    scores = np.array(SCORES)
    assert truncated(scores, **KEEP_ALL) is scores


# In torch


@pytest.mark.parametrize("settings", SETTINGS)
def test_torch_keeps_the_same_tokens(settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    scores = torch.randn(6, 40, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 2
    expected = torch.from_numpy(truncated(scores.numpy(), **(KEEP_ALL | settings)))
    torch.testing.assert_close(truncated(scores, **(KEEP_ALL | settings)), expected)


def test_truncation_in_torch_reads_nothing_from_its_device() -> None:
    torch = pytest.importorskip("torch")
    scores = torch.empty(2, 30, device="meta")  # reading a value of it is an error
    assert truncated(scores, top_k=5, top_p=0.9, min_p=0.1).shape == (2, 30)


@pytest.mark.parametrize("settings", [{}, *SETTINGS])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 1.7])
def test_torch_draws_the_same_tokens_by_the_same_random_numbers(settings: dict[str, Any], temperature: float) -> None:
    torch = pytest.importorskip("torch")
    sampling = Sampling(temperature, **settings)
    logits = np.stack([some_logits(row) for row in range(100)])
    parts = np.random.default_rng(6).random(len(logits), dtype=np.float32)
    tokens, logprobs = draw_tokens(torch.from_numpy(logits), temperature, torch.from_numpy(parts), sampling.truncate)
    for row, part, other, other_logprob in zip(logits, parts.tolist(), tokens.tolist(), logprobs.tolist(), strict=True):
        token, logprob = drawn_by(row, sampling, SimpleNamespace(random=lambda part=part: part))  # type: ignore[arg-type]
        if token == other:
            assert abs(logprob - other_logprob) < 1e-5
            continue
        # The number lies so near to the limit between the two that float32 and float64 differ.
        scores = row.astype(np.float64) / temperature
        kept = scores if sampling.truncate is None else sampling.truncate(scores)
        weights = np.exp(kept - kept.max())
        assert abs(weights[: max(token, other)].sum() / weights.sum() - part) < 1e-6
