"""`sce report`: a training run as one page of HTML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from securecoderl_edge.commands.console import say
from securecoderl_edge.commands.options import options_from
from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError


@dataclass(frozen=True)
class ReportConfig:
    """Flags of `sce report`."""

    out: str | None = setting(None, "The file to write.  [default: RUN/report.html]", metavar="FILE.html")


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@options_from(ReportConfig)
def report(run: str | None, config: ReportConfig) -> None:
    """Show a training run as one page: what was kept, curves, programs.

    RUN is a folder or a name under runs/; without it, it is the one that was last worked on. A run that is still
    going is shown as far as it is. The page is one file that needs no network and no script.
    """
    from securecoderl_edge.evaluation.report.page import render_report
    from securecoderl_edge.runs import find_run, newest_run
    from securecoderl_edge.system.files import write_atomically

    found = newest_run() if run is None else find_run(run)
    if found is None:
        if run is None:
            raise UsageError("there is no training run here yet; run: sce train")
        raise UsageError(f"no training run {run!r}: neither a folder with an environment.json nor a name under runs/")
    page = render_report(found)
    target = Path(config.out) if config.out else found.path / "report.html"
    with write_atomically(target) as out:
        out.write(page)
    say(f"the report is in {target}")
