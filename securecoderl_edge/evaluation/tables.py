"""Evaluations as text and data: table cells, CSV, markdown, JSON objects, and paired comparisons.

Nothing here prints; the caller decides about widths and colors.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from securecoderl_edge.evaluation.evaluate import Evaluation
from securecoderl_edge.evaluation.summary import EvaluationSummary, Percentiles
from securecoderl_edge.scoring.cluster_intervals import difference_over_seeds, merged
from securecoderl_edge.scoring.intervals import (
    Z_95,
    Interval,
    exchange_test,
    holm,
    mcnemar_exact,
    paired_difference,
)
from securecoderl_edge.scoring.metrics import EVERY_METRIC, METRICS, OPTIONAL_METRICS, Metric, by_problem, values_of

ABSENT = "–"
NOT_DISTINGUISHABLE = "not distinguishable"
_SIGNIFICANCE, _POWER = 0.05, 0.8

SOLVED = Metric("", "", True, lambda row: None)
# Columns of quality are `scoring.metrics.METRICS`.
_SPEED_COLUMNS = (
    "Model",
    "prompt tok/s",
    "decode tok/s",
    "first token",
    "next token",
    "peak RSS",
    "file",
    "bits",
)
_STAGE_COLUMNS = ("Model", "no parse", "crash", "silent", "output", "all tests", "denied", "tokens", "cut off")


@dataclass(frozen=True)
class Table:
    """Headings and rows of plain text cells."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Difference:
    """One metric of two models on the same samples: second minus first.

    Attributes:
        p_value: of McNemar's exact test for rates with one sample per problem and no variants, else of
            `exchange_test`; adjusted for the number of verdicts by `corrected`.
        needed: problems with which at least 80 % of evaluations would show a difference of this size, see `corrected`.
    """

    metric: Metric
    interval: Interval
    p_value: float
    needed: int | None = None

    @property
    def distinguishable(self) -> bool:
        """Whether the difference is significant: the 95 % interval excludes 0, and the test agrees."""
        return self.interval.excludes_zero and self.p_value < _SIGNIFICANCE


@dataclass(frozen=True)
class Comparison:
    """Two models, paired by the problems and samples that both have; intervals are over groups of problems."""

    first: str
    second: str
    problems: int
    differences: tuple[Difference, ...]
    groups: int


def compare(first: Evaluation, second: Evaluation) -> Comparison:
    """Differences of all metrics between two evaluations, on the (id, sample) pairs that both have.

    Raises:
        ValueError: they share no sample.
    """
    sides = [{(row["id"], row["sample"]): row for row in evaluation.rows} for evaluation in (first, second)]
    shared = [key for key in sides[0] if key in sides[1]]
    if not shared:
        raise ValueError(f"cannot compare {first.label} and {second.label}: they have no samples in common")
    of_problems = [by_problem([side[key] for key in shared]) for side in sides]
    groups = {**first.groups, **second.groups}
    labels = [groups.get(problem, problem) for problem in of_problems[0]]
    differences = []
    for metric in EVERY_METRIC:
        before, after = ([values_of(metric, rows) for rows in side.values()] for side in of_problems)
        if any(before) and any(after):
            if is_grouped := len(set(labels)) < len(labels):
                before, after = merged(before, labels), merged(after, labels)
            interval = difference_over_seeds([before], [after]) if is_grouped else paired_difference(before, after)
            p_value = exchange_test(before, after) if is_grouped else _p_value(metric, before, after)
            differences.append(Difference(metric, interval, p_value))
    return Comparison(first.label, second.label, len(labels), tuple(differences), len(set(labels)))


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with p values, and problems needed, adjusted for all verdicts together, by Holm's method."""
    verdicts = [each for comparison in comparisons for each in comparison.differences]
    adjusted = iter(holm([each.p_value for each in verdicts]))

    def new(each: Difference, problems: int) -> Difference:
        return replace(each, p_value=next(adjusted), needed=problems_needed(each.interval, problems, len(verdicts)))

    return [replace(one, differences=tuple(new(each, one.problems) for each in one.differences)) for one in comparisons]


