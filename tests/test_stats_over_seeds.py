"""Means and differences over seeds and problems: against plain loops, and against intervals over problems alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.stats import paired_difference, rate_interval
from securecoderl_edge.stats_over_seeds import Values, difference_over_seeds, mean_over_seeds, rate_over_seeds


def nested(table: object) -> Values:
    """One sample a problem and seed."""
    return [[[float(value)] for value in row] for row in np.asarray(table)]


@given(st.lists(st.lists(st.lists(st.floats(-1, 1), max_size=3), min_size=4, max_size=4), min_size=1, max_size=3))
def test_the_value_is_the_mean_of_all_samples(values: Values) -> None:
    samples = [value for problems in values for samples in problems for value in samples]
    if not samples:
        with pytest.raises(ValueError, match="at least one sample"):
            mean_over_seeds(values, resamples=10)
        return
    found = mean_over_seeds(values, resamples=50)
    assert found.value == pytest.approx(math.fsum(samples) / len(samples))
    assert found.n == len(samples)


def test_the_resampled_means_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(3)
    values = [[list(rng.random(rng.integers(0, 4))) for _ in range(12)] for _ in range(3)]
    of_loop = []
    draws = np.random.default_rng(5)
    seeds, problems = draws.multinomial(3, [1 / 3] * 3, 2000), draws.multinomial(12, [1 / 12] * 12, 2000)
    for of_seeds, of_problems in zip(seeds, problems, strict=True):
        drawn = [
            value
            for seed, row in enumerate(values)
            for problem, samples in enumerate(row)
            for value in samples * int(of_seeds[seed] * of_problems[problem])
        ]
        of_loop.append(sum(drawn) / len(drawn))
    found = mean_over_seeds(values, seed=5, resamples=2000)
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(of_loop, [2.5, 97.5])))


def test_over_one_seed_the_difference_is_that_over_problems() -> None:
    rng = np.random.default_rng(12)
    first, second = rng.random((1, 80)), rng.random((1, 80))
    both = difference_over_seeds(nested(first), nested(second), resamples=4000)
    single = paired_difference(nested(first)[0], nested(second)[0], resamples=4000)
    assert both.value == pytest.approx(single.value)
    assert (both.low, both.high) == pytest.approx((single.low, single.high), abs=0.01)


def test_seeds_that_disagree_widen_the_interval() -> None:
    rng = np.random.default_rng(13)
    first = rng.random((3, 200))
    agreeing = first + 0.1
    disagreeing = first + np.array([[-0.2], [0.1], [0.4]])
    assert difference_over_seeds(nested(first), nested(agreeing), resamples=2000).excludes_zero
    assert not difference_over_seeds(nested(first), nested(disagreeing), resamples=2000).excludes_zero


def test_the_difference_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, covered = np.random.default_rng(7), 0
    for repeat in range(200):
        skill, of_seed = rng.beta(0.7, 1.2, 100) * 0.7, rng.normal(0.1, 0.03, (5, 1))
        first, second = rng.random((5, 100)) < skill, rng.random((5, 100)) < skill + of_seed
        found = difference_over_seeds(nested(first), nested(second), seed=repeat, resamples=500)
        covered += found.low <= 0.1 <= found.high
    assert covered >= 0.9 * 200


def test_problems_without_samples_count_for_nothing() -> None:
    full = [[[1.0], [0.0], [1.0]], [[1.0], [1.0], [0.0]]]
    gaps = [[*row, []] for row in full]
    assert mean_over_seeds(gaps, resamples=10).value == mean_over_seeds(full, resamples=10).value
    assert rate_over_seeds(gaps).n == rate_over_seeds(full).n == 6


def test_a_rate_of_nothing_has_a_width() -> None:
    found = rate_over_seeds(nested(np.zeros((5, 90))))
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(rate_interval([[False]] * 90).high)


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
    with pytest.raises(ValueError, match="seeds, problems"):
        mean_over_seeds([[[1.0]], [[1.0], [0.0]]])
