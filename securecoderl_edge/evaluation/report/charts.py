"""Learning curves as SVG text, for use inside a page.

Lines differ in style and marker, and areas in lightness, so that they differ in print too. Text, axes and lines take
their colors from the page (`COLORS`), which has a light and a dark scheme.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securecoderl_edge.evaluation.plot import fix_layout, plotting
from securecoderl_edge.evaluation.report.run_history import Point, RunHistory, as_number
from securecoderl_edge.scoring.reward import STAGE_NAMES
from securecoderl_edge.scoring.signs import (
    CONSTANT_OUTPUT,
    CRASH_AFTER_OUTPUT,
    DENIED,
    IGNORES_INPUT,
    SAMPLE_COPY,
    SIGNS,
)
from securecoderl_edge.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The color that matplotlib gets -> the color that the page gives it.
COLORS = {
    "#010101": "currentColor",
    "#020202": "var(--grid)",
    "#030301": "var(--line-1)",
    "#030302": "var(--line-2)",
    "#030303": "var(--line-3)",
    "#030304": "var(--line-4)",
}
_INK, _GRID, *_LINES = COLORS
_STYLES = ("-", "--", ":", "-.", "-")  # the fifth has the color of the first, and markers
_MARKERS = ("", "o", "s", "^", "v")
_STAGE_SHADES = ("#1c1c1c", "#5a4a78", "#4f86a8", "#8fc3a4", "#e6edc0")  # darker is worse
_OTHER_SHADE = "#ffffff"
_MOST_MARKERS = 25
_LOOK: dict[str, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor"), _INK),
    **dict.fromkeys(("xtick.color", "ytick.color", "xtick.labelcolor", "ytick.labelcolor"), _INK),
    "font.size": 8.5,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
}


@dataclass(frozen=True)
class Line:
    """One line of a chart: the metric ``name`` of updates, or of evaluations on held-out problems."""

    name: str
    label: str
    held_out: bool = False


@dataclass(frozen=True)
class Chart:
    """One chart. ``is_share``: its numbers lie between 0 and 1."""

    title: str
    lines: tuple[Line, ...]
    is_share: bool = False


def _rate(name: str) -> tuple[Line, ...]:
    return Line(name, "training"), Line(name, "held out", held_out=True)


SIGN_NAMES = {
    CONSTANT_OUTPUT: "constant output",
    CRASH_AFTER_OUTPUT: "crash after output",
    SAMPLE_COPY: "hard-coded example",
    DENIED: "denied by the sandbox",
    IGNORES_INPUT: "ignores its input",
}
CHARTS = (
    Chart(
        "Reward",
        (
            Line("objective/reward", "training, phase reward"),
            Line("reward", "held out, reward R", held_out=True),
            Line("reward", "training, reward R"),
            Line("function_reward", "training, own function"),
        ),
    ),
    Chart("Programs that pass all tests", _rate("all_tests_rate"), is_share=True),
    Chart("Programs that parse", _rate("syntax_rate"), is_share=True),
    Chart(
        "Security",
        (
            Line("secure_rate", "no finding"),
            Line("security_tests_rate", "pass all security tests"),
            Line("func_sec_rate", "pass all tests and security tests"),
        ),
        is_share=True,
    ),
    Chart("KL from the reference policy, nats per completion", (Line("objective/kl", "KL"),)),
    Chart("Clip fraction", (Line("policy/clipfrac", "policy"), Line("val/clipfrac", "value")), is_share=True),
    Chart("Gradient norm", (Line("grad_norm", "before clipping"),)),
    Chart(
        "Loss",
        (
            Line("loss/sft", "supervised"),
            Line("loss/policy", "policy"),
            Line("loss/value", "value"),
        ),
    ),
    Chart("Completions kept by RFT or SSD", (Line("kept_rate", "kept"),), is_share=True),
    Chart("Completions cut at the token limit", (Line("truncated_rate", "truncated"),), is_share=True),
    Chart("Reward-hacking metrics", tuple(Line(name, SIGN_NAMES[name]) for name in SIGNS), is_share=True),
    Chart(
        "Seconds per update",
        (
            Line("seconds_sample", "sample"),
            Line("seconds_score", "score"),
            Line("seconds_update", "update"),
            Line("seconds", "whole update"),
        ),
    ),
    Chart("Tokens per second", (Line("tokens_per_second", "whole update"),)),
)


def draw_chart(chart: Chart, history: RunHistory) -> str | None:
    """The chart as an ``<svg>`` element; None if the run has no number for it.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    drawn = []
    for index, line in enumerate(chart.lines):
        points = history.evaluations if line.held_out else history.updates
        ys = [point.number(line.name) for point in points]
        if any(y is not None for y in ys):
            drawn.append((index, line, points, [math.nan if y is None else y for y in ys]))
    if not drawn:
        return None

    def plot(axes: Axes) -> None:
        for index, line, points, ys in drawn:
            # A single value between gaps has no line, so it needs a marker.
            marker = _MARKERS[index] or ("." if len(points) <= _MOST_MARKERS else "")
            every = 1 if line.held_out else max(1, len(points) // _MOST_MARKERS)
            axes.plot(
                [point.x for point in points], ys, _STYLES[index], color=_LINES[index % len(_LINES)], label=line.label,
                marker=marker, markevery=every, markersize=4, linewidth=1.3,
            )  # fmt: skip
        if chart.is_share:
            highest = max(y for _, _, _, ys in drawn for y in ys if not math.isnan(y))
            top = 1.0 if highest > 0.5 else max(0.1, 1.1 * highest)  # zoom in on rare events
            axes.set_ylim(-0.03 * top, 1.03 * top)

    return _draw(chart.title, history, plot)


def draw_stages(title: str, history: RunHistory) -> str | None:
    """Stacked areas: the fraction of each update's programs at each reward level; None without any."""
    points = [point for point in history.updates if _stage_shares(point)]
    if not points:
        return None
    shares = [_stage_shares(point) for point in points]

    def plot(axes: Axes) -> None:
        xs = [point.x for point in points]
        below = [0.0] * len(points)
        names = [*STAGE_NAMES, *(["other"] if any(share[-1] for share in shares) else [])]
        for index, name in enumerate(names):
            above = [low + share[index] for low, share in zip(below, shares, strict=True)]
            shade = [*_STAGE_SHADES, _OTHER_SHADE][index]
            look: dict[str, Any] = {"facecolor": shade, "edgecolor": _INK, "linewidth": 0.4, "label": name}
            if len(points) == 1:
                axes.bar(xs, [above[0] - below[0]], bottom=below, width=0.5, **look)
            else:
                axes.fill_between(xs, below, above, **look)
            below = above
        axes.set_ylim(0, 1)

    return _draw(title, history, plot)


def _stage_shares(point: Point) -> list[float]:
    """The fraction at each level, and at unknown ones; empty where nothing was counted."""
    stages = point.row.get("stages")
    if not isinstance(stages, dict):
        return []
    counts = {name: max(0.0, as_number(count) or 0.0) for name, count in stages.items()}
    total = sum(counts.values())
    if not total:
        return []
    known = [counts.pop(name, 0.0) / total for name in STAGE_NAMES]
    return [*known, sum(counts.values()) / total]


def _draw(title: str, history: RunHistory, plot: Callable[[Axes], None]) -> str:
    # The salt keeps the ids of the charts of one page apart, and those of one chart the same each time.
    with plotting(**_LOOK, **{"svg.hashsalt": title}) as new_figure:
        from matplotlib.ticker import MaxNLocator

        figure = new_figure(figsize=(5.6, 2.7), layout="constrained")
        axes = figure.add_subplot()
        plot(axes)
        axes.set_xlabel("updates, all phases")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        end = max(1, *(point.x for point in [*history.updates, *history.evaluations]))
        axes.set_xlim(-0.02 * end, 1.02 * end)
        _mark_phases(axes, history)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False, handlelength=2.6)
        fix_layout(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _for_a_page(out.getvalue(), title)


def _mark_phases(axes: Axes, history: RunHistory) -> None:
    """A line where a phase begins, and the name of every phase that is wide enough for it."""
    spans = [phase for phase in history.phases if phase.updates]
    whole = sum(phase.updates for phase in spans)
    for phase in spans:
        if phase.start:
            axes.axvline(phase.start, color=_INK, linewidth=0.8, linestyle=(0, (1, 2)))
        if phase.updates > 0.06 * whole:
            # Folders may be called anything, and the font does not know every letter.
            name = phase.name.encode("ascii", "backslashreplace").decode()[:16]
            middle = phase.start + phase.updates / 2
            axes.text(middle, 1.02, printable(name), transform=axes.get_xaxis_transform(), ha="center", style="italic")


def _for_a_page(svg: str, title: str) -> str:
    """The element alone, as wide as its container, without addresses and without ids that other charts have too."""
    svg = svg[svg.index("<svg") :]
    view_box = re.search(r'viewBox="([^"]*)"', svg)
    assert view_box is not None
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    opening = f'<svg viewBox="{view_box[1]}" role="img" aria-label="{html.escape(title)}">'
    svg = re.sub(r"<svg [^>]*>", lambda _: opening, svg, count=1, flags=re.DOTALL)
    for told, used in COLORS.items():
        svg = svg.replace(told, used)
    return svg.strip()
