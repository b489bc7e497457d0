"""The log of a study's steps: ``steps.jsonl`` in its folder, one row for each attempt at a step.

A step is done if an attempt succeeded and its outputs still exist. Its key is a hash of its command, the settings and
problems behind it, and the key of the step before it. So an edited recipe or problem file makes new steps, and a study
that is moved, or called from another folder, keeps its steps.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from securecoderl_edge import __version__
from securecoderl_edge.config import to_table
from securecoderl_edge.evaluation.bench import BenchSettings, bench_problems
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import digest_of_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.system.processes import module_command
from securecoderl_edge.system.rows import RowFile, drop_truncated_line, read_objects

STEPS = "steps.jsonl"
SCE = "securecoderl_edge"
# Pretraining under the name that the keys of finished steps have.
PRETRAIN = "securecoderl_edge.training.pretrain"
PRETRAIN_SCRIPT = Path(__file__).resolve().parents[1] / "starter" / "pretrain.py"


@dataclass(frozen=True)
class Step:
    """One command of a study.

    Attributes:
        title: a short description.
        words: a module, such as `SCE`, or `PRETRAIN`; and its arguments.
        log: the file for its standard error. outputs: files that exist when it is done.
        after: the step that must run before it.
        facts: the settings behind its command, as text. learns_from, measures: its training and evaluation problems.
    """

    title: str
    words: tuple[str, ...]
    log: Path
    outputs: tuple[Path, ...]
    after: Step | None = None
    facts: str = ""
    learns_from: str | None = None
    measures: str | None = None

    @property
    def command(self) -> str:
        """The command line for people."""
        module, *arguments = self.words
        programs = {SCE: ("sce",), PRETRAIN: ("python", "benchmarks/starter/pretrain.py")}
        return shlex.join((*programs.get(module, ("python", "-m", module)), *arguments))

    @property
    def process(self) -> list[str]:
        """The command line of a child process, with the imports of this one."""
        module, *arguments = self.words
        if module == PRETRAIN:
            return [*module_command(PRETRAIN_SCRIPT.stem, PRETRAIN_SCRIPT.parent), *arguments]
        return [*module_command(module), *arguments]


class RunLog:
    """The attempts at a study's steps."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, RowFile(folder / STEPS)
        self._attempts = _read(folder / STEPS)
        self._succeeded = {row["key"] for row in self._attempts if row["succeeded"]}
        self._keys: dict[Step, str] = {}

    def open(self) -> None:
        """Prepare for new rows: drop a line that a crash truncated, so that its step is repeated."""
        drop_truncated_line(self._folder / STEPS)

    def key(self, step: Step) -> str:
        """A hash that distinguishes steps with the same command but other inputs.

        Raises:
            UsageError, SceError: its problems cannot be read.
        """
        if step not in self._keys:
            parts = {
                # Independent of the study's folder.
                "words": [_below(word, self._folder) for word in step.words],
                "after": None if step.after is None else self.key(step.after),
                "facts": _below(step.facts, self._folder),
                "learns_from": None if step.learns_from is None else _digest(training_problems(step.learns_from)),
                "measures": None if step.measures is None else _digest(evaluation_problems(step.measures)),
                "version": __version__,
            }
            self._keys[step] = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        return self._keys[step]

    def is_done(self, step: Step) -> bool:
        """Whether the step succeeded and its outputs exist."""
        return self.key(step) in self._succeeded and all(path.exists() for path in step.outputs)

    def add(self, step: Step, began: float, seconds: float, succeeded: bool) -> None:
        """Record an attempt.

        Raises:
            SceError: the file cannot be written.
        """
        row = {
            "key": self.key(step),
            "command": step.command,
            "began": began,
            "seconds": round(seconds, 2),
            "succeeded": succeeded,
        }
        self._file.append([row])
        self._attempts.append(row)
        if succeeded:
            self._succeeded.add(row["key"])

    def take(self, other: RunLog) -> None:
        """Add the attempts of another log that are not here yet; errors as in `add`."""
        known = {(row["key"], row["began"]) for row in self._attempts}
        fresh = [row for row in other._attempts if (row["key"], row["began"]) not in known]
        self._file.append(fresh)
        self._attempts += fresh
        self._succeeded |= other._succeeded

    def seconds(self, step: Step) -> float:
        """Total time of all attempts."""
        key = self.key(step)
        return float(sum(row["seconds"] for row in self._attempts if row["key"] == key))

    def wall_seconds(self, steps: Collection[Step]) -> float:
        """The time in which at least one of the steps was running, over all sessions."""
        keys = {self.key(step) for step in steps}
        spans = sorted((row["began"], row["began"] + row["seconds"]) for row in self._attempts if row["key"] in keys)
        total, reached = 0.0, 0.0
        for begin, end in spans:
            total += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        return total


def changed_values(settings: Any, defaults: Any = None) -> dict[str, Any]:
    """The nested plain values that differ from ``defaults``, by default those of the class; None is a value here.

    A later setting with a default that changes nothing adds nothing to them.
    """
    return _changed(to_table(settings), to_table(type(settings)() if defaults is None else defaults))


def _changed(table: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sorted({*table, *defaults}):
        value, default = table.get(name), defaults.get(name)
        if isinstance(value, dict) and isinstance(default, dict):
            found |= {name: inner} if (inner := _changed(value, default)) else {}
        elif value != default:
            found[name] = value
    return found


def training_problems(source: str) -> tuple[Problem, ...]:
    """The problems of ``sce train`` under a name; errors as in `load_problems`."""
    return _read_problems(source, _signature(source), False)


def evaluation_problems(source: str) -> tuple[Problem, ...]:
    """The problems of ``sce bench`` under a name; errors as in `bench_problems`."""
    return _read_problems(source, _signature(source), True)


@cache
def _read_problems(source: str, _signature: object, for_evaluation: bool) -> tuple[Problem, ...]:
    return tuple(bench_problems(BenchSettings(problems=source)) if for_evaluation else load_problems(source))


def _signature(source: str) -> object:
    """A value that changes with the file; reading it again for every step would take longer than small steps do."""
    try:
        file = os.stat(source)
    except OSError:
        return None
    return os.path.abspath(source), file.st_mtime_ns, file.st_size


@cache
def _digest(problems: tuple[Problem, ...]) -> str:
    """The digest of a problem set, cached: hashing it for every step would take longer than small steps do."""
    return digest_of_problems(problems)


def _below(text: str, folder: Path) -> str:
    for name in (os.path.abspath(folder), str(folder)):
        text = text.replace(name, "STUDY")
    return text


def _read(file: Path) -> list[dict[str, Any]]:
    rows = []
    for _, row in read_objects(file) if file.exists() else ():
        try:
            rows.append({"key": str(row["key"]), "command": str(row["command"]), "began": float(row["began"]),
                         "seconds": float(row["seconds"]), "succeeded": row["succeeded"] is True})  # fmt: skip
        except (ValueError, KeyError, TypeError):
            continue  # not a row of ours, or truncated
    return rows
