"""`sce report`: one HTML page about a training run, or about several side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import say
from securecoderl_edge.commands.names import RUN
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError

if TYPE_CHECKING:
    from securecoderl_edge.runs import Run


@dataclass(frozen=True)
class ReportConfig:
    """Flags of `sce report`."""

    out: str | None = setting(
        None,
        "File to write.  [default: report.html in RUN; of several runs, comparison.html in the first]",
        metavar="FILE.html",
    )
    json: bool = setting(False, "Print what the page shows as JSON; write the page only with --out.")


@click.command(
    epilog=examples(
        "sce report",
        "sce report one two",
        "sce report one two --json",
    )
)
@click.argument("runs", type=RUN, required=False, nargs=-1, metavar="[RUN]...")
@options_from(ReportConfig)
def report(runs: tuple[str, ...], config: ReportConfig) -> None:
    """Write a training run as one HTML page, or compare several on one page.

    RUN is a folder or a name under runs/; by default the run that changed last. It may be unfinished. The page has
    results, learning curves by phase, and early and late programs on the same problems. Of several runs it has the
    settings that differ, and the same metric of all runs in one chart. It is one file without scripts, and needs no
    network. A comparison lies in the first one, as comparison.html.
    """
    from securecoderl_edge.evaluation.report.contents import read_contents
    from securecoderl_edge.system.files import write_atomically
    from securecoderl_edge.system.rows import finite

    found = _find(runs)
    if config.out and Path(config.out).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {config.out}: expected a name that ends in .html")
    contents = read_contents(found)
    if config.json:
        click.echo(json.dumps(finite(contents.to_record()), indent=1, allow_nan=False, default=str))
    if config.json and not config.out:
        return
    from securecoderl_edge.evaluation.report.page import render_page

    page = render_page(contents)
    inside = "report.html" if len(found) == 1 else "comparison.html"
    target = Path(config.out) if config.out else found[0].path / inside
    if not config.out and target.is_symlink():  # in a run that somebody else made, it can lead anywhere
        raise UsageError(f"{target} is a link; remove it, or give --out FILE.html")
    with write_atomically(target) as out:
        out.write(page)
    say(f"the report is in {target}")


def _find(names: Sequence[str]) -> list[Run]:
    """The runs of these names; without any, the newest."""
    from securecoderl_edge.evaluation.report.contents import MOST_RUNS
    from securecoderl_edge.runs import find_run, newest_run

    if not names:
        newest = newest_run()
        if newest is None:
            raise UsageError("no training run in runs/. Run: sce train")
        return [newest]
    if len(names) > MOST_RUNS:
        raise UsageError(f"{len(names)} runs do not fit on one page. Give at most {MOST_RUNS}")
    runs: dict[Path, Run] = {}
    for name in names:
        run = find_run(name)
        if run is None:
            raise UsageError(
                f"unknown training run {name!r}. Give a run folder (with environment.json) or a name in runs/."
            )
        if run.path.resolve() in runs:
            raise UsageError(f"{name} is given twice. Name each run once")
        runs[run.path.resolve()] = run
    return list(runs.values())
