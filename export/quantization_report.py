"""Quantization report: each exported file against the float model, on the same problems and samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from securecoderl_edge.evaluation.bench import BenchSettings, with_budgets
from securecoderl_edge.evaluation.evaluate import Evaluation
from securecoderl_edge.evaluation.measure import measure
from securecoderl_edge.evaluation.tables import (
    Comparison,
    Table,
    byte_cell,
    compare,
    corrected,
    interval_cell,
    size_in_words,
    to_markdown,
    verdict,
)
from securecoderl_edge.export.manifest import GgufManifest, OnnxManifest
from securecoderl_edge.export.run import ExportResult
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.runtimes.spec import ModelSpec, resolve_model
from securecoderl_edge.scoring.metrics import METRICS
from securecoderl_edge.scoring.scorer import Scorer

_SHOWN = tuple(metric for metric in METRICS if metric.name in ("all_tests_rate", "reward"))
_COLUMNS = (
    *("Type", "file", "bits", "KL", "top-1"),
    *(title for metric in _SHOWN for title in (metric.title, "difference")),
)


@dataclass(frozen=True)
class QuantizationReport:
    """One row per file: size, agreement with the original, scores, and differences from the float model."""

    table: Table
    size: str
    float_label: str

    def to_markdown(self) -> str:
        """Format the table in Markdown, with a sentence below."""
        return f"{to_markdown(self.table)}\n{self.sentence()}\n"

    def sentence(self) -> str:
        """Describe the differences of the table."""
        return f"Differences from {self.float_label}, paired over {self.size}, with 95 % intervals."


def measure_quantization(
    spec: ModelSpec,
    results: Sequence[ExportResult],
    problems: Sequence[Problem],
    scorer: Scorer,
    on_file: Callable[[ExportResult], None] = lambda result: None,
) -> QuantizationReport:
    """Evaluate the float model and each file on ``problems``.

    The float model is the first of the files in f32 or f16, else the model in torch.

    Args:
        on_file: called before a file is evaluated.

    Raises:
        SceError: a model cannot be run.
    """
    settings = with_budgets(BenchSettings(), [spec])
    in_float = next((result for result in results if result.manifest.quant in ("f32", "f16")), None)
    reference = spec if in_float is None else resolve_model(str(in_float.path))
    baseline = measure(reference, problems, scorer, settings)
    evaluations = []
    for result in results:
        on_file(result)
        if result is in_float:
            evaluations.append(baseline)
        else:
            evaluations.append(measure(resolve_model(str(result.path)), problems, scorer, settings))
    compared = iter(corrected([compare(baseline, each) for each in evaluations if each is not baseline]))
    rows = [
        _row(result, each, None if each is baseline else next(compared))
        for result, each in zip(results, evaluations, strict=True)
    ]
    return QuantizationReport(Table(_COLUMNS, tuple(rows)), size_in_words(baseline.summary()), baseline.label)


def _row(result: ExportResult, evaluation: Evaluation, comparison: Comparison | None) -> tuple[str, ...]:
    """Format the cells of a file; no differences if it is the baseline itself."""
    manifest, agreement = result.manifest, result.manifest.agreement
    bits = f"{manifest.bits_per_weight:.2f}" if isinstance(manifest, GgufManifest | OnnxManifest) else ""
    summary = evaluation.summary()
    differences = {each.metric.name: each for each in comparison.differences} if comparison else {}
    cells = []
    for metric in _SHOWN:
        cells.append(interval_cell(summary.metrics.get(metric.name), metric))
        each = differences.get(metric.name)
        cells.append("" if each is None else f"{interval_cell(each.interval, metric, signed=True)} {verdict(each)}")
    return (
        *(manifest.quant, byte_cell(manifest.bytes), bits, f"{agreement.mean_kl:.2g}", f"{agreement.top1:.1%}"),
        *cells,
    )
