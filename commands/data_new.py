"""`sce data new`: a file with one problem of each kind, to be changed."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import click

from securecoderl_edge.commands.console import refuse_to_overwrite, say
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.config import FORCE_HELP, setting
from securecoderl_edge.problems.datasets.importing import TEMPLATE
from securecoderl_edge.system.files import write_atomically


@dataclass(frozen=True)
class NewConfig:
    """Flags of `sce data new`."""

    force: bool = setting(False, FORCE_HELP)


@click.command(
    short_help="Write a file with examples to change.",
    epilog=examples(
        "sce data new",
        "sce data new mine.jsonl",
    ),
)
@click.argument("file", metavar="[FILE]", default="problems.jsonl")
@options_from(NewConfig)
def new(file: str, config: NewConfig) -> None:
    """Write a problem file with one example of each kind; the field "comment" explains it.

    FILE is problems.jsonl by default. Each line is one problem, so change a line, or add your own.
    """
    refuse_to_overwrite(Path(file), config.force)
    lines = TEMPLATE.read_text(encoding="utf-8").splitlines(keepends=True)
    with write_atomically(Path(file)) as out:
        out.writelines(lines)
    for record in map(json.loads, lines):
        say(f"{record['id']}: {record['comment']}")
    say(f"next: change {file}, then run: sce data check {shlex.quote(file)}")
