"""``sce score --problems --completions``: a score for each completion of a file, and their summary."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import new_console, say, show_table, talk, track
from securecoderl_edge.commands.score_gate import check_gate
from securecoderl_edge.commands.score_options import ScoreConfig, opened_scorer
from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.problem_file import MAX_TESTS
from securecoderl_edge.problems.sources import is_benchmark, load_problems
from securecoderl_edge.sandbox.source_files import STDIN
from securecoderl_edge.text import counted, document

if TYPE_CHECKING:
    from securecoderl_edge.scoring.score import Score


def score_completions(config: ScoreConfig) -> bool:
    """Print or write the scores; those that a file has already are not computed again. Whether the gate is passed."""
    from securecoderl_edge.scoring.score import score_line
    from securecoderl_edge.scoring.score_files import open_scores, read_scores, read_submissions

    if config.problems is None or config.completions is None:
        raise UsageError("Missing arguments: give --problems and --completions, or FILE, or FOLDER.")
    if config.expect is not None or config.input is not None:
        raise UsageError("--input and --expect need FILE.")
    if config.target is not None or config.budget is not None:
        raise UsageError("--target and --budget need FILE. A problem has fields of these names.")
    config.refuse(("language",), "--completions")
    problems = load_problems(config.problems, sys.maxsize if is_benchmark(config.problems) else MAX_TESTS, say)
    source = Path("/dev/stdin" if config.completions == STDIN else config.completions)
    submissions = read_submissions(source, problems, config.extract)
    if missing_ids := {each.id for each in problems} - {each.problem.id for each in submissions}:
        effect = "do not count" if config.fail_under is None else "count for --fail-under only"
        say(f"{len(missing_ids)} of {len(problems)} problems have no completion, and {effect}")
    out = Path(config.out) if config.out is not None else None
    with opened_scorer(config) as scorer, open_scores(out) if out else nullcontext() as append:
        scores = read_scores(out, submissions, scorer.switches(config.extract), scorer.analyzers_of) if out else {}
        missing = [submission for submission in submissions if submission.key not in scores]
        if scores:
            say(f"{len(submissions) - len(missing)} of {len(submissions)} completions are already scored in {out}")
        with track(len(missing), "scoring", lines=False) as tracker:
            for batch in scorer.in_batches(missing):
                done = [score for score, _ in batch]
                text = "".join(map(score_line, done))
                if append is not None:
                    append(text)
                elif not config.json:
                    click.echo(document(text), nl=False)
                scores |= {(each.id, each.sample): each for each in done}
                tracker.update(len(batch))
    in_order = [scores[submission.key] for submission in submissions]
    _show_summary(in_order)
    by_name = {f"{each.id} sample {each.sample}": each for each in in_order}
    return check_gate(by_name, config, None, missing=sorted(missing_ids))


def _show_summary(scores: Sequence[Score]) -> None:
    """Print metrics and reward levels on stderr."""
    from rich import box
    from rich.table import Table

    from securecoderl_edge.scoring.metrics import EVERY_METRIC, mean_of_scores
    from securecoderl_edge.scoring.reward import STAGE_NAMES
    from securecoderl_edge.scoring.signs import SIGNS

    summary = mean_of_scores(scores)
    title = counted(len(scores), "score")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, title=title, title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for metric in EVERY_METRIC:
        if metric.name in summary:
            value = summary[metric.name]
            shown = "-" if value is None else f"{value * 100:.1f}" if metric.is_rate else f"{value:.3f}"
            table.add_row(metric.title, shown)
    for number, name in enumerate(STAGE_NAMES):
        table.add_row(f"level {number}: {name}", str(summary["stages"][name]))
    for sign in SIGNS:
        if summary[sign]:
            table.add_row(f"{sign.replace('_', ' ')} %", f"{summary[sign] * 100:.1f}")
    console = talk if talk.is_terminal else new_console(stderr=True, width=80)
    show_table(table, console)
