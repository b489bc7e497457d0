"""`sce score`: scores of completions on problems, or of one program on one test; findings in files."""

from __future__ import annotations

from pathlib import Path

import click

from securecoderl_edge.commands.options import options_from
from securecoderl_edge.commands.score_completions import score_completions
from securecoderl_edge.commands.score_options import ScoreConfig
from securecoderl_edge.commands.score_programs import explain_program, scan_programs


@click.command()
@click.argument("programs", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@options_from(ScoreConfig)
@click.pass_context
def score(ctx: click.Context, programs: tuple[Path, ...], config: ScoreConfig) -> None:
    """Score programs: run their tests in the sandbox, and scan them.

    \b
    Many:  sce score --problems FILE --completions FILE [--out FILE]
           One JSON line per completion on stdout (or in --out), and a summary on stderr.
    One:   sce score FILE --input TEXT --expect TEXT
           An explanation of the score. Exit code 1 if the program does not pass.
    Scan:  sce score FILE...
           Security findings of files, which are not run; for git hooks.
           Exit code 1 if a file has findings, or does not parse or compile.
    """
    if not programs:
        score_completions(config)
    elif not (explain_program if config.expect is not None else scan_programs)(programs, config):
        ctx.exit(1)
