"""`sce data wrap`: problems about functions as programs that read standard input."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from securecoderl_edge.commands.console import refuse_to_overwrite, say
from securecoderl_edge.commands.names import PROBLEMS
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.config import FORCE_HELP, JSON_HELP, setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.problems.wrapping import all_wrapped


@dataclass(frozen=True)
class WrapConfig:
    """Flags of `sce data wrap`."""

    out: str | None = setting(None, "JSONL file to write (required).", metavar="NEW")
    force: bool = setting(False, FORCE_HELP)
    json: bool = setting(False, JSON_HELP)


@click.command(
    short_help="Make programs that read standard input of functions.",
    epilog=examples("sce data wrap functions.jsonl --out programs.jsonl"),
)
@click.argument("file", type=PROBLEMS, metavar="FILE")
@options_from(WrapConfig)
def wrap(file: str, config: WrapConfig) -> None:
    """Write the call problems of FILE as stdin problems to NEW (--out).

    A program then reads the arguments from standard input, one line of JSON each, and prints the result. References
    get the lines that do so. A problem is left out, and counted, if it has no reference, or no test whose arguments
    JSON keeps and whose result prints one way: sets and dictionaries do not.
    """
    if config.out is None:
        raise UsageError("missing --out: the file to write")
    refuse_to_overwrite(Path(config.out), config.force, file)
    problems = load_problems(file, sys.maxsize, say)
    done, left_out = all_wrapped(problems)
    reasons = "; ".join(f"{count} because {reason}" for reason, count in left_out.most_common())
    if not done:
        raise SceError(f"{file}: no problem can be wrapped: {reasons}")
    write_problems(Path(config.out), done)
    say(f"{file}: wrote {len(done)} of {len(problems)} problems as programs to {config.out}")
    if left_out:
        say(f"left out {left_out.total()}: {reasons}")
    say(f"next: sce data check {shlex.quote(config.out)}")
    if config.json:
        click.echo(json.dumps({"problems": len(problems), "wrapped": len(done), "left_out": dict(left_out)}))
