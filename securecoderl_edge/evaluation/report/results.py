"""Facts and results of runs, next to one another: phases, evaluations of `sce bench`, settings that differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.report.run_history import PhaseCourse, Point, RunHistory, as_number
from securecoderl_edge.models.adapters import ADAPTER_WEIGHTS
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.cluster_intervals import labels_of, mean_over_groups, rate_over_groups
from securecoderl_edge.scoring.intervals import Interval
from securecoderl_edge.system.files import read_json
from securecoderl_edge.training.phase_settings import PHASES

BENCH = "bench/bench.json"  # of `sce bench --out RUN/bench`
# Metrics of bench.json -> the heading of their column.
BENCH_METRICS = {
    "pass_at_1": "pass@1",
    "all_tests_rate": "pass all tests",
    "syntax_rate": "parse",
    "reward": "reward R",
    "secure_rate": "no finding",
    "security_tests_rate": "pass all security tests",
    "func_sec_rate": "pass all tests and security tests",
}
_DEFAULT_SAMPLES = 2


@dataclass(frozen=True)
class PhaseResult:
    """A phase of a run.

    Attributes:
        selected: the update whose policy was kept; None until the phase has finished.
        reward, pass_rate: held-out means before the phase, and of the selected update, or else of the latest. An
            interval is NaN where the run does not have what it needs; the list is empty without an evaluation.
        tokens_sampled, tokens_trained: in its updates so far, see `Learner.counted`; None where nobody counted.
    """

    run: str
    phase: str
    updates: int
    planned: int | None
    selected: int | None
    why: str
    reward: tuple[Interval | None, ...]
    pass_rate: tuple[Interval | None, ...]
    tokens_sampled: int | None
    tokens_trained: int | None


@dataclass(frozen=True)
class BenchResult:
    """A model that `sce bench` evaluated, and its metrics by the names of `BENCH_METRICS`."""

    run: str
    model: str
    problem_set: str
    problems: int | None
    metrics: Mapping[str, Interval]


def facts_of(history: RunHistory) -> dict[str, str]:
    """How a run was made, in words; empty where it is not recorded."""
    facts = history.facts
    machine = facts.get("machine")
    machine = machine if isinstance(machine, dict) else {}
    memory = as_number(machine.get("memory_bytes"))
    sandbox, command = facts.get("sandbox"), facts.get("command")
    device, precision, cores = (
        plain(facts.get("device")),
        plain(facts.get("base_precision")),
        plain(machine.get("cores")),
    )
    return {
        "base model": plain(facts.get("base_model")),
        "started": plain(facts.get("started")),
        "state": "finished" if (history.run.policy / ADAPTER_WEIGHTS).is_file() else "not finished",
        "machine": _joined(
            plain(machine.get("cpu")),
            cores and f"{cores} cores",
            f"{memory / 2**30:.0f} GiB" if memory else "",
            plain(machine.get("system")),
        ),
        "device": _joined(device, precision and f"base in {precision}"),
        "seed": plain(facts.get("seed")),
        "sandbox": plain(sandbox.get("level")) if isinstance(sandbox, dict) else "",
        "command": " ".join(map(plain, command)) if isinstance(command, list) else "",
    }


def plain(value: object) -> str:
    """A word or a number as text; empty for anything else."""
    return str(value) if isinstance(value, (str, int, float)) else ""


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def phase_results(histories: Sequence[RunHistory], names: Sequence[str]) -> list[PhaseResult]:
    """The phases of all runs; those of the same name are neighbors."""
    phases = dict.fromkeys(phase.name for history in histories for phase in history.phases)
    return [
        _phase_result(phase, history, run)
        for name in phases
        for history, run in zip(histories, names, strict=True)
        for phase in history.phases
        if phase.name == name
    ]


def _phase_result(phase: PhaseCourse, history: RunHistory, run: str) -> PhaseResult:
    chosen, selection = phase.outcome.get("chosen_step"), history.settings.get("selection")
    samples = selection.get("samples") if isinstance(selection, dict) else None
    samples = samples if type(samples) is int and samples > 0 else _DEFAULT_SAMPLES
    points = phase.evaluations
    shown = points and (points[0], next((each for each in points if each.row["step"] == chosen), points[-1]))
    why = plain(phase.outcome.get("why")) or "not recorded" if phase.outcome else "the phase has not finished"
    return PhaseResult(
        run,
        phase.name,
        phase.updates,
        phase.planned,
        chosen if type(chosen) is int else None,
        why,
        tuple(_held_out(point, "reward", "rewards", samples) for point in shown),
        tuple(_held_out(point, "all_tests_rate", "solved", samples) for point in shown),
        _count(phase.last_row.get("tokens_sampled")),
        _count(phase.last_row.get("tokens_trained")),
    )


def _count(value: object) -> int | None:
    number = as_number(value)
    return None if number is None else int(number)


def _held_out(point: Point, mean: str, programs: str, samples: int) -> Interval | None:
    """A mean over held-out programs, with an interval over groups of problems if the row has each program's value."""
    value, each = point.number(mean), point.row.get(programs)
    if value is None:
        return None
    numbers = [as_number(int(one) if isinstance(one, bool) else one) for one in each] if isinstance(each, list) else []
    known = [one for one in numbers if one is not None]
    bare = Interval(value, math.nan, math.nan, len(known))
    if not known or len(known) != len(numbers) or len(known) % samples:
        return bare
    of_problems = [known[start : start + samples] for start in range(0, len(known), samples)]
    groups = labels_of(point.row, len(of_problems))
    if programs == "solved":
        found = rate_over_groups([[one > 0 for one in each] for each in of_problems], groups)
    else:
        found = mean_over_groups(of_problems, groups)
    # Of another mean than the one that was recorded, the interval would mislead.
    return found if math.isclose(found.value, value, abs_tol=1e-6) else bare


