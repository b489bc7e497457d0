"""What quantisation costs: the same problems and samples for the float model and each exported file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from securecoderl_edge.bench import BenchSettings, measure
from securecoderl_edge.commands.bench import calibrated
from securecoderl_edge.commands.console import say
from securecoderl_edge.export.manifest import GgufManifest, OnnxManifest
from securecoderl_edge.export.run import ExportResult
from securecoderl_edge.models import ModelSpec, resolve_model
from securecoderl_edge.report import Table, byte_cell, compare, interval_cell, to_markdown, verdict
from securecoderl_edge.scorer import Scorer
from securecoderl_edge.summary import METRICS

if TYPE_CHECKING:
    from rich.console import Console

    from securecoderl_edge.problems import Problem

_SHOWN = ("all_tests_rate", "reward_gated")


@dataclass(frozen=True)
class Losses:
    """One row a file: its size, how far it agrees with its source, and its scores minus those of the float model."""

    table: Table
    problems: int
    float_label: str

    def to_markdown(self) -> str:
        """The table with a sentence about what it shows."""
        return f"{to_markdown(self.table)}\n{self.sentence()}\n"

    def sentence(self) -> str:
        """What the differences are of."""
        return f"Differences from {self.float_label}, paired over {self.problems} problems, with 95 % intervals."


def measure_losses(spec: ModelSpec, results: list[ExportResult], problems: list[Problem]) -> Losses:
    """Bench the float model and each file on ``problems``.

    The float model is the first of the files in f32 or f16, else the model in torch.

    Raises:
        SceError: a model cannot be run.
    """
    settings = BenchSettings()
    files = [(result, resolve_model(str(result.path))) for result in results]
    floats = [file for result, file in files if result.manifest.quant in ("f32", "f16")]
    reference = floats[0] if floats else spec
    with Scorer(time_factor=calibrated()) as scorer:
        baseline = measure(reference, problems, scorer, settings)
        rows = []
        for result, file in files:
            say(f"{result.path.name}: measuring on {len(problems)} problems")
            found = baseline if file is reference else measure(file, problems, scorer, settings)
            differences = {each.metric.name: each for each in compare(baseline, found).differences}
            summary = found.summary()
            cells = []
            for metric in METRICS:
                if metric.name in _SHOWN:
                    cells.append(interval_cell(summary.metrics.get(metric.name), metric))
                    each = differences[metric.name]
                    is_same = file is reference
                    cells.append(
                        "" if is_same else f"{interval_cell(each.interval, metric, signed=True)} {verdict(each)}"
                    )
            manifest, agreement = result.manifest, result.manifest.agreement
            bits = f"{manifest.bits_per_weight:.2f}" if isinstance(manifest, GgufManifest | OnnxManifest) else ""
            rows.append((manifest.quant, byte_cell(manifest.bytes), bits, f"{agreement.mean_kl:.2g}",
                         f"{agreement.top1:.1%}", *cells))  # fmt: skip
    titles = [title for metric in METRICS if metric.name in _SHOWN for title in (metric.title, "difference")]
    columns = ("Type", "file", "bits", "KL", "top-1", *titles)
    return Losses(Table(columns, tuple(rows)), len(problems), baseline.label)


def show_losses(losses: Losses, console: Console) -> None:
    """Print the table, a line below each other for what does not fit side by side."""
    for row in losses.table.rows:
        facts = [f"{title} {cell}" for title, cell in zip(losses.table.columns[1:5], row[1:5], strict=True)]
        console.print(f"{row[0]:8} {', '.join(facts)}", soft_wrap=True)
        for title, value, difference in zip(losses.table.columns[5::2], row[5::2], row[6::2], strict=True):
            console.print(f"{'':8} {title:8} {value}  {difference}", soft_wrap=True)
    console.print(losses.sentence(), soft_wrap=True)
