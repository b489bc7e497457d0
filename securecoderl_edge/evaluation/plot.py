"""The figures of a bench as one picture: quality with intervals, beside speed; readable in black and white."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.errors import UsageError, needs
from securecoderl_edge.evaluation.statistics import Interval
from securecoderl_edge.evaluation.summary import EvaluationSummary
from securecoderl_edge.scoring.metrics import METRICS
from securecoderl_edge.system.files import temporary_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
_SHOWN = ("syntax_rate", "all_tests_rate", "secure_rate")
_LONGEST_LABEL = 28


def check_plot_path(path: Path) -> None:
    """Look before hours are spent: is a picture of this kind known, and what draws it installed?

    Raises:
        UsageError: another ending than those of `FORMATS`, or a folder of that name.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix.lower().lstrip(".") not in FORMATS:
        raise UsageError(f"--plot {path}: the name must end in .{', .'.join(FORMATS)}")
    if path.is_dir():
        raise UsageError(f"--plot {path}: is a folder")
    with plotting():
        pass


@contextmanager
def plotting(**settings: Any) -> Iterator[type[Figure]]:
    """matplotlib's figures, with its defaults and our ``settings`` inside the block, whatever a matplotlibrc says.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    with needs("matplotlib", "plots"):
        import matplotlib
        from matplotlib.figure import Figure
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Text stays text, and is never taken for a formula.
        matplotlib.rcParams.update({"font.size": 9, "svg.fonttype": "none", "text.parse_math": False, **settings})
        yield Figure


def plot_bench(summaries: Sequence[EvaluationSummary], path: Path) -> None:
    """Draw one row a model: rates with their 95 % intervals, decoding speed, and peak memory.

    Raises:
        UsageError, MissingExtra: see `check_plot_path`.
        SceError: the file cannot be written.
    """
    check_plot_path(path)
    names = {metric.name: metric.title for metric in METRICS}
    with plotting() as new_figure:
        figure = new_figure(figsize=(10, 1.1 + 0.42 * len(summaries)), layout="constrained")
        panels = figure.subplots(1, len(_SHOWN) + 2, sharey=True)
        for axes, name in zip(panels, _SHOWN, strict=False):
            _rates(axes, [summary.metrics.get(name) for summary in summaries])
            axes.set_title(names[name])
        _bars(panels[-2], [summary.decode_tokens_per_second for summary in summaries], "decode tok/s")
        _bars(panels[-1], [_mega(summary.peak_rss_bytes) for summary in summaries], "peak RSS, MB")
        panels[0].set_yticks(range(len(summaries)), [_label(summary.label) for summary in summaries])
        panels[0].set_ylim(len(summaries) - 0.5, -0.5)
        problems = max(summary.problems for summary in summaries)
        figure.supxlabel(f"{problems} problems; lines are 95 % intervals", fontsize=8)
        with temporary_beside(path) as temporary:
            figure.savefig(temporary, format=path.suffix.lower().lstrip("."), dpi=150, metadata=_without_date(path))


def _rates(axes: Axes, intervals: Sequence[Interval | None]) -> None:
    for row, interval in enumerate(intervals):
        if interval is not None:
            axes.plot([100 * interval.low, 100 * interval.high], [row, row], "-", color="black", linewidth=1.2)
            axes.plot([100 * interval.value], [row], "o", color="black", markersize=5)
    axes.set_xlim(-3, 103)
    _tidy(axes)


def _bars(axes: Axes, values: Sequence[float | None], title: str) -> None:
    axes.barh(range(len(values)), [value or 0 for value in values], height=0.55, facecolor="0.75", edgecolor="black")
    axes.set_title(title)
    _tidy(axes)


def _tidy(axes: Axes) -> None:
    axes.grid(axis="x", color="0.85", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _label(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= _LONGEST_LABEL else f"…{shown[1 - _LONGEST_LABEL :]}"


def _mega(count: int | None) -> float | None:
    return None if count is None else count / 1e6


def _without_date(path: Path) -> dict[str, Any]:
    """Equal figures give equal files."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