def problems_needed(interval: Interval, problems: int, verdicts: int = 1) -> int | None:
    """The problems that show such a difference with a power of at least 80 %, as one of several verdicts; None if 0."""
    half = (interval.high - interval.low) / 2
    if not interval.value or not half > 0:
        return None
    quantiles = sum(map(NormalDist().inv_cdf, (1 - _SIGNIFICANCE / 2 / verdicts, _POWER)))
    return math.ceil(problems * (half * quantiles / Z_95 / interval.value) ** 2)


def interval_cell(interval: Interval | None, metric: Metric, *, signed: bool = False, lines: int = 1) -> str:
    """``44.0 [37.3, 50.9]``, or in two lines ``44.0`` and ``37.3–50.9``; rates are in percent."""
    if interval is None:
        return ABSENT
    scale, digits = (100, 1) if metric.is_rate else (1, metric.decimals)
    value = number_cell(interval.value * scale, digits, signed)
    if math.isnan(interval.low):
        return value
    digits = min(digits, 2) if lines == 2 else digits
    low, high = (number_cell(bound * scale, digits, signed) for bound in (interval.low, interval.high))
    return f"{value}\n{low}–{high}" if lines == 2 else f"{value} [{low}, {high}]"


def quality_table(summaries: Sequence[EvaluationSummary], *, lines: int = 1) -> Table:
    """One row per model, one column per metric; with two ``lines`` the interval is below the value.

    `OPTIONAL_METRICS` are left out if they apply to no problem.
    """
    optional = [metric for metric in OPTIONAL_METRICS if any(metric.name in summary.metrics for summary in summaries)]
    shown = (*METRICS, *optional)
    rows = [
        (summary.label, *(interval_cell(summary.metrics.get(metric.name), metric, lines=lines) for metric in shown))
        for summary in summaries
    ]
    return Table(("Model", *(metric.title for metric in shown)), tuple(rows))


def speed_table(summaries: Sequence[EvaluationSummary]) -> Table:
    """Speed and memory, one row per model; times are 50th, 90th and 99th percentiles."""
    rows = [
        (
            summary.label,
            _per_second(summary.prompt_tokens_per_second),
            _per_second(summary.decode_tokens_per_second),
            _percentiles(summary.first_token),
            _percentiles(summary.between_tokens),
            byte_cell(summary.peak_rss_bytes),
            byte_cell(summary.file_bytes),
            ABSENT if summary.bits_per_weight is None else f"{summary.bits_per_weight:.2f}",
        )
        for summary in summaries
    ]
    return Table(_SPEED_COLUMNS, tuple(rows))


def devices_in_words(summaries: Sequence[EvaluationSummary]) -> list[str]:
    """A line for each model that a GPU computed, with torch's peak memory there."""
    lines = []
    for each in summaries:
        if each.device != "cpu":
            memory = "" if each.peak_gpu_bytes is None else f", peak GPU memory {byte_cell(each.peak_gpu_bytes)}"
            lines.append(f"{each.label}: speeds of a GPU ({each.device}){memory}")
    return lines


def stage_table(summaries: Sequence[EvaluationSummary]) -> Table:
    """Numbers of programs: by reward level of the paper's Table 1, and denied something; the length of completions."""
    rows = [
        (
            summary.label,
            *(str(count) for count in summary.stages),
            ABSENT if summary.denied is None else str(summary.denied),
            f"{summary.completion_tokens_mean:.0f}",
            f"{100 * summary.truncated_rate:.1f} %",
        )
        for summary in summaries
    ]
    return Table(_STAGE_COLUMNS, tuple(rows))


def pass_table(summaries: Sequence[EvaluationSummary], *, lines: int = 1) -> Table | None:
    """pass@k and func-sec@k in percent, one row per model; None with one sample per problem."""
    ks = sorted({k for summary in summaries for k in summary.pass_at})
    secure_ks = sorted({k for summary in summaries for k in summary.func_sec_at})
    if not ks:
        return None
    rows = [
        (
            summary.label,
            *(interval_cell(summary.pass_at.get(k), SOLVED, lines=lines) for k in ks),
            *(interval_cell(summary.func_sec_at.get(k), SOLVED, lines=lines) for k in secure_ks),
        )
        for summary in summaries
    ]
    return Table(("Model", *(f"pass@{k} %" for k in ks), *(f"func-sec@{k} %" for k in secure_ks)), tuple(rows))