def bench_results(run: Run, name: str, missing: list[str]) -> list[BenchResult]:
    """The models of the run's `BENCH`, if it is there.

    Args:
        name: of the run. missing: gets a sentence if the file is damaged.
    """
    file = run.path / BENCH
    if not file.is_file():
        return []
    try:
        document = read_json(file)
    except SceError:
        document = {}
    models, settings = document.get("models"), document.get("settings")
    if not isinstance(models, list):
        missing.append(f"{BENCH} is damaged")
        return []
    problem_set = plain(settings.get("problems")) if isinstance(settings, dict) else ""
    found = []
    for model in models:
        if isinstance(model, dict):
            metrics = {metric: each for metric in BENCH_METRICS if (each := _interval(model.get(metric))) is not None}
            count = _count(model.get("problems"))
            found.append(BenchResult(name, plain(model.get("model")), problem_set, count, metrics))
    return found


def _interval(record: object) -> Interval | None:
    if not isinstance(record, dict):
        return None
    value, low, high, n = (as_number(record.get(key)) for key in ("value", "low", "high", "n"))
    if value is None:
        return None
    return Interval(value, math.nan if low is None else low, math.nan if high is None else high, int(n or 0))


def settings_that_differ(histories: Sequence[RunHistory]) -> dict[str, list[Any]]:
    """The settings that are not equal in all runs, with the value of each run; None where it has none.

    Those of phases that no run has are left out: ``--max-steps`` changes them all.
    """
    tables = [dict(_flat(history.settings)) for history in histories]
    used = [history.settings.get("phases") for history in histories]
    unused = {phase for phase in PHASES if all(isinstance(each, list) and phase not in each for each in used)}
    names = sorted({name for table in tables for name in table if name.partition(".")[0] not in unused})
    values = {name: [table.get(name) for table in tables] for name in names}
    return {name: each for name, each in values.items() if any(value != each[0] for value in each)}


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
