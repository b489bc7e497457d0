"""One page of HTML about one run: selected checkpoints, learning curves, programs early and late, settings.

The page needs neither network nor scripts, and permits neither. Programs, ids, settings and names in it come from files
that a model or another person wrote: every one of them passes through `_text`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from securecoderl_edge import __version__
from securecoderl_edge.evaluation.report.charts import CHARTS, draw_chart, draw_stages
from securecoderl_edge.evaluation.report.run_history import PhaseCourse, Point, RunHistory, as_number, read_history
from securecoderl_edge.models.adapters import ADAPTER_WEIGHTS
from securecoderl_edge.runs import ENVIRONMENT, Run
from securecoderl_edge.scoring.reward import STAGE_NAMES
from securecoderl_edge.text import escape_controls

_LONGEST_PROGRAM = 20_000  # characters; a program that repeats itself to the token limit is shorter
_SHORT_CELL = 24  # characters, which fit in one line
_LEVELS_TITLE = "Programs at each reward level, fraction"

# Tables are never squeezed until words break: a table that is too wide scrolls.
_STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1b1b; --soft: #595959; --grid: #dcdcdc; --box: #f5f5f5;
  --line-1: #0072b2; --line-2: #c25100; --line-3: #00805c; --line-4: #a8457f; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --ink: #e6e6e6; --soft: #a8a8a8; --grid: #3a3d42;
  --box: #202327; --line-1: #56b4e9; --line-2: #e69f00; --line-3: #33c79b; --line-4: #e39bc4; } }
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 76rem;
  margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h1 { overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--grid); }
h3, figcaption { font-size: 1rem; font-weight: 600; margin: 0 0 .3rem; overflow-wrap: anywhere; }
p.note, .soft { color: var(--soft); } li { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; } th, td { text-align: left; vertical-align: top; padding: .25rem 1.2rem .25rem 0;
  border-bottom: 1px solid var(--grid); }
th, td.short { white-space: nowrap; } td { min-width: 14rem; overflow-wrap: break-word; } td.short { min-width: 0; }
.charts, .pair { display: grid; gap: 1rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)); }
figure { margin: 0; min-width: 0; overflow-x: auto; break-inside: avoid; }
svg { width: 100%; min-width: 26rem; height: auto; }
pre { background: var(--box); padding: .6rem; overflow-x: auto; font-size: .85rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.pair { margin-bottom: 1.5rem; } .pair figcaption { font-weight: 400; }
@media print { :root { --page: #fff; --ink: #000; --soft: #333; --grid: #ccc; --box: #fff; --line-1: #0072b2;
  --line-2: #c25100; --line-3: #00805c; --line-4: #a8457f; } body { max-width: none; margin: 0; font-size: 11px; }
  .scroll, figure { overflow: visible; } svg { min-width: 0; } td { min-width: 0; }
  .charts, .pair { grid-template-columns: 1fr 1fr; } pre { border: 1px solid #ccc; } }
""".strip()