def prompts_in_words(summaries: Sequence[EvaluationSummary]) -> list[str]:
    """Lines about prompt styles and truncated prompts: one per model, or a single one if all are equal."""
    lines = []
    for summary in summaries:
        cut = f", {summary.cut_prompts} of {summary.problems} prompts truncated" if summary.cut_prompts else ""
        lines.append(f"prompt style {summary.prompt_style}{cut}")
    if len(set(lines)) == 1:
        return lines[:1]
    return [f"{summary.label}: {line}" for summary, line in zip(summaries, lines, strict=True)]


def comparison_table(comparison: Comparison, *, with_p_values: bool = True) -> Table:
    """One row per metric: the difference, its interval, and the verdict."""
    rows = []
    for difference in comparison.differences:
        p = difference.p_value
        p_value = "<0.001" if p < 0.001 else f"{p:.3f}"
        cell = interval_cell(difference.interval, difference.metric, signed=True)
        rows.append((difference.metric.title, cell, p_value, verdict(difference)))
    if not with_p_values:
        return Table(("Metric", "difference", ""), tuple((row[0], row[1], row[3]) for row in rows))
    return Table(("Metric", "difference", "p", ""), tuple(rows))


def size_in_words(part: EvaluationSummary | Comparison) -> str:
    """``200 problems``, or ``200 problems in 111 groups`` if some are variants of others."""
    in_groups = f" in {part.groups} group{'s'[: part.groups > 1]}" if part.groups < part.problems else ""
    return f"{part.problems} problems{in_groups}"


def verdict(difference: Difference) -> str:
    """``higher``, ``lower`` or ``not distinguishable``."""
    if not difference.distinguishable:
        return NOT_DISTINGUISHABLE
    return "higher" if difference.interval.value > 0 else "lower"


def summary_record(summary: EvaluationSummary) -> dict[str, Any]:
    """A summary as a JSON object: rates as fractions, sizes in bytes, times in seconds."""
    return {
        "model": summary.label,
        "problems": summary.problems,
        "groups": summary.groups,
        "samples": summary.samples,
        **{metric.name: interval_record(summary.metrics.get(metric.name)) for metric in EVERY_METRIC},
        **{f"pass_at_{k}": interval_record(interval) for k, interval in summary.pass_at.items()},
        **{f"func_sec_at_{k}": interval_record(interval) for k, interval in summary.func_sec_at.items()},
        "stages": list(summary.stages),
        "denied": summary.denied,
        "completion_tokens_mean": summary.completion_tokens_mean,
        "truncated_rate": summary.truncated_rate,
        "prompt_tokens_per_second": summary.prompt_tokens_per_second,
        "decode_tokens_per_second": summary.decode_tokens_per_second,
        **_percentiles_record("first_token_seconds", summary.first_token),
        **_percentiles_record("between_tokens_seconds", summary.between_tokens),
        "peak_rss_bytes": summary.peak_rss_bytes,
        "peak_gpu_bytes": summary.peak_gpu_bytes,
        "device": summary.device,
        "file_bytes": summary.file_bytes,
        "bits_per_weight": summary.bits_per_weight,
        "prompt_style": summary.prompt_style,
        "cut_prompts": summary.cut_prompts,
    }


def comparison_record(comparison: Comparison) -> dict[str, Any]:
    """A comparison as a JSON object; differences are ``second`` minus ``first``."""
    differences = {
        difference.metric.name: {
            **(interval_record(difference.interval) or {}),
            "p_value": difference.p_value,
            "problems_needed": difference.needed,
            "distinguishable": difference.distinguishable,
        }
        for difference in comparison.differences
    }
    return {
        "first": comparison.first,
        "second": comparison.second,
        "problems": comparison.problems,
        "groups": comparison.groups,
        "differences": differences,
    }


