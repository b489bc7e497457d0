"""Means and differences over seeds and problems: by hand, in simulations, and against intervals over problems alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_engine.seeds import (
    Values,
    difference_over_seeds,
    mean_over_seeds,
    rate_over_seeds,
    student_95,
)

from securecoderl_edge.scoring.intervals import paired_difference, rate_interval


def nested(table: object) -> Values:
    """One sample a problem and seed."""
    return [[[float(value)] for value in row] for row in np.asarray(table)]


@given(st.lists(st.lists(st.lists(st.floats(-1, 1), max_size=3), min_size=4, max_size=4), min_size=1, max_size=3))
def test_the_value_is_the_mean_of_all_samples(values: Values) -> None:
    samples = [value for problems in values for samples in problems for value in samples]
    if not samples:
        with pytest.raises(ValueError, match="at least one sample"):
            mean_over_seeds(values)
        return
    found = mean_over_seeds(values)
    assert found.value == pytest.approx(math.fsum(samples) / len(samples))
    assert found.n == len(samples)


def test_the_width_is_that_of_an_analysis_of_variance_by_hand() -> None:
    # Rows 1 2 6 and 2 4 9: mean squares 6 (seeds), 19.5 (problems), 0.5 (rest); variance (6 + 19.5 - 0.5) / 6,
    # degrees of freedom 25^2 / (6^2 / 1 + 19.5^2 / 2 + 0.5^2 / 2) = 2.762.
    found = mean_over_seeds(nested([[1, 2, 6], [2, 4, 9]]))
    assert found.value == 4
    assert (found.high - found.low) / 2 == pytest.approx(math.sqrt(25 / 6) * student_95(2.762), rel=1e-3)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (1.5, 6.017), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (30, 2.042), (1000, 1.962)],
)
def test_students_quantiles_are_those_of_the_tables(freedom: float, quantile: float) -> None:
    assert student_95(freedom) == pytest.approx(quantile, rel=0.01)


def test_over_one_seed_the_difference_is_that_over_problems() -> None:
    rng = np.random.default_rng(12)
    first, second = rng.random((1, 80)), rng.random((1, 80))
    both = difference_over_seeds(nested(first), nested(second))
    single = paired_difference(nested(first)[0], nested(second)[0], resamples=4000)
    assert both.value == pytest.approx(single.value)
    assert (both.low, both.high) == pytest.approx((single.low, single.high), abs=0.01)


def test_seeds_that_disagree_widen_the_interval() -> None:
    rng = np.random.default_rng(13)
    first = rng.random((3, 200))
    noise = rng.normal(0, 0.05, (3, 200))
    disagreeing = first + noise + np.array([[-0.2], [0.1], [0.4]])
    assert difference_over_seeds(nested(first), nested(first + noise + 0.1)).excludes_zero
    assert not difference_over_seeds(nested(first), nested(disagreeing)).excludes_zero


@pytest.mark.parametrize("of_seeds", [0.0, 0.04, 0.15])
@pytest.mark.parametrize(("seeds", "problems"), [(3, 90), pytest.param(5, 200, marks=pytest.mark.slow)])
def test_differences_cover_the_truth_about_as_often_as_they_say(seeds: int, problems: int, of_seeds: float) -> None:
    rng, covered, rounds = np.random.default_rng(7), 0, 600
    for _ in range(rounds):
        effects = rng.normal(0.1, of_seeds, (seeds, 1)) + rng.normal(0, 0.1, (1, problems))
        first = rng.normal(0, 0.4, (seeds, problems))
        second = effects + rng.normal(0, 0.4, (seeds, problems))
        found = difference_over_seeds(nested(first), nested(second))
        covered += found.low <= 0.1 <= found.high
    assert 0.9 * rounds <= covered <= 0.995 * rounds


def test_shares_of_what_parses_cover_the_truth_too() -> None:
    rng, covered, rounds = np.random.default_rng(8), 0, 300
    for _ in range(rounds):
        counts = rng.binomial(2, 0.6, (5, 96))
        skill = np.clip(rng.normal(0.6, 0.2, (1, 96)) + rng.normal(0, 0.03, (5, 1)), 0, 1)
        values = [[list((rng.random(n) < p).astype(float)) for n, p in zip(c, s, strict=True)]
                  for c, s in zip(counts, skill, strict=True)]  # fmt: skip
        found = rate_over_seeds(values)
        covered += found.low <= 0.6 <= found.high
    assert covered >= 0.9 * rounds


def test_problems_without_samples_count_for_nothing() -> None:
    full = [[[1.0], [0.0], [1.0]], [[1.0], [1.0], [0.0]]]
    gaps = [[*row, []] for row in full]
    assert mean_over_seeds(gaps).value == mean_over_seeds(full).value
    assert rate_over_seeds(gaps).n == rate_over_seeds(full).n == 6


def test_a_rate_of_nothing_has_a_width() -> None:
    found = rate_over_seeds(nested(np.zeros((5, 90))))
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(rate_interval([[False]] * 90).high)


def test_a_difference_that_is_the_same_everywhere_has_no_interval() -> None:
    same = difference_over_seeds(nested(np.ones((5, 90))), nested(np.ones((5, 90))))
    assert same.value == 0
    assert math.isnan(same.low)
    assert math.isnan(same.high)
    assert not same.excludes_zero


def test_a_rate_over_one_seed_is_about_that_over_problems() -> None:
    outcomes = nested(np.random.default_rng(2).random((1, 300)) < 0.3)
    over_seeds, plain = rate_over_seeds(outcomes), rate_interval([[value > 0] for [value] in outcomes[0]])
    assert (over_seeds.low, over_seeds.high) == pytest.approx((plain.low, plain.high), abs=0.01)


def test_one_problem_says_nothing_about_others() -> None:
    assert math.isnan(mean_over_seeds([[[0.5]], [[0.7]]]).low)
    assert rate_over_seeds([[[1.0]], [[0.0]]]).n == 2


def test_tables_of_different_seeds_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="seeds, problems"):
        difference_over_seeds(nested(np.zeros((2, 5))), nested(np.zeros((3, 5))))
    with pytest.raises(ValueError, match="the same number of problems for all seeds"):
        mean_over_seeds([[[1.0]], [[1.0], [0.0]]])
