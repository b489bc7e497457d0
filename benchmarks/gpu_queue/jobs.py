"""The jobs of a queue file, and which of them are done."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
QUEUE = Path(__file__).with_name("queue.toml")
RESULTS = ROOT / "benchmarks" / "results" / "gpu-queue"
DONE, CUT = "done", "cut"


@dataclass(frozen=True)
class Job:
    """A policy to train and evaluate, or a base model to evaluate.

    Attributes:
        name: of the run's folder and of the results.
        model: as ``sce train --model``.
        minutes: what all of it takes, as planned.
        recipe: as ``sce train --recipe``; empty: nothing is trained, the model is evaluated.
        problems: to train on; empty: those of the recipe. A path is relative to the queue file.
        seed: of the training.
        max_steps: updates of each phase, at most; None: as the recipe says.
        settings: as ``sce train --set``.
        evaluations: names of tables [evaluation.NAME] of the queue.
        evaluation_minutes: part of ``minutes`` for them.
        memory_gib: what an evaluation takes at most; a training takes what its plan says, if that is more.
    """

    name: str
    model: str
    minutes: float
    recipe: str = ""
    problems: str = ""
    seed: int = 42
    max_steps: int | None = None
    settings: tuple[str, ...] = ()
    evaluations: tuple[str, ...] = ()
    evaluation_minutes: float = 0.0
    memory_gib: float = 8.0


@dataclass(frozen=True)
class Queue:
    """A queue file.

    Attributes:
        jobs: in order; a job with ``seeds = [1, 2]`` in the file is two jobs, NAME-1 and NAME-2.
        evaluations: options of ``sce bench`` by name, such as {"problems": "humaneval", "samples": 8}.
    """

    file: Path
    jobs: tuple[Job, ...]
    evaluations: dict[str, dict[str, Any]]

    def path_of(self, problems: str) -> str:
        """A problem set's name, or the path of a file beside the queue."""
        file = self.file.parent / problems
        return str(file) if file.is_file() else problems

    def files(self) -> list[Path]:
        """The problem files and recipes beside the queue that its jobs name."""
        named = {job.problems for job in self.jobs} | {job.recipe for job in self.jobs}
        named |= {str(options.get("problems", "")) for options in self.evaluations.values()}
        paths = [self.file.parent / name for name in sorted(named - {""})]
        return [path for path in paths if path.is_file()]


def read_queue(file: Path) -> Queue:
    """The queue in a TOML file.

    Raises:
        SystemExit: a key or an evaluation is unknown, a name occurs twice, or a value is missing.
    """
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    evaluations = table.get("evaluation", {})
    jobs: list[Job] = []
    for row in table.get("job", []):
        seeds = row.pop("seeds", None)
        row["settings"], row["evaluations"] = tuple(row.get("settings", ())), tuple(row.get("evaluations", ()))
        for seed in seeds or (row.get("seed", 42),):
            name = f"{row.get('name')}-{seed}" if seeds else row.get("name")
            try:
                jobs.append(Job(**{**row, "name": name, "seed": seed}))
            except TypeError as error:
                raise SystemExit(f"{file}: job {name}: {error}") from None
    names = [job.name for job in jobs]
    for job in jobs:
        if names.count(job.name) > 1:
            raise SystemExit(f"{file}: two jobs are called {job.name}")
        if unknown := [name for name in job.evaluations if name not in evaluations]:
            raise SystemExit(f"{file}: job {job.name}: no [evaluation.{unknown[0]}]")
    return Queue(file, tuple(jobs), evaluations)


def read_states(results: Path) -> dict[str, dict[str, Any]]:
    """What is known of each job that was started: its ``state``, `DONE` or `CUT`, and where it ran."""
    file = results / "jobs.json"
    states: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.is_file() else {}
    return states


def write_states(results: Path, states: dict[str, dict[str, Any]]) -> None:
    """Write what `read_states` reads."""
    results.mkdir(parents=True, exist_ok=True)
    (results / "jobs.json").write_text(json.dumps(states, indent=1, sort_keys=True) + "\n")
