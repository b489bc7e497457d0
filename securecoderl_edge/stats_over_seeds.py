"""Intervals for what was trained with several seeds and measured on several problems: both are drawn at random.

Seeds and problems are drawn with replacement, independently of each other: the pigeonhole bootstrap (Owen, "The
pigeonhole bootstrap", Annals of Applied Statistics 1, 2007), which is slightly conservative. With a handful of seeds
the part of the width that comes from them is itself only a rough guess; with one seed nothing is said about others.
All intervals are two-sided 95 %. Values are nested lists, by seed, problem and sample; a problem may lack samples (of
what applies to programs that parse, say), and counts as much as it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from securecoderl_edge.stats import RESAMPLES, Interval, percentile_interval, wilson_interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Values = Sequence[Sequence[Sequence[float]]]


def mean_over_seeds(values: Values, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """The mean over all samples.

    Raises:
        ValueError: the seeds have different numbers of problems, or there is no sample.
    """
    sums, counts = _tables(values)
    return percentile_interval(_ratio(sums, counts), _resampled(sums, counts, seed, resamples), int(counts.sum()))


def rate_over_seeds(outcomes: Values, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """The share of samples that are not 0, with a Wilson interval at the effective sample size p(1-p) / Var(p).

    The variance is that of the bootstrap, so the interval is about `mean_over_seeds`'s, but says something where all
    outcomes are alike too: then as much as that many problems do. Source of the effective size: Franco, Little, Louis,
    Slud, J. Survey Statistics and Methodology 7 (2019).

    Raises:
        ValueError: as in `mean_over_seeds`.
    """
    import numpy as np

    sums, counts = _tables([[[float(bool(each)) for each in samples] for samples in row] for row in outcomes])
    rate, n = _ratio(sums, counts), float(counts.sum())
    effective = float((counts.sum(0) > 0).sum())
    estimates = _resampled(sums, counts, seed, resamples)
    estimates = estimates[np.isfinite(estimates)]
    variance = float(estimates.var()) if estimates.size else 0.0
    if 0 < rate < 1 and variance > 0:
        effective = min(rate * (1 - rate) / variance, n)
    low, high = wilson_interval(min(rate * effective, effective), effective)
    return Interval(rate, low, high, int(n))


def difference_over_seeds(first: Values, second: Values, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """Mean of ``second`` minus mean of ``first``, paired: both sides of a draw have the same seeds and problems.

    Raises:
        ValueError: seeds or problems differ in number, or one side holds no sample.
    """
    sides = [_tables(first), _tables(second)]
    if sides[0][0].shape != sides[1][0].shape:
        raise ValueError(f"{sides[0][0].shape} and {sides[1][0].shape} (seeds, problems) cannot be paired")
    # The same seed draws the same seeds and problems for both.
    before, after = (_resampled(sums, counts, seed, resamples) for sums, counts in sides)
    value = _ratio(*sides[1]) - _ratio(*sides[0])
    return percentile_interval(value, after - before, int(min(counts.sum() for _, counts in sides)))


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


def _ratio(sums: Floats, counts: Floats) -> float:
    return float(sums.sum() / counts.sum())


def _resampled(sums: Floats, counts: Floats, seed: int, resamples: int) -> Floats:
    """(R,) means of drawn seeds and problems; not finite where a draw holds no sample, or there is one problem."""
    import numpy as np

    seeds, problems = sums.shape
    if problems < 2:
        return np.full(resamples, np.nan)
    rng = np.random.default_rng(seed)
    of_seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), resamples)
    of_problems = rng.multinomial(problems, np.full(problems, 1 / problems), resamples)
    with np.errstate(invalid="ignore", divide="ignore"):
        totals, weights = (((of_seeds @ table) * of_problems).sum(1) for table in (sums, counts))
        means: Floats = totals / weights
    return means
