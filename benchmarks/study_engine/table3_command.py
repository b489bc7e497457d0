"""``sce reproduce table3``: a study of training variants, with several seeds, on this machine or on several."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import data, duration, say, track
from securecoderl_edge.commands.options import examples, flags_of, options_from, output_formats
from securecoderl_edge.commands.terminal_tables import TABLE_FORMATS, publish_tables
from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.packages import find_torch
from securecoderl_edge.models.sizes import GIB
from securecoderl_edge.system.cluster import LOCAL, is_ray
from securecoderl_edge.system.processes import ask
from study_engine.table3 import Table3Settings
from study_engine.table3 import table3 as plan_table3

if TYPE_CHECKING:
    from study_engine.arms import Study
    from study_engine.run_log import Step


@click.command(epilog=examples("sce reproduce table3 --quick", "sce reproduce table3 --seeds 3 --set ppo.epochs=4"))
@options_from(Table3Settings)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of the recipe in all variants, such as ppo.epochs=4; may be repeated.",
)
@click.option(
    "--merge",
    "folders",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Take the results of another machine from its --out folder, and train nothing; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Print the commands of the study, and stop.")
@output_formats(**TABLE_FORMATS)
def table3(
    config: Table3Settings, overrides: tuple[str, ...], folders: tuple[Path, ...], dry_run: bool, output: str | None
) -> None:
    """Train, export and evaluate SFT, the PPO variants, and two baselines without RL.

    The starter recipe has two splits: eval, and hard with longer task templates.
    """
    from securecoderl_edge.export.dispatch import check_type

    for quant in config.quant:
        check_type("gguf", quant)
    study, jobs = plan_table3(config, overrides), config.jobs_at_once
    if dry_run and output is not None:
        raise UsageError(f"--dry-run prints one command per line. Leave out --{output}.")
    if dry_run:
        from study_engine.steps import all_steps

        for step in all_steps(study, jobs):
            data.print(step.command, soft_wrap=True)
        _say_cost(study, jobs)
        return
    from study_engine.steps import take_finished
    from study_engine.study_record import study_record
    from study_engine.study_tables import study_tables

    if folders:
        take_finished(study, folders, jobs)
    elif is_ray(config.engine):
        if config.shard is not None:
            raise UsageError("--engine ray has a seed as its part. Leave out --shard.")
        _train_on_cluster(study, config, overrides, jobs)
    else:
        _train(study, jobs)
    record = study_record(study, jobs)
    if record["steps_done"] < record["steps"]:
        say(f"{record['steps_done']} of {record['steps']} steps are finished; without --merge, sce runs the others")
    file = study.folder / f"{study.name}.json"
    publish_tables(output, record, lambda lines: study_tables(record, lines=lines), file)
    if output is None:
        seeds = f"{len(study.seeds)} seeds and " if len(study.seeds) > 1 else "one seed, over "
        spent = duration(record["wall_seconds"])
        data.print(f"Intervals are 95 %, over {seeds}problems. Time: {spent}. Results: {file}", soft_wrap=True)


def _train_on_cluster(study: Study, config: Table3Settings, overrides: tuple[str, ...], jobs: int) -> None:
    from study_engine.cluster_seeds import train_seeds

    # A node with other cores would choose another number of threads, and its results would be those of another study.
    words = flags_of(replace(config, out=None, engine=LOCAL, threads=study.threads))
    for override in overrides:
        words += ["--set", override]
    started = time.monotonic()
    with track(len(study.seeds), study.name, lines=False) as progress:
        for done, seed in train_seeds(config.engine, study, words, jobs):
            progress.update(1, f"seed {seed}")
            say(f"[{done}/{len(study.seeds)}] seed {seed}, {duration(time.monotonic() - started)} after the start")


def _train(study: Study, jobs: int) -> None:
    find_torch()  # it is not loaded here, to save memory for the children
    _require_gpu(study)
    from study_engine.steps import all_steps, run_study

    with track(len(all_steps(study, jobs)), study.name, lines=False) as progress:

        def on_step(step: Step, seconds: float, done: int, total: int) -> None:
            progress.reach(done, step.title)
            say(f"[{done}/{total}] {step.title}, {duration(seconds)}")

        run_study(study, jobs, on_step, say)


def _require_gpu(study: Study) -> None:
    """Check before any step that there is the GPU that trainings need, in a process of its own.

    Raises:
        UsageError: there is none that torch can use.
    """
    if all(study.settings(arm, study.seeds[0]).device != "cuda" for arm in study.arms):
        return
    answer = ask("securecoderl_edge.training.device_check", {"device": "cuda"})
    problem = answer.messages[0]["error"] if answer.messages else answer.death
    if problem:
        raise UsageError(str(problem))


def _say_cost(study: Study, jobs: int) -> None:
    """Print memory and time of the study on stderr, where sizes alone tell: on a GPU that is not here.

    Phases that several arms share are trained once.
    """
    from securecoderl_edge.training.plan import make_plan

    if study.settings(study.arms[0], study.seeds[0]).device != "cuda":
        return
    seconds: dict[tuple[str, ...], float | None] = {}
    peak, where = 0, ""
    for arm in study.arms:
        plan = make_plan(study.settings(arm, study.seeds[0]))
        where = f" of a {plan.gpu.name}" if plan.gpu else ""
        for number, phase in enumerate(plan.phases):
            done = tuple(f"{each.name} {each.steps}" for each in plan.phases[: number + 1])
            seconds[arm.split.name, *(() if number == 0 else arm.settings), *done] = phase.seconds
            peak = max(peak, phase.memory.peak)
    say(f"memory of a training: about {peak / GIB:.1f} GiB, estimated")
    known = [each for each in seconds.values() if each is not None]
    if len(known) == len(seconds):
        days = sum(known) * len(study.seeds) / jobs / 86400
        say(
            f"trainings: about {days:.1f} days{where} for {len(study.seeds)} seeds if every completion has the maximum "
            "length, without final evaluations and running programs; estimated from its data sheet, not measured"
        )
