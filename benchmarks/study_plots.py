"""The plots of benchmarks/STUDY.md, as SVG: lines differ in style and marker, so they can be told apart in print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from securecoderl_edge.evaluation.plot import plotting
from securecoderl_edge.system.files import temporary_beside

Record = Mapping[str, Any]
Records = Mapping[str, Record]

# Dark to light, each with a style and a marker of its own.
LOOKS = (
    ("black", "-", "o"),
    ("0.35", "--", "s"),
    ("black", ":", "^"),
    ("0.5", "-.", "D"),
    ("0.2", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("0.6", "-", "x"),
)


def draw_all(records: Records, folder: Path) -> None:
    """Draw every plot that the report shows."""
    rates = (("all_tests_rate", "All-P %"), ("syntax_rate", "Syn. %"), ("reward", "R"))
    signs = (("sample_copy", "sample copies %"), ("constant_output", "constant output %"), ("syntax_rate", "Syn. %"))
    crashes = (("crash_after_output", "crashes after output %"), ("objective/reward", "reward"), ("r_tests", "R tests"))
    draws: dict[str, dict[str, Callable[[Record], Figure]]] = {
        "table3": {
            "learning-eval": lambda record: _learning(record, "eval", rates),
            "learning-hard": lambda record: _learning(record, "hard", rates),
        },
        "security": {"security": _trade_off},
        "ablations": {"ablations": lambda record: _forest(record, "all_tests_rate", "All-P, points")},
        "hacking": {
            "hacking": lambda record: _learning(record, "shown", signs),
            "hacking-training": lambda record: _during_training(record, "shown", crashes),
        },
    }
    with plotting(**{"svg.hashsalt": "sce"}):
        for study, record in records.items():
            for name, draw in draws.get(study, {}).items():
                _save(draw(record), folder / f"{name}.svg")


def _learning(record: Record, split: str, rates: Sequence[tuple[str, str]]) -> Figure:
    """What snapshots of each arm do on the problems that are measured on, over the updates."""
    figure = Figure(figsize=(9.5, 3.2), layout="constrained")
    panels = figure.subplots(1, len(rates))
    for axes, (name, title) in zip(panels, rates, strict=True):
        arms = [arm for arm in record["arms"] if arm["split"] == split]
        start = next(arm for arm in arms if arm["phases"] == ["sft"])
        for arm, look in zip((arm for arm in arms if arm is not start), LOOKS, strict=False):
            points = [(0, _metric(start, split, "policy", name))]
            points += [
                (result["updates"], result["metrics"][name])
                for result in arm["results"]
                if result["split"] == split and "updates" in result
            ]
            total = max((step for step in arm.get("training", {}).get("updates", [0])), default=0)
            points.append((total, _metric(arm, split, "policy", name)))
            _line(axes, points, look, arm["title"], scale=1 if name.startswith("r") else 100)
        axes.set_title(title)
        axes.set_xlabel("updates")
        _tidy(axes)
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def _during_training(record: Record, split: str, names: Sequence[tuple[str, str]]) -> Figure:
    """What the batches of training said, averaged over some updates and all seeds; areas are the range of the seeds."""
    figure = Figure(figsize=(9.5, 3.2), layout="constrained")
    panels = figure.subplots(1, len(names))
    for axes, (name, title) in zip(panels, names, strict=True):
        scale = 100 if title.endswith("%") else 1
        arms = [arm for arm in record["arms"] if arm["split"] == split and name in arm.get("training", {})]
        for arm, (colour, style, marker) in zip(arms, LOOKS, strict=False):
            curve, updates = arm["training"][name], arm["training"]["updates"]
            low, high = ([scale * each for each in curve[bound]] for bound in ("low", "high"))
            axes.fill_between(updates, low, high, color="0.9", linewidth=0)
            axes.plot(
                updates, [scale * each for each in curve["mean"]],
                color=colour, linestyle=style, marker=marker, markersize=3, linewidth=1.1, label=arm["title"],
            )  # fmt: skip
        axes.set_title(title)
        axes.set_xlabel("updates")
        _tidy(axes)
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def _trade_off(record: Record) -> Figure:
    """Security and function of the final policies: one point a weight of R_sec, its intervals as a cross."""
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    shown = (("secure_rate", "Sec.Clean %", 100), ("findings", "findings in 100 programs", 1), ("tokens", "tokens", 1))
    panels = figure.subplots(1, len(shown), sharey=True)
    for axes, (name, title, scale) in zip(panels, shown, strict=True):
        path = []
        for arm in record["arms"]:
            across, up = _metric(arm, "security", "policy", name), _metric(arm, "security", "policy", "all_tests_rate")
            if across is None or up is None:
                continue
            x, y = scale * across["value"], 100 * up["value"]
            axes.plot([scale * across["low"], scale * across["high"]], [y, y], color="0.6", linewidth=0.9)
            axes.plot([x, x], [100 * up["low"], 100 * up["high"]], color="0.6", linewidth=0.9)
            on_curve = arm["title"].startswith("beta") and "," not in arm["title"]
            axes.plot([x], [y], "o" if on_curve else "s", color="black" if on_curve else "0.4", markersize=5)
            axes.annotate(arm["title"].removeprefix("beta "), (x, y), (4, 4), textcoords="offset points", fontsize=8)
            if on_curve:
                path.append((x, y))
        if path:
            axes.plot(*zip(*path, strict=True), color="black", linewidth=0.9, linestyle=":")
        axes.set_xlabel(title)
        _tidy(axes)
    panels[0].set_ylabel("All-P %")
    return figure


def _forest(record: Record, name: str, label: str) -> Figure:
    """Paired differences with their intervals, one line each."""
    titles = {arm["name"]: arm["title"] for arm in record["arms"]}
    splits = {arm["name"]: arm["split"] for arm in record["arms"]}
    rows = [
        (f"{titles[each['second']]}\nfrom {titles[each['first']]}, {each['split']}", each["metrics"][name])
        for each in record["comparisons"]
        if each["split"] == splits[each["second"]] and name in each["metrics"]
    ]
    figure = Figure(figsize=(7, 0.8 + 0.42 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for row, (_, interval) in enumerate(rows):
        axes.plot([100 * interval["low"], 100 * interval["high"]], [row, row], "-", color="black", linewidth=1.2)
        axes.plot([100 * interval["value"]], [row], "o", color="black", markersize=5)
    axes.axvline(0, color="0.4", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(rows)), [title for title, _ in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(label)
    _tidy(axes)
    return figure


def _line(axes: Axes, points: Sequence[tuple[int, Any]], look: tuple[Any, Any, str], label: str, scale: int) -> None:
    known = sorted((step, metric) for step, metric in points if metric is not None)
    colour, style, marker = look
    steps = [step for step, _ in known]
    axes.errorbar(
        steps,
        [scale * metric["value"] for _, metric in known],
        yerr=[
            [scale * (metric["value"] - metric["low"]) for _, metric in known],
            [scale * (metric["high"] - metric["value"]) for _, metric in known],
        ],
        color=colour, linestyle=style, marker=marker, markersize=4, linewidth=1.2, elinewidth=0.5, label=label,
    )  # fmt: skip


def _metric(arm: Record, split: str, model: str, name: str) -> Any:
    for result in arm["results"]:
        if (result["split"], result["model"]) == (split, model):
            return result["metrics"][name]
    return None


def _tidy(axes: Axes) -> None:
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_beside(path) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None})
