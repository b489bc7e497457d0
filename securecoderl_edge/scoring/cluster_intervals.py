"""Intervals where observations depend on each other: over training seeds, and over groups of problems.

A value is the sum of an overall mean, an effect of the seed, one of the group, and a rest. Groups are variants of a
task (`problems.groups`); a problem without variants is a group of its own. From the (seeds, groups) table come three
squared standard errors of the mean:

* V_s between seeds, with S - 1 degrees of freedom;
* V_g between groups, by the jackknife. Its degrees of freedom are the effective number of groups, 1 / sum(share^2),
  less 1: a large group counts as few (Carter, Schnepel, Steigerwald, "Asymptotic behavior of a t-test robust to cluster
  heterogeneity", Review of Economics and Statistics 99, 2017);
* V_r of the rest, which is part of both.

V_s + V_g - V_r estimates the variance of the mean; it must not be below V_g alone (MacKinnon, Nielsen, Webb, "Jackknife
inference with two-way clustering", arXiv:2406.08880). Two or three seeds estimate V_s badly, so each part is multiplied
by the square of its own Student quantile (Banerjee, "Approximate confidence interval for linear functions of means of k
populations when the population variances are not equal", Sankhya 22, 1960):

    half width^2 = max(t_s^2 V_s + t_g^2 max(0, V_g - V_r), t_g^2 V_g)

So the term of the seeds is never dropped, and more seeds never make an interval narrower than groups alone would. In
the simulations of tests/scoring/test_coverage.py, 94 to 100 % of the intervals cover the true value, with 2 to 5 seeds,
3 to 500 groups and groups of very different sizes. They are wide with few seeds: three that happen to agree show
little. With one seed an interval does not cover the variance between seeds.

All intervals are two-sided 95 %. Values are nested lists, by seed, group and sample. Groups may have different numbers
of samples (also of a metric of programs that parse) and are weighted by them: means are ratios, linearized (delta
method).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from securecoderl_edge.scoring.intervals import (
    Z_95,
    Interval,
    bootstrap_mean,
    rate_interval,
    share_interval,
    student_95,
    wilson_interval,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Values = Sequence[Sequence[Sequence[float]]]
T = TypeVar("T")
# Of the JSON of studies and evaluations.
METHOD = "over seeds and groups of problems: two-way jackknife, Student quantiles as by Banerjee (1960)"


def merged(of_problems: Sequence[Sequence[T]], groups: Sequence[Hashable]) -> list[list[T]]:
    """The samples of each group, from those of each problem and its group; in order of first appearance."""
    samples: dict[Hashable, list[T]] = {}
    for each, group in zip(of_problems, groups, strict=True):
        samples.setdefault(group, []).extend(each)
    return list(samples.values())


def labels_of(record: Mapping[str, Any], problems: int) -> Sequence[Hashable]:
    """The labels of the groups in a record that training wrote; each problem is one where it has none."""
    groups = record.get("groups")
    has_them = isinstance(groups, list) and len(groups) == problems and all(isinstance(each, str) for each in groups)
    return groups if has_them and isinstance(groups, list) else range(problems)


def rate_over_groups(outcomes: Sequence[Sequence[bool]], groups: Sequence[Hashable]) -> Interval:
    """The rate of successes of one seed, from the samples of each problem and its group.

    As `intervals.rate_interval` if no problem is a variant of another.
    """
    if len(set(groups)) == len(groups):
        return rate_interval(outcomes)
    return rate_over_seeds([merged([[float(each) for each in samples] for samples in outcomes], groups)])


def mean_over_groups(values: Sequence[Sequence[float]], groups: Sequence[Hashable]) -> Interval:
    """The mean, likewise; as `intervals.bootstrap_mean` if no problem is a variant of another."""
    return bootstrap_mean(values) if len(set(groups)) == len(groups) else mean_over_seeds([merged(values, groups)])


def share_over_groups(shares: Sequence[float], groups: Sequence[Hashable], samples: int) -> Interval:
    """The mean of one fraction per problem, likewise; as `intervals.share_interval` if no problem is a variant."""
    if len(set(groups)) == len(groups):
        return share_interval(shares, samples)
    return replace(rate_over_seeds([merged([[share] for share in shares], groups)]), n=samples)


def mean_over_seeds(values: Values) -> Interval:
    """The mean over all samples.

    Raises:
        ValueError: the seeds have different numbers of groups, or there is no sample.
    """
    return mean_of_tables(*_tables(values))


def mean_of_tables(sums: Floats, counts: Floats) -> Interval:
    """As `mean_over_seeds`, from the (S, G) sums and numbers of samples of each seed and group."""
    mean, influences = _linearized(sums, counts)
    half = _half_width(influences, counts.sum(0))
    return Interval(mean, mean - half, mean + half, int(counts.sum()))


def rate_over_seeds(fractions: Values) -> Interval:
    """The mean of values from 0 to 1, with a Wilson interval at the effective sample size p(1-p) / Var(p).

    So it stays between 0 and 1, and is valid for equal outcomes too: the effective size is then the number of groups.
    Source of the effective size: Franco, Little, Louis, Slud, J. Survey Statistics and Methodology 7 (2019).

    Raises:
        ValueError: as in `mean_over_seeds`.
    """
    sums, counts = _tables(fractions)
    rate, influences = _linearized(sums, counts)
    half, n = _half_width(influences, counts.sum(0)), float(counts.sum())
    effective = float((counts.sum(0) > 0).sum())
    if half > 0 and 0 < rate < 1:
        # Student's interval as a normal one of fewer samples.
        effective = min(rate * (1 - rate) * (Z_95 / half) ** 2, n)
    low, high = wilson_interval(min(rate * effective, effective), effective)
    return Interval(rate, low, high, int(n))


def difference_over_seeds(first: Values, second: Values) -> Interval:
    """Mean of ``second`` minus mean of ``first``, paired by seed and group, so that their effects cancel out.

    There is no interval if the difference is the same everywhere: its variance is then unknown.

    Raises:
        ValueError: seeds or groups differ in number, or one side has no sample.
    """
    tables = [_tables(first), _tables(second)]
    if tables[0][0].shape != tables[1][0].shape:
        raise ValueError(f"cannot pair {tables[0][0].shape} and {tables[1][0].shape} (seeds, groups)")
    (before, of_before), (after, of_after) = (_linearized(*table) for table in tables)
    weights = sum(counts.sum(0) / counts.sum() for _, counts in tables)
    half = _half_width(of_after - of_before, weights) or math.nan
    value = after - before
    return Interval(value, value - half, value + half, int(min(counts.sum() for _, counts in tables)))


def standard_error(values: Sequence[Sequence[float]]) -> float:
    """Of the mean over all samples of each group, by the jackknife; NaN for a single group."""
    sums, counts = _tables([values])
    _, influences = _linearized(sums, counts)
    shares = counts.sum(0) / counts.sum()
    return math.sqrt(_jackknife(influences, shares)) if max(shares) < 1 else math.nan


def _tables(values: Values) -> tuple[Floats, Floats]:
    """(S, G) sums and numbers of samples."""
    import numpy as np

    if len({len(groups) for groups in values}) != 1:
        raise ValueError("expected at least one seed, and the same number of groups for all seeds")
    sums = np.array([[math.fsum(samples) for samples in groups] for groups in values], dtype=np.float64)
    counts = np.array([[len(samples) for samples in groups] for groups in values], dtype=np.float64)
    if not counts.sum():
        raise ValueError("a mean needs at least one sample")
    return sums, counts


def _linearized(sums: Floats, counts: Floats) -> tuple[float, Floats]:
    """The mean, and the part of its error that is due to each seed and group: (S, G), with sum 0."""
    mean = float(sums.sum() / counts.sum())
    return mean, (sums - mean * counts) * (len(sums) / counts.sum())


def _half_width(influences: Floats, weights: Floats) -> float:
    """Half of the interval of a mean, from the (S, G) influences on it; NaN for a single group.

    Args:
        weights: of each group, in any unit.
    """
    seeds = len(influences)
    shares = weights / weights.sum()
    if max(shares) == 1:
        return math.nan
    of_groups = student_95(1 / float((shares**2).sum()) - 1) ** 2
    square_g = _jackknife(influences.mean(0, keepdims=True), shares)
    if seeds < 2:
        return math.sqrt(of_groups * square_g)
    each_seed = influences.sum(1, keepdims=True)
    rest = influences - each_seed * shares - influences.mean(0)
    square_s = float((each_seed**2).sum()) / (seeds * (seeds - 1))
    square_r = _jackknife(rest, shares) / (seeds * (seeds - 1))
    both = student_95(seeds - 1) ** 2 * square_s + of_groups * max(0.0, square_g - square_r)
    return math.sqrt(max(both, of_groups * square_g))


def _jackknife(influences: Floats, shares: Floats) -> float:
    """The sum of the squared effects of leaving out each group, over all seeds."""
    groups = int((shares > 0).sum())
    return float(((influences / (1 - shares)) ** 2).sum()) * (groups - 1) / groups
