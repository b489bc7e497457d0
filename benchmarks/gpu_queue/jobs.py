"""The jobs of a queue file, and which of them are done."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from securecoderl_edge.config import build, read_toml, setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.system.files import read_json, write_atomically

ROOT = Path(__file__).resolve().parents[2]
QUEUE = Path(__file__).with_name("queue.toml")
RESULTS = ROOT / "benchmarks" / "results" / "gpu-queue"
DONE, CUT = "done", "cut"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Job:
    """A policy to train and evaluate, or a base model to evaluate."""

    name: str = setting("", "Of the run's folder, and of the results.")
    model: str = setting("", "As sce train --model.")
    minutes: float = setting(0.0, "Of training and evaluation together, as planned.", minimum=0)
    recipe: str = setting("", "As sce train --recipe; empty: nothing is trained, the model is evaluated.")
    problems: str = setting("", "To train on: a set, or a file next to the queue; empty: those of the recipe.")
    seed: int = setting(42, "Of the training.", minimum=0)
    max_steps: int | None = setting(None, "Updates of each phase, at most.", minimum=1)
    settings: tuple[str, ...] = setting((), "As sce train --set.")
    evaluations: tuple[str, ...] = setting((), "Names of tables [evaluation.NAME].")
    evaluation_minutes: float = setting(0.0, "Part of the minutes for them.", minimum=0)
    memory_gib: float = setting(8.0, "Of an evaluation; a training takes that of its plan, if more.", minimum=0)


@dataclass(frozen=True)
class Queue:
    """A queue file.

    Attributes:
        jobs: in order; a table with ``seeds = [1, 2]`` is two of them, NAME-1 and NAME-2.
        evaluations: options of ``sce bench`` by name, such as {"problems": "humaneval", "samples": 8}.
    """

    file: Path
    jobs: tuple[Job, ...]
    evaluations: dict[str, dict[str, Any]]

    def path_of(self, name: str) -> str:
        """The path of a file beside the queue; of another kind of thing its name."""
        file = self._beside(name)
        return str(file) if file.is_file() else name

    def files(self) -> list[Path]:
        """The problem files and recipes beside the queue that its jobs name."""
        paths = [self._beside(name) for name in sorted(self._named() - {""})]
        return [path for path in paths if path.is_file()]

    def missing(self) -> list[str]:
        """The files beside the queue that jobs name, and that are not there."""
        is_file = (".jsonl", ".toml")
        return sorted(each for each in self._named() if each.endswith(is_file) and not self._beside(each).is_file())

    def _beside(self, name: str) -> Path:
        return self.file.parent / name

    def _named(self) -> set[str]:
        of_jobs = {name for job in self.jobs for name in (job.problems, job.recipe)}
        return of_jobs | {str(options.get("problems", "")) for options in self.evaluations.values()}

    def check(self) -> None:
        """Check what only the whole can tell; `UsageError` if something is wrong."""
        names = [job.name for job in self.jobs]
        if not names:
            raise UsageError(f"{self.file}: no [[job]]")
        for job in self.jobs:
            where = f"{self.file}: job {job.name or 'without a name'}"
            if not is_name(job.name):
                raise UsageError(f"{where}: a name has letters, digits, '.', '_' and '-'")
            if names.count(job.name) > 1:
                raise UsageError(f"{where}: there are two of that name")
            if not job.model or not job.minutes:
                raise UsageError(f"{where}: {'minutes' if job.model else 'model'} is missing")
            if not job.recipe and not job.evaluations:
                raise UsageError(f"{where}: neither a recipe nor evaluations, so there is nothing to do")
            if unknown := [name for name in job.evaluations if name not in self.evaluations]:
                raise UsageError(f"{where}: no [evaluation.{unknown[0]}]")
        if outside := sorted(name for name in self._named() if Path(name).is_absolute() or ".." in Path(name).parts):
            raise UsageError(f"{self.file}: {outside[0]} must lie next to the queue file")


def is_name(text: str) -> bool:
    """Whether a job may be called so: names become folders."""
    return _NAME.fullmatch(text) is not None


def read_queue(file: Path) -> Queue:
    """The queue in a TOML file.

    Raises:
        UsageError: an unknown key, a wrong value, or one that is missing.
        SceError: the file cannot be read.
    """
    table = read_toml(file)
    if unknown := sorted(set(table) - {"job", "evaluation"}):
        raise UsageError(f"{file}: unknown table {unknown[0]!r}; there are [[job]] and [evaluation.NAME]")
    rows, evaluations = table.get("job", []), table.get("evaluation", {})
    are_tables = isinstance(rows, list) and isinstance(evaluations, dict)
    if not are_tables or not all(isinstance(each, dict) for each in (*rows, *evaluations.values())):
        raise UsageError(f"{file}: jobs are tables [[job]], evaluations tables [evaluation.NAME]")
    jobs: list[Job] = []
    for number, row in enumerate(rows, start=1):
        where, seeds = f"{file}: job {row.get('name', number)}", row.pop("seeds", [])
        if not isinstance(seeds, list) or not all(type(seed) is int and seed >= 0 for seed in seeds):
            raise UsageError(f"{where}: seeds must be a list of whole numbers")
        job = build(Job, row, where)
        jobs += [replace(job, name=f"{job.name}-{seed}", seed=seed) for seed in seeds] or [job]
    queue = Queue(file, tuple(jobs), evaluations)
    queue.check()
    return queue


def read_states(results: Path) -> dict[str, dict[str, Any]]:
    """What is known of each job that was started: its ``state``, such as `DONE` or `CUT`, and where it ran.

    Raises:
        SceError: the file is damaged.
    """
    file = results / "jobs.json"
    states: dict[str, dict[str, Any]] = read_json(file) if file.is_file() else {}
    is_whole = isinstance(states, dict) and all(
        isinstance(state, dict) and "state" in state and is_name(name) for name, state in states.items()
    )
    if not is_whole:
        raise SceError(f"{file}: damaged; delete it, or restore it from the last commit")
    return states


def write_states(results: Path, states: dict[str, dict[str, Any]]) -> None:
    """Write what `read_states` reads."""
    results.mkdir(parents=True, exist_ok=True)
    with write_atomically(results / "jobs.json") as out:
        out.write(json.dumps(states, indent=1, sort_keys=True) + "\n")
