"""Intervals and tests of statistics.py against hand values, slow loops and simulations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.scoring.intervals import (
    bootstrap_mean,
    exchange_test,
    holm,
    mcnemar_exact,
    paired_difference,
    pass_at_k,
    percentile,
    rate_interval,
    share_interval,
    wilson_interval,
)


def alone(values: object) -> list[list[float]]:
    """One sample a problem."""
    return [[float(value)] for value in values]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # Newcombe, Statistics in Medicine 17 (1998), table I: method 3, the score interval.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_equals_the_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_rate_and_stays_between_0_and_1(case: tuple[int, int]) -> None:
    successes, n = case
    low, high = wilson_interval(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    assert low < high


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_of_failures_mirrors_that_of_successes(case: tuple[int, int]) -> None:
    successes, n = case
    low, high = wilson_interval(successes, n)
    assert wilson_interval(n - successes, n) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(("successes", "n"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_what_is_no_rate(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="expected 0 to n successes"):
        wilson_interval(successes, n)


def test_a_rate_with_one_sample_a_problem_has_the_wilson_interval() -> None:
    interval = rate_interval([[True]] * 88 + [[False]] * 112)
    assert (interval.low, interval.high) == pytest.approx(wilson_interval(88, 200))
    assert (interval.value, interval.n) == (0.44, 200)


def test_samples_that_always_agree_count_as_one() -> None:
    interval = rate_interval([[True] * 8] * 30 + [[False] * 8] * 70)
    assert (interval.low, interval.high) == pytest.approx(wilson_interval(30, 100), abs=1e-3)


def test_independent_samples_narrow_the_interval() -> None:
    rng = np.random.default_rng(1)
    interval = rate_interval((rng.random((200, 8)) < 0.4).tolist())
    low, high = wilson_interval(640, 1600)
    assert interval.high - interval.low == pytest.approx(high - low, rel=0.25)


def test_no_success_in_any_sample_leaves_an_interval_as_wide_as_the_problems_allow() -> None:
    interval = rate_interval([[False] * 4] * 25)
    assert (interval.low, interval.high) == pytest.approx(wilson_interval(0, 25))


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        rate_interval([[], []])


def test_the_bootstrap_of_three_values_equals_all_its_resamples() -> None:
    values = [0.0, 0.3, 1.0]
    every = [sum(draw) / 3 for draw in itertools.product(values, repeat=3)]
    interval = bootstrap_mean(alone(values), resamples=40_000)
    assert interval.value == pytest.approx(1.3 / 3)
    # 1 of 27 resamples holds only zeros and 1 of 27 only ones, more than 2.5 %: the ends are the extremes.
    assert (interval.low, interval.high) == (min(every), max(every))


def test_the_bootstrap_of_a_large_sample_agrees_with_the_normal_interval() -> None:
    values = np.random.default_rng(3).normal(5, 2, 2000)
    interval = bootstrap_mean(alone(values))
    half = 1.96 * values.std() / math.sqrt(2000)
    assert (interval.low, interval.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.01)


def test_the_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    values = alone(np.random.default_rng(4).random(50))
    assert bootstrap_mean(values, seed=1) == bootstrap_mean(values, seed=1)
    assert bootstrap_mean(values, seed=1) != bootstrap_mean(values, seed=2)


def test_repeating_each_sample_of_a_problem_does_not_narrow_the_bootstrap() -> None:
    values = np.random.default_rng(5).random(60)
    once, four_times = bootstrap_mean(alone(values)), bootstrap_mean([[float(value)] * 4 for value in values])
    assert (once.low, once.high) == pytest.approx((four_times.low, four_times.high))


def test_blocks_of_resamples_do_not_change_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    values = alone(np.random.default_rng(6).random(40))
    whole = bootstrap_mean(values, resamples=999)
    monkeypatch.setattr("securecoderl_edge.scoring.intervals._CHUNK", 40 * 7)
    assert bootstrap_mean(values, resamples=999) == whole


def test_one_problem_has_a_mean_but_no_interval() -> None:
    interval = bootstrap_mean([[0.2, 0.4]])
    assert interval.value == pytest.approx(0.3)
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)
    assert not interval.excludes_zero


def test_a_paired_difference_equals_a_slow_loop() -> None:
    rng = np.random.default_rng(7)
    first, second = rng.random(30), rng.random(30)
    interval = paired_difference(alone(first), alone(second), seed=9, resamples=500)
    drawn = np.random.default_rng(9).integers(0, 30, (500, 30))
    slow = []
    for row in drawn:
        slow.append(sum(second[i] - first[i] for i in row) / 30)
    assert interval.value == pytest.approx(float(np.mean(second - first)))
    # Student's 2.5 % for 29 degrees of freedom, wider by sqrt(30 / 29), is 1.876 % of a normal distribution.
    assert (interval.low, interval.high) == pytest.approx(tuple(np.percentile(slow, [1.876, 98.124])), abs=2e-3)


def test_equal_models_differ_by_exactly_nothing() -> None:
    values = alone(np.random.default_rng(8).random(50))
    interval = paired_difference(values, values)
    assert (interval.value, interval.low, interval.high) == (0, 0, 0)
    assert not interval.excludes_zero


def test_swapping_the_models_mirrors_the_difference() -> None:
    rng = np.random.default_rng(10)
    first, second = alone(rng.random(40)), alone(rng.random(40))
    forward, backward = paired_difference(first, second), paired_difference(second, first)
    assert (forward.value, forward.low, forward.high) == pytest.approx((-backward.value, -backward.high, -backward.low))


def test_pairing_is_narrower_than_the_two_intervals_when_problems_differ_in_difficulty() -> None:
    rng = np.random.default_rng(11)
    difficulty = rng.random(200)
    first, second = difficulty * 0.8, difficulty * 0.8 + 0.1 + rng.normal(0, 0.02, 200)
    paired, single = paired_difference(alone(first), alone(second)), bootstrap_mean(alone(first))
    assert paired.high - paired.low < 0.2 * (single.high - single.low)
    assert paired.excludes_zero


def test_a_side_without_samples_of_a_problem_is_a_ratio_of_sums() -> None:
    interval = paired_difference([[1.0], [], [0.0]], [[1.0], [1.0], [1.0, 1.0]])
    assert interval.value == pytest.approx(0.5)
    assert interval.n == 2
    assert 0 <= interval.low <= interval.high <= 1


def test_different_problems_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="cannot pair"):
        paired_difference([[1.0]], [[1.0], [0.0]])


def test_a_planted_ten_point_difference_is_covered_in_93_of_100_repeats() -> None:
    rng = np.random.default_rng(42)
    covered = 0
    for repeat in range(300):
        skill = rng.beta(0.7, 1.2, 200) * 0.9
        first = rng.random(200) < skill
        second = rng.random(200) < skill + 0.1
        interval = paired_difference(alone(first), alone(second), seed=repeat, resamples=1000)
        covered += interval.low <= 0.1 <= interval.high
    assert covered >= 0.93 * 300


@pytest.mark.parametrize("problems", [8, 10, 20])
def test_intervals_of_few_problems_cover_the_truth_like_those_of_many(problems: int) -> None:
    """Of eight samples per problem. Without Student's quantile all three cover about 91 % with ten problems."""
    rng, rounds = np.random.default_rng(problems), 600
    rates = means = differences = 0
    for repeat in range(rounds):
        skill = rng.beta(3, 3, problems)
        gain = np.clip(rng.normal(0, 0.2, problems), -0.5, 0.5)
        first = rng.random((problems, 8)) < skill[:, None]
        before, after = ([[x / 8] for x in rng.binomial(8, 0.5 + each)] for each in (0 * gain, gain))
        found = rate_interval(first.tolist())
        rates += found.low <= 0.5 <= found.high
        found = bootstrap_mean([[each] for each in gain], seed=repeat, resamples=1000)
        means += found.low <= 0 <= found.high
        found = paired_difference(before, after, seed=repeat, resamples=1000)
        differences += found.low <= 0 <= found.high
    assert min(rates, means, differences) >= 0.93 * rounds


