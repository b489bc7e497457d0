"""``sce reproduce``: the paper's tables, with several seeds and intervals; one resumable command per table."""

from __future__ import annotations

import importlib.util
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from securecoderl_edge.commands.console import data, duration, say, track
from securecoderl_edge.commands.options import ModelName, engine_setting, flags_of, options_from, output_formats
from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.shards import shard_of, shard_setting
from securecoderl_edge.evaluation.study.arms import Split
from securecoderl_edge.evaluation.study.table3 import PRESETS, VARIANTS
from securecoderl_edge.evaluation.study.table3 import table3 as plan_table3
from securecoderl_edge.models.gpus import device_setting
from securecoderl_edge.models.packages import find_torch
from securecoderl_edge.models.sizes import GIB
from securecoderl_edge.runs import RUNS
from securecoderl_edge.runtimes.protocol import MAX_THREADS
from securecoderl_edge.system.cluster import LOCAL, is_ray
from securecoderl_edge.system.files import write_atomically
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.system.processes import ask
from securecoderl_edge.training.recipe import load_recipe

if TYPE_CHECKING:
    from securecoderl_edge.evaluation.study.arms import Study
    from securecoderl_edge.evaluation.study.run_log import Step
    from securecoderl_edge.evaluation.tables import Table

_QUICK_PROBLEMS = 20


@dataclass(frozen=True)
class Table3Config:
    """Flags of `sce reproduce table3`."""

    recipe: str = setting("starter", "Built-in recipe or TOML file.", metavar="NAME|FILE")
    train: str | None = setting(None, "Training problems instead of the recipe's; needs --eval.", metavar="FILE")
    eval: str | None = setting(None, "Evaluation problems, which are not in --train; needs --train.", metavar="FILE")
    splits: tuple[str, ...] = setting((), "Use only these splits of the recipe, for example eval,hard.")
    variants: tuple[str, ...] = setting(
        (),
        "Training variants, comma-separated.  [default: sft and PPO; rft for starter and smollm2; ssd for starter]",
        choices=tuple(VARIANTS),
    )
    seeds: int = setting(5, "Training runs per variant, with seeds 42, 43, ...", minimum=1)
    samples: int | None = setting(
        None,
        "Completions per evaluation problem.  [default: 2; for smollm2 one, by greedy decoding]",
        minimum=1,
        metavar="N",
    )
    updates: int | None = setting(
        None,
        "Updates of each variant after SFT.  [default: 40 for starter and smollm2, else those of the recipe]",
        minimum=2,
        metavar="N",
    )
    quant: tuple[str, ...] = setting(("q8_0",), "GGUF types to export and evaluate, comma-separated; '' for none.")
    jobs: int | None = setting(
        None,
        "Training runs at the same time; they share the cores.  [default: 1; 2 with --quick]",
        minimum=1,
        metavar="N",
    )
    device: str = device_setting()
    threads: int | None = setting(
        None,
        "CPU threads of an evaluation.  [default: 1 for starter, else all cores over --jobs]",
        minimum=1,
        maximum=MAX_THREADS,
        metavar="N",
    )
    quick: bool = setting(
        False, "Small test: one seed, 10 updates of SFT, 4 of RL, 30 problems. Its results mean nothing."
    )
    out: str | None = setting(None, "Folder for runs and results.  [default: runs/table3]", metavar="DIR")
    engine: str = engine_setting()
    shard: str | None = shard_setting("Train only part I of N of the seeds, for N machines. Join them with --merge.")


@dataclass(frozen=True)
class Table2Config:
    """Flags of `sce reproduce table2`."""

    recipe: str = setting("starter", "Recipe whose evaluation problems are used.", metavar="NAME")
    problems: tuple[str, ...] = setting((), "Built-in sets or files to use instead, comma-separated.")
    samples: int = setting(2, "Completions per problem.", minimum=1)
    limit: int | None = setting(None, "Use only the first N problems of each set.", minimum=1, metavar="N")
    device: str = device_setting()
    quick: bool = setting(False, "Use 20 problems per set and one completion per problem.")
    out: str | None = setting(None, "Folder for rows and results.  [default: runs/table2]", metavar="DIR")


_output = output_formats(json="One JSON document on stdout.", markdown="Markdown tables on stdout.")


@click.group()
def reproduce() -> None:
    """Reproduce the paper's tables, with several seeds and 95 % intervals.

    Existing results are reused, so rerun the same command to resume.
    """