def to_csv(summaries: Sequence[EvaluationSummary]) -> str:
    """One line per model; each metric has ``_low``, ``_high`` and ``_n`` columns, absent values are empty."""
    rows = []
    for summary in summaries:
        row: dict[str, Any] = {}
        for name, value in summary_record(summary).items():
            if isinstance(value, list):
                row.update({f"stage_{stage}": count for stage, count in enumerate(value)})
            elif name.startswith(("pass_at_", "func_sec_at_")) or any(name == each.name for each in EVERY_METRIC):
                parts = value or dict.fromkeys(("value", "low", "high", "n"))
                row[name] = parts["value"]
                row.update({f"{name}_{part}": parts[part] for part in ("low", "high", "n")})
            else:
                row[name] = value
        rows.append(row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_markdown(table: Table) -> str:
    """A GitHub table; bars in cells are escaped."""
    lines = [table.columns, tuple("---" for _ in table.columns), *table.rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def bench_tables(summaries: Sequence[EvaluationSummary], *, lines: int = 1) -> list[Table]:
    """All tables of an evaluation but those of comparisons; two ``lines`` as in `quality_table`."""
    passes = pass_table(summaries, lines=lines)
    speed_and_stages = (speed_table(summaries), stage_table(summaries))
    return [quality_table(summaries, lines=lines), *([passes] if passes else []), *speed_and_stages]


def bench_markdown(
    summaries: Sequence[EvaluationSummary], comparisons: Sequence[Comparison] = (), conclusions: Sequence[str] = ()
) -> str:
    """The conclusions and all tables of an evaluation as one Markdown text."""
    parts = ["".join(f"* {line}\n" for line in conclusions)]
    parts += [to_markdown(table) for table in bench_tables(summaries)]
    for comparison in comparisons:
        title = f"**{comparison.second}** minus **{comparison.first}**, paired, {size_in_words(comparison)}:"
        parts.append(f"{title}\n\n{to_markdown(comparison_table(comparison))}")
    parts += [f"{line}\n" for line in devices_in_words(summaries)]
    return "\n".join(parts)


def byte_cell(count: int | None) -> str:
    """``15.2 MB``, in powers of ten."""
    if count is None:
        return ABSENT
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 1000 * size else f"{count / size:.0f} {unit}"
    return f"{count} B"


def _p_value(metric: Metric, before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> float:
    # McNemar's test needs independent pairs; several samples of one problem are dependent.
    pairs = list(zip(before, after, strict=True))
    if not metric.is_rate or any(len(first) != 1 or len(second) != 1 for first, second in pairs):
        return exchange_test(before, after)
    only_first = sum(first[0] > second[0] for first, second in pairs)
    only_second = sum(second[0] > first[0] for first, second in pairs)
    return mcnemar_exact(only_first, only_second)


def interval_record(interval: Interval | None) -> dict[str, Any] | None:
    """An interval as a JSON object; unknown bounds and a missing interval are None."""
    if interval is None:
        return None
    low, high = (None if math.isnan(bound) else bound for bound in (interval.low, interval.high))
    return {"value": interval.value, "low": low, "high": high, "n": interval.n}


def number_cell(value: float, digits: int, signed: bool) -> str:
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text.replace("-", "", 1) if float(text) == 0 and text.startswith("-") else text


def _per_second(speed: float | None) -> str:
    return ABSENT if speed is None else f"{speed:.0f}" if speed >= 100 else f"{speed:.1f}"


def _percentiles(times: Percentiles | None) -> str:
    """``12/15/31 ms``, all in the unit of the largest."""
    if times is None:
        return ABSENT
    scale, unit, digits = (1, "s", 2) if times.p99 >= 1 else (1000, "ms", 0 if times.p50 >= 0.01 else 1)
    return "/".join(f"{scale * each:.{digits}f}" for each in (times.p50, times.p90, times.p99)) + f" {unit}"


def _percentiles_record(name: str, times: Percentiles | None) -> dict[str, float | None]:
    return {f"{name}_{each}": getattr(times, each, None) for each in ("p50", "p90", "p99")}
