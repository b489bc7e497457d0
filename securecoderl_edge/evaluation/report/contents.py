"""Everything that a report shows of one run or of several; the page and ``--json`` are made of the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from securecoderl_edge.evaluation.report.charts import Drawing, drawings_of
from securecoderl_edge.evaluation.report.programs import ProblemPrograms, choose_programs
from securecoderl_edge.evaluation.report.results import (
    BenchResult,
    PhaseResult,
    bench_results,
    facts_of,
    phase_results,
    settings_that_differ,
)
from securecoderl_edge.evaluation.report.run_history import Point, RunHistory, read_history
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.reward import STAGE_NAMES

MOST_RUNS = 8


@dataclass(frozen=True)
class Contents:
    """What a report shows.

    Attributes:
        names: of the runs, each different; all other parts use them.
        differing: settings that differ between the runs, with the value of each run.
        kind: of ``programs``, see `choose_programs`.
    """

    histories: Sequence[RunHistory]
    names: Sequence[str]
    results: Sequence[PhaseResult]
    bench: Sequence[BenchResult]
    differing: dict[str, list[Any]]
    drawings: Sequence[Drawing]
    kind: str
    programs: Sequence[ProblemPrograms]

    def to_record(self) -> dict[str, Any]:
        """The same as one JSON value; NaN is null in it."""
        runs = [
            {
                "run": name,
                "facts": facts_of(history),
                "missing": list(history.missing),
                "readiness": history.readiness.facts() if history.readiness else None,
                "warnings": list(history.warnings),
                "settings": dict(history.settings),
                "environment": dict(history.facts),
            }
            for name, history in zip(self.names, self.histories, strict=True)
        ]
        return {
            "runs": runs,
            "differences": {
                setting: dict(zip(self.names, values, strict=True)) for setting, values in self.differing.items()
            },
            "results": [asdict(each) for each in self.results],
            "bench": [asdict(each) for each in self.bench],
            "charts": [
                {"title": each.title, "panels": [asdict(panel) for panel in each.panels]} for each in self.drawings
            ],
            "programs": {
                "kind": self.kind,
                "problems": [
                    {
                        "id": each.problem,
                        "statement": each.statement,
                        "samples": [sample_record(run, point) for run, point in each.samples],
                    }
                    for each in self.programs
                ],
            },
        }


def sample_record(run: str, point: Point) -> dict[str, Any]:
    """A program with its score; what is missing or no number is None."""
    stage = point.number("stage")
    return {
        "run": run,
        "phase": point.phase,
        "step": point.row["step"],
        "level": STAGE_NAMES[int(stage)] if stage is not None and stage in range(len(STAGE_NAMES)) else None,
        "passed": point.number("passed"),
        "total": point.number("total"),
        "reward": point.number("reward"),
        "program": point.row["program"],
    }


def read_contents(runs: Sequence[Run]) -> Contents:
    """Read the folders of one run or more, at most `MOST_RUNS`."""
    histories = [read_history(run) for run in runs]
    names = _names(runs)
    bench = [
        each
        for history, name in zip(histories, names, strict=True)
        for each in bench_results(history.run, name, history.missing)
    ]
    kind, programs = choose_programs(histories, names)
    differing = settings_that_differ(histories)
    drawings = drawings_of(histories, names)
    return Contents(histories, names, phase_results(histories, names), bench, differing, drawings, kind, programs)


def _names(runs: Sequence[Run]) -> list[str]:
    """The names of the folders, or their paths if some are equal."""
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.path) for run in runs]
