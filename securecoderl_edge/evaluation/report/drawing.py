"""Charts as SVG text, for use inside a page.

Lines differ in style and marker, and areas in lightness, so that they differ in print too. Text, axes and lines take
their colors from the page (`COLORS`), which has a light and a dark scheme.
"""

from __future__ import annotations

import html
import io
import math
import re
from typing import TYPE_CHECKING, Any

from securecoderl_edge.evaluation.plot import fix_layout, plotting
from securecoderl_edge.evaluation.report.charts import Curve, Drawing, Panel
from securecoderl_edge.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 8
# The color that matplotlib gets -> the color that the page gives it.
COLORS = {
    "#010101": "currentColor",
    "#020202": "var(--grid)",
    **{f"#03030{number}": f"var(--line-{number})" for number in range(1, MOST_LINES + 1)},
}
_INK, _GRID, *_LINES = COLORS
_STYLES = ("-", "--", ":", "-.")
_MARKERS = ("", "o", "s", "^", "D", "v", "P", "X")
_STAGE_SHADES = ("#1c1c1c", "#5a4a78", "#4f86a8", "#8fc3a4", "#e6edc0", "#ffffff")  # darker is worse; the last: other
_MOST_MARKERS = 25
_WIDTH, _PANEL_WIDTH, _HEIGHT = 5.6, 1.9, 2.7  # inches
_LONGEST_LABEL = 40
_LOOK: dict[str, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor"), _INK),
    **dict.fromkeys(("xtick.color", "ytick.color", "xtick.labelcolor", "ytick.labelcolor"), _INK),
    "font.size": 8.5,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
}


def draw(drawing: Drawing) -> str:
    """The chart as an ``<svg>`` element; panels stand side by side.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    count = len(drawing.panels)
    # The salt keeps the ids of the charts of one page apart, and those of one chart the same each time.
    with plotting(**_LOOK, **{"svg.hashsalt": drawing.title}) as new_figure:
        figure = new_figure(figsize=(max(_WIDTH, _PANEL_WIDTH * count), _HEIGHT), layout="constrained")
        every = figure.subplots(1, count, squeeze=False, sharey=drawing.is_share or drawing.is_level)[0]
        for axes, panel in zip(every, drawing.panels, strict=True):
            for curve in panel.curves:
                if not drawing.is_stacked:
                    _plot(axes, curve)
            if drawing.is_stacked:
                _stack(axes, panel)
            _frame(axes, panel, most_ticks=6 if count == 1 else 3)
        if drawing.is_share:
            _zoom(every[0], drawing)
        handles: dict[str, Any] = {}
        for axes in every:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        figure.legend(
            list(handles.values()), list(handles), loc="outside upper left", ncols=3, frameon=False, handlelength=2.6
        )
        fix_layout(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _for_a_page(out.getvalue(), drawing.title)


def _label(text: str) -> str:
    """Folders may be called anything, and the font does not know every letter."""
    label = printable(text.encode("ascii", "backslashreplace").decode()[:_LONGEST_LABEL])
    return f" {label}" if label.startswith("_") else label  # which matplotlib would leave out


def _plot(axes: Axes, curve: Curve) -> None:
    values = [math.nan if value is None else value for value in curve.values]
    # A single value between gaps has no line, so it needs a marker.
    marker = _MARKERS[curve.color] or ("." if len(values) <= _MOST_MARKERS else "")
    every = 1 if curve.held_out else max(1, len(values) // _MOST_MARKERS)
    axes.plot(
        curve.steps, values, _STYLES[curve.style % len(_STYLES)],
        color=_LINES[curve.color % len(_LINES)], label=_label(curve.label),
        marker=marker, markevery=every, markersize=4, linewidth=1.3,
    )  # fmt: skip


def _stack(axes: Axes, panel: Panel) -> None:
    """Areas on top of one another."""
    below = [0.0] * len(panel.curves[0].steps)
    for curve in panel.curves:
        above = [low + (value or 0.0) for low, value in zip(below, curve.values, strict=True)]
        shade = _STAGE_SHADES[curve.color]
        look: dict[str, Any] = {"facecolor": shade, "edgecolor": _INK, "linewidth": 0.4, "label": curve.label}
        if len(curve.steps) == 1:
            axes.bar(curve.steps, [above[0] - below[0]], bottom=below, width=0.5, **look)
        else:
            axes.fill_between(curve.steps, below, above, **look)
        below = above


def _frame(axes: Axes, panel: Panel, most_ticks: int) -> None:
    """The x axis and the title of a panel."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title(_label(panel.phase)[:16], style="italic")
    axes.set_xlabel("update")
    axes.xaxis.set_major_locator(MaxNLocator(most_ticks, integer=True))
    axes.set_xlim(-0.03 * panel.updates, 1.03 * panel.updates)


def _zoom(axes: Axes, drawing: Drawing) -> None:
    """The y axis of fractions: all of it, or the lower part for rare events."""
    if drawing.is_stacked:
        axes.set_ylim(0, 1)
        return
    values = [value for panel in drawing.panels for curve in panel.curves for value in curve.values]
    highest = max(value for value in values if value is not None)
    top = 1.0 if highest > 0.5 else max(0.1, 1.1 * highest)
    axes.set_ylim(-0.03 * top, 1.03 * top)


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
