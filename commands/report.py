"""`sce report`: one HTML page about a training run."""

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

    out: str | None = setting(None, "File to write.  [default: RUN/report.html]", metavar="FILE.html")


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@options_from(ReportConfig)
def report(run: str | None, config: ReportConfig) -> None:
    """Write a training run as one HTML page: results, curves, programs.

    RUN is a folder or a name under runs/; by default the run that changed last. It may be unfinished. The page has the
    selected checkpoints, learning curves and sampled programs. It is one file without scripts, and needs no network.
    """
    from securecoderl_edge.evaluation.report.page import render_report
    from securecoderl_edge.runs import find_run, newest_run
    from securecoderl_edge.system.files import write_atomically

    training = newest_run() if run is None else find_run(run)
    if training is None:
        if run is None:
            raise UsageError("no training run in runs/. Run: sce train")
        raise UsageError(f"unknown training run {run!r}. Give a run folder (with environment.json) or a name in runs/.")
    if config.out and Path(config.out).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {config.out}: expected a name that ends in .html")
    page = render_report(training)
    target = Path(config.out) if config.out else training.path / "report.html"
    if not config.out and target.is_symlink():  # in a run that somebody else made, it can lead anywhere
        raise UsageError(f"{target} is a link; remove it, or give --out FILE.html")
    with write_atomically(target) as out:
        out.write(page)
    say(f"the report is in {target}")
