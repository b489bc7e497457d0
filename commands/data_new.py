"""`sce data new`: a file with one problem of each kind, to be changed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import click

from securecoderl_edge.commands.console import refuse_to_overwrite, say
from securecoderl_edge.commands.options import options_from
from securecoderl_edge.config import setting
from securecoderl_edge.problems.datasets.template import EXAMPLES, EXPLAINED
from securecoderl_edge.problems.problem_file import write_problems


@dataclass(frozen=True)
class NewConfig:
    """Flags of `sce data new`."""

    force: bool = setting(False, "Overwrite FILE when it exists.")


@click.command(short_help="Write a file with examples to change.")
@click.argument("file", metavar="[FILE]", default="problems.jsonl")
@options_from(NewConfig)
def new(file: str, config: NewConfig) -> None:
    """Write a problem file with one example of each kind, and explain it.

    FILE is problems.jsonl by default. Each line is one problem, so change a line, or add your own.
    """
    refuse_to_overwrite(Path(file), config.force)
    write_problems(Path(file), EXAMPLES)
    for number, (problem, shown) in enumerate(zip(EXAMPLES, EXPLAINED, strict=True), 1):
        say(f"line {number}, {problem.id}: {shown}")
    say(f"next: change {file}, then run: sce data check {shlex.quote(file)}")
