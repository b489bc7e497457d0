"""Intervals for what was trained with several seeds and measured on several problems: both are drawn at random.

A value of a seed on a problem is taken for a sum of four parts: what all have in common, what the seed adds, what the
problem adds, and the rest. The variance of the mean is then that of a crossed random-effects design, from the mean
squares of a two-way analysis of variance; its degrees of freedom are Satterthwaite's ("An approximate distribution of
estimates of variance components", Biometrics Bulletin 2, 1946), and the interval is Student's. So few seeds that
disagree make it wide, and many problems with little noise make it narrow: in simulations of 3 to 5 seeds and 90 to 200
problems 92 to 98 % of such intervals held the truth. With one seed nothing is said about others.

All intervals are two-sided 95 %. Values are nested lists, by seed, problem and sample; a problem may lack samples (of
what applies to programs that parse, say), and counts as much as it has: means are ratios, linearized (delta method).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from securecoderl_edge.evaluation.statistics import Z_95, Interval, wilson_interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Values = Sequence[Sequence[Sequence[float]]]


def mean_over_seeds(values: Values) -> Interval:
    """The mean over all samples.

    Raises:
        ValueError: the seeds have different numbers of problems, or there is no sample.
    """
    sums, counts = _tables(values)
    mean, influences = _linearized(sums, counts)
    half = _half_width(influences)
    return Interval(mean, mean - half, mean + half, int(counts.sum()))


def rate_over_seeds(outcomes: Values) -> Interval:
    """The share of samples that are not 0, with a Wilson interval at the effective sample size p(1-p) / Var(p).

    So it stays between 0 and 1, and says something where all outcomes are alike too: then as much as that many problems
    do. Source of the effective size: Franco, Little, Louis, Slud, J. Survey Statistics and Methodology 7 (2019).

    Raises:
        ValueError: as in `mean_over_seeds`.
    """
    sums, counts = _tables([[[float(bool(each)) for each in samples] for samples in row] for row in outcomes])
    rate, influences = _linearized(sums, counts)
    half, n = _half_width(influences), float(counts.sum())
    effective = float((counts.sum(0) > 0).sum())
    if half > 0 and 0 < rate < 1:
        # Student's interval as a normal one of fewer samples.
        effective = min(rate * (1 - rate) * (Z_95 / half) ** 2, n)
    low, high = wilson_interval(min(rate * effective, effective), effective)
    return Interval(rate, low, high, int(n))


def difference_over_seeds(first: Values, second: Values) -> Interval:
    """Mean of ``second`` minus mean of ``first``, paired by seed and problem, so that what these add cancels out.

    Where both sides differ by the same everywhere there is no interval: nothing is known of how they could differ.

    Raises:
        ValueError: seeds or problems differ in number, or one side holds no sample.
    """
    tables = [_tables(first), _tables(second)]
    if tables[0][0].shape != tables[1][0].shape:
        raise ValueError(f"{tables[0][0].shape} and {tables[1][0].shape} (seeds, problems) cannot be paired")
    (before, of_before), (after, of_after) = (_linearized(*table) for table in tables)
    half = _half_width(of_after - of_before) or math.nan
    value = after - before
    return Interval(value, value - half, value + half, int(min(counts.sum() for _, counts in tables)))


def _tables(values: Values) -> tuple[Floats, Floats]:
    """(S, P) sums and numbers of samples."""
    import numpy as np

    if len({len(problems) for problems in values}) != 1:
        raise ValueError("expected the same (seeds, problems) for all seeds, and one seed at least")
    sums = np.array([[math.fsum(samples) for samples in problems] for problems in values], dtype=np.float64)
    counts = np.array([[len(samples) for samples in problems] for problems in values], dtype=np.float64)
    if not counts.sum():
        raise ValueError("a mean needs at least one sample")
    return sums, counts


def _linearized(sums: Floats, counts: Floats) -> tuple[float, Floats]:
    """The mean, and by how much each seed and problem moves it: (S, P), with mean 0."""
    mean = float(sums.sum() / counts.sum())
    return mean, (sums - mean * counts) / counts.mean()


def _half_width(influences: Floats) -> float:
    """Half of the interval of the mean of a (seeds, problems) table; NaN for a single problem."""
    seeds, problems = influences.shape
    if problems < 2:
        return math.nan
    of_seeds, of_problems = influences.mean(1), influences.mean(0)
    center = float(influences.mean())
    square_p, freedom_p = seeds * float(((of_problems - center) ** 2).sum()) / (problems - 1), problems - 1
    if seeds < 2:
        return student_95(freedom_p) * math.sqrt(square_p / (seeds * problems))
    rest = influences - of_seeds[:, None] - of_problems[None, :] + center
    square_s, freedom_s = problems * float(((of_seeds - center) ** 2).sum()) / (seeds - 1), seeds - 1
    freedom_r = freedom_s * freedom_p
    square_r = float((rest**2).sum()) / freedom_r
    # A part whose mean square is below that of the rest adds nothing: estimates of variances must not be negative.
    parts = [(square_s, freedom_s), (square_p, freedom_p)]
    counted = [part for part in parts if part[0] > square_r]
    if len(counted) == 2:
        variance = square_s + square_p - square_r
        spread = square_s**2 / freedom_s + square_p**2 / freedom_p + square_r**2 / freedom_r
        freedom = variance**2 / spread if spread else freedom_r
    else:
        variance, freedom = counted[0] if counted else (square_r, freedom_r)
    return student_95(freedom) * math.sqrt(variance / (seeds * problems))


def student_95(freedom: float) -> float:
    """The 97.5th percentile of Student's t; within 1 % from 2 degrees of freedom on, within 11 % at 1.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5.
    """
    z, v = Z_95, max(1.0, freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v**power for power, term in enumerate(terms, 1))
