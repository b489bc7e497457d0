"""`sce score`: scores of completions on problems, or of one program on one test; findings in files."""

from __future__ import annotations

from pathlib import Path

import click

from securecoderl_edge.commands.console import check_outputs
from securecoderl_edge.commands.gate import without_defaults
from securecoderl_edge.commands.names import PATH
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.commands.score_completions import score_completions
from securecoderl_edge.commands.score_options import ScoreConfig
from securecoderl_edge.commands.score_programs import explain_program, scan_programs, score_folder
from securecoderl_edge.errors import UsageError


@click.command(
    epilog=examples(
        'sce score sum.py --input "1 2" --expect 3',
        "sce score folder --fail-under 0.9 --fail-on medium --junit report.xml",
        "sce score --problems mine.jsonl --completions answers.jsonl --out scores.jsonl",
    )
)
@click.argument("programs", metavar="[FILE]...", nargs=-1, type=PATH)
@options_from(ScoreConfig)
@click.pass_context
def score(ctx: click.Context, programs: tuple[Path, ...], config: ScoreConfig) -> None:
    """Score programs: run their tests in the sandbox, and scan them.

    \b
    Many:  sce score --problems FILE --completions FILE [--out FILE]
           One JSON line per completion on stdout (or in --out), and a summary on stderr.
    One:   sce score FILE --input TEXT --expect TEXT
           An explanation of the score. Exit code 1 if the program does not pass.
    Gate:  sce score FOLDER [--problems FILE] [--fail-under X] [--fail-on medium]
           Programs of a folder, on the tests next to them (NAME.in and NAME.out, or test_NAME.py)
           or on problems (ID.py). The last line is the reason if it fails, with exit code 1.
    Scan:  sce score FILE...
           Medium and high findings of files, which are not run; sce scan can do more.
           Exit code 1 if a file has findings, or does not parse or compile.

    A program passes if it passes all its tests. With --problems and --completions, the exit code
    is 1 only if --fail-under or --fail-on say so.
    """
    from securecoderl_edge.sandbox.source_files import SUFFIXES

    config = without_defaults(config)
    folders = [each for each in programs if each.is_dir()]
    sources = (config.problems, config.completions, config.input, config.expect)
    check_outputs(
        {"--out": config.out, "--junit": config.junit, "--sarif": config.sarif},
        [*programs, *sources],
        {*SUFFIXES, ".in", ".out"} if folders else (),
    )
    if not programs:
        is_passed = score_completions(config)
    elif folders and len(programs) > 1:
        raise UsageError(f"{folders[0]}: a folder is scored alone. To scan files and folders, use sce scan.")
    elif folders:
        is_passed = score_folder(folders[0], config)
    else:
        is_passed = (explain_program if config.expect is not None else scan_programs)(programs, config)
    if not is_passed:
        ctx.exit(1)
