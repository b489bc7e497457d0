"""Confidence intervals over training seeds and problems, both of which are random samples.

The model is a crossed random-effects design: a value is the sum of an overall mean, a seed effect, a problem effect and
a residual. The variance of the mean comes from the mean squares of a two-way analysis of variance, its degrees of
freedom from Satterthwaite ("An approximate distribution of estimates of variance components", Biometrics Bulletin 2,
1946); the interval is Student's. So few seeds that disagree give a wide interval, and many problems with little noise a
narrow one: in simulations of 3 to 5 seeds and 90 to 200 problems, 92 to 98 % of the intervals covered the true value.
With one seed the interval does not cover the variance between seeds.

All intervals are two-sided 95 %. Values are nested lists, by seed, problem and sample. Problems may have different
numbers of samples (a metric of programs that parse, for example) and are weighted by them: means are ratios, linearized
(delta method).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from securecoderl_edge.scoring.intervals import Z_95, Interval, wilson_interval

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
    """The fraction of samples that are not 0, with a Wilson interval at the effective sample size p(1-p) / Var(p).

    So it stays between 0 and 1, and is valid for equal outcomes too: the effective size is then the number of problems.
    Source of the effective size: Franco, Little, Louis, Slud, J. Survey Statistics and Methodology 7 (2019).

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
    """Mean of ``second`` minus mean of ``first``, paired by seed and problem, so that their effects cancel out.

    There is no interval if the difference is the same everywhere: its variance is then unknown.

    Raises:
        ValueError: seeds or problems differ in number, or one side has no sample.
    """
    tables = [_tables(first), _tables(second)]
    if tables[0][0].shape != tables[1][0].shape:
        raise ValueError(f"cannot pair {tables[0][0].shape} and {tables[1][0].shape} (seeds, problems)")
    (before, of_before), (after, of_after) = (_linearized(*table) for table in tables)
    half = _half_width(of_after - of_before) or math.nan
    value = after - before
    return Interval(value, value - half, value + half, int(min(counts.sum() for _, counts in tables)))


def _tables(values: Values) -> tuple[Floats, Floats]:
    """(S, P) sums and numbers of samples."""
    import numpy as np

    if len({len(problems) for problems in values}) != 1:
        raise ValueError("expected at least one seed, and the same number of problems for all seeds")
    sums = np.array([[math.fsum(samples) for samples in problems] for problems in values], dtype=np.float64)
    counts = np.array([[len(samples) for samples in problems] for problems in values], dtype=np.float64)
    if not counts.sum():
        raise ValueError("a mean needs at least one sample")
    return sums, counts


def _linearized(sums: Floats, counts: Floats) -> tuple[float, Floats]:
    """The mean, and the influence of each seed and problem on it: (S, P), with mean 0."""
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
    # An effect whose mean square is below the residual's adds nothing: estimates of variances must not be negative.
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
    """The 97.5th percentile of Student's t; within 1 % for 1 and more degrees of freedom.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5. The last term is ours: without it,
    the value for 1 degree of freedom is 11 % too low.
    """
    z, v = Z_95, max(1.0, freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
        0,
        1.406,
    )
    return z + sum(term / v**power for power, term in enumerate(terms, 1))
