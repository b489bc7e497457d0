"""The course of a run, read from its folder: phases, updates, evaluations, samples.

A run may be unfinished, or come from another machine. Absent or damaged parts are skipped and listed in
`RunHistory.missing`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from securecoderl_edge.config import read_toml
from securecoderl_edge.errors import SceError
from securecoderl_edge.runs import DONE_FILE, ENVIRONMENT, EVALUATIONS, READINESS, Run, phase_of
from securecoderl_edge.system.rows import read_objects
from securecoderl_edge.training.readiness import Readiness, read_readiness
from securecoderl_edge.training.warning_signs import Watch

SAMPLES = 5
_LARGEST_STEP = 10**9
_LARGEST_NUMBER = 1e30  # a larger one would overflow in the computation of an axis
_MOST_NAMED = 5  # damaged lines of one file


@dataclass(frozen=True)
class Point:
    """A row of numbers at ``x``, the count of updates of all phases so far; an evaluation may be at 0."""

    x: int
    phase: str
    row: Mapping[str, Any]

    def number(self, name: str) -> float | None:
        """The value called ``name``; None if it is absent or cannot be plotted."""
        return as_number(self.row.get(name))


Ends = dict[str, tuple[Point, Point]]  # the first and the last sample of a problem, by its id


@dataclass(frozen=True)
class PhaseCourse:
    """One phase, finished or not.

    Attributes:
        start: updates of all phases before it. updates: its own so far. planned: its planned updates, if known.
        outcome: the content of its `DONE_FILE`; empty until it has finished.
        evaluations: on held-out problems, by step. last_row: of its metrics; empty without any.
    """

    name: str
    start: int
    updates: int
    planned: int | None
    outcome: Mapping[str, Any]
    evaluations: tuple[Point, ...]
    last_row: Mapping[str, Any]


@dataclass
class RunHistory:
    """All that a report shows of one run.

    Attributes:
        held_out, trained: the first and the last sample of each problem that evaluations, or updates, sampled.
        last: the latest samples of updates.
        config, environment: the text of the two files; None if absent. settings, facts: what they contain.
        missing: one sentence for each absent or damaged part.
        readiness: the report from before RL; None if none was made. warnings: those that training gave.
    """

    run: Run
    phases: list[PhaseCourse] = field(default_factory=list)
    updates: list[Point] = field(default_factory=list)
    held_out: Ends = field(default_factory=dict)
    trained: Ends = field(default_factory=dict)
    last: list[Point] = field(default_factory=list)
    config: str | None = None
    environment: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    readiness: Readiness | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def evaluations(self) -> list[Point]:
        return [point for phase in self.phases for point in phase.evaluations]


def as_number(value: object) -> float | None:
    """A finite number of a size that can be plotted; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _LARGEST_NUMBER:
        return None
    return float(value)


def read_history(run: Run) -> RunHistory:
    """Read a run folder."""
    history = RunHistory(run)
    history.config = _read_text(run.path / "config.toml", history)
    history.settings = _settings(run, history)
    history.environment = _read_text(run.path / ENVIRONMENT, history)
    if history.environment is not None:
        history.facts = _decode(history.environment, ENVIRONMENT, history)
    rows: dict[str, dict[int, dict[str, Any]]] = {}
    for row in _rows("metrics.jsonl", history):
        rows.setdefault(row["phase"], {})[row["step"]] = row
    start = 0
    folders = {phase_of(folder): folder for folder in run.phase_folders()}
    for name in dict.fromkeys([*folders, *rows]):
        phase = _phase(name, folders.get(name), start, rows.get(name, {}), history)
        history.phases.append(phase)
        history.updates += [Point(start + step, name, row) for step, row in sorted(rows.get(name, {}).items())]
        start += phase.updates
        watch = Watch()
        history.warnings += [text for _, row in sorted(rows.get(name, {}).items()) for text in watch.after(row)]
    if not history.phases:
        history.missing.append("no phase has started")
    elif not history.updates:
        history.missing.append("metrics.jsonl has no updates yet")
    _read_samples(history)
    history.readiness = read_readiness(run)
    if history.readiness is None and (run.path / READINESS).exists():
        history.missing.append(f"{READINESS} is damaged")
    return history


