"""Summary of one model's rows: metrics with 95 % intervals.

A row is a `Score` record (docs/reference/files.md) with, if a model wrote the program, ``completion``,
``prompt_tokens``, ``completion_tokens``, ``finish``, ``first_token_seconds``, ``generation_seconds``,
``between_tokens_ms`` and ``mean_logprob``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from securecoderl_edge.runtimes.protocol import Usage
from securecoderl_edge.scoring.cluster_intervals import mean_over_groups, rate_over_groups, share_over_groups
from securecoderl_edge.scoring.intervals import Interval, pass_at_k, percentile
from securecoderl_edge.scoring.metrics import (
    EVERY_METRIC,
    Row,
    by_problem,
    is_right_and_secure,
    passes_all_tests,
    values_of,
)
from securecoderl_edge.scoring.reward import STAGE_NAMES

_PASS_AT = (1, 5, 10, 100)


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of times, in seconds."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class EvaluationSummary:
    """One model's results.

    Attributes:
        problems, groups, samples: numbers of problems, of groups of variants among them, which intervals are over, and
            of all rows.
        metrics: by `Metric.name`; a metric without values (``secure_rate``, if nothing parses) is absent.
        stages: rows by reward level 0-4 of the paper's Table 1.
        denied: rows whose program tried what the sandbox refuses; None if nobody took notes.
        truncated_rate: fraction of completions cut off at ``max_tokens``.
        pass_at: by k, the probability that one of k samples passes all tests; empty with one sample per problem.
        func_sec_at: the same of passing all tests and security tests; empty if a problem has no security tests.
        prompt_style: the prompt style. cut_prompts: problems with a truncated statement.
        prompt_tokens_per_second, decode_tokens_per_second: of the whole batch; None if nothing was timed.
        first_token, between_tokens: percentiles of the seconds from the start of a prompt's processing to its first
            token, and from each token of a completion to its next.
        peak_rss_bytes: of the process that ran the model.
        peak_gpu_bytes: torch's on a GPU; None for other runtimes and on the CPU.
        device: that computed it.
        file_bytes: size of the model on disk; None for a repo that is not downloaded.
        bits_per_weight: of the file, from its manifest; None without one.
    """

    label: str
    problems: int
    samples: int
    metrics: Mapping[str, Interval]
    stages: tuple[int, ...]
    completion_tokens_mean: float
    truncated_rate: float
    prompt_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    first_token: Percentiles | None
    between_tokens: Percentiles | None
    peak_rss_bytes: int | None
    file_bytes: int | None
    bits_per_weight: float | None = None
    pass_at: Mapping[int, Interval] = field(default_factory=dict)
    func_sec_at: Mapping[int, Interval] = field(default_factory=dict)
    prompt_style: str = ""
    cut_prompts: int = 0
    device: str = "cpu"
    peak_gpu_bytes: int | None = None
    denied: int | None = None
    groups: int = 0


def summarize(
    label: str,
    rows: Sequence[Row],
    usage: Usage | None = None,
    file_bytes: int | None = None,
    prompt_style: str = "",
    bits_per_weight: float | None = None,
    groups: Mapping[str, str] = MappingProxyType({}),
) -> EvaluationSummary:
    """The results of one model's rows.

    Args:
        groups: of problems by their ids, see `Evaluation`.

    Raises:
        ValueError: there are no rows.
    """
    if not rows:
        raise ValueError("no rows to summarize")
    by_id = by_problem(rows)
    of_problems, labels = list(by_id.values()), [groups.get(problem, problem) for problem in by_id]
    stages = Counter(int(row["stage"]) for row in rows)
    noted = [row["denied"] for row in rows if row.get("denied") is not None]
    first_tokens = [row["first_token_seconds"] for row in rows if "first_token_seconds" in row]
    return EvaluationSummary(
        label=label,
        problems=len(by_id),
        groups=len(set(labels)),
        samples=len(rows),
        metrics=_estimates(of_problems, labels),
        stages=tuple(stages[stage] for stage in range(len(STAGE_NAMES))),
        denied=sum(map(bool, noted)) if noted else None,
        completion_tokens_mean=sum(row.get("completion_tokens", 0) for row in rows) / len(rows),
        truncated_rate=sum(row.get("finish") == "length" for row in rows) / len(rows),
        prompt_tokens_per_second=_speed(usage.prompt_tokens, usage.prompt_seconds) if usage else None,
        decode_tokens_per_second=_speed(usage.decode_tokens, usage.decode_seconds) if usage else None,
        first_token=_percentiles(first_tokens),
        between_tokens=_percentiles([gap / 1000 for row in rows for gap in row.get("between_tokens_ms", ())]),
        peak_rss_bytes=usage.peak_rss_bytes if usage else None,
        peak_gpu_bytes=(usage.peak_gpu_bytes or None) if usage else None,
        file_bytes=file_bytes,
        bits_per_weight=bits_per_weight,
        pass_at=_pass_at(of_problems, labels, passes_all_tests),
        func_sec_at=_pass_at(of_problems, labels, is_right_and_secure),
        prompt_style=prompt_style,
        cut_prompts=sum(any(row.get("prompt_cut") for row in samples) for samples in of_problems),
    )


def _estimates(of_problems: Sequence[Sequence[Row]], labels: Sequence[str]) -> dict[str, Interval]:
    estimates = {}
    for metric in EVERY_METRIC:
        values = [values_of(metric, rows) for rows in of_problems]
        if not any(values):
            continue
        if metric.is_rate:
            estimates[metric.name] = rate_over_groups([[value > 0 for value in samples] for samples in values], labels)
        else:
            estimates[metric.name] = mean_over_groups(values, labels)
    return estimates


def _pass_at(
    of_problems: Sequence[Sequence[Row]], labels: Sequence[str], is_right: Callable[[Row], bool | None]
) -> dict[int, Interval]:
    """pass@k for the values of `_PASS_AT` up to the least number of samples of a problem, and for that number.

    Empty if ``is_right`` does not apply to a sample.
    """
    least = min(len(rows) for rows in of_problems)
    if least < 2 or any(is_right(row) is None for rows in of_problems for row in rows):
        return {}
    ks = sorted({k for k in (*_PASS_AT, least) if k <= least})
    counts = [(len(rows), sum(map(bool, map(is_right, rows)))) for rows in of_problems]
    samples = sum(n for n, _ in counts)
    return {k: share_over_groups([pass_at_k(n, passed, k) for n, passed in counts], labels, samples) for k in ks}


def _percentiles(seconds: Sequence[float]) -> Percentiles | None:
    return Percentiles(*(percentile(seconds, percent) for percent in (50, 90, 99))) if seconds else None


def _speed(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if seconds > 0 else None
