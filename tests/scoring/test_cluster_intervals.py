"""Means and differences over seeds and groups of problems: by hand, and against intervals over problems alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.scoring.cluster_intervals import (
    Values,
    difference_over_seeds,
    mean_over_seeds,
    merged,
    rate_over_seeds,
    standard_error,
)
from securecoderl_edge.scoring.intervals import paired_difference, rate_interval, student_95


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


def test_the_width_is_that_of_a_calculation_by_hand() -> None:
    """Rows 1 2 6 and 2 4 9: influences of each seed and group -1, -2/3, 2/3 and -2/3, 0, 5/3."""
    found = mean_over_seeds(nested([[1, 2, 6], [2, 4, 9]]))
    assert found.value == 4
    square_s, square_g, square_r = 1.0, 13 / 4, 1 / 12
    by_hand = student_95(1) ** 2 * square_s + student_95(2) ** 2 * (square_g - square_r)
    assert (found.high - found.low) / 2 == pytest.approx(math.sqrt(by_hand))


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
    with pytest.raises(ValueError, match="seeds, groups"):
        difference_over_seeds(nested(np.zeros((2, 5))), nested(np.zeros((3, 5))))
    with pytest.raises(ValueError, match="the same number of groups for all seeds"):
        mean_over_seeds([[[1.0]], [[1.0], [0.0]]])


@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=4), min_size=2, max_size=6),
    st.integers(1, 5),
)
def test_seeds_never_make_an_interval_narrower_than_groups_alone(groups: list[list[float]], seeds: int) -> None:
    """Equal seeds, which seem to show that seeds do not matter, are the hard case."""
    several = mean_over_seeds([groups] * seeds)
    alone = mean_over_seeds([groups])
    assert several.high - several.low >= (alone.high - alone.low) * (1 - 1e-9)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_seeds_count_even_where_they_differ_less_than_the_rest(seeds: int) -> None:
    """Their variance is part of the width, however small it is by chance: nothing is dropped."""
    rng = np.random.default_rng(4)
    table = rng.normal(0, 1, (seeds, 50))
    centered = table - table.mean(1, keepdims=True)
    for shift in (0.001, 0.01, 0.05):
        shifted = centered + np.linspace(-shift, shift, seeds)[:, None]
        plain, moved = (mean_over_seeds(nested(each)) for each in (centered, shifted))
        assert moved.high - moved.low >= plain.high - plain.low
    between = np.linspace(-1, 1, seeds)
    alone = student_95(seeds - 1) * between.std(ddof=1) / math.sqrt(seeds)
    both = mean_over_seeds(nested(centered + between[:, None]))
    assert (both.high - both.low) / 2 >= alone


def test_variants_of_one_task_count_as_one() -> None:
    """Four copies of each problem, grouped, give the interval of the problems; not grouped, one of half the width."""
    outcomes = np.random.default_rng(5).random(40).round(2)
    copies = [[float(value)] for value in outcomes for _ in range(4)]
    labels = [index // 4 for index in range(160)]
    single, grouped = mean_over_seeds(nested([outcomes])), mean_over_seeds([merged(copies, labels)])
    assert (grouped.low, grouped.high) == pytest.approx((single.low, single.high))
    free = mean_over_seeds([copies])
    assert (free.high - free.low) / (single.high - single.low) == pytest.approx(0.5, abs=0.03)


def test_a_group_that_is_most_of_the_problems_makes_the_interval_wide() -> None:
    """Its own mean is all that is known about it: the effective number of groups is near 1."""
    values = [[0.4], [0.6], [0.5], [0.45], [0.55]]
    even = mean_over_seeds([[each * 20 for each in values]])
    uneven = mean_over_seeds([[values[0] * 96, *values[1:]]])
    assert uneven.high - uneven.low > 3 * (even.high - even.low)


def test_groups_without_samples_are_no_groups() -> None:
    values: Values = [[[1.0, 0.0], [1.0], [0.0, 0.0]], [[1.0, 1.0], [0.0], [1.0, 0.0]]]
    gaps = [[*row, [], []] for row in values]
    assert mean_over_seeds(gaps) == mean_over_seeds(values)


def test_one_group_has_no_interval_however_many_problems_it_has() -> None:
    one = [merged([[1.0], [0.0], [1.0]], ["a", "a", "a"])]
    assert math.isnan(mean_over_seeds(one).low)
    assert math.isnan(difference_over_seeds(one, [[[0.0, 0.0, 1.0]]]).low)
    assert math.isnan(standard_error(one[0]))
    # A rate has the interval of one observation.
    assert rate_over_seeds(one).high - rate_over_seeds(one).low > 0.7


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=9), min_size=2, max_size=9), st.integers(1, 4))
def test_a_rate_lies_in_its_interval_between_0_and_1(groups: list[list[bool]], seeds: int) -> None:
    found = rate_over_seeds([groups] * seeds)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high


def test_the_standard_error_of_single_values_is_the_usual_one() -> None:
    values = [0.1, 0.5, 0.9, 0.2]
    assert standard_error([[each] for each in values]) == pytest.approx(np.std(values, ddof=1) / 2)
