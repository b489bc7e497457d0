"""The plots of the study, as SVG, each with an alt text that states its finding.

Every plot has its own white panel. A style that follows ``prefers-color-scheme`` would not do: in an ``<img>`` it
follows the operating system, but GitHub and the documentation site each have a theme switch, so dark text could end up
on a dark page. On a panel the text is readable on every page.

Numbers and verdicts in titles and alt texts come from the records. matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import html
import io
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

PASS, CLEAN, BOTH = "all_tests_rate", "secure_rate", "secure_all_tests_rate"
_WIDTH = 7.3  # inches, which is 700 CSS pixels
_PLOTTED = {"table3": "Variants", "ablations": "Ablations"}
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


# ---- paired differences, one configuration from another ----


def _gains(record: Record, split: str) -> list[Gain]:
    """The differences in the pass rate, the largest first."""
    arms = {arm["name"]: arm for arm in record["arms"]}
    gains = []
    for each in record["comparisons"]:
        first, second = arms[each["first"]], arms[each["second"]]
        interval = interval_of(each["metrics"][PASS])
        if each["split"] == split == second["split"] and interval is not None and _is_shown(record, first):
            plain = f"{_short(second)} − {_short(first)}"
            gains.append(Gain(_ABLATIONS.get((second["name"], first["name"]), plain), interval))
    return sorted(gains, key=lambda gain: -gain.interval.value)


def _is_shown(record: Record, first: Record) -> bool:
    """Of the variants, the differences from the two trainings without RL: there are many others."""
    return bool(record["study"] != "table3" or first["phases"] == ["sft"])


def _gains_title(record: Record) -> str:
    gains = [gain for split in record["splits"] for gain in _gains(record, split["name"])]
    found = f"{sum(map(_is_significant, gains))} of {len(gains)} differences in the pass rate are significant"
    return f"{_PLOTTED[record['study']]}: {found}"


def _gains_text(record: Record) -> str:
    sentences = ["Paired differences in the rate of programs that pass all tests, in points, sorted."]
    for split in record["splits"]:
        gains = _gains(record, split["name"])
        significant = [gain for gain in gains if _is_significant(gain)]
        found = f"{len(significant)} of {len(gains)} differences are significant"
        listed = f": {_listed(significant)}" if significant else ""
        sentences.append(f"On {split['name']} ({_sizes(record, split['name'])}), {found}{listed}.")
    return " ".join(sentences).replace("−", "minus")


def _draw_gains(new_figure: type[Figure], record: Record) -> Figure:
    """One panel per split, one line per difference, the largest first."""
    gains = {split["name"]: _gains(record, split["name"]) for split in record["splits"]}
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
    _head(figure, _gains_title(record), f"{others}. {filled}")
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


def _short(arm: Record) -> str:
    title: str = arm["title"]
    return title.removeprefix("PPO-")


def _is_significant(gain: Gain) -> bool:
    return gain.interval.excludes_zero


def _listed(gains: Sequence[Gain]) -> str:
    return ", ".join(f"{gain.label} {_signed(gain.interval)}" for gain in gains)


def _signed(interval: Interval) -> str:
    return f"{100 * interval.value:+.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _sizes(record: Record, split: str) -> str:
    problems = split_of(record, split)["problems"]
    return (
        f"{problems} held-out problems, {record['samples']} samples per problem, {len(record['seeds'])} seeds, 95 % CI"
    )


PLOTS: dict[str, Plot] = {
    "variants": Plot("table3", _gains_title, _gains_text, _draw_gains),
    "security": Plot("security", _security_title, _security_text, _draw_security),
    "ablations": Plot("ablations", _gains_title, _gains_text, _draw_gains),
}
