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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from study_engine.study_tables import interval_of, split_of

from securecoderl_edge.evaluation.plot import GRID, INK, PALETTE, SOFT_INK, fix_layout, plotting
from securecoderl_edge.scoring.intervals import Interval
from securecoderl_edge.system.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = Mapping[str, Any]
Records = Mapping[str, Record]

_WIDTH = 7.3  # inches, which is 700 CSS pixels
_LISTED = 4  # an alt text lists no more differences
# Those comparisons of the ablations that a plot shows, (second, first) -> the difference in plain words.
_ABLATIONS = {
    ("sft-any", "eval-sft"): "SFT: any − shortest solutions",
    ("sft-rate-1e-3", "eval-sft"): "SFT: learning rate 1e-3 − 4e-3",
    **{
        (f"weak-{split}-{name}", f"weak-{split}-sft"): f"{title} − weak SFT"
        for split in ("eval", "hard")
        for name, title in (
            ("sft-100", "SFT of 100 updates"),
            ("simple", "simple"),
            ("fresh", "fresh"),
            ("cont", "cont"),
            ("sched", "sched"),
            ("hints", "simple with hints"),
            ("relift", "simple with ReLIFT"),
        )
        if split == "hard" or name not in ("cont", "sched")
    },
    ("gae", "weak-eval-simple"): "GAE with a value head − RLOO",
    ("groups-4", "weak-eval-simple"): "4 − 8 samples per prompt",
    ("rate-2e-4", "weak-eval-simple"): "learning rate 2e-4 − 1e-3",
    ("minibatches-2", "weak-eval-simple"): "2 − 1 minibatches",
    ("epochs-2", "weak-eval-simple"): "2 − 1 epochs",
    ("kl-0", "weak-eval-simple"): "KL coefficient: 0 − default",
    ("hard-minibatches-2", "weak-hard-simple"): "2 − 1 minibatches",
    ("hard-epochs-2", "weak-hard-simple"): "2 − 1 epochs",
    ("hard-groups-32", "weak-hard-simple"): "32 − 8 samples per prompt",
    ("hard-maxrl-32", "hard-groups-32"): "MaxRL − RLOO, 32 samples per prompt",
    ("hard-simple-paper", "weak-hard-simple"): "simple: 0.4 − 0 for unparsable output",
    ("hard-fresh-paper", "weak-hard-fresh"): "fresh: 0.4 − 0 for unparsable output",
}


@dataclass(frozen=True)
class Gain:
    """A paired difference from SFT, or between two configurations, called ``label``."""

    label: str
    interval: Interval


@dataclass(frozen=True)
class Plot:
    """Paired differences in one metric between the arms of a study, the largest first.

    Attributes:
        heading: starts the title. that: what the counted programs do.
    """

    study: str
    heading: str
    metric: str
    that: str

    def gains(self, record: Record, split: str) -> list[Gain]:
        """The differences on a split."""
        arms = {arm["name"]: arm for arm in record["arms"]}
        gains = []
        for each in record["comparisons"]:
            first, second = arms[each["first"]], arms[each["second"]]
            interval = interval_of(each["metrics"].get(self.metric))
            if each["split"] == split and interval is not None and _is_shown(record, first, second):
                plain = f"{_short(second)} − {_short(first)}"
                gains.append(Gain(_ABLATIONS.get((second["name"], first["name"]), plain), interval))
        return sorted(gains, key=lambda gain: -gain.interval.value)

    def title(self, record: Record) -> str:
        """How many of the differences are significant."""
        gains = [gain for split in record["splits"] for gain in self.gains(record, split["name"])]
        found = sum(map(_is_significant, gains))
        return f"{self.heading}: {found} of {len(gains)} differences in programs that {self.that} are significant"

    def describe(self, record: Record) -> str:
        """The alt text."""
        sentences = [f"Paired differences in the rate of programs that {self.that}, in points, sorted."]
        for split in record["splits"]:
            gains = self.gains(record, split["name"])
            significant = [gain for gain in gains if _is_significant(gain)]
            found = f"{len(significant)} of {len(gains)} differences are significant"
            listed = f": {_listed(significant)}" if 0 < len(significant) <= _LISTED else ""
            sentences.append(f"On {split['name']} ({_sizes(record, split['name'])}), {found}{listed}.")
        return " ".join(sentences).replace("−", "minus")

    def draw(self, new_figure: type[Figure], record: Record) -> Figure:
        """One panel per split, one line per difference."""
        gains = {split["name"]: self.gains(record, split["name"]) for split in record["splits"]}
        rows = [len(each) for each in gains.values()]
        figure = new_figure(figsize=(_WIDTH, 1.7 + 0.235 * sum(rows)), layout="constrained")
        panels = figure.subplots(len(gains), 1, sharex=True, height_ratios=rows, squeeze=False)[:, 0]
        for axes, (split, found) in zip(panels, gains.items(), strict=True):
            color, marker = PALETTE[0]
            _forest(axes, found, color, marker)
            axes.set_yticks(range(len(found)), [gain.label for gain in found], fontsize=8.5)
            problems, others = _sizes(record, split).split(", ", 1)
            axes.set_title(f"{split}: {problems}", loc="left", fontweight="bold")
            for row, gain in enumerate(found):
                axes.annotate(
                    _signed(gain.interval).replace("-", "−"), (1.01, row), xycoords=("axes fraction", "data"),
                    va="center", fontsize=8, color=INK if _is_significant(gain) else SOFT_INK, annotation_clip=False,
                )  # fmt: skip
        panels[-1].set_xlabel(f"difference in the rate of programs that {self.that}, points")
        filled = "Filled: it excludes 0 (not corrected for their number). Hollow: it includes 0."
        _head(figure, self.title(record), f"{others}. {filled}")
        return figure


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


def _is_shown(record: Record, first: Record, second: Record) -> bool:
    """Of the variants, the differences from the two trainings without RL; of the ablations, those with a name."""
    if record["study"] == "ablations":
        return (second["name"], first["name"]) in _ABLATIONS
    return bool(record["study"] != "table3" or first["phases"] == ["sft"])


def _forest(axes: Axes, gains: Sequence[Gain], color: str, marker: str) -> None:
    """A line per difference with its interval; its marker is filled if the interval excludes 0."""
    axes.axvline(0, color=SOFT_INK, linewidth=1)
    for row, gain in enumerate(gains):
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
    part = split_of(record, split)
    problems = f"{part['problems']} held-out problems in {part['groups']} groups"
    return f"{problems}, {record['samples']} samples per problem, {len(record['seeds'])} seeds, 95 % CI"


PLOTS = {
    "variants": Plot("table3", "Variants", "all_tests_rate", "pass all tests"),
    "security": Plot("security", "Security", "func_sec_rate", "pass all tests and security tests"),
    "ablations": Plot("ablations", "Ablations", "all_tests_rate", "pass all tests"),
}
