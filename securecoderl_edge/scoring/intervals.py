"""Intervals and paired tests for small benchmarks: pure functions, each with its source.

The sampling unit is the *problem*, so several samples of one problem count as a cluster: every function takes one entry
per problem, and resampling takes whole problems. All intervals are two-sided 95 %, with Student's quantile for the
number of problems where a variance is estimated: with ten problems, 1.96 would cover 90 to 92 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Z_95 = 1.959963984540054
_RESAMPLES = 10_000
_CHUNK = 1_000_000


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval.

    Attributes:
        n: number of observations (samples, not problems).
        low, high: NaN if there are too few problems for an interval.
    """

    value: float
    low: float
    high: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval is on one side of zero; False without an interval."""
        return self.low > 0 or self.high < 0


def wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """The score interval of a binomial rate, as ``(low, high)``.

    Unlike p +- 1.96 standard errors it is valid near 0 and 1 and for small ``n``, which may be an effective sample size
    and need not be an integer. Source: E. B. Wilson, "Probable inference, the law of succession, and statistical
    inference", JASA 22 (1927).

    Raises:
        ValueError: ``n`` is not positive, or ``successes`` is not between 0 and ``n``.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"expected 0 to n successes and n above 0, found {successes} of {n}")
    rate, spread = successes / n, Z_95**2 / n
    center = (rate + spread / 2) / (1 + spread)
    half = Z_95 * math.sqrt(rate * (1 - rate) / n + spread / (4 * n)) / (1 + spread)
    low = 0.0 if successes == 0 else max(0.0, center - half)
    high = 1.0 if successes == n else min(1.0, center + half)
    return low, high


def rate_interval(outcomes: Sequence[Sequence[bool]]) -> Interval:
    """The rate of successes over all samples, with a Wilson interval.

    With one sample per problem this is `wilson_interval`. Samples of one problem tend to agree, so with several the
    interval uses the effective sample size p(1-p) / Var(p), with the variance between problems. It is at least the
    number of problems and at most the number of samples (Franco, Little, Louis, Slud, "Comparative study of confidence
    intervals for proportions in complex sample surveys", J. Survey Statistics and Methodology 7, 2019; Student's
    quantile as by Korn and Graubard, Survey Methodology 24, 1998).

    Args:
        outcomes: for each problem, the outcomes of its samples; problems without samples are ignored.

    Raises:
        ValueError: there is no sample at all.
    """
    groups = [samples for samples in outcomes if samples]
    n = sum(len(samples) for samples in groups)
    if n == 0:
        raise ValueError("a rate needs at least one sample")
    rate = sum(sum(samples) for samples in groups) / n
    squares = sum((sum(samples) - rate * len(samples)) ** 2 for samples in groups)
    return _clustered_interval(rate, squares / n**2 * len(groups), len(groups), n)


def bootstrap_mean(values: Sequence[Sequence[float]], seed: int = 0, resamples: int = _RESAMPLES) -> Interval:
    """The mean over all samples, with a percentile bootstrap interval over problems.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13; clusters are
    resampled whole (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8). The
    percentiles are wider for few problems, see `_percentile_interval`. The same ``seed`` gives the same interval.

    Args:
        values: for each problem, the values of its samples; problems without samples are ignored.

    Raises:
        ValueError: there is no sample at all.
    """
    import numpy as np

    groups = [samples for samples in values if samples]
    if not groups:
        raise ValueError("a mean needs at least one sample")
    sums = np.array([math.fsum(samples) for samples in groups])
    counts = np.array([len(samples) for samples in groups], dtype=np.float64)
    n = int(counts.sum())
    value = math.fsum(sums) / n
    if len(groups) < 2:
        return Interval(value, math.nan, math.nan, n)
    means = np.concatenate(
        [sums[drawn].sum(1) / counts[drawn].sum(1) for drawn in _draws(len(groups), resamples, seed)]
    )
    return _percentile_interval(value, means, n, len(groups))


def share_interval(shares: Sequence[float], samples: int) -> Interval:
    """The mean of one fraction per problem, such as pass@k, with a Wilson interval at the effective sample size.

    As `rate_interval`, which it equals for k = 1; a bootstrap fails for fractions that are all 0 or all 1.

    Args:
        samples: of all problems together, the most that the effective sample size can be.

    Raises:
        ValueError: there is no problem, or a fraction is not between 0 and 1.
    """
    count = len(shares)
    if not count or not all(0 <= share <= 1 for share in shares):
        raise ValueError("expected at least one problem, and fractions between 0 and 1")
    mean = math.fsum(shares) / count
    squares = math.fsum((share - mean) ** 2 for share in shares)
    return _clustered_interval(mean, squares / count, count, samples)


def _clustered_interval(mean: float, spread: float, problems: int, samples: int) -> Interval:
    """A Wilson interval at the effective sample size; ``spread`` is the variance of the mean times (problems - 1)."""
    effective = float(problems)
    if problems > 1 and 0 < mean < 1:
        variance = spread / (problems - 1)
        effective = samples if variance == 0 else mean * (1 - mean) / variance * (Z_95 / student_95(problems - 1)) ** 2
    effective = min(max(effective, problems), samples)
    low, high = wilson_interval(min(mean * effective, effective), effective)
    return Interval(mean, low, high, samples)


def pass_at_k(n: int, passed: int, k: int) -> float:
    """The probability that at least one of ``k`` samples passes; unbiased estimate 1 - C(n - passed, k) / C(n, k).

    Source: Chen et al., "Evaluating large language models trained on code" (2021), Eq. 1.

    Raises:
        ValueError: not 1 <= k <= n, or not 0 <= passed <= n.
    """
    if not 1 <= k <= n or not 0 <= passed <= n:
        raise ValueError(f"cannot compute pass@{k} from {passed} of {n} samples")
    return 1.0 - math.comb(n - passed, k) / math.comb(n, k)


