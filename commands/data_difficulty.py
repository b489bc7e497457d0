"""`sce data difficulty`: how often a model solves each problem of a file, for `sce train`."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click

from securecoderl_edge.commands.console import refuse_to_overwrite, say, warn_of_level
from securecoderl_edge.commands.measuring import calibrated, measure_all
from securecoderl_edge.commands.names import PATH, PROBLEMS
from securecoderl_edge.commands.options import examples, model_option, options_from
from securecoderl_edge.config import JSON_HELP, setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.evaluation.bench import BenchSettings, with_budgets
from securecoderl_edge.problems.difficulty import Difficulty, read_difficulty, write_difficulty
from securecoderl_edge.problems.problem_file import problem_digest
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.runtimes.opening import check_runtime
from securecoderl_edge.runtimes.protocol import MAX_SAMPLES, MAX_TOKENS
from securecoderl_edge.runtimes.spec import resolve_model
from securecoderl_edge.scoring.metrics import passes_all_tests
from securecoderl_edge.text import counted

_FLAGS = (
    "samples", "temperature", "max_tokens", "seed", "prompt_style", "max_prompt_tokens", "extract", "thinking",
    "parallel", "device", "gpu_layers", "base_precision", "threads", "sandbox",
)  # fmt: skip


@dataclass(frozen=True)
class DifficultySettings(BenchSettings):
    """The settings of `sce bench`, with defaults of training."""

    samples: int = setting(8, "Completions per problem.", minimum=1, maximum=MAX_SAMPLES, metavar="N")
    max_tokens: int | None = setting(
        MAX_TOKENS, "Maximum number of tokens per completion, as ppo.max_tokens.", minimum=1, metavar="N"
    )


@click.command(
    short_help="Measure how often a model solves each problem.",
    epilog=examples("sce data difficulty mine.jsonl -m qwen-0.5b --samples 8 --out rated.jsonl"),
)
@click.argument("file", type=PROBLEMS, metavar="FILE")
@model_option
@options_from(DifficultySettings, only=_FLAGS)
@click.option(
    "--out",
    type=PATH,
    metavar="NEW",
    help="File to write.  [default: FILE-difficulty.jsonl in this folder]",
)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def difficulty(file: str, model: str | None, config: DifficultySettings, out: Path | None, as_json: bool) -> None:
    """Sample completions of each problem of FILE (or starter[:SPLIT], mbpp:clean), and write its pass rate to NEW.

    A completion passes if it passes all tests, as training uses them. Its row is kept in the folder NEW.rows, in the
    format of sce bench: the same command again resumes an interrupted one.

    sce train --set sampling.difficulty=NEW --set sampling.pass_rate=0.1,0.9 then trains on problems that are neither
    too hard nor too easy. For rates of the policy that a training starts from, give its model, ppo.temperature and
    prompt.style.
    """
    from securecoderl_edge.scoring.scorer import Scorer

    stem = Path(file.replace(":", "-")).name.removesuffix(".gz").removesuffix(".jsonl")
    out = out or Path(f"{stem}-difficulty.jsonl")
    _refuse_other_file(out, file)
    spec = resolve_model(model)
    check_runtime([spec], config, say)
    settings = with_budgets(config, [spec], say)
    problems = load_problems(file, tell=say)
    warn_of_level(config.sandbox)
    folder = out.with_name(f"{out.name}.rows")
    factor = calibrated(folder)
    with Scorer(sandbox=config.sandbox, time_factor=factor) as scorer:
        (evaluation,) = measure_all([spec], problems, scorer, settings, folder, factor).values()
    passed = Counter(row["id"] for row in evaluation.rows if passes_all_tests(row))
    found = [
        Difficulty(
            problem.id,
            problem_digest(problem),
            config.samples,
            passed[problem.id],
            spec.label,
            float(settings.temperature),
            settings.prompt_style,
        )
        for problem in problems
    ]
    write_difficulty(out, found)
    if as_json:
        click.echo(json.dumps({each.id: each.pass_rate for each in found}))
    else:
        for count, problems_with in sorted(Counter(each.passed for each in found).items()):
            click.echo(f"{count} of {config.samples} completions pass: {problems_with} problems")
    mean = sum(each.pass_rate for each in found) / len(found)
    say(f"{file}: mean pass rate {mean:.1%}; wrote {counted(len(found), 'problem')} to {out}")
    chosen = f"--set sampling.difficulty={shlex.quote(str(out))} --set sampling.pass_rate=0.1,0.9"
    say(f"next: sce train --problems {shlex.quote(file)} {chosen}")


def _refuse_other_file(out: Path, source: str) -> None:
    """Check that ``out`` can be written, and that what it replaces is such a file."""
    refuse_to_overwrite(out, True, source)
    if out.exists():
        try:
            read_difficulty(out)
        except SceError:
            raise UsageError(f"{out} exists, and is not a file of pass rates. Choose another --out") from None