def _phase(
    name: str, folder: Path | None, start: int, rows: Mapping[int, Mapping[str, Any]], history: RunHistory
) -> PhaseCourse:
    outcome: Mapping[str, Any] = {}
    evaluations: list[Mapping[str, Any]] = []
    if folder is not None:
        inside = folder.relative_to(history.run.path)
        done = inside / "adapter" / DONE_FILE
        if (history.run.path / done).is_file():
            outcome = _decode(_read_text(history.run.path / done, history) or "{}", str(done), history)
        if (folder / EVALUATIONS).is_file():
            evaluations = list(_rows(str(inside / EVALUATIONS), history))
    if not evaluations:
        history.missing.append(f"phase {name} has no evaluation on held-out problems")
    by_step = {row["step"]: row for row in evaluations}
    updates = max([*rows, *by_step, 0])
    planned = next((row["steps"] for row in rows.values() if _is_step(row.get("steps"))), None)
    points = tuple(Point(start + step, name, row) for step, row in sorted(by_step.items()))
    return PhaseCourse(name, start, updates, planned, outcome, points, rows[max(rows)] if rows else {})


def _read_samples(history: RunHistory) -> None:
    """Remember the ends of each problem's course. A result never decides which."""
    starts = {phase.name: phase.start for phase in history.phases}
    by_time = attrgetter("x")
    for row in _rows("samples.jsonl", history):
        if row["phase"] not in starts or not isinstance(row.get("id"), str) or not isinstance(row.get("program"), str):
            continue
        point = Point(starts[row["phase"]] + row["step"], row["phase"], row)
        ends = history.held_out if row.get("held_out") is True else history.trained
        earliest, latest = ends.get(row["id"], (point, point))
        # Of samples at the same time, as at the end of a phase and the start of the next, the later one is the latest.
        ends[row["id"]] = (min(earliest, point, key=by_time), max(point, latest, key=by_time))
        if ends is history.trained:
            history.last = sorted([*history.last, point], key=by_time)[-SAMPLES:]
    if not history.held_out and not history.trained:
        history.missing.append("samples.jsonl has no programs yet; SFT does not sample")


def _settings(run: Run, history: RunHistory) -> Mapping[str, Any]:
    """What config.toml contains; nothing if it is damaged."""
    if history.config is None:
        return {}
    try:
        return read_toml(run.path / "config.toml")
    except SceError:
        history.missing.append("config.toml is damaged")
        return {}


def _rows(name: str, history: RunHistory) -> Iterator[dict[str, Any]]:
    """The rows of a file in the run folder that have a phase and a step."""
    damaged: list[int] = []
    file = history.run.path / name
    if not file.exists():
        history.missing.append(f"{name} is missing")
        return
    try:
        for number, row in read_objects(file, damaged.append):
            if _is_step(row.get("step")) and isinstance(row.get("phase"), str):
                yield row
            else:
                damaged.append(number)
    except SceError:
        history.missing.append(f"{name} cannot be read")
    history.missing += [f"{name}:{number} is damaged and was skipped" for number in damaged[:_MOST_NAMED]]
    if len(damaged) > _MOST_NAMED:
        history.missing.append(f"{name} has {len(damaged) - _MOST_NAMED} more damaged lines")


def _is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_STEP


def _read_text(path: Path, history: RunHistory) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        history.missing.append(f"{path.relative_to(history.run.path)} cannot be read: {error.strerror}")
        return None


def _decode(text: str, name: str, history: RunHistory) -> Mapping[str, Any]:
    """The JSON object that ``text`` is, or an empty one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        history.missing.append(f"{name} is damaged: not a JSON object")
        return {}
    return value
