"""Evaluations with their progress on stderr, for all commands that measure models."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from securecoderl_edge.commands.console import duration, say, track
from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.bench import BenchSettings, bench_batches
from securecoderl_edge.evaluation.measure import measure
from securecoderl_edge.runtimes.opening import note_on
from securecoderl_edge.sandbox.calibration import time_factor
from securecoderl_edge.system.cluster import LOCAL
from securecoderl_edge.system.machine import busy_share, cpu_count
from securecoderl_edge.text import counted

if TYPE_CHECKING:
    from securecoderl_edge.evaluation.evaluate import Evaluation, EvaluationProgress
    from securecoderl_edge.export.run import ExportResult
    from securecoderl_edge.problems.problem import Problem
    from securecoderl_edge.runtimes.spec import ModelSpec
    from securecoderl_edge.scoring.scorer import Scorer

_BUSY = 0.2
_SECONDS_BETWEEN = 0.1  # of two looks at the tokens that are decoded


def measure_all(
    specs: list[ModelSpec],
    problems: list[Problem],
    scorer: Scorer,
    config: BenchSettings,
    out: Path | None,
    factor: float,
    engine: str = LOCAL,
) -> dict[int, Evaluation]:
    """Evaluate models, by position; one that cannot be opened does not stop the others.

    Raises:
        SceError: none of them could be evaluated.
    """
    done: dict[int, Evaluation] = {}
    failures = []
    for index, spec in enumerate(specs):
        try:
            done[index] = _measure(spec, problems, scorer, config, out, factor, engine)
        except SceError as error:
            failures.append(error)
            if len(specs) > 1:
                say(f"sce: {spec.label}: {error}")
    if not done:
        raise failures[0]
    return done


def refuse_missing(missing: int, models: int) -> None:
    """End with an error if a model could not be evaluated, after the results of the others are printed.

    Raises:
        SceError: at least one could not.
    """
    if missing:
        raise SceError(f"{missing} of {counted(models, 'model')} could not be evaluated")


def calibrated(folder: Path | None = None) -> float:
    """Time factor of this machine, reported if it is above 1. Warns if the machine is busy, too.

    ``folder`` and errors: as in `time_factor`.
    """
    busy = busy_share()
    if busy is not None and busy > _BUSY:
        say(
            f"other processes use {busy:.0%} of the {counted(cpu_count(), 'CPU core')}: measured speeds will be too low"
        )
    factor = time_factor(folder)
    if factor > 1:
        say(f"slow CPU: the time limits of programs are {factor:g} times the usual ones")
    return factor


def _measure(
    spec: ModelSpec,
    problems: list[Problem],
    scorer: Scorer,
    config: BenchSettings,
    out: Path | None,
    factor: float,
    engine: str,
) -> Evaluation:
    """Evaluate one model, with a progress bar on a terminal and one line at the end."""
    if note := note_on(spec):
        say(f"{spec.label}: {note}")
    started = time.monotonic()
    count = sum(map(len, bench_batches(config, problems).values()))
    with track(count * config.samples, spec.label, lines=False) as progress:
        scored = 0

        def report(now: EvaluationProgress) -> None:
            nonlocal scored
            note = f"reward {now.reward:.2f} syntax {now.syntax_rate:.0%}" if now.done else ""
            progress.reach(now.completed, note)
            if now.done > scored:
                progress.show_stage("running programs", now.done, now.completed, "programs")
            scored = now.done

        progress.show_stage("loading the model", 0, 0, "")
        told = -_SECONDS_BETWEEN

        def decoded(pieces: int, most: int) -> None:
            nonlocal told
            now = time.monotonic()
            if not pieces or now - told >= _SECONDS_BETWEEN:
                told = now
                progress.show_stage("decoding", pieces, most, "tokens")

        evaluation = measure(spec, problems, scorer, config, out, report, factor, engine, decoded)
    made = len(evaluation.rows) - evaluation.reused
    reused = f"; {evaluation.reused} reused" if evaluation.reused else ""
    say(f"{spec.label}: {counted(made, 'program')} in {duration(time.monotonic() - started)}{reused}")
    return evaluation


def measure_exports(spec: ModelSpec, base: Path, results: list[ExportResult], problems: list[Problem]) -> None:
    """Print the loss by quantization, and add it to the cards of the files."""
    from securecoderl_edge.commands.terminal_tables import show_quantization
    from securecoderl_edge.export.card import write_card
    from securecoderl_edge.export.quantization_report import measure_quantization
    from securecoderl_edge.scoring.scorer import Scorer

    def tell(result: ExportResult) -> None:
        say(f"{result.path.name}: evaluating {counted(len(problems), 'problem')}")

    with Scorer(time_factor=calibrated()) as scorer:
        report = measure_quantization(spec, results, problems, scorer, tell)
    show_quantization(report)
    for result in results:
        write_card(result, spec, base, report.to_markdown())