@reproduce.command()
@options_from(Table3Config)
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
@_output
def table3(
    config: Table3Config, overrides: tuple[str, ...], folders: tuple[Path, ...], dry_run: bool, output: str | None
) -> None:
    """Train, export and evaluate SFT, the PPO variants, and two baselines without RL.

    The starter recipe has two splits. The base model solves about two in five problems of eval. The hard split has
    longer task templates, of which it solves about one in a hundred.
    """
    # One training fills a GPU, but those of --quick do not fill two cores.
    jobs = config.jobs or (min(2, cpu_count()) if config.quick else 1)
    study = _study(config, overrides, jobs)
    if dry_run and output is not None:
        raise UsageError(f"--dry-run prints one command per line. Leave out --{output}.")
    if dry_run:
        from securecoderl_edge.evaluation.study.steps import all_steps

        for step in all_steps(study, jobs):
            data.print(step.command, soft_wrap=True)
        _say_cost(study, jobs)
        return
    from securecoderl_edge.evaluation.study.merging import take_finished
    from securecoderl_edge.evaluation.study.study_record import study_record
    from securecoderl_edge.evaluation.study.study_tables import study_tables

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
    _show(output, record, study_tables(record, lines=2), study_tables(record), file)
    if output is None:
        seeds = f"{len(study.seeds)} seeds and " if len(study.seeds) > 1 else "one seed, over "
        spent = duration(record["wall_seconds"])
        data.print(f"Intervals are 95 %, over {seeds}problems. Time: {spent}. Results: {file}", soft_wrap=True)


def _train_on_cluster(study: Study, config: Table3Config, overrides: tuple[str, ...], jobs: int) -> None:
    from securecoderl_edge.evaluation.study.cluster import train_seeds

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
    from securecoderl_edge.evaluation.study.steps import all_steps, run_study

    with track(len(all_steps(study, jobs)), study.name, lines=False) as progress:

        def on_step(step: Step, seconds: float, done: int, total: int) -> None:
            progress.reach(done, step.title)
            say(f"[{done}/{total}] {step.title}, {duration(seconds)}")

        run_study(study, jobs, on_step, say)


@reproduce.command()
@click.argument("models", type=ModelName(), nargs=-1, metavar="MODEL...")
@options_from(Table2Config)
@_output
def table2(models: tuple[str, ...], config: Table2Config, output: str | None) -> None:
    """Evaluate models without training, on the evaluation problems of table3.

    MODEL is nano, a GGUF file, an ONNX or Hugging Face folder, or a Hugging Face repo id.
    """
    from securecoderl_edge.commands.bench import calibrated, measure_all, refuse_missing
    from securecoderl_edge.evaluation.bench import (
        Bench,
        BenchSettings,
        bench_problems,
        choose_models,
        with_budgets,
    )
    from securecoderl_edge.evaluation.study.table2 import count_parameters, with_parameters
    from securecoderl_edge.evaluation.tables import quality_table
    from securecoderl_edge.runtimes.placement import check_device
    from securecoderl_edge.scoring.scorer import Scorer

    if not models:
        raise UsageError("Missing models to evaluate. Example: sce reproduce table2 nano path/to/model")
    _refuse_with_quick(config, "samples", "limit")
    specs, _ = choose_models(models)
    folder = Path(config.out) if config.out else RUNS / "table2"
    samples, limit = (1, _QUICK_PROBLEMS) if config.quick else (config.samples, config.limit)
    check_device(specs, config.device, tell=say)
    asked = [
        with_budgets(BenchSettings(problems=each, samples=samples, limit=limit, device=config.device), specs, say)
        for each in _eval_sets(config)
    ]
    sets = [bench_problems(settings, say) for settings in asked]
    documents: dict[str, Any] = {}
    wide: list[tuple[str, Table]] = []
    narrow: list[tuple[str, Table]] = []
    missing, factor = 0, calibrated(folder)
    with Scorer(time_factor=factor) as scorer:
        for settings, problems in zip(asked, sets, strict=True):
            done = measure_all(specs, problems, scorer, settings, folder, factor)
            missing = max(missing, len(specs) - len(done))
            found = Bench(specs, done, [], problems, settings, factor)
            document = found.record()
            sizes = [count_parameters(specs[index]) for index in done]
            for model, size in zip(document["models"], sizes, strict=True):
                model["parameters"] = size
            documents[str(settings.problems)] = document
            title = f"{len(problems)} problems of {settings.problems}:"
            wide.append((title, with_parameters(quality_table(found.summaries, lines=2), sizes)))
            narrow.append((title, with_parameters(quality_table(found.summaries), sizes)))
    record = {"study": "table2", "samples": samples, "limit": limit, "sets": documents}
    _show(output, record, wide, narrow, folder / "table2.json")
    refuse_missing(missing, len(specs))