@pytest.mark.parametrize(
    ("only_first", "only_second", "p"),
    [(0, 0, 1.0), (0, 5, 0.0625), (5, 0, 0.0625), (1, 9, 22 / 1024), (10, 10, 1.0), (3, 3, 1.0)],
)
def test_mcnemar_equals_the_values_by_hand(only_first: int, only_second: int, p: float) -> None:
    assert mcnemar_exact(only_first, only_second) == pytest.approx(p)


@given(st.integers(0, 12), st.integers(0, 12))
def test_mcnemar_equals_counting_all_coin_tosses(only_first: int, only_second: int) -> None:
    n = only_first + only_second
    # Counts of heads by Pascal's rule, one toss at a time.
    ways = [1]
    for _ in range(n):
        ways = [left + right for left, right in zip([0, *ways], [*ways, 0], strict=True)]
    extreme = abs(2 * only_first - n)
    p = sum(count for heads, count in enumerate(ways) if abs(2 * heads - n) >= extreme) / 2**n
    assert mcnemar_exact(only_first, only_second) == pytest.approx(p)


def test_mcnemar_stays_finite_for_thousands_of_problems() -> None:
    assert 0 < mcnemar_exact(2000, 3000) < 1e-40


# Of two models, the samples of each problem.
EXCHANGED = {
    "rates": ([[1], [0], [0], [1], [0], [0], [0]], [[1], [1], [1], [0], [1], [1], [0]]),
    "means of several": ([[0.2, 0.4], [0.9, 0.1], [0.5, 0.5]], [[0.8, 0.4], [0.7, 0.9], [0.6, 0.3]]),
    "other numbers of samples": ([[1, 1, 0], [0], [0, 0], []], [[1], [1, 1], [0, 1], [1]]),
    "a side that an exchange leaves empty": ([[1], []], [[], [0]]),
    "no difference": ([[1], [0]], [[0], [1]]),
}


