"""`sce data split` and `sce data leaks`: training and evaluation sets without problems in common."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click

from securecoderl_edge.commands.console import refuse_to_overwrite, say
from securecoderl_edge.commands.names import PROBLEMS
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.config import FORCE_HELP, JSON_HELP, setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import open_problems
from securecoderl_edge.text import counted, escape_controls


@dataclass(frozen=True)
class SplitConfig:
    """Flags of `sce data split`."""

    eval: int = setting(100, "Problems in the evaluation set.", minimum=1, metavar="N")
    seed: int = setting(42, "Random seed.", minimum=0)
    tag: tuple[str, ...] = setting(
        (), "Evaluate on all problems with one of these tags instead of a random sample.", metavar="TAG,..."
    )
    train_out: str | None = setting(None, "File for the training set.  [default: FILE-train.jsonl]", metavar="FILE")
    eval_out: str | None = setting(None, "File for the evaluation set.  [default: FILE-eval.jsonl]", metavar="FILE")
    force: bool = setting(False, FORCE_HELP)
    json: bool = setting(False, JSON_HELP)


@dataclass(frozen=True)
class LeaksConfig:
    """Flags of `sce data leaks`."""

    out: str | None = setting(None, "Write the problems of FILE that have no duplicate in OTHER.", metavar="FILE")
    force: bool = setting(False, FORCE_HELP)
    json: bool = setting(False, JSON_HELP)


@click.command(
    short_help="Split into a training and an evaluation set.", epilog=examples("sce data split mine.jsonl --eval 100")
)
@click.argument("file", type=PROBLEMS, metavar="FILE")
@options_from(SplitConfig)
def split(file: str, config: SplitConfig) -> None:
    """Split FILE into a training set and an evaluation set.

    The random choice depends only on the seed and the statements, not on the order of the file or on the machine.
    Near-duplicates never land in different files: those of evaluation problems are left out of both.
    """
    from securecoderl_edge.problems.train_eval_split import split_problems

    stem = Path(file.replace(":", "-")).name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
    train_out = Path(config.train_out or f"{stem}-train.jsonl")
    eval_out = Path(config.eval_out or f"{stem}-eval.jsonl")
    if train_out.resolve() == eval_out.resolve():
        raise UsageError("--train-out and --eval-out are the same file. Choose two.")
    for out in (train_out, eval_out):
        refuse_to_overwrite(out, config.force, file)
    problems = open_problems(file, sys.maxsize, say)
    parts = split_problems(problems, config.eval, config.seed, config.tag)
    write_problems(train_out, (problems[index] for index in parts.train))
    write_problems(eval_out, (problems[index] for index in parts.evaluation))
    say(
        f"{file}: {len(problems)} problems in {parts.groups} groups of near-duplicates; "
        f"{len(parts.train)} for training in {train_out}, {len(parts.evaluation)} for evaluation in {eval_out}"
    )
    if parts.withheld:
        say(f"left out {len(parts.withheld)} near-duplicates of evaluation problems")
    if config.json:
        named = {"train": parts.train, "evaluation": parts.evaluation, "withheld": parts.withheld}
        ids = {name: [problems[index].id for index in places] for name, places in named.items()}
        click.echo(json.dumps({"problems": len(problems), "groups": parts.groups, **ids}))


@click.command(
    short_help="Find duplicates of one file's problems in another.",
    epilog=examples("sce data leaks mine.jsonl humaneval --out clean.jsonl"),
)
@click.argument("file", type=PROBLEMS, metavar="FILE")
@click.argument("other", type=PROBLEMS, metavar="OTHER")
@options_from(LeaksConfig)
@click.pass_context
def leaks(ctx: click.Context, file: str, other: str, config: LeaksConfig) -> None:
    """Find problems of FILE that have an exact or near duplicate in OTHER.

    Each line has the two ids, the similarity of their words, and what is alike. These are the words of the statements;
    else the code of a reference, except for its names and constants; else the name of the function, which can be a
    coincidence. Exit code 1 if there are any.
    """
    from securecoderl_edge.problems.train_eval_split import find_leaks, find_leaks_in_other_words

    if config.out is not None:
        refuse_to_overwrite(Path(config.out), config.force, file, other)
    problems, others = open_problems(file, sys.maxsize, say), open_problems(other, tell=say)
    leaked = [*find_leaks(problems, others), *find_leaks_in_other_words(problems, others)]
    if config.json:
        records = [leak.to_record() for leak in leaked]
        click.echo(json.dumps({"problems": len(problems), "others": len(others), "leaks": records}))
    else:
        for leak in leaked:
            columns = (leak.id, leak.other_id, f"{leak.similarity:.2f}", leak.by)
            click.echo("\t".join(map(escape_controls, columns)))
    by = Counter(leak.by for leak in leaked)
    exact = sum(leak.similarity == 1 and leak.by == "words" for leak in leaked)
    count = f"{len(leaked)} of {len(problems)} problems of {file} have a duplicate in {other}"
    say(
        f"{count}: {exact} exact, {by['words'] - exact} near, {by['code']} by code, {by['name']} by name"
        if leaked
        else f"no problem of {file} has a duplicate in {other}"
    )
    if config.out is not None:
        ids = {leak.id for leak in leaked}
        if len(ids) == len(problems):
            raise SceError(f"{config.out} was not written: every problem of {file} has a duplicate in {other}")
        kept = write_problems(Path(config.out), (problem for problem in problems if problem.id not in ids))
        say(f"wrote {counted(kept, 'problem')} to {shlex.quote(config.out)}")
    if leaked:
        ctx.exit(1)