def _study(config: Table3Config, overrides: tuple[str, ...], jobs: int) -> Study:
    """The study that the flags describe.

    Raises:
        UsageError: the flags cannot be combined.
    """
    from securecoderl_edge.export.dispatch import check_type

    _refuse_with_quick(config, "seeds", "samples", "updates")
    for quant in config.quant:
        check_type("gguf", quant)
    if (config.train is None) != (config.eval is None):
        raise UsageError("--train and --eval need each other: give training problems and evaluation problems.")
    own = () if config.train is None or config.eval is None else (Split("own", config.train, config.eval),)
    known = own or (PRESETS[config.recipe].splits if config.recipe in PRESETS else ())
    missing = [name for name in config.splits if name not in {each.name for each in known}]
    if missing:
        there = ", ".join(each.name for each in known) or "none"
        raise UsageError(f"--splits: unknown split {missing[0]!r} of recipe {config.recipe}; choose from {there}")
    study = plan_table3(
        config.recipe,
        Path(config.out) if config.out else RUNS / ("table3-quick" if config.quick else "table3"),
        splits=[each for each in known if not config.splits or each.name in config.splits],
        variants=config.variants or None,
        seeds=config.seeds,
        samples=config.samples,
        updates=config.updates,
        quants=tuple(dict.fromkeys(config.quant)),
        is_quick=config.quick,
        overrides=overrides,
        device=config.device,
        threads=config.threads,
        jobs=jobs,
    )
    return replace(study, seeds=tuple(shard_of(config.shard).of(study.seeds, "seeds")))


def _require_gpu(study: Study) -> None:
    """Check before any step that there is the GPU that trainings need, in a process of its own.

    Raises:
        UsageError: there is none that torch can use.
    """
    if all(study.settings(arm, study.seeds[0]).device != "cuda" for arm in study.arms):
        return
    found = ask("securecoderl_edge.training.device_check", {"device": "cuda"})
    problem = found.messages[0]["error"] if found.messages else found.death
    if problem:
        raise UsageError(str(problem))


def _say_cost(study: Study, jobs: int) -> None:
    """Print memory and time of the study on stderr, where sizes alone tell: on a GPU that is not here.

    Phases that several arms share are trained once.
    """
    from securecoderl_edge.runs import Run
    from securecoderl_edge.training.plan import make_plan

    if importlib.util.find_spec("torch") is None or study.settings(study.arms[0], study.seeds[0]).device != "cuda":
        return
    seconds: dict[tuple[str, ...], float | None] = {}
    peak, where = 0, ""
    for arm in study.arms:
        plan = make_plan(study.settings(arm, study.seeds[0]), Run(study.run_folder(arm, study.seeds[0])))
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


def _eval_sets(config: Table2Config) -> list[str]:
    if config.problems:
        return list(dict.fromkeys(config.problems))
    if config.recipe not in PRESETS:
        load_recipe(config.recipe)  # raises an error if it is not a recipe
        raise UsageError(f"--recipe {config.recipe} needs --problems; without it, choose from {', '.join(PRESETS)}")
    return [each.eval for each in PRESETS[config.recipe].splits]


def _refuse_with_quick(config: Any, *names: str) -> None:
    """Refuse a size next to ``--quick``, which sets all sizes.

    Raises:
        UsageError: both were given.
    """
    given = [name for name in names if getattr(config, name) != getattr(type(config)(), name)]
    if config.quick and given:
        raise UsageError(f"--quick sets --{given[0]} itself. Leave one of them out.")


def _show(
    output: str | None,
    record: dict[str, Any],
    wide: list[tuple[str, Table]],
    narrow: list[tuple[str, Table]],
    file: Path,
) -> None:
    """Save the record, and print it in the chosen format; ``wide`` has cells of two lines, for a terminal."""
    from securecoderl_edge.commands.terminal_tables import show_tables
    from securecoderl_edge.evaluation.tables import to_markdown

    document = json.dumps(record, indent=1, allow_nan=False)
    with write_atomically(file) as out:
        out.write(f"{document}\n")
    if output == "json":
        click.echo(document)
    elif output == "markdown":
        click.echo("\n".join(f"{title}\n\n{to_markdown(table)}" for title, table in narrow), nl=False)
    else:
        show_tables(wide)