@pytest.mark.parametrize("case", EXCHANGED)
def test_the_exchange_test_counts_all_exchanges_that_differ_as_much(case: str) -> None:
    first, second = EXCHANGED[case]

    def difference(before: list[list[float]], after: list[list[float]]) -> float:
        sides = [[value for samples in side for value in samples] for side in (before, after)]
        return abs(float(np.mean(sides[1]) - np.mean(sides[0]))) if all(sides) else math.nan

    observed, pairs = difference(first, second), list(zip(first, second, strict=True))
    extreme = 0
    for swaps in itertools.product((False, True), repeat=len(pairs)):
        sides = zip(*(pair[::-1] if swap else pair for pair, swap in zip(pairs, swaps, strict=True)), strict=True)
        extreme += difference(*sides) >= observed - 1e-12
    assert exchange_test(first, second, resamples=20_000) == pytest.approx(extreme / 2 ** len(pairs), abs=0.015)
    assert exchange_test(second, first) == pytest.approx(extreme / 2 ** len(pairs), abs=0.02)


@given(st.lists(st.sampled_from([0.0, 0.001, 0.01, 0.02, 0.04, 0.3, 1.0]) | st.floats(0, 1), max_size=6))
def test_holm_rejects_what_every_test_of_several_hypotheses_at_once_rejects(p_values: list[float]) -> None:
    """The closed test: a hypothesis falls if each set that it is in falls, of which the least p counts, by its size."""
    for place, adjusted in enumerate(holm(p_values)):
        sets = (
            each
            for size in range(1, len(p_values) + 1)
            for each in itertools.combinations(range(len(p_values)), size)
            if place in each
        )
        largest = max(min(1.0, len(each) * min(p_values[index] for index in each)) for each in sets)
        assert adjusted == pytest.approx(largest, abs=1e-15)


def test_a_percentile_lies_between_its_neighbors() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5


@pytest.mark.parametrize(("n", "passed"), [(1, 0), (1, 1), (5, 0), (5, 2), (7, 3), (7, 7)])
def test_pass_at_k_is_the_share_of_all_draws_of_k_samples_that_hold_one_that_passes(n: int, passed: int) -> None:
    outcomes = [True] * passed + [False] * (n - passed)
    for k in range(1, n + 1):
        draws = list(itertools.combinations(outcomes, k))
        assert pass_at_k(n, passed, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_does_not_overflow() -> None:
    assert pass_at_k(10_000, 1, 100) == pytest.approx(0.01)
    assert pass_at_k(10_000, 9_999, 2) == 1.0


@pytest.mark.parametrize(("n", "passed", "k"), [(5, 1, 0), (5, 1, 6), (5, -1, 1), (5, 6, 1)])
def test_pass_at_k_refuses_what_there_is_not(n: int, passed: int, k: int) -> None:
    with pytest.raises(ValueError, match="cannot compute pass@"):
        pass_at_k(n, passed, k)


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=30))
def test_the_interval_of_shares_is_that_of_the_rate_they_come_from(outcomes: list[list[bool]]) -> None:
    shares = [sum(samples) / 4 for samples in outcomes]
    found, expected = share_interval(shares, 4 * len(outcomes)), rate_interval(outcomes)
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))


def test_shares_that_are_all_equal_to_0_or_1_leave_room_for_doubt() -> None:
    assert share_interval([0.0] * 40, 40).high == pytest.approx(0.0876, abs=1e-4)
    assert share_interval([1.0] * 40, 400).low == pytest.approx(0.9124, abs=1e-4)
    with pytest.raises(ValueError, match="at least one"):
        share_interval([], 0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        share_interval([1.5], 1)
