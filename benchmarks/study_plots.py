"""The plots of the study, as SVG, each with an alt text that states its finding.

Every plot has its own white panel. A style that follows ``prefers-color-scheme`` would not do: in an ``<img>`` it
follows the operating system, but GitHub and the documentation site each have a theme switch, so dark text could end up
on a dark page. On a panel the text is readable on every page.

Numbers and verdicts in titles and alt texts come from the records. matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.evaluation.plot import GRID, INK, PALETTE, SOFT_INK, fix_layout, plotting
from securecoderl_edge.evaluation.study.tables import interval_of, split_of
from securecoderl_edge.scoring.statistics import Interval
from securecoderl_edge.system.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = Mapping[str, Any]
Records = Mapping[str, Record]

PASS, PARSE, CLEAN, BOTH = "all_tests_rate", "syntax_rate", "secure_rate", "secure_all_tests_rate"
_WIDTH = 7.3  # inches, which is 700 CSS pixels
_REWARDS = {
    ("binary",): "binary reward",
    ("partial",): "partial credit",
    ("binary", "partial"): "binary, then partial",
    ("scheduled",): "scheduled mixture",
}
# (second, first) of a comparison -> the difference in plain words.
_ABLATIONS = {
    ("sft-130", "eval-sft"): "SFT: 130 − 10 updates",
    ("eval-simple", "sft-130"): "RL (simple) − SFT of 130 updates",
    ("gae", "eval-simple"): "GAE with a value head − RLOO",
    ("groups-4", "eval-simple"): "4 − 8 samples per prompt",
    ("groups-16", "eval-simple"): "16 − 8 samples per prompt",
    ("rate-3e-4", "eval-simple"): "learning rate 3e-4 − 1e-3",
    ("rate-3e-3", "eval-simple"): "learning rate 3e-3 − 1e-3",
    ("binary-30", "eval-cont"): "30 − 60 binary updates of 120",
    ("binary-90", "eval-cont"): "90 − 60 binary updates of 120",
    ("switch", "eval-sched"): "mixture: hard switch − linear",
    ("pass-rate", "eval-sched"): "mixture: by pass rate − linear",
    ("hard-sft-130", "hard-sft"): "SFT: 130 − 10 updates",
    ("hard-simple", "hard-sft-130"): "RL (simple) − SFT of 130 updates",
    ("hard-fresh", "hard-sft-130"): "RL (fresh) − SFT of 130 updates",
    ("hard-simple-paper", "hard-simple"): "simple: 0.4 − 0 for unparsable output",
    ("hard-fresh-paper", "hard-fresh"): "fresh: 0.4 − 0 for unparsable output",
    ("hard-simple-paper", "hard-sft"): "simple with 0.4 for unparsable − SFT",
    ("hard-fresh-paper", "hard-sft"): "fresh with 0.4 for unparsable − SFT",
    ("hard-fresh-paper", "hard-simple-paper"): "0.4 for unparsable: fresh − simple",
}


@dataclass(frozen=True)
class Gain:
    """A paired difference from SFT, or between two configurations, called ``label``."""

    label: str
    interval: Interval


@dataclass(frozen=True)
class Plot:
    """A plot of one study. ``describe`` gives its alt text, ``draw`` its figure."""

    study: str
    title: Callable[[Record], str]
    describe: Callable[[Record], str]
    draw: Callable[[type[Figure], Record], Figure]


def draw_all(records: Records, folder: Path) -> None:
    """Draw the plots of those studies that have results; the same records give the same files.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    with plotting() as new_figure:
        for name, plot in PLOTS.items():
            if plot.study in records:
                record = records[plot.study]
                svg = _svg(plot.draw(new_figure, record), plot.title(record), plot.describe(record))
                with write_atomically(folder / f"{name}.svg") as out:
                    out.write(svg)


def alt_text(name: str, records: Records) -> str:
    """The finding that a plot shows, in words and numbers.

    Raises:
        KeyError: there is no plot of this name, or no results of its study.
    """
    plot = PLOTS[name]
    return plot.describe(records[plot.study])


# ---- learning curves: means of checkpoints, and the paired differences of the final policies ----


def _learning_title(record: Record, split: str) -> str:
    gains = {metric: _gains_over_sft(record, split, metric) for metric in (PASS, PARSE)}
    better = {metric: sum(each.interval.low > 0 for each in found) for metric, found in gains.items()}
    count = len(gains[PASS])
    return (
        f"{split}: pass rate significantly higher than SFT in {better[PASS]} of {count} variants, "
        f"parse rate in {better[PARSE]}"
    )


