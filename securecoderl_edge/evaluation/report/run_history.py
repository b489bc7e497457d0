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


@dataclass(frozen=True)
class PhaseCourse:
    """One phase, finished or not.

    Attributes:
        start: updates of all phases before it. updates: its own so far. planned: its planned updates, if known.
        outcome: the content of its `DONE_FILE`; empty until it has finished.
        evaluations: on held-out problems, by step.
    """

    name: str
    start: int
    updates: int
    planned: int | None
    outcome: Mapping[str, Any]
    evaluations: tuple[Point, ...]


@dataclass
class RunHistory:
    """All that a report shows of one run.

    Attributes:
        repeated: the first and the last sample of problems that were sampled both early and late, farthest first.
        first, last: the earliest and the latest samples.
        config, environment: the text of the two files; None if absent. facts: the environment decoded.
        missing: one sentence for each absent or damaged part.
        readiness: the report from before RL; None if none was made. warnings: those that training gave.
    """

    run: Run
    phases: list[PhaseCourse] = field(default_factory=list)
    updates: list[Point] = field(default_factory=list)
    repeated: list[tuple[Point, Point]] = field(default_factory=list)
    first: list[Point] = field(default_factory=list)
    last: list[Point] = field(default_factory=list)
    config: str | None = None
    environment: str | None = None
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
    """Read a run folder, with at most `SAMPLES` of each kind of sample."""
    history = RunHistory(run)
    history.config = _read_text(run.path / "config.toml", history)
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
    _choose_samples(history, SAMPLES)
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
    return PhaseCourse(name, start, updates, planned, outcome, points)


def _choose_samples(history: RunHistory, most: int) -> None:
    """Choose samples by the time they were sampled, never by their result."""
    starts = {phase.name: phase.start for phase in history.phases}
    ends: dict[str, tuple[Point, Point]] = {}
    first: list[Point] = []
    last: list[Point] = []
    by_time = attrgetter("x")
    for row in _rows("samples.jsonl", history):
        if row["phase"] not in starts or not isinstance(row.get("id"), str) or not isinstance(row.get("program"), str):
            continue
        point = Point(starts[row["phase"]] + row["step"], row["phase"], row)
        earliest, latest = ends.get(row["id"], (point, point))
        ends[row["id"]] = (min(earliest, point, key=by_time), max(point, latest, key=by_time))
        first = sorted([*first, point], key=by_time)[:most]
        last = sorted([*last, point], key=by_time)[-most:]
    if not first:
        history.missing.append("samples.jsonl has no programs yet; SFT does not sample")
        return
    history.first, history.last = first, last
    half = (last[-1].x - first[0].x) / 2
    far = [(earliest, latest) for earliest, latest in ends.values() if latest.x - earliest.x > half]
    history.repeated = sorted(far, key=lambda pair: pair[0].x - pair[1].x)[:most]


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
