"""The plot of ``sce bench --plot``: quality with intervals, next to speed and memory; and the look of all our plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.errors import UsageError, needs
from securecoderl_edge.evaluation.summary import EvaluationSummary
from securecoderl_edge.scoring.intervals import Interval
from securecoderl_edge.system.files import temporary_beside
from securecoderl_edge.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
# The palette of Okabe and Ito, which color-blind readers tell apart; each color has a marker of its own.
PALETTE = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"))
INK, SOFT_INK, GRID = "#1b1b1b", "#595959", "#e3e3e3"
# Text stays text, and is never taken for a formula.
_LOOK = {
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "sce",
    "text.parse_math": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), SOFT_INK),
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
}
_SHOWN = {"syntax_rate": "parses, %", "all_tests_rate": "passes all tests, %", "secure_rate": "Bandit-clean, %"}
_BAR = "#56B4E9"
_LONGEST_LABEL = 28


def check_plot_path(path: Path) -> None:
    """Check, before hours are spent, that a plot of this format can be made and that matplotlib is installed.

    Raises:
        UsageError: the name does not end in one of `FORMATS`, or is that of a folder.
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
    """matplotlib's figures, with its defaults, our look and ``settings`` in the block; a matplotlibrc has no effect.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    with needs("matplotlib", "plots"):
        import matplotlib
        from matplotlib.figure import Figure
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_LOOK, **settings})
        yield Figure


def fix_layout(figure: Figure) -> None:
    """Lay out the panels once, and round their places.

    The last digits of the computed places change from call to call, and with them the ids in an SVG file.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = (round(each, 4) for each in axes.get_position().bounds)
        axes.set_position((left, bottom, width, height))


def plot_bench(summaries: Sequence[EvaluationSummary], path: Path) -> None:
    """Draw one row per model: rates with their 95 % intervals, decoding speed, and peak memory.

    Raises:
        UsageError, MissingExtra: see `check_plot_path`.
        SceError: the file cannot be written.
    """
    check_plot_path(path)
    with plotting() as new_figure:
        figure = new_figure(figsize=(10, 1.5 + 0.42 * len(summaries)), layout="constrained")
        panels = figure.subplots(1, len(_SHOWN) + 2, sharey=True)
        for axes, (name, title) in zip(panels, _SHOWN.items(), strict=False):
            _rates(axes, [summary.metrics.get(name) for summary in summaries], title)
        _bars(panels[-2], [summary.decode_tokens_per_second for summary in summaries], "decoding, tokens/s")
        memory = [each.peak_rss_bytes and each.peak_rss_bytes / 1e6 for each in summaries]
        _bars(panels[-1], memory, "peak memory, MB")
        panels[0].set_yticks(range(len(summaries)), [_label(summary.label) for summary in summaries])
        panels[0].set_ylim(len(summaries) - 0.5, -0.5)
        figure.suptitle("Quality, speed and memory of each model", fontsize=11, fontweight="bold")
        figure.supxlabel(_sizes(summaries), fontsize=8, color=SOFT_INK)
        fix_layout(figure)
        with temporary_beside(path) as temporary:
            kind = path.suffix.lower().lstrip(".")
            # Without a date, the same results give the same file.
            date = {"svg": "Date", "pdf": "CreationDate"}.get(kind)
            figure.savefig(temporary, format=kind, dpi=150, metadata={date: None} if date else {})


def _sizes(summaries: Sequence[EvaluationSummary]) -> str:
    """How many problems and samples the intervals come from."""
    problems = max(summary.problems for summary in summaries)
    samples = max(summary.samples / max(1, summary.problems) for summary in summaries)
    counted = f"{problems} problems, {samples:.3g} sample{'s' * (samples != 1)} per problem"
    return f"{counted}; lines: 95 % CI; Bandit-clean: of the programs that parse"


def _rates(axes: Axes, intervals: Sequence[Interval | None], title: str) -> None:
    color, marker = PALETTE[0]
    for row, interval in enumerate(intervals):
        if interval is not None:
            axes.plot([100 * interval.low, 100 * interval.high], [row, row], "-", color=color, linewidth=1.6)
            axes.plot([100 * interval.value], [row], marker, color=color, markersize=6)
    axes.set_xlim(-3, 103)
    _tidy(axes, title)


def _bars(axes: Axes, values: Sequence[float | None], title: str) -> None:
    bars = axes.barh(range(len(values)), [value or 0 for value in values], height=0.55, color=_BAR)
    axes.bar_label(bars, ["–" if value is None else f"{value:,.0f}" for value in values], padding=3, fontsize=8)
    axes.margins(x=0.3)
    _tidy(axes, title)


def _tidy(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _label(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_LABEL else f"…{shown[1 - _LONGEST_LABEL :]}"