def _learning_text(record: Record, split: str) -> str:
    sentences = [
        f"Learning curves and paired differences from SFT (at most {_sft_updates(record, split)} updates) on {split}: "
        f"{_sizes(record, split)}."
    ]
    for metric, rate in ((PASS, "programs that pass all tests"), (PARSE, "programs that parse")):
        gains = _gains_over_sft(record, split, metric)
        sentences.append(f"Rate of {rate}: {_verdict(gains)}: {_listed(gains)} points.")
    return " ".join(sentences)


def _draw_learning(new_figure: type[Figure], record: Record, split: str) -> Figure:
    """For the pass rate and the parse rate: means over the updates, and differences of the selected checkpoints."""
    figure = new_figure(figsize=(_WIDTH, 5.0), layout="constrained")
    panels = figure.subplots(2, 2, width_ratios=(1.25, 1), sharex="col")
    variants = [arm for arm in _arms(record, split) if arm["phases"] != ["sft"]]
    rows = ((PASS, "passes all tests, %"), (PARSE, "parses, %"))
    curves = {metric: [_curve(record, split, arm, metric) for arm in variants] for metric, _ in rows}
    # Both rates get axes of the same span, so that equal changes look equal.
    ends = {metric: sorted(y for curve in found for _, y in curve) for metric, found in curves.items()}
    span = 5 * max(math.ceil(found[-1] / 5) - math.floor(found[0] / 5) for found in ends.values())
    for (left, right), (metric, title) in zip(panels, rows, strict=True):
        for curve, (color, marker) in zip(curves[metric], PALETTE, strict=False):
            left.plot(
                *zip(*curve, strict=True), color=color, marker=marker, markersize=4.5, linewidth=1.5, clip_on=False
            )
        bottom = min(100 - span, 5 * math.floor(ends[metric][0] / 5))
        left.set_ylim(bottom, bottom + span)
        left.set_title(f"{title}: mean at each checkpoint", loc="left")
        _label_ends(left, [(curve[-1], _short(arm)) for curve, arm in zip(curves[metric], variants, strict=True)])
        left.grid(axis="y")
        right.set_title("paired difference from SFT, points", loc="left")
        gains = _gains_over_sft(record, split, metric)
        _forest(right, gains, [color for color, _ in PALETTE], [marker for _, marker in PALETTE])
        names = [f"{_short(arm)}\n{_REWARDS.get(tuple(arm['phases'][1:]), arm['title'])}" for arm in variants]
        right.set_yticks(range(len(gains)), names, fontsize=8)
    for axes in panels[:, 0]:
        last = max(x for curve in curves[PASS] for x, _ in curve)
        axes.set_xlim(-0.03 * last, 1.26 * last)
        axes.set_xticks([last * third / 3 for third in range(4)])
        axes.spines["bottom"].set_bounds(0, last)
    panels[1, 0].set_xlabel(f"RL updates after SFT (at most {_sft_updates(record, split)} updates)", x=0.45)
    panels[1, 1].set_xlabel("lines: 95 % CI; filled: it excludes 0")
    _head(figure, _learning_title(record, split), f"{_sizes(record, split)}. Last point: the selected checkpoint.")
    return figure


def _curve(record: Record, split: str, arm: Record, metric: str) -> list[tuple[float, float]]:
    """(updates, percent) from SFT over the intermediate checkpoints to the one that was selected."""
    results = [each for each in arm["results"] if each["split"] == split]
    points = [(0, _final(_sft(record, split), split, metric))]
    points += [(each["updates"], each["metrics"][metric]) for each in results if "updates" in each]
    points.append((max(arm["training"]["updates"]), _final(arm, split, metric)))
    return [(float(x), 100 * found["value"]) for x, found in sorted(points, key=lambda point: point[0]) if found]


def _sft_updates(record: Record, split: str) -> int:
    """The updates of the selected SFT checkpoint, of the seed that has most."""
    return max(int(seed["sft"]) for seed in _sft(record, split)["kept"])


