"""The charts of a report, as numbers: `drawing` makes SVG of them.

A chart has a panel for each phase that has numbers for it, with its own x axis: updates of that phase. Of one run its
lines are metrics; of several, the same metric of each run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

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

LEVELS_TITLE = "Programs at each reward level, fraction"
OTHER_LEVEL = "other"


@dataclass(frozen=True)
class Line:
    """One line of a chart: the metric ``name`` of updates, or of evaluations on held-out problems.

    Attributes:
        of_value_head: of runs without a value head it is 0, and left out.
    """

    name: str
    label: str
    held_out: bool = False
    of_value_head: bool = False


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes:
        is_share: its numbers lie between 0 and 1.
        is_level: all phases have one y axis, because their numbers compare.
    """

    title: str
    lines: tuple[Line, ...]
    is_share: bool = False
    is_level: bool = False


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
        is_level=True,
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
    Chart(
        "Clip fraction",
        (Line("policy/clipfrac", "policy"), Line("val/clipfrac", "value", of_value_head=True)),
        is_share=True,
    ),
    Chart("Gradient norm", (Line("grad_norm", "before clipping"),)),
    Chart(
        "Loss",
        (
            Line("loss/sft", "supervised"),
            Line("loss/policy", "policy"),
            Line("loss/value", "value", of_value_head=True),
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


@dataclass(frozen=True)
class Curve:
    """Numbers of one metric in one phase of a run.

    Attributes:
        label: in the legend. color, style: numbers of those of a line.
        steps: updates of the phase, from 0. values: None where there is no number.
    """

    run: str
    metric: str
    held_out: bool
    label: str
    color: int
    style: int
    steps: tuple[int, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Panel:
    """The curves of one phase; ``updates`` is the end of its x axis."""

    phase: str
    updates: int
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Drawing:
    """A chart with numbers. ``is_stacked``: its curves add up to 1."""

    title: str
    panels: tuple[Panel, ...]
    is_share: bool = False
    is_level: bool = False
    is_stacked: bool = False


def drawings_of(histories: Sequence[RunHistory], names: Sequence[str]) -> list[Drawing]:
    """All charts that have a number, of one run or of several.

    Args:
        names: of the runs.
    """
    every = [_of_one(chart, histories[0], names[0]) for chart in CHARTS] if len(histories) == 1 else []
    if len(histories) > 1:
        every = [each for chart in CHARTS for each in _of_several(chart, histories, names)]
    elif levels := _levels(histories[0], names[0]):
        every.append(levels)
    return [drawing for drawing in every if drawing.panels]


def _of_one(chart: Chart, history: RunHistory, name: str) -> Drawing:
    lines = [(line, line.label, index, index, history, name) for index, line in enumerate(chart.lines)]
    return Drawing(chart.title, _panels(lines), chart.is_share, chart.is_level)


def _of_several(chart: Chart, histories: Sequence[RunHistory], names: Sequence[str]) -> Iterator[Drawing]:
    """One drawing per metric of the chart, with a color for each run; evaluations on held-out problems are dashed."""
    by_metric = {line.name: [each for each in chart.lines if each.name == line.name] for line in chart.lines}
    for lines in by_metric.values():
        what = " / ".join(line.label for line in lines)
        title = chart.title if len(by_metric) == 1 else f"{chart.title}: {what}"
        is_both = len({line.held_out for line in lines}) > 1
        drawn = [
            (line, f"{name}, held out" if line.held_out and is_both else name, color, int(line.held_out), history, name)
            for color, (history, name) in enumerate(zip(histories, names, strict=True))
            for line in lines
        ]
        yield Drawing(title, _panels(drawn), chart.is_share, chart.is_level)


def _panels(lines: Sequence[tuple[Line, str, int, int, RunHistory, str]]) -> tuple[Panel, ...]:
    """A panel for each phase of the runs that has a number."""
    phases = list(dict.fromkeys(phase.name for _, _, _, _, history, _ in lines for phase in history.phases))
    curves: dict[str, list[Curve]] = {phase: [] for phase in phases}
    ends = dict.fromkeys(phases, 1)
    for line, label, color, style, history, run in lines:
        points = history.evaluations if line.held_out else history.updates
        for phase, some in groupby(points, key=lambda point: point.phase):
            of_phase = list(some)
            values = tuple(point.number(line.name) for point in of_phase)
            if any(value if line.of_value_head else value is not None for value in values):
                steps = tuple(point.row["step"] for point in of_phase)
                curves[phase].append(Curve(run, line.name, line.held_out, label, color, style, steps, values))
                ends[phase] = max(ends[phase], *(each.updates for each in history.phases if each.name == phase))
    return tuple(Panel(phase, ends[phase], tuple(curves[phase])) for phase in phases if curves[phase])


def _levels(history: RunHistory, name: str) -> Drawing | None:
    """The fraction of each update's programs at each reward level; None without any."""
    panels = []
    for phase in history.phases:
        points = [point for point in history.updates if point.phase == phase.name and _stage_shares(point)]
        if points:
            steps = tuple(point.row["step"] for point in points)
            shares = zip(*map(_stage_shares, points), strict=True)
            levels = [(level, values) for level, values in zip((*STAGE_NAMES, OTHER_LEVEL), shares, strict=True)]
            curves = tuple(
                Curve(name, "stages", False, level, number, number, steps, values)
                for number, (level, values) in enumerate(levels)
                if level != OTHER_LEVEL or any(values)
            )
            panels.append(Panel(phase.name, phase.updates, curves))
    return Drawing(LEVELS_TITLE, tuple(panels), is_share=True, is_stacked=True) if panels else None


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
