"""One page of HTML about one run or several: results, learning curves, programs early and late, settings.

The page needs neither network nor scripts, and permits neither. Programs, statements, ids, settings and names in it
come from files that a model or another person wrote: every one of them passes through `_text`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from securecoderl_edge import __version__
from securecoderl_edge.evaluation.report.contents import Contents, sample_record
from securecoderl_edge.evaluation.report.drawing import draw
from securecoderl_edge.evaluation.report.page_style import STYLE
from securecoderl_edge.evaluation.report.programs import HELD_OUT, TRAINED, ProblemPrograms
from securecoderl_edge.evaluation.report.results import BENCH_METRICS, PhaseResult, facts_of
from securecoderl_edge.evaluation.report.run_history import Point
from securecoderl_edge.runs import ENVIRONMENT
from securecoderl_edge.scoring.intervals import Interval
from securecoderl_edge.text import escape_controls

_LONGEST_PROGRAM = 20_000  # characters; a program that repeats itself to the token limit is shorter
_SHORT_CELL = 24  # characters, which fit in one line
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_CURVES = (
    "Each panel is a phase, with its own x axis: updates of the phase, 0 is before the first. A training value is the "
    "mean over one batch of sampled programs. A held-out value is the mean over a fixed set of problems that are never "
    "trained on. Reward-hacking metrics are reported only; they do not change the reward. Metrics without numbers are "
    "left out."
)
_RESULTS = (
    "Held-out means before the phase, and of the selected policy or else of the latest, in brackets a 95 % interval "
    "over problems where the run has what it needs. Runs with different held-out problems do not compare. Tokens are "
    "those of completions and solutions, without prompts and evaluations; trained on: in each optimizer step."
)
_PROGRAMS = {
    HELD_OUT: "Held-out problems, which evaluations sample again and again: the first of them, whatever their results.",
    TRAINED: "Problems that were sampled both early and late: those farthest apart in time, whatever their results.",
}
_NO_PAIRS = "No problem was sampled at two times, so these are the latest samples."


def render_page(contents: Contents) -> str:
    """Render the whole page. The same folders give the same text.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    names, is_one = ", ".join(map(_text, contents.names)), len(contents.names) == 1
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{names} - sce report</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>",
        f"<h1>Training run{'' if is_one else 's'} {names}</h1>",
        _by_run([facts_of(history) for history in contents.histories], contents.names),
        *_list("Missing data", _named(contents, "missing")),
        *_differing(contents),
        "<h2>Results</h2>",
        *_results(contents),
        *_bench(contents),
        *_readiness(contents),
        *_list("Warnings", _named(contents, "warnings")),
        *_charts(contents),
        *_samples(contents),
        "<h2>Settings</h2>",
        *_settings(contents),
        f'<p class="note">Written by sce {__version__}.</p>\n</body>\n</html>\n',
    ]
    return "\n".join(parts)


def _text(value: object) -> str:
    """``value`` as text without markup, terminal escapes or changes of the reading direction."""
    return html.escape(escape_controls(str(value)))


