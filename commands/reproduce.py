"""``sce reproduce``: the paper's tables with seeds and intervals, one resumable command each."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from securecoderl_edge.commands.console import data, duration, say, track
from securecoderl_edge.commands.options import ModelName, options_from, output_formats
from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.study.arms import Split
from securecoderl_edge.evaluation.study.table3 import PRESETS, VARIANTS
from securecoderl_edge.evaluation.study.table3 import table3 as plan_table3
from securecoderl_edge.models.loading import require_torch
from securecoderl_edge.runs import RUNS
from securecoderl_edge.system.files import write_atomically
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.training.settings import load_recipe

if TYPE_CHECKING:
    from securecoderl_edge.evaluation.study.arms import Study
    from securecoderl_edge.evaluation.study.ledger import Step
    from securecoderl_edge.evaluation.tables import Table

_QUICK_PROBLEMS = 20


@dataclass(frozen=True)
class Table3Config:
    """Flags of `sce reproduce table3`."""

    recipe: str = setting("starter", "Built-in recipe or TOML file.", metavar="NAME|FILE")
    train: str | None = setting(None, "Problems to learn from, instead of the recipe's; with --eval.", metavar="FILE")
    eval: str | None = setting(None, "Problems to measure on, which are not learnt from.", metavar="FILE")
    splits: tuple[str, ...] = setting((), "Use only these problem sets of the recipe, for example eval,hard.")
    variants: tuple[str, ...] = setting(tuple(VARIANTS), "Ways to train, comma-separated.", choices=tuple(VARIANTS))
    seeds: int = setting(5, "Trainings of each variant, with seeds 42, 43, ...", minimum=1)
    samples: int = setting(2, "Programs for each problem that is measured on.", minimum=1)
    updates: int | None = setting(
        None,
        "Updates of reinforcement learning in each variant.  [default: 120 for starter, else as the recipe says]",
        minimum=2,
        metavar="N",
    )
    quant: tuple[str, ...] = setting(("q8_0",), "GGUF types to measure the policies in, comma-separated; '' for none.")
    jobs: int | None = setting(
        None,
        "Trainings side by side, which share the cores.  [default: 1, with --quick 2]",
        minimum=1,
        metavar="N",
    )
    quick: bool = setting(False, "All of it, but small: one seed, 4 updates, 30 problems. The figures mean nothing.")
    out: str | None = setting(None, "Folder of runs and figures.  [default: runs/table3]", metavar="DIR")


@dataclass(frozen=True)
class Table2Config:
    """Flags of `sce reproduce table2`."""

    recipe: str = setting("starter", "The recipe whose problems are asked.", metavar="NAME")
    problems: tuple[str, ...] = setting((), "Instead of them: built-in sets or files, comma-separated.")
    samples: int = setting(2, "Programs for each problem.", minimum=1)
    limit: int | None = setting(None, "Only the first N problems of a set.", minimum=1, metavar="N")
    quick: bool = setting(False, "20 problems of a set, one program each.")
    out: str | None = setting(None, "Folder of rows and figures.  [default: runs/table2]", metavar="DIR")


_output = output_formats(json="One JSON document on stdout.", markdown="Markdown tables on stdout.")


@click.group()
def reproduce() -> None:
    """Make the paper's tables again, with seeds and intervals.

    What is there is not made again, so the same command goes on after a stop.
    """


@reproduce.command()
@options_from(Table3Config)
@click.option("--dry-run", is_flag=True, help="Print the commands that it consists of, and stop.")
@_output
def table3(config: Table3Config, dry_run: bool, output: str | None) -> None:
    """Train, export and measure SFT and the PPO variants.

    The starter recipe has two sets of problems: eval, of which the base model solves two in five, and hard, longer
    compositions of which hardly any is solved after SFT.
    """
    study, jobs = _study(config), _jobs(config)
    if dry_run and output is not None:
        raise UsageError(f"--dry-run prints commands, a line each; leave out --{output}")
    if dry_run:
        for command in _commands(study, jobs):
            data.print(command, soft_wrap=True)
        return
    if importlib.util.find_spec("torch") is None:
        require_torch()  # says what to install; the memory of a torch loaded here would be missing below
    from securecoderl_edge.evaluation.study.record import study_record
    from securecoderl_edge.evaluation.study.steps import run_study

    with track(len(_commands(study, jobs)), study.name, lines=False) as progress:
        shown = 0

        def on_step(step: Step, seconds: float, done: int, total: int) -> None:
            nonlocal shown
            progress.update(done - shown, step.title)
            shown = done
            say(f"[{done}/{total}] {step.title}, {duration(seconds)}")

        run_study(study, jobs, on_step)
    from securecoderl_edge.evaluation.study.tables import study_tables

    record = study_record(study, jobs)
    file = study.folder / f"{study.name}.json"
    _show(output, record, study_tables(record, lines=2), study_tables(record), file)
    if output is None:
        seeds = f"{len(study.seeds)} seeds and over " if len(study.seeds) > 1 else "one seed alone, over "
        spent = duration(record["wall_seconds"])
        data.print(
            f"Intervals are 95 %, over {seeds}problems. {spent} in all; the figures are in {file}", soft_wrap=True
        )


@reproduce.command()
@click.argument("models", type=ModelName(), nargs=-1, metavar="MODEL...")
@options_from(Table2Config)
@_output
def table2(models: tuple[str, ...], config: Table2Config, output: str | None) -> None:
    """Measure models as they come, without training, on the problems of table3.

    MODEL is nano, a Hugging Face folder or hub id, a GGUF file or an ONNX folder.
    """
    from securecoderl_edge.commands.bench import calibrated, measure_all, refuse_missing
    from securecoderl_edge.evaluation.bench import BenchSettings, bench_problems, bench_record, choose_models
    from securecoderl_edge.evaluation.study.table2 import count_parameters, with_parameters
    from securecoderl_edge.evaluation.tables import quality_table
    from securecoderl_edge.scoring.scorer import Scorer

    if not models:
        raise UsageError("name the models to measure: sce reproduce table2 nano path/to/model")
    _refuse_with_quick(config, "samples", "limit")
    specs, _ = choose_models(models)
    folder = Path(config.out) if config.out else RUNS / "table2"
    samples, limit = (1, _QUICK_PROBLEMS) if config.quick else (config.samples, config.limit)
    asked = [BenchSettings(problems=each, samples=samples, limit=limit) for each in _eval_sets(config)]
    sets = [bench_problems(settings, say) for settings in asked]
    documents: dict[str, Any] = {}
    wide: list[tuple[str, Table]] = []
    narrow: list[tuple[str, Table]] = []
    missing, factor = 0, calibrated(folder)
    with Scorer(time_factor=factor) as scorer:
        for settings, problems in zip(asked, sets, strict=True):
            done = measure_all(specs, problems, scorer, settings, folder, factor)
            missing = max(missing, len(specs) - len(done))
            measured = [(specs[index], each.summary()) for index, each in done.items()]
            logs = {each.label: each.log.name for each in done.values() if each.log is not None}
            document = bench_record(measured, (), settings, factor, logs)
            sizes = [count_parameters(spec) for spec, _ in measured]
            for model, size in zip(document["models"], sizes, strict=True):
                model["parameters"] = size
            documents[settings.problems] = document
            summaries = [summary for _, summary in measured]
            title = f"{len(problems)} problems of {settings.problems}:"
            wide.append((title, with_parameters(quality_table(summaries, lines=2), sizes)))
            narrow.append((title, with_parameters(quality_table(summaries), sizes)))
    record = {"study": "table2", "samples": samples, "limit": limit, "sets": documents}
    _show(output, record, wide, narrow, folder / "table2.json")
    refuse_missing(missing, len(specs))


def _study(config: Table3Config) -> Study:
    """The study that the flags ask for.

    Raises:
        UsageError: they do not go together.
    """
    from securecoderl_edge.export.dispatch import check_type

    _refuse_with_quick(config, "seeds", "samples", "updates")
    for quant in config.quant:
        check_type("gguf", quant)
    if (config.train is None) != (config.eval is None):
        raise UsageError("--train and --eval go together: problems to learn from, and others to measure on")
    own = () if config.train is None or config.eval is None else (Split("own", config.train, config.eval),)
    known = own or (PRESETS[config.recipe].splits if config.recipe in PRESETS else ())
    missing = [name for name in config.splits if name not in {each.name for each in known}]
    if missing:
        there = ", ".join(each.name for each in known) or "none"
        raise UsageError(f"--splits: no set of problems {missing[0]!r} in recipe {config.recipe} (there: {there})")
    return plan_table3(
        config.recipe,
        Path(config.out) if config.out else RUNS / ("table3-quick" if config.quick else "table3"),
        splits=[each for each in known if not config.splits or each.name in config.splits],
        variants=config.variants,
        seeds=config.seeds,
        samples=config.samples,
        updates=config.updates,
        quants=tuple(dict.fromkeys(config.quant)),
        is_quick=config.quick,
    )


def _jobs(config: Table3Config) -> int:
    """Trainings side by side. One of the paper's fills a GPU; the small ones of ``--quick`` do not fill two cores."""
    return config.jobs or (min(2, cpu_count()) if config.quick else 1)


