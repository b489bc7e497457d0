"""Execution of the commands of a study as separate processes, some in parallel, none of them twice (`run_log`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from securecoderl_edge.errors import SceError
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.system.files import locked
from securecoderl_edge.system.machine import cpu_count, visible_gpus
from securecoderl_edge.system.processes import describe_end, on_ending_signals, result_of
from securecoderl_edge.training.phase_settings import WITHOUT_REWARD
from securecoderl_edge.training.settings import RewardSettings, SelectionSettings, TrainSettings, with_own_r
from study_engine.arms import Arm, Split, Study
from study_engine.figures import (
    Figures,
    figures_of_arm,
    figures_of_base,
    load_figures,
    save_figures,
)
from study_engine.run_log import (
    PRETRAIN,
    SCE,
    RunLog,
    Step,
    changed_values,
    evaluation_problems,
    training_problems,
)

_OnStep = Callable[[Step, float, int, int], None]
# The keys of steps have what differs from the defaults of the first studies.
_FIRST_RULE = SelectionSettings(hold_out="problems", metric="reward", standard_errors=1.0)
_FIRST_DEFAULTS = TrainSettings(selection=_FIRST_RULE, reward=RewardSettings(ignored_input="keep"))


def prepare_step(study: Study, split: Split) -> Step | None:
    """The step that makes the base model of a split; None if it is the recipe's."""
    words, model = study.prepare_command(split), study.model(split)
    if words is None or model is None:
        return None
    folder = Path(model)
    return Step(f"base model {folder.name}", (PRETRAIN, *words), _log(folder), (folder,))


def _base_step(study: Study, split: Split) -> Step:
    """The step that evaluates the base model on a split."""
    folder, run = study.base_folder(split), study.run_of_base(split)
    return Step(
        f"base model on {split.name}",
        (SCE, *study.base_command(split)),
        _log(folder),
        (folder / "bench.json",),
        after=prepare_step(study, split) if run is None else train_step(study, *run),
        measures=split.eval,
    )


def train_step(study: Study, arm: Arm, seed: int) -> Step:
    """The step that trains an arm."""
    return Step(
        f"{arm.name}, seed {seed}: training",
        (SCE, *study.train_command(arm, seed)),
        _log(study.run_folder(arm, seed)),
        (study.run_folder(arm, seed) / "policy",),
        after=prepare_step(study, arm.split),
        facts=_facts(study.settings(arm, seed)),
        learns_from=arm.split.train,
    )


def _facts(settings: TrainSettings) -> str:
    return json.dumps(changed_values(_settings_with_effect(settings), _FIRST_DEFAULTS), sort_keys=True)


def _settings_with_effect(settings: TrainSettings) -> TrainSettings:
    """The settings without the reward for RL, if no phase has such a reward: the step then keeps its key.

    Without held-out problems, the rule of selection has no effect either.
    """
    if not settings.selection.problems:
        settings = replace(settings, selection=replace(_FIRST_RULE, problems=0, every=settings.selection.every))
    if set(settings.phases) <= set(WITHOUT_REWARD):
        return replace(settings, reward=with_own_r(settings.reward))
    return settings


def _export_step(study: Study, arm: Arm, seed: int) -> Step:
    """The step that writes an arm's exports."""
    words = study.export_command(arm, seed)
    files = tuple(study.export_file(arm, seed, quant) for quant in arm.quants)
    after = train_step(study, arm, seed)
    return Step(f"{arm.name}, seed {seed}: export", (SCE, *words), _log(study.run_folder(arm, seed)), files, after)


def _bench_step(study: Study, arm: Arm, seed: int, split: Split) -> Step:
    """The step that evaluates an arm's models on a split. Training decides which models these are."""
    return Step(
        f"{arm.name}, seed {seed}: evaluated on {split.name}",
        (SCE, *study.bench_command(arm, seed, split)),
        _log(study.run_folder(arm, seed)),
        (study.bench_folder(arm, seed, split) / "bench.json",),
        after=train_step(study, arm, seed),
        measures=split.eval,
    )