def paired_difference(
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    seed: int = 0,
    resamples: int = _RESAMPLES,
) -> Interval:
    """Mean of ``second`` minus mean of ``first`` on the same problems, with a paired percentile bootstrap
    interval.

    Problems are resampled in pairs, so their difficulty cancels out (Efron and Tibshirani 1993, chapter 13; for model
    comparison Koehn, "Statistical significance tests for machine translation evaluation", EMNLP 2004). The two sides
    may have different numbers of samples of a problem, even none, for example in a rate among the samples that parse.

    Args:
        first, second: for each problem, in the same order, the values of its samples.

    Raises:
        ValueError: the numbers of problems differ, or one side has no sample.
    """
    import numpy as np

    sides = _sides(first, second)
    value = float(sides[1][0].sum() / sides[1][1].sum() - sides[0][0].sum() / sides[0][1].sum())
    n = int(min(sides[0][1].sum(), sides[1][1].sum()))
    if len(first) < 2:
        return Interval(value, math.nan, math.nan, n)
    differences = []
    with np.errstate(invalid="ignore", divide="ignore"):  # resamples without a sample of one side are dropped
        for drawn in _draws(len(first), resamples, seed):
            means = [sums[drawn].sum(1) / counts[drawn].sum(1) for sums, counts in sides]
            differences.append(means[1] - means[0])
    return _percentile_interval(value, np.concatenate(differences), n, len(first))


def exchange_test(
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    seed: int = 0,
    resamples: int = _RESAMPLES,
) -> float:
    """Two-sided p value for the hypothesis that it does not matter which of two models a problem's samples are from.

    A randomization test: the samples of both models are exchanged for a random half of the problems. Arguments and
    errors as in `paired_difference`. Source: Noreen, "Computer-Intensive Methods for Testing Hypotheses" (1989), ch. 2.
    """
    import numpy as np

    (sums, counts), (other_sums, other_counts) = _sides(first, second)
    rng, block, extreme = np.random.default_rng(seed), max(1, _CHUNK // len(sums)), 0
    observed = abs(other_sums.sum() / other_counts.sum() - sums.sum() / counts.sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        for start in range(0, resamples, block):
            swapped = rng.random((min(block, resamples - start), len(sums))) < 0.5
            parts = (
                (np.where(swapped, a, b).sum(1), np.where(swapped, b, a).sum(1))
                for a, b in ((other_sums, sums), (other_counts, counts))
            )
            (sums_1, sums_2), (counts_1, counts_2) = parts
            extreme += int((np.abs(sums_2 / counts_2 - sums_1 / counts_1) >= observed - 1e-12).sum())
    return (1 + extreme) / (1 + resamples)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values, adjusted for their number, so that all those below 0.05 are right with 95 % probability.

    Source: Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statistics 6 (1979).
    """
    adjusted, most = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        most = max(most, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = most
    return adjusted


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Two-sided exact p value for the hypothesis that two models solve the same fraction of problems.

    Only problems that exactly one of them solved are informative; under the hypothesis each is a fair coin. Source:
    McNemar, "Note on the sampling error of the difference between correlated proportions", Psychometrika 12 (1947); the
    exact binomial form as in Dietterich, Neural Computation 10 (1998).

    Args:
        only_first: problems that only the first model solved.
        only_second: problems that only the second model solved.

    Raises:
        ValueError: a count is negative.
    """
    if only_first < 0 or only_second < 0:
        raise ValueError("expected counts of at least 0")
    n = only_first + only_second
    tail = sum(math.comb(n, k) for k in range(min(only_first, only_second) + 1))
    return float(min(1.0, 2 * tail / 2**n))


def _sides(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> list[tuple[Floats, Floats]]:
    """Sums and numbers of the samples of each problem, of both models.

    Raises:
        ValueError: the numbers of problems differ, or one side has no sample.
    """
    import numpy as np

    if len(first) != len(second):
        raise ValueError(f"cannot pair {len(first)} problems with {len(second)}")
    sides = []
    for values in (first, second):
        sums = np.array([math.fsum(samples) for samples in values])
        counts = np.array([len(samples) for samples in values], dtype=np.float64)
        if not counts.sum():
            raise ValueError("a difference needs samples on both sides")
        sides.append((sums, counts))
    return sides


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile of ``values`` (at least one), linearly interpolated."""
    import numpy as np

    return float(np.percentile(np.asarray(values, dtype=np.float64), percent))


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


def _draws(problems: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Indices of problems sampled with replacement, (resamples, problems) in blocks of bounded size."""
    import numpy as np

    rng = np.random.default_rng(seed)
    block = max(1, _CHUNK // problems)
    for start in range(0, resamples, block):
        yield rng.integers(0, problems, (min(block, resamples - start), problems))


def _percentile_interval(value: float, estimates: Floats, n: int, problems: int) -> Interval:
    """The percentiles of estimates from resamples, further out than 2.5 and 97.5 for few problems.

    Resamples vary too little by a factor sqrt((problems - 1) / problems), and their percentiles are those of a normal
    distribution instead of Student's. Source: Hesterberg, "What teachers should know about the bootstrap", The American
    Statistician 69 (2015), expanded percentile interval.
    """
    import numpy as np

    finite = estimates[np.isfinite(estimates)]
    if not finite.size:
        return Interval(value, math.nan, math.nan, n)
    outside = 100 * NormalDist().cdf(-student_95(problems - 1) * math.sqrt(problems / (problems - 1)))
    low, high = np.percentile(finite, [outside, 100 - outside])
    return Interval(value, float(low), float(high), n)