def render_report(run: Run) -> str:
    """Render the whole page. The same folder gives the same text.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    history = read_history(run)
    name = _text(run.name)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{name} - sce report</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>",
        f"<h1>Training run {name}</h1>",
        _facts(history),
        *_list("Missing data", history.missing),
        "<h2>Selected checkpoints</h2>",
        _selected(history),
        *_readiness(history),
        *_list("Warnings", history.warnings),
        "<h2>Learning curves</h2>",
        '<p class="note">A dotted vertical line is the start of a phase. A training value is the mean over one batch '
        "of sampled programs. A held-out value is the mean over a fixed set of problems that are never trained on. "
        "Reward-hacking metrics are reported only; they do not change the reward.</p>",
        _charts(history),
        "<h2>Programs from early and late in training</h2>",
        *_samples(history),
        "<h2>Settings</h2>",
        _file("config.toml", history.config),
        _file(ENVIRONMENT, history.environment),
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


def _facts(history: RunHistory) -> str:
    facts = history.facts
    machine = facts.get("machine")
    machine = machine if isinstance(machine, dict) else {}
    memory = as_number(machine.get("memory_bytes"))
    sandbox, command = facts.get("sandbox"), facts.get("command")
    device, precision = _plain(facts.get("device")), _plain(facts.get("base_precision"))
    cores = _plain(machine.get("cores"))
    shown = {
        "base model": _plain(facts.get("base_model")),
        "started": _plain(facts.get("started")),
        "state": "finished" if (history.run.policy / ADAPTER_WEIGHTS).is_file() else "not finished",
        "machine": _joined(
            _plain(machine.get("cpu")),
            cores and f"{cores} cores",
            f"{memory / 2**30:.0f} GiB" if memory else "",
            _plain(machine.get("system")),
        ),
        "device": _joined(device, precision and f"base in {precision}"),
        "seed": _plain(facts.get("seed")),
        "sandbox": _plain(sandbox.get("level")) if isinstance(sandbox, dict) else "",
        "command": " ".join(map(_plain, command)) if isinstance(command, list) else "",
    }
    return _table((name, value or "not recorded") for name, value in shown.items())


def _plain(value: object) -> str:
    """A word or a number as text; empty for anything else."""
    return str(value) if isinstance(value, (str, int, float)) else ""


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _list(title: str, lines: list[str]) -> list[str]:
    """A section with a list, if there are any lines."""
    items = "".join(f"<li>{_text(each)}</li>" for each in lines)
    return [f"<h2>{title}</h2>\n<ul>{items}</ul>"] if lines else []


def _readiness(history: RunHistory) -> list[str]:
    readiness = history.readiness
    return ["<h2>Readiness before RL</h2>", _table(readiness.facts().items())] if readiness else []


def _selected(history: RunHistory) -> str:
    if not history.phases:
        return "<p>No phase has started.</p>"
    head = ("phase", "updates", "selected", "reason", "held-out reward", "held-out pass rate")
    return _table((_selected_row(phase) for phase in history.phases), head)


def _selected_row(phase: PhaseCourse) -> list[object]:
    outcome = phase.outcome
    made = f"{phase.updates} of {phase.planned}" if phase.planned else str(phase.updates)
    if not outcome:
        return [phase.name, made, "none yet", "the phase has not finished", *_gains(phase, None)]
    chosen = outcome.get("chosen_step")
    step, why = (_plain(outcome.get(name)) or "not recorded" for name in ("chosen_step", "why"))
    return [phase.name, made, f"step {step}", why, *_gains(phase, chosen)]


def _gains(phase: PhaseCourse, chosen: object) -> tuple[str, str]:
    """Held-out reward and pass rate before the phase, and at the selected step, or else at the latest."""
    if not phase.evaluations:
        return "not evaluated", "not evaluated"
    first = phase.evaluations[0]
    last = next((point for point in phase.evaluations if point.row["step"] == chosen), phase.evaluations[-1])
    rewards = [_number(point.number("reward"), ".3f") for point in (first, last)]
    rates = [_number(point.number("all_tests_rate"), ".1%") for point in (first, last)]
    return " to ".join(rewards), " to ".join(rates)


def _number(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)


def _charts(history: RunHistory) -> str:
    drawings = {chart.title: draw_chart(chart, history) for chart in CHARTS}
    drawings[_LEVELS_TITLE] = draw_stages(_LEVELS_TITLE, history)
    absent = '<p class="soft">no numbers yet</p>'
    figures = [
        f"<figure><figcaption>{_text(title)}</figcaption>\n{svg or absent}</figure>" for title, svg in drawings.items()
    ]
    return "\n".join(['<div class="charts">', *figures, "</div>"])


def _samples(history: RunHistory) -> list[str]:
    if not history.first:
        return ["<p>No program has been sampled yet.</p>"]
    if history.repeated:
        note = "Problems that were sampled both early and late: those farthest apart in time, whatever their results."
        pairs = history.repeated
    else:
        note = "No problem was sampled both early and late. Left: the earliest samples. Right: the latest samples."
        pairs = list(zip(history.first, history.last, strict=True))
    return [
        f'<p class="note">{note} Sampling is random, so single programs vary by chance.</p>',
        *(_pair(*pair) for pair in pairs),
    ]


def _pair(early: Point, late: Point) -> str:
    ids = dict.fromkeys(str(point.row["id"]) for point in (early, late))
    heading = f"<h3>{' and '.join(_text(each) for each in ids)}</h3>"
    return f'{heading}\n<div class="pair">\n{_sample(early)}\n{_sample(late)}\n</div>'


def _sample(point: Point) -> str:
    row, stage = point.row, point.number("stage")
    known = stage is not None and stage in range(len(STAGE_NAMES))
    caption = ", ".join(
        (
            f"{point.phase} update {row['step']}",
            STAGE_NAMES[int(stage or 0)] if known else "reward level unknown",
            f"{_plain(row.get('passed')) or '?'}/{_plain(row.get('total')) or '?'} tests",
            f"R {_number(point.number('reward'), '.3f')}",
        )
    )
    program = str(row["program"])
    cut = f"\n... {len(program) - _LONGEST_PROGRAM} more characters" if len(program) > _LONGEST_PROGRAM else ""
    # HTML drops one newline at the start of <pre>, so one is added.
    text = _text(program[:_LONGEST_PROGRAM] + cut)
    return f"<figure><figcaption>{_text(caption)}</figcaption>\n<pre>\n{text}</pre></figure>"


def _file(name: str, text: str | None) -> str:
    if text is None:
        return f"<p>{name} is missing.</p>"
    return f"<details><summary>{name}</summary>\n<pre>\n{_text(text)}</pre></details>"