def _log(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")


def _arm_steps(study: Study, arm: Arm, seed: int) -> list[Step]:
    """Training, export and evaluations of an arm, each of which needs those before it."""
    exports = [_export_step(study, arm, seed)] if arm.quants else []
    measured = [_bench_step(study, arm, seed, split) for split in arm.measured_on]
    return [train_step(study, arm, seed), *exports, *measured]


@dataclass(frozen=True)
class Chain:
    """Steps that need each other, of one arm and seed or of a base model.

    Attributes:
        steps: called again before each step, because training decides which models are evaluated.
        file: for the figures that the steps end in; a chain with figures is done.
        collect: makes them of the keys of the steps.
    """

    steps: Callable[[], list[Step]]
    file: Path
    collect: Callable[[Sequence[str]], Figures]

    def figures(self, run_log: RunLog) -> Figures | None:
        """The figures of these very steps, if they are done.

        Raises:
            SceError: the file is damaged.
        """
        figures = load_figures(self.file)
        return figures if figures and figures.keys == self.keys(run_log) else None

    def keys(self, run_log: RunLog) -> list[str]:
        """The keys of the steps in the log."""
        return [run_log.key(step) for step in self.steps()]

    def count_done(self, run_log: RunLog) -> int:
        """The number of steps that are done."""
        steps = self.steps()
        return len(steps) if self.figures(run_log) else sum(map(run_log.is_done, steps))


def arm_chain(study: Study, arm: Arm, seed: int) -> Chain:
    """The steps of an arm."""
    return Chain(
        lambda: _arm_steps(study, arm, seed),
        study.figures_file(arm, seed),
        partial(figures_of_arm, study, arm, seed),
    )


def base_chain(study: Study, split: Split) -> Chain:
    """The evaluation of a base model."""
    return Chain(
        lambda: [_base_step(study, split)], study.base_figures_file(split), partial(figures_of_base, study, split)
    )


def preparations(chains: Iterable[Chain]) -> list[Step]:
    """The steps that chains need before their first one: the base models of the study."""
    return list(dict.fromkeys(first.after for chain in chains if (first := chain.steps()[0]).after))


def chains(study: Study, jobs: int) -> Iterator[Chain]:
    """The study's steps in independent chains.

    The chains cover as many seeds at a time as there are jobs. So a study that was stopped has some complete seeds, and
    parallel chains usually have different seeds: two parallel arms of one seed would train their common phases twice.
    """
    for split in study.splits:
        yield base_chain(study, split)
    for start in range(0, len(study.seeds), jobs):
        for arm in study.arms:
            for seed in study.seeds[start : start + jobs]:
                yield arm_chain(study, arm, seed)


def all_steps(study: Study, jobs: int) -> list[Step]:
    """Every step in about the order in which they run."""
    every = list(chains(study, jobs))
    return [*preparations(every), *(step for chain in every for step in chain.steps())]


def check_study(study: Study) -> None:
    """Check the settings and the separation of training and evaluation problems before hours are spent.

    Raises:
        UsageError: impossible settings.
        SceError: problems that cannot be read, or the same statement on both sides.
    """
    for arm in study.arms:
        study.settings(arm, study.seeds[0])
    for train, test in dict.fromkeys((arm.split.train, split.eval) for arm in study.arms for split in arm.measured_on):
        trained = {_words(problem) for problem in training_problems(train)}
        both = [problem.id for problem in evaluation_problems(test) if _words(problem) in trained]
        if both:
            raise SceError(
                f"{len(both)} problems of {test} are in {train} too (first: {both[0]}). Separate them with "
                "sce data split"
            )


def _words(problem: Problem) -> str:
    return " ".join(problem.statement.split())


def take_finished(study: Study, folders: Sequence[Path], jobs: int) -> None:
    """Copy what is finished in other folders of the same study: figures, and the log of the steps behind them.

    Everything else may stay where it is: figures are all that a record and a resumed study need.

    Raises:
        SceError: a folder has no results of this study, is damaged, or another process uses the study's folder.
    """
    study.folder.mkdir(parents=True, exist_ok=True)
    with locked(study.folder):
        run_log = RunLog(study.folder)
        run_log.open()
        for folder in folders:
            their_log, taken = RunLog(folder), 0
            pairs = zip(chains(study, jobs), chains(replace(study, folder=folder), jobs), strict=True)
            for ours, theirs in pairs:
                figures = theirs.figures(their_log)
                if figures is None:
                    continue
                taken += 1
                if ours.figures(run_log) is None:
                    save_figures(figures, ours.file)
                    if ours.figures(run_log) is None:
                        # Only the run folder shows which snapshots such a phase has.
                        raise SceError(f"{theirs.file}: a phase ended early. Copy the run folder next to {ours.file}.")
            if not taken:
                raise SceError(f"{folder}: no finished results of this study. Give the options that made them.")
            run_log.take(their_log)


def run_study(
    study: Study, jobs: int, on_step: _OnStep = lambda *_: None, say: Callable[[str], None] = lambda message: None
) -> None:
    """Run all steps that are not done yet.

    Each sees one GPU, if there are any: that with the fewest running steps. Ctrl-C, SIGTERM and a closed terminal end
    the running steps, which save their progress.

    Args:
        jobs: number of parallel chains; they share the cores, and the GPUs if there are fewer.
        on_step: called after each step with its seconds, the number of finished steps, and that of all steps.
        say: called with messages for the user.

    Raises:
        UsageError, SceError: see `check_study`; or a step failed (parallel steps end first), or another process uses
            the folder.
        KeyboardInterrupt: it was interrupted.
    """
    check_study(study)
    gpus = visible_gpus()
    if jobs > len(gpus) > 0 and study.device != "cpu":
        say(
            f"{jobs} jobs share {len(gpus)} GPU{'s'[: len(gpus) > 1]}, but each is planned for all the memory of one. "
            f"If it is not enough, use --jobs {len(gpus)}"
        )
    study.folder.mkdir(parents=True, exist_ok=True)
    with locked(study.folder), on_ending_signals(_interrupt):
        _Runner(study, jobs, gpus, on_step).run()


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt  # so that child processes end with this one


class _Runner:
    """The running processes, and the log of finished ones."""

    def __init__(self, study: Study, jobs: int, gpus: Sequence[str], on_step: _OnStep) -> None:
        self._study, self._jobs, self._on_step = study, jobs, on_step
        self._steps_on = dict.fromkeys(gpus, 0)
        self._run_log = RunLog(study.folder)
        self._run_log.open()
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stops = False
        self._threads = cpu_count()
        self._done = self._total = 0

    def run(self) -> None:
        every = list(chains(self._study, self._jobs))
        missing = [chain for chain in every if not chain.figures(self._run_log)]
        first = preparations(missing)
        self._total = len(first) + sum(len(chain.steps()) for chain in every)
        self._done = sum(map(self._run_log.is_done, first)) + sum(each.count_done(self._run_log) for each in every)
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                result_of(pool.submit(self._run_steps, lambda: first))
                self._threads = max(1, cpu_count() // self._jobs)
                waiting = {pool.submit(self._run_chain, chain) for chain in missing}
                while waiting:
                    done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)  # see `result_of`
                    for future in done:
                        future.result()
            finally:
                # Stop all processes, as by Ctrl-C; the pool waits for them.
                with self._lock:
                    self._stops = True
                    for process in self._running:
                        process.send_signal(signal.SIGINT)

    def _run_chain(self, chain: Chain) -> None:
        self._run_steps(chain.steps)
        if not self._stops:
            with self._lock:
                save_figures(chain.collect(chain.keys(self._run_log)), chain.file)

    def _run_steps(self, steps: Callable[[], list[Step]]) -> None:
        for number in range(len(steps())):
            step = steps()[number]
            with self._lock:
                is_done = self._run_log.is_done(step)
            if not is_done:
                self._run_step(step)

    def _run_step(self, step: Step) -> None:
        if self._stops:
            return
        step.log.parent.mkdir(parents=True, exist_ok=True)
        began, started = time.time(), time.monotonic()
        with step.log.open("ab") as log:
            with self._lock:
                if self._stops:
                    return
                gpu = min(self._steps_on, key=self._steps_on.__getitem__, default="")
                own = {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
                process = subprocess.Popen(
                    step.process,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    env={**os.environ, "OMP_NUM_THREADS": str(self._threads), **own},
                    # Ctrl-C on a terminal must reach it once, from here: twice would lose an update.
                    start_new_session=True,
                )
                self._running.add(process)
                if gpu:
                    self._steps_on[gpu] += 1
            status = process.wait()
        seconds = time.monotonic() - started
        with self._lock:
            self._running.discard(process)
            if gpu:
                self._steps_on[gpu] -= 1
            self._run_log.add(step, began, seconds, status == 0)
            if self._stops:
                return
            if status == 0:
                self._done += 1
                self._on_step(step, seconds, self._done, self._total)
                return
        raise SceError(f"{step.title} failed: {_reason(status, step.log)}\n{step.command}\noutput: {step.log}")


def _reason(status: int, log: Path) -> str:
    if status < 0:
        killed = " (out of memory?)" if -status == signal.SIGKILL else ""
        return f"it was killed by {describe_end(status)}{killed}"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("sce: ") if lines else "no message"
