"""The next token of a sample: how often each is drawn, and its log-probability."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.runtimes.drawing import draw, first_above
from securecoderl_edge.runtimes.protocol import Sampling

VOCABULARY = 700  # more than two blocks, the last one not whole
PARTS = st.floats(0, math.nextafter(1, 0))


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
    drawn = [draw(logits, Sampling(1.4), random)[0] for _ in range(draws)]
    rates = np.bincount(drawn, minlength=VOCABULARY) / draws
    # Five standard deviations, and room for the discreteness of small counts.
    assert (abs(rates - expected) < 5 * np.sqrt(expected * (1 - expected) / draws) + 3 / draws).all()


def test_log_probabilities_are_those_at_temperature_one_whatever_is_left_out() -> None:
    logits, random = some_logits(), np.random.default_rng(2)
    exact = logits.astype(np.float64)
    exact -= math.log(math.fsum(np.exp(exact)))
    for sampling in (Sampling(0.0), Sampling(1.0), Sampling(0.3), Sampling(1.7, top_k=9, top_p=0.8, min_p=0.01)):
        for _ in range(20):
            token, logprob = draw(logits, sampling, random)
            assert abs(logprob - exact[token]) < 1e-5
    certain = np.zeros(VOCABULARY, np.float32)
    certain[3] = 200
    assert draw(certain, Sampling(1.0), random) == (3, 0.0)


def test_greedy_decoding_takes_no_random_number_and_the_other_one_per_token() -> None:
    random, alone = np.random.default_rng(3), np.random.default_rng(3)
    assert draw(some_logits(), Sampling(0.0), random)[0] == int(some_logits().argmax())
    draw(some_logits(), Sampling(0.8, top_k=4), random)
    alone.random()
    assert random.random() == alone.random()


def test_the_logits_stay_as_they_were() -> None:
    logits = some_logits()
    draw(logits, Sampling(0.7, top_k=3), np.random.default_rng(4))
    assert (logits == some_logits()).all()


def test_a_very_low_temperature_draws_the_likeliest_token_without_a_warning() -> None:
    logits = some_logits()
    for temperature in (1e-6, 1e-30, 1e-36):
        assert draw(logits, Sampling(temperature), np.random.default_rng(5))[0] == int(logits.argmax())
