"""`sce data augment`: more tests from reference solutions."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import refuse_to_overwrite, say, track, warn_of_level
from securecoderl_edge.commands.names import PROBLEMS
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.config import FORCE_HELP, JSON_HELP, setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.sandbox.levels import sandbox_setting
from securecoderl_edge.sandbox.limits import workers_setting
from securecoderl_edge.text import escape_controls

if TYPE_CHECKING:
    from securecoderl_edge.scoring.augment import Augmented


@dataclass(frozen=True)
class AugmentConfig:
    """Flags of `sce data augment`."""

    out: str | None = setting(None, "JSONL file to write (required).", metavar="NEW")
    tests: int = setting(5, "New tests per problem, at most.", minimum=1, metavar="N")
    seed: int = setting(0, "Random seed of the inputs.", minimum=0)
    cpu_seconds: float = setting(1.0, "CPU time limit of a solution, per test.", minimum=0.1, metavar="S")
    force: bool = setting(False, FORCE_HELP)
    sandbox: str = sandbox_setting()
    workers: int | None = workers_setting("Solutions to run")
    json: bool = setting(False, JSON_HELP)


@click.command(
    short_help="Make more tests from reference solutions.",
    epilog=examples("sce data augment mine.jsonl --out more.jsonl"),
)
@click.argument("file", type=PROBLEMS, metavar="FILE")
@options_from(AugmentConfig)
def augment(file: str, config: AugmentConfig) -> None:
    """Add tests to the problems of FILE, and write all problems to NEW (--out).

    New inputs are small changes of the given ones, and a reference solution gives the outputs, in the sandbox. Inputs
    on which it raises, or on which two solutions differ, are left out. A problem stays as it is, and a line tells why,
    if its reference fails the given tests, gives other results in a second run, or has fewer than three different
    outputs. The tag augmented-tests:N counts the new tests. The first five tests, which training uses, get different
    outputs.
    """
    from securecoderl_edge.sandbox import Limits
    from securecoderl_edge.scoring.augment import augment_all
    from securecoderl_edge.scoring.scorer import Scorer

    if config.out is None:
        raise UsageError("missing --out: the file to write")
    refuse_to_overwrite(Path(config.out), config.force, file)
    problems = load_problems(file, sys.maxsize, say)
    warn_of_level(config.sandbox)
    limits = Limits(cpu_seconds=config.cpu_seconds, wall_seconds=3 * config.cpu_seconds)
    with (
        track(len(problems), "problems augmented", lines=False) as progress,
        Scorer(config.workers, limits, sandbox=config.sandbox) as scorer,
    ):
        done = augment_all(problems, scorer, config.tests, config.seed, config.workers, progress.update)
    write_problems(Path(config.out), (each.problem for each in done))
    _report(done, file, config)


def _report(done: list[Augmented], file: str, config: AugmentConfig) -> None:
    refused = {each.problem.id: each.refusal for each in done if each.refusal}
    added = sum(each.added for each in done)
    if config.json:
        new = {each.problem.id: each.added for each in done if each.added}
        click.echo(json.dumps({"problems": len(done), "augmented": new, "added": added, "refused": refused}))
    else:
        for name, refusal in refused.items():
            click.echo(escape_controls(f"{name}: no new tests: {refusal}"))
    say(f"{file}: {added} new tests in {len(done) - len(refused)} of {len(done)} problems, in {config.out}")
    for refusal, count in Counter(refused.values()).most_common():
        say(f"{count} problems: {refusal}")
    say(f"next: sce data check {shlex.quote(str(config.out))} --strength")
