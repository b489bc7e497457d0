"""``sce bench``: quality, speed and memory of models on problems."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import refuse_to_overwrite, say, warn_of_level
from securecoderl_edge.commands.measuring import calibrated, measure_all, refuse_missing
from securecoderl_edge.commands.names import FOLDER, MODEL, PATH
from securecoderl_edge.commands.options import adapter_option, examples, gathered, options_from, output_formats
from securecoderl_edge.config import JSON_HELP
from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.bench import (
    Bench,
    BenchSettings,
    bench_batches,
    bench_problems,
    choose_models,
    with_budgets,
)
from securecoderl_edge.evaluation.plot import check_plot_path, plot_bench
from securecoderl_edge.evaluation.samples import data_set_of, is_whole, write_samples
from securecoderl_edge.evaluation.shards import ENGINE_HELP
from securecoderl_edge.evaluation.tables import bench_markdown, to_csv
from securecoderl_edge.runs import RUNS, latest_run, only_unfinished
from securecoderl_edge.runtimes.opening import check_runtime
from securecoderl_edge.system.cluster import LOCAL, is_ray
from securecoderl_edge.system.files import write_atomically
from securecoderl_edge.text import escape_controls

if TYPE_CHECKING:
    from securecoderl_edge.evaluation.evaluate import Evaluation
    from securecoderl_edge.problems.problem import Problem


@dataclass(frozen=True)
class BenchFlags:
    """Flags of `sce bench` that are not settings of its rows."""

    adapter: str | None
    engine: str
    is_merging: bool
    is_comparing: bool
    output: str | None
    plot: Path | None
    out: Path | None
    evalplus: Path | None


@click.command(
    epilog=examples(
        "sce bench",
        "sce bench qwen-0.5b qwen-0.5b-coder --compare --problems mbpp:test --limit 50",
        "sce bench qwen-0.5b --protocol evalplus --problems humaneval --temperature 0 --out greedy",
    )
)
@click.argument("models", type=MODEL, metavar="[MODEL]...", nargs=-1)
@adapter_option
@options_from(BenchSettings)
@click.option("--engine", default=LOCAL, metavar="ENGINE", help=f"{ENGINE_HELP}  [default: {LOCAL}]")
@click.option("--merge", "is_merging", is_flag=True, help="Join finished shards: the arguments are their folders.")
@click.option("--compare", "is_comparing", is_flag=True, help="Add paired differences from the first model.")
@output_formats(
    json=JSON_HELP,
    csv="CSV on stdout, one line per model.",
    markdown="Markdown tables on stdout.",
)
@click.option("--plot", type=PATH, metavar="FILE", help="Plot the results to a .svg, .png or .pdf file.")
@click.option(
    "--out",
    type=PATH,
    help="Folder for all rows and results; an interrupted evaluation resumes from it.",
)
@click.option(
    "--evalplus",
    type=FOLDER,
    metavar="DIR",
    help="Folder for the programs as EvalPlus reads them, one JSONL file per model (HumanEval and MBPP only).",
)
@gathered(BenchFlags, "flags")
def bench(models: tuple[str, ...], config: BenchSettings, flags: BenchFlags) -> None:
    """Evaluate quality, speed and memory of models on problems.

    MODEL is a name that sce models lists, or a run or one of its phases (runs/starter, starter:sft). It may also
    be a GGUF file, one with a LoRA adapter (BASE.gguf+LORA.gguf), an ONNX or Hugging Face folder, or a Hugging Face
    repo id.

    Without MODEL it evaluates the base model, SFT, policy and exports of the latest run. It then shows paired
    differences between the policy and SFT, and between each export and its original. MODEL --adapter FILE --compare
    shows those between the model with the adapter and without it.

    Every rate and every mean reward has a 95 % interval. Programs run in the sandbox.

    \b
    Several machines:  sce bench MODEL --shard I/N --out DIR/I     on machine I of N
                       sce bench --merge DIR/*                     then, without the model
    """
    from securecoderl_edge.commands.terminal_tables import show_bench

    plot, out, output = flags.plot, flags.out, flags.output
    if plot is not None:
        check_plot_path(plot)
        refuse_to_overwrite(plot, force=True)
    if flags.is_comparing and output == "csv" and out is None:
        raise UsageError("--csv cannot show differences. Use --json, --markdown or --out with --compare.")
    if flags.is_merging:
        if flags.engine != LOCAL:
            raise UsageError("--merge joins files on this machine. Leave out --engine.")
        if flags.adapter is not None:
            raise UsageError("--merge joins files of finished models. Leave out --adapter.")
        result = _joined(models, config, flags)
    else:
        result = _evaluated(models, config, flags)
    summaries, comparisons, done = result.summaries, result.comparisons, list(result.done.values())
    document = json.dumps(result.record(), indent=1, allow_nan=False)
    if out is not None:
        is_new = not (out / "bench.json").exists()
        with write_atomically(out / "bench.json") as file:
            file.write(f"{document}\n")
        say(f"wrote the rows and bench.json to {out}" + ("" if is_new else ", over an earlier bench.json"))
    if flags.evalplus is not None:
        _write_samples(flags.evalplus, result.problems, done)
    if output == "json":
        click.echo(document)
    elif output == "csv":
        click.echo(escape_controls(to_csv(summaries)), nl=False)
    elif output == "markdown":
        click.echo(escape_controls(bench_markdown(summaries, comparisons, result.conclusions)), nl=False)
    else:
        show_bench(summaries, comparisons, result.conclusions)
    if plot is not None:  # last: a failed plot must not lose the results
        plot_bench(summaries, plot)
        say(f"wrote the plot to {plot}")
    refuse_missing(len(result.specs) - len(done), len(result.specs))


def _evaluated(models: Sequence[str], config: BenchSettings, flags: BenchFlags) -> Bench:
    from securecoderl_edge.scoring.scorer import Scorer

    is_ray(flags.engine)  # an unknown one is an error before anything else
    if config.shard is not None and flags.out is None:
        raise UsageError("--shard needs --out DIR, another one for each shard: sce bench --merge reads them.")
    specs, pairs = choose_models(models, flags.is_comparing, flags.adapter)
    if config.shard is not None and config.base_precision == "auto" and any(spec.kind == "hf" for spec in specs):
        raise UsageError("--shard needs --base-precision for models of torch, such as fp32: auto differs by machine.")
    check_runtime(specs, config, say)
    config = with_budgets(config, specs, say)
    if not models and latest_run() is None:
        say(only_unfinished() or f"no training run in {RUNS}/: evaluating the built-in model")
    problems = bench_problems(config, say)
    if flags.evalplus is not None:
        data_set_of(problems)  # before anything is evaluated
    if config.shard is not None:
        count = sum(map(len, bench_batches(config, problems).values()))
        say(f"shard {config.shard}: {count} of {len(problems)} problems. sce bench --merge joins finished shards")
    warn_of_level(config.sandbox)
    factor = calibrated(flags.out)
    with Scorer(sandbox=config.sandbox, time_factor=factor) as scorer:
        done = measure_all(specs, problems, scorer, config, flags.out, factor, flags.engine)
    return Bench(specs, done, pairs, problems, config, factor)


def _joined(folders: Sequence[str], config: BenchSettings, flags: BenchFlags) -> Bench:
    from securecoderl_edge.evaluation.shard_merging import merge

    if not folders:
        raise UsageError("--merge needs the folders of all shards. Example: sce bench --merge shards/*")
    changed = [name for name, value in vars(config).items() if value != getattr(BenchSettings(), name)]
    if changed:
        raise UsageError(f"--merge takes the settings of the shards. Leave out --{changed[0].replace('_', '-')}.")
    return merge(list(map(Path, folders)), flags.is_comparing, flags.out)


def _write_samples(folder: Path, problems: list[Problem], evaluations: list[Evaluation]) -> None:
    for path in write_samples(folder, problems, evaluations):
        say(f"to grade: evalplus.evaluate --dataset {data_set_of(problems)} --samples {shlex.quote(str(path))}")
    if not is_whole(problems):
        say("EvalPlus grades whole data sets only: use --problems humaneval or mbpp:all, without --limit")