def _commands(study: Study, jobs: int) -> list[str]:
    from securecoderl_edge.evaluation.study.steps import all_steps

    return [step.command for step in all_steps(study, jobs)]


def _eval_sets(config: Table2Config) -> list[str]:
    if config.problems:
        return list(dict.fromkeys(config.problems))
    if config.recipe not in PRESETS:
        load_recipe(config.recipe)  # says what is wrong with it, if it is none
        raise UsageError(f"recipe {config.recipe}: name the problems with --problems; there are {', '.join(PRESETS)}")
    return [each.eval for each in PRESETS[config.recipe].splits]


def _refuse_with_quick(config: Any, *names: str) -> None:
    """`--quick` is a size of its own; who gives another one means it.

    Raises:
        UsageError: both were given.
    """
    given = [name for name in names if getattr(config, name) != getattr(type(config)(), name)]
    if config.quick and given:
        raise UsageError(f"--quick has a size of its own: leave out --{given[0]}, or --quick")


def _show(
    output: str | None,
    record: dict[str, Any],
    wide: list[tuple[str, Table]],
    narrow: list[tuple[str, Table]],
    file: Path,
) -> None:
    """Save the record, and print it as asked for; ``wide`` has cells of two lines, for a terminal."""
    from securecoderl_edge.commands.tables import show_tables
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