def _label_ends(axes: Axes, ends: Sequence[tuple[tuple[float, float], str]]) -> None:
    """Names next to the ends of the lines, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    places = _apart([y for (_, y), _ in ends], 0.09 * (high - low), low, high)
    for ((x, y), name), place, (color, _) in zip(ends, places, PALETTE, strict=False):
        axes.plot([1.03 * x, 1.075 * x], [y, place], color=color, linewidth=0.7, clip_on=False)
        axes.text(1.085 * x, place, name, va="center", fontsize=8.5, color=_dark(color), fontweight="bold")


def _apart(values: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Places near the values and in their order, between two bounds, at least ``least`` from each other."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    spread = [values[index] for index in order]
    for rank in range(1, len(spread)):
        spread[rank] = max(spread[rank], spread[rank - 1] + least)
    # The labels as a block are as high as the ends of their lines.
    shift = sum(values) / len(values) - sum(spread) / len(spread)
    shift = max(low + least / 2 - spread[0], min(high - least / 2 - spread[-1], shift))
    places = dict(zip(order, (place + shift for place in spread), strict=True))
    return [places[index] for index in range(len(values))]


# ---- security: the trade-off between clean and correct programs ----


def _security_title(record: Record) -> str:
    without, with_scanner = (_gain(record, "security-sft", f"security-beta-{beta}", CLEAN) for beta in ("0.0", "0.4"))
    verbs = [
        "raises" if each.low > 0 else "lowers" if each.high < 0 else "does not change"
        for each in (without, with_scanner)
    ]
    return f"Rewarding tests alone {verbs[0]} the rate of clean programs; adding the scanner {verbs[1]} it"


def _security_text(record: Record) -> str:
    shown = {"tests only": "security-beta-0.0", "60 % tests and 40 % scanner": "security-beta-0.4"}
    sentences = [
        "Rate of programs without a Bandit finding against the rate that passes all tests, for each reward "
        f"({_sizes(record, 'security')})."
    ]
    for label, name in shown.items():
        clean, passed, both = (_gain(record, "security-sft", name, metric) for metric in (CLEAN, PASS, BOTH))
        sentences.append(
            f"Difference from SFT with {label}: Bandit-clean {_signed(clean)} points, "
            f"passes all tests {_signed(passed)}, both {_signed(both)}."
        )
    _, start, *weights = _security_points(record)
    last = weights[-1]
    sentences.append(
        f"Programs that are clean and pass all tests: {start.both:.1f} % after SFT, {last.both:.1f} % with a "
        f"scanner weight of {last.label}."
    )
    return " ".join(sentences)


@dataclass(frozen=True)
class _Point:
    label: str
    x: Interval
    y: Interval
    both: float


def _security_points(record: Record) -> list[_Point]:
    """The CWE variant, SFT, and the weights of the scanner in the reward in rising order."""
    found = []
    for arm in sorted(_arms(record, "security"), key=lambda arm: (arm["name"] != "security-cwe", arm["name"])):
        x, y, both = (interval_of(_final(arm, "security", metric)) for metric in (CLEAN, PASS, BOTH))
        if x is None or y is None or both is None:
            continue
        weight = arm["name"].removeprefix("security-beta-")
        label = {"security-sft": "SFT", "security-cwe": "CWE"}.get(arm["name"]) or f"{100 * float(weight):.0f} %"
        found.append(_Point(label, x, y, 100 * both.value))
    cwe = [point for point in found if point.label == "CWE"]
    start = [point for point in found if point.label == "SFT"]
    return [*cwe, *start, *(point for point in found if point.label.endswith("%"))]


def _draw_security(new_figure: type[Figure], record: Record) -> Figure:
    """One point per reward; its thin lines are the two intervals."""
    figure = new_figure(figsize=(_WIDTH, 4.7), layout="constrained")
    axes = figure.subplots()
    cwe, start, *weights = _security_points(record)
    (blue, circle), (orange, square), _, (pink, diamond) = PALETTE
    for point, color in ((cwe, pink), (start, orange), *((each, blue) for each in weights)):
        cross: dict[str, Any] = {"color": color, "linewidth": 1.1, "alpha": 0.28, "solid_capstyle": "round"}
        axes.plot([100 * point.x.low, 100 * point.x.high], [100 * point.y.value] * 2, **cross)
        axes.plot([100 * point.x.value] * 2, [100 * point.y.low, 100 * point.y.high], **cross)
    path = [(100 * point.x.value, 100 * point.y.value) for point in weights]
    axes.plot(*zip(*path, strict=True), color=blue, linewidth=1.8, marker=circle, markersize=9, zorder=3)
    for point, color, marker in ((cwe, pink, diamond), (start, orange, square)):
        axes.plot([100 * point.x.value], [100 * point.y.value], marker, color=color, markersize=9, zorder=3)

    def label(point: _Point, text: str, color: str, across: int, up: int) -> None:
        axes.annotate(
            f"{text}\nboth: {point.both:.0f} %", (100 * point.x.value, 100 * point.y.value), (8 * across, 6 * up),
            textcoords="offset points", ha="left" if across > 0 else "right", va="bottom" if up > 0 else "top",
            fontsize=9, color=_dark(color), zorder=4, linespacing=1.25,
        )  # fmt: skip

    # Above the line of the weights, but for its end, where the label before it is.
    first, *middle, last = weights
    label(first, "tests only", blue, 1, 1)
    for point in middle:
        label(point, f"{point.label} scanner", blue, 1, 1)
    label(last, f"{last.label} scanner", blue, 1, -1)
    label(start, "SFT, before RL", orange, -1, -1)
    label(cwe, "40 % scanner,\nseverity by CWE", pink, -1, -1)
    axes.text(0.985, 0.97, "better ↗", transform=axes.transAxes, ha="right", va="top", color=SOFT_INK)
    key = "N % scanner: its weight in the reward\nboth: clean and passes all tests"
    axes.text(0.015, 0.025, key, transform=axes.transAxes, va="bottom", fontsize=8.5, color=SOFT_INK, linespacing=1.25)
    axes.set_xlim(right=106)
    axes.set_xticks(range(30, 101, 10))
    axes.set_xlabel("Bandit-clean: no finding of medium or high severity, % of programs that parse")
    axes.set_ylabel("passes all tests, % of programs")
    axes.grid()
    sizes = _sizes(record, "security").replace("95 % CI", "thin lines: 95 % CI of each rate")
    _head(figure, _security_title(record), f"{sizes}.")
    return figure


# ---- ablations: paired differences, one configuration from another ----


def _ablation_gains(record: Record, split: str) -> list[Gain]:
    titles = {arm["name"]: arm["title"] for arm in record["arms"]}
    splits = {arm["name"]: arm["split"] for arm in record["arms"]}
    gains = []
    for each in record["comparisons"]:
        interval = interval_of(each["metrics"][PASS])
        if each["split"] == split == splits[each["second"]] and interval is not None:
            first, second = each["first"], each["second"]
            gains.append(Gain(_ABLATIONS.get((second, first), f"{titles[second]} − {titles[first]}"), interval))
    return sorted(gains, key=lambda gain: -gain.interval.value)


def _ablations_title(record: Record) -> str:
    gains = [gain for split in record["splits"] for gain in _ablation_gains(record, split["name"])]
    return f"Ablations: {sum(map(_is_significant, gains))} of {len(gains)} differences in the pass rate are significant"


def _ablations_text(record: Record) -> str:
    sentences = ["Paired differences in the rate of programs that pass all tests, in points, sorted."]
    for split in record["splits"]:
        gains = _ablation_gains(record, split["name"])
        significant = [gain for gain in gains if _is_significant(gain)]
        found = f"{len(significant)} of {len(gains)} differences are significant"
        listed = f": {_listed(significant)}" if significant else ""
        sentences.append(f"On {split['name']} ({_sizes(record, split['name'])}), {found}{listed}.")
    return " ".join(sentences).replace("−", "minus")


def _draw_ablations(new_figure: type[Figure], record: Record) -> Figure:
    """One panel per split, one line per difference, the largest first."""
    gains = {split["name"]: _ablation_gains(record, split["name"]) for split in record["splits"]}
    rows = [len(each) for each in gains.values()]
    figure = new_figure(figsize=(_WIDTH, 1.7 + 0.235 * sum(rows)), layout="constrained")
    panels = figure.subplots(len(gains), 1, sharex=True, height_ratios=rows, squeeze=False)[:, 0]
    for axes, (split, found) in zip(panels, gains.items(), strict=True):
        color, marker = PALETTE[0]
        _forest(axes, found, [color] * len(found), [marker] * len(found))
        axes.set_yticks(range(len(found)), [gain.label for gain in found], fontsize=8.5)
        problems, others = _sizes(record, split).split(", ", 1)
        axes.set_title(f"{split}: {problems}", loc="left", fontweight="bold")
        for row, gain in enumerate(found):
            axes.annotate(
                _signed(gain.interval).replace("-", "−"), (1.01, row), xycoords=("axes fraction", "data"),
                va="center", fontsize=8, color=INK if _is_significant(gain) else SOFT_INK, annotation_clip=False,
            )  # fmt: skip
    panels[-1].set_xlabel("difference in the rate of programs that pass all tests, points")
    filled = "Filled: it excludes 0 (not corrected for their number). Hollow: it includes 0."
    _head(figure, _ablations_title(record), f"{others}. {filled}")
    return figure


# ---- shared parts ----


def _forest(axes: Axes, gains: Sequence[Gain], colors: Sequence[str], markers: Sequence[str]) -> None:
    """A line per difference with its interval; its marker is filled if the interval excludes 0."""
    axes.axvline(0, color=SOFT_INK, linewidth=1)
    for row, (gain, color, marker) in enumerate(zip(gains, colors, markers, strict=False)):
        low, value, high = (100 * each for each in (gain.interval.low, gain.interval.value, gain.interval.high))
        axes.plot([low, high], [row, row], color=color, linewidth=1.8)
        fill = color if _is_significant(gain) else "white"
        axes.plot([value], [row], marker, color=color, markerfacecolor=fill, markersize=6.5, markeredgewidth=1.5)
    axes.set_ylim(len(gains) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


def _head(figure: Figure, title: str, note: str) -> None:
    """A title and a line below it, at the left, in a strip as high for every figure."""
    inch = 1 / figure.get_figheight()
    figure.text(0.014, 1 - 0.1 * inch, title, va="top", fontsize=10, fontweight="bold")
    figure.text(0.014, 1 - 0.3 * inch, note, va="top", fontsize=8.5, color=SOFT_INK)
    figure.get_layout_engine().set(rect=(0.012, 0.06 * inch, 0.976, 1 - 0.58 * inch))  # type: ignore[union-attr, call-arg]


def _svg(figure: Figure, title: str, text: str) -> str:
    """The figure on its panel, with a title and a description for those who do not see it."""
    figure.patch.set(facecolor="white", edgecolor=GRID, linewidth=1)
    fix_layout(figure)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)
    titles = f"<title>{html.escape(title)}</title>\n <desc>{html.escape(text)}</desc>"
    return re.sub(r"(<svg [^>]*)>", lambda match: f'{match[1]} role="img">\n {titles}', svg, count=1)


def _dark(color: str) -> str:
    """A shade of a color of the palette that has enough contrast for text on white."""
    return "#" + "".join(f"{int(color[at : at + 2], 16) * 3 // 4:02x}" for at in (1, 3, 5))


def _arms(record: Record, split: str) -> Iterator[Record]:
    return (arm for arm in record["arms"] if arm["split"] == split)


def _sft(record: Record, split: str) -> Record:
    return next(arm for arm in _arms(record, split) if arm["phases"] == ["sft"])


def _final(arm: Record, split: str, metric: str) -> Any:
    """The rate of the selected checkpoint; None without one."""
    found = (each for each in arm["results"] if (each["split"], each["model"]) == (split, "policy"))
    return next((each["metrics"].get(metric) for each in found), None)


def _gain(record: Record, first: str, second: str, metric: str) -> Interval:
    split = next(arm["split"] for arm in record["arms"] if arm["name"] == second)
    wanted = (first, second, split)
    pairs = {(each["first"], each["second"], each["split"]): each["metrics"] for each in record["comparisons"]}
    interval = interval_of(pairs[wanted][metric])
    assert interval is not None
    return interval


def _gains_over_sft(record: Record, split: str, metric: str) -> list[Gain]:
    start = _sft(record, split)
    variants = (arm for arm in _arms(record, split) if arm is not start)
    return [Gain(_short(arm), _gain(record, start["name"], arm["name"], metric)) for arm in variants]


def _short(arm: Record) -> str:
    title: str = arm["title"]
    return title.removeprefix("PPO-")


def _is_significant(gain: Gain) -> bool:
    return gain.interval.excludes_zero


def _verdict(gains: Sequence[Gain]) -> str:
    """How many variants differ from SFT."""
    higher, lower = sum(each.interval.low > 0 for each in gains), sum(each.interval.high < 0 for each in gains)
    parts = [f"higher in {higher}"] * bool(higher) + [f"lower in {lower}"] * bool(lower)
    if not parts:
        return f"no significant difference in any of {len(gains)} variants"
    return f"significantly {' and '.join(parts)} of {len(gains)} variants"


def _listed(gains: Sequence[Gain]) -> str:
    return ", ".join(f"{gain.label} {_signed(gain.interval)}" for gain in gains)


def _signed(interval: Interval) -> str:
    return f"{100 * interval.value:+.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _sizes(record: Record, split: str) -> str:
    problems = split_of(record, split)["problems"]
    return (
        f"{problems} held-out problems, {record['samples']} samples per problem, {len(record['seeds'])} seeds, 95 % CI"
    )


def _learning(split: str) -> Plot:
    return Plot(
        "table3",
        lambda record: _learning_title(record, split),
        lambda record: _learning_text(record, split),
        lambda new_figure, record: _draw_learning(new_figure, record, split),
    )


PLOTS: dict[str, Plot] = {
    "learning-eval": _learning("eval"),
    "learning-hard": _learning("hard"),
    "security": Plot("security", _security_title, _security_text, _draw_security),
    "ablations": Plot("ablations", _ablations_title, _ablations_text, _draw_ablations),
}