def _table(rows: Iterable[Iterable[object]], head: Iterable[str] = ()) -> str:
    titles = "".join(f"<th>{_text(title)}</th>" for title in head)
    lines = ["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows]
    # A part of the page that scrolls can be reached with the keyboard.
    table = ["<table>", *([f"<tr>{titles}</tr>"] if titles else []), *lines, "</table>"]
    return "\n".join(['<div class="scroll" tabindex="0">', *table, "</div>"])


def _cell(value: object) -> str:
    text = _text(value)
    kind = ' class="short"' if len(text) <= _SHORT_CELL else ""
    return f"<td{kind}>{text}</td>"


def _note(text: str) -> str:
    return f'<p class="note">{text}</p>'


def _list(title: str, lines: Sequence[str]) -> list[str]:
    """A section with a list, if there are any lines."""
    items = "".join(f"<li>{_text(each)}</li>" for each in lines)
    return [f"<h2>{title}</h2>\n<ul>{items}</ul>"] if lines else []


def _named(contents: Contents, attribute: str) -> list[str]:
    """Sentences about the runs; of several, each begins with the name of its run."""
    is_one = len(contents.names) == 1
    return [
        line if is_one else f"{name}: {line}"
        for name, history in zip(contents.names, contents.histories, strict=True)
        for line in getattr(history, attribute)
    ]


def _by_run(tables: Sequence[Mapping[str, str] | None], names: Sequence[str]) -> str:
    """A column for each run; a row for each name in one of the tables."""
    rows = dict.fromkeys(name for table in tables if table for name in table)
    cells = ([name, *((table or {}).get(name) or "not recorded" for table in tables)] for name in rows)
    return _table(cells, ("", *names) if len(names) > 1 else ())


def _differing(contents: Contents) -> list[str]:
    if len(contents.names) == 1:
        return []
    rows = [
        [setting, *("-" if value is None else value for value in values)]
        for setting, values in contents.differing.items()
    ]
    table = _table(rows, ("setting", *contents.names)) if rows else "<p>All settings are equal.</p>"
    return ["<h2>Settings that differ</h2>", table]


def _results(contents: Contents) -> list[str]:
    if not contents.results:
        return ["<p>No phase has started.</p>"]
    means = ("held-out reward, before", "after", "held-out pass rate, before", "after")
    head = ["phase", "run", "updates", "tokens sampled", "tokens trained on", "selected", *means, "reason"]
    rows = [_result_row(each) for each in contents.results]
    if len(contents.names) == 1:
        head, rows = [head[0], *head[2:]], [[row[0], *row[2:]] for row in rows]
    return [_note(_RESULTS), _table(rows, head)]


def _result_row(result: PhaseResult) -> list[object]:
    made = f"{result.updates} of {result.planned}" if result.planned else str(result.updates)
    selected = "none yet" if result.selected is None else f"update {result.selected}"
    nothing = ("not evaluated", "not evaluated")
    rewards = tuple(_interval(each, ".3f", 1) for each in result.reward) or nothing
    rates = tuple(_interval(each, ".1f", 100) + (" %" if each else "") for each in result.pass_rate) or nothing
    tokens = ("not counted" if each is None else f"{each:,}" for each in (result.tokens_sampled, result.tokens_trained))
    return [result.phase, result.run, made, *tokens, selected, *rewards, *rates, result.why]


def _interval(found: Interval | None, form: str, scale: float) -> str:
    if found is None:
        return "unknown"
    value, low, high = (format(scale * number, form) for number in (found.value, found.low, found.high))
    return value if math.isnan(found.low) or math.isnan(found.high) else f"{value} [{low}, {high}]"


def _bench(contents: Contents) -> list[str]:
    if not contents.bench:
        return []
    metrics = [metric for metric in BENCH_METRICS if any(metric in each.metrics for each in contents.bench)]
    rows: list[list[object]] = []
    for each in contents.bench:
        found = (each.metrics.get(metric) for metric in metrics)
        cells = [
            "-" if value is None else _interval(value, ".3f", 1) if metric == "reward" else _interval(value, ".1f", 100)
            for metric, value in zip(metrics, found, strict=True)
        ]
        count = "unknown" if each.problems is None else each.problems
        rows.append([each.run, each.model, each.problem_set or "not recorded", count, *cells])
    head = ["run", "model", "problems", "number"]
    head += [BENCH_METRICS[metric] + ("" if metric == "reward" else ", %") for metric in metrics]
    note = "From bench/bench.json of each run, with 95 % intervals. sce bench A B --compare prints paired differences."
    return ["<h2>Results of sce bench</h2>", _note(note), _table(rows, head)]


def _readiness(contents: Contents) -> list[str]:
    found = [history.readiness.facts() if history.readiness else None for history in contents.histories]
    return ["<h2>Readiness before RL</h2>", _by_run(found, contents.names)] if any(found) else []


def _charts(contents: Contents) -> list[str]:
    if not contents.drawings:
        return []
    figures = [
        f"<figure><figcaption>{_text(each.title)}</figcaption>\n{draw(each)}</figure>" for each in contents.drawings
    ]
    return ["<h2>Learning curves</h2>", _note(_CURVES), '<div class="charts">', *figures, "</div>"]


def _samples(contents: Contents) -> list[str]:
    if not contents.programs:
        return []
    note = f"{_PROGRAMS.get(contents.kind, _NO_PAIRS)} Sampling is random, so single programs vary by chance."
    problems = (_problem(each, len(contents.names) > 1) for each in contents.programs)
    return ["<h2>Programs from early and late in training</h2>", _note(note), *problems]


def _problem(programs: ProblemPrograms, names_runs: bool) -> str:
    statement = f'<p class="statement">{_text(_shortened(programs.statement))}</p>\n' if programs.statement else ""
    samples = "\n".join(_sample(run, point, names_runs) for run, point in programs.samples)
    return f'<h3>{_text(programs.problem)}</h3>\n{statement}<div class="pair">\n{samples}\n</div>'


def _sample(run: str, point: Point, names_run: bool) -> str:
    record = sample_record(run, point)
    caption = ", ".join(
        (
            *([run] if names_run else []),
            f"{record['phase']} update {record['step']}",
            record["level"] or "reward level unknown",
            f"{_count(record['passed'])}/{_count(record['total'])} tests",
            "R unknown" if record["reward"] is None else f"R {record['reward']:.3f}",
        )
    )
    # HTML drops one newline at the start of <pre>, so one is added.
    program = f"<pre>\n{_text(_shortened(record['program']))}</pre>"
    return f"<figure><figcaption>{_text(caption)}</figcaption>\n{program}</figure>"


def _count(value: Any) -> str:
    return "?" if value is None else f"{value:.0f}"


def _shortened(text: str) -> str:
    cut = f"\n... {len(text) - _LONGEST_PROGRAM} more characters" if len(text) > _LONGEST_PROGRAM else ""
    return text[:_LONGEST_PROGRAM] + cut


def _settings(contents: Contents) -> list[str]:
    before = ["" if len(contents.names) == 1 else f"{name}: " for name in contents.names]
    return [
        _file(f"{start}{file}", text)
        for start, history in zip(before, contents.histories, strict=True)
        for file, text in (("config.toml", history.config), (ENVIRONMENT, history.environment))
    ]


def _file(name: str, text: str | None) -> str:
    if text is None:
        return f"<p>{_text(name)} is missing.</p>"
    return f"<details><summary>{_text(name)}</summary>\n<pre>\n{_text(text)}</pre></details>"
