"""The commands of a study, run in order as processes of their own, some side by side, none of them twice.

``steps.jsonl`` in the study's folder has one row for each attempt: its command, how long it took, whether it succeeded.
A command that is there as done is not run again. What was cut short goes on, since ``sce train`` and ``sce bench`` do.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.files import locked
from securecoderl_edge.machine import cpu_count
from securecoderl_edge.metrics import RowFile
from securecoderl_edge.study.arms import Study

STEPS = "steps.jsonl"
INTERRUPTED = 130


@dataclass(frozen=True)
class Step:
    """One command of a study.

    Attributes:
        title: what it does, in a few words.
        words: of ``python -m``. command: the same as one would type it.
        log: the file that gets its standard error.
    """

    title: str
    words: tuple[str, ...]
    command: str
    log: Path


def sce_command(words: Sequence[str]) -> str:
    """A command of sce as one would type it."""
    return shlex.join(("sce", *words))


def python_command(words: Sequence[str]) -> str:
    """A module with its arguments as one would type it."""
    return shlex.join(("python", "-m", *words))


def _of_sce(title: str, words: Sequence[str], log: Path) -> Step:
    return Step(title, ("securecoderl_edge", *words), sce_command(words), log)


def preparations(study: Study) -> list[Step]:
    """The steps that all others need: base models of the study's own."""
    steps = []
    for slice in study.slices:
        words = study.prepare_command(slice)
        if words is not None and slice.base is not None:
            log = study.folder / "bases" / f"{slice.base.name}.log"
            steps.append(Step(f"base model {slice.base.name}", tuple(words), python_command(words), log))
    return steps


def chains(study: Study, jobs: int) -> Iterator[list[Step]]:
    """The study's steps as chains: within one, each needs those before it; chains need nothing of each other.

    A few seeds at a time are worked through, so that a study that was stopped has some seeds whole. Neighbours are of
    different seeds: two arms of one seed would train their common phases twice.
    """
    for slice in study.slices:
        log = study.folder / "base" / f"{study.bench_name(slice)}.log"
        yield [_of_sce(f"base model on {slice.name}", study.base_command(slice), log)]
    for start in range(0, len(study.seeds), jobs):
        for arm in study.arms:
            for seed in study.seeds[start : start + jobs]:
                log = study.run_folder(arm, seed).with_suffix(".log")
                name = f"{arm.name}, seed {seed}"
                chain = [_of_sce(f"{name}: training", study.train_command(arm, seed), log)]
                export = study.export_command(arm, seed)
                if export is not None:
                    chain.append(_of_sce(f"{name}: export", export, log))
                for slice in arm.measured_on:
                    words = study.bench_command(arm, seed, slice)
                    chain.append(_of_sce(f"{name}: measured on {slice.name}", words, log))
                yield chain


def run_study(study: Study, jobs: int, on_step: Callable[[Step, float, int, int], None]) -> None:
    """Run all steps that are not done yet.

    Args:
        jobs: chains side by side; the cores are shared among them.
        on_step: called after each step with its seconds, the steps done, and those of the study.

    Raises:
        SceError: a step failed, or another process works in the folder. Steps beside it end first.
        KeyboardInterrupt: those beside it have saved what they had.
    """
    study.folder.mkdir(parents=True, exist_ok=True)
    with locked(study.folder):
        _Runner(study, jobs, on_step).run()


def seconds_of_steps(folder: Path) -> dict[str, float]:
    """By command, the seconds of all attempts together."""
    seconds: dict[str, float] = {}
    for row in _attempts(folder):
        seconds[row["command"]] = seconds.get(row["command"], 0.0) + row["seconds"]
    return seconds


def done_steps(folder: Path) -> set[str]:
    """The commands that succeeded."""
    return {row["command"] for row in _attempts(folder) if row["succeeded"]}


def wall_seconds(folder: Path, commands: Collection[str]) -> float:
    """The time in which at least one of the commands was running, over all sessions."""
    attempts = (row for row in _attempts(folder) if row["command"] in commands)
    spans = sorted((row["began"], row["began"] + row["seconds"]) for row in attempts)
    total, reached = 0.0, 0.0
    for begin, end in spans:
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _attempts(folder: Path) -> list[dict[str, Any]]:
    """Rows of attempts; a line that a crash cut short is an attempt to make again."""
    try:
        lines = (folder / STEPS).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
            rows.append({"command": str(row["command"]), "began": float(row["began"]),
                         "seconds": float(row["seconds"]), "succeeded": row["succeeded"] is True})  # fmt: skip
        except (ValueError, KeyError, TypeError):
            continue
    return rows


class _Runner:
    """The processes that run at a time, and the record of those that ended."""

    def __init__(self, study: Study, jobs: int, on_step: Callable[[Step, float, int, int], None]) -> None:
        self._study, self._jobs, self._on_step = study, jobs, on_step
        self._file = RowFile(study.folder / STEPS)
        self._done = done_steps(study.folder)
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stops = False
        self._total = 0
        self._threads = cpu_count()

    def run(self) -> None:
        first, every = preparations(self._study), list(chains(self._study, self._jobs))
        self._total = len(first) + sum(map(len, every))
        missing = [chain for chain in every if any(step.command not in self._done for step in chain)]
        with ThreadPoolExecutor(self._jobs) as pool, self._ends_children():
            pool.submit(self._run_chain, first).result()
            self._threads = max(1, cpu_count() // self._jobs)
            futures: set[Future[None]] = {pool.submit(self._run_chain, chain) for chain in missing}
            while futures:
                ended, futures = wait(futures, return_when=FIRST_COMPLETED)
                for future in ended:
                    future.result()

    @contextmanager
    def _ends_children(self) -> Iterator[None]:
        """However the block ends, no process goes on: each is asked to stop, as by Ctrl-C, and waited for."""
        try:
            yield
        finally:
            with self._lock:
                self._stops = True
                for process in self._running:
                    process.send_signal(signal.SIGINT)

    def _run_chain(self, chain: list[Step]) -> None:
        for step in chain:
            if step.command not in self._done:
                self._run_step(step)

    def _run_step(self, step: Step) -> None:
        step.log.parent.mkdir(parents=True, exist_ok=True)
        began, started = time.time(), time.monotonic()
        with step.log.open("ab") as log:
            with self._lock:
                if self._stops:
                    return
                process = subprocess.Popen(
                    [sys.executable, "-m", *step.words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    env={**os.environ, "OMP_NUM_THREADS": str(self._threads)},
                    # Ctrl-C on a terminal must reach it once, from here: twice would lose an update.
                    start_new_session=True,
                )
                self._running.add(process)
            status = process.wait()
        seconds = time.monotonic() - started
        with self._lock:
            self._running.discard(process)
            row = {"command": step.command, "began": began, "seconds": round(seconds, 2), "succeeded": status == 0}
            self._file.append([row])
            if status == 0:
                self._done.add(step.command)
            done = len(self._done)
            if self._stops:
                return
        if status != 0:
            raise SceError(f"{step.title} failed: {_last_line(step.log)}\n{step.command}\nits output is in {step.log}")
        self._on_step(step, seconds, done, self._total)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("sce: ") if lines else "no message"
