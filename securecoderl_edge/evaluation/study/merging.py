"""Results of a study that several machines computed, each some of its seeds, brought together in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.study.arms import Study
from securecoderl_edge.evaluation.study.figures import save_figures
from securecoderl_edge.evaluation.study.run_log import RunLog
from securecoderl_edge.evaluation.study.steps import chains
from securecoderl_edge.system.files import locked


def take_finished(study: Study, folders: Sequence[Path], jobs: int) -> None:
    """Copy what is finished in other folders of the same study: figures, and the log of the steps behind them.

    Everything else may stay where it is: figures are all that a record and a resumed study need.

    Raises:
        SceError: a folder has no results of this study, is damaged, or another process uses the study's folder.
    """
    study.folder.mkdir(parents=True, exist_ok=True)
    with locked(study.folder):
        run_log = RunLog(study.folder)
        run_log.open()
        for folder in folders:
            their_log, found = RunLog(folder), 0
            pairs = zip(chains(study, jobs), chains(replace(study, folder=folder), jobs), strict=True)
            for ours, theirs in pairs:
                figures = theirs.figures(their_log)
                if figures is None:
                    continue
                found += 1
                if ours.figures(run_log) is None:
                    save_figures(figures, ours.file)
                    if ours.figures(run_log) is None:
                        # Only the run folder shows which snapshots such a phase has.
                        raise SceError(f"{theirs.file}: a phase ended early. Copy the run folder next to {ours.file}.")
            if not found:
                raise SceError(f"{folder}: no finished results of this study. Give the options that made them.")
            run_log.take(their_log)
