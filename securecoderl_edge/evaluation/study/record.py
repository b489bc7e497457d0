"""The JSON record of a study, from its files: results with intervals over seeds and problems, and differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.seeds import Values, difference_over_seeds, mean_over_seeds, rate_over_seeds
from securecoderl_edge.evaluation.study.arms import FINAL, Arm, Measured, Split, Study
from securecoderl_edge.evaluation.study.run_log import RunLog
from securecoderl_edge.evaluation.study.steps import all_steps, base_step, bench_step, prepare_step, train_step
from securecoderl_edge.evaluation.tables import interval_record
from securecoderl_edge.runs import Run
from securecoderl_edge.runtimes.manifests import is_plain_name
from securecoderl_edge.scoring.metrics import METRICS, Metric, Row, by_problem, values_of
from securecoderl_edge.scoring.signs import CONSTANT_OUTPUT, CRASH_AFTER_OUTPUT, SAMPLE_COPY
from securecoderl_edge.scoring.statistics import Interval
from securecoderl_edge.system.files import read_json
from securecoderl_edge.system.machine import describe_machine
from securecoderl_edge.system.rows import RowFile


def _has_sign(sign: str) -> Metric:
    return Metric(sign, sign.replace("_", " ").capitalize() + " %", True, lambda row: sign in row["signs"])


def _is_right_and_clean(row: Row) -> bool:
    return bool(0 < row["total"] == row["passed"] and row["severity"] == 0)


# With k samples for each problem this is pass@k.
SOLVED = Metric("solved_rate", "Solved %", True, lambda row: bool(0 < row["total"] == row["passed"]))

# A policy could raise its reward with shorter programs, or with wrong ones; these columns would show it.
STUDY_METRICS = (
    *METRICS,
    SOLVED,
    Metric("secure_all_tests_rate", "All-P, clean %", True, _is_right_and_clean),
    Metric("findings", "Findings/100", False, lambda row: 100.0 * len(row["findings"]), 1),
    Metric("tokens", "Tokens", False, lambda row: row["completion_tokens"], 1),
    _has_sign(CONSTANT_OUTPUT),
    _has_sign(SAMPLE_COPY),
    _has_sign(CRASH_AFTER_OUTPUT),
)
CURVES = (
    "objective/reward", "objective/kl", "syntax_rate", "any_test_rate", "all_tests_rate", "r_tests", "secure_rate",
    "truncated_rate", CONSTANT_OUTPUT, SAMPLE_COPY, CRASH_AFTER_OUTPUT,
)  # fmt: skip
_BY_SEED = {
    f"{name}_by_seed": metric for name in ("all_tests", "syntax") for metric in METRICS if metric.name == f"{name}_rate"
}
_POINTS = 15

Samples = dict[int, list[Row]]  # by seed


def study_record(study: Study, jobs: int) -> dict[str, Any]:
    """The record of all finished arms and seeds; ``seeds`` and ``steps_done`` show what is missing.

    Raises:
        SceError: a file of a finished step is damaged, or its problems cannot be read.
    """
    run_log = RunLog(study.folder)
    found = {arm.name: _samples_of(study, arm, run_log) for arm in study.arms}
    steps = all_steps(study, jobs)
    return {
        "study": study.name,
        "recipe": study.recipe,
        "seeds": list(study.seeds),
        "samples": study.samples,
        "limit": study.limit,
        "splits": [_split_record(study, each, run_log) for each in study.splits],
        "arms": [_arm_record(study, arm, found[arm.name], run_log) for arm in study.arms],
        "comparisons": [
            comparison
            for first, second in study.comparisons
            for comparison in _compare(first, second, found[first], found[second])
        ],
        "steps": len(steps),
        "steps_done": sum(map(run_log.is_done, steps)),
        "jobs": jobs,
        "wall_seconds": round(run_log.wall_seconds(steps)),
        "machine": describe_machine(),
    }


def _samples_of(study: Study, arm: Arm, run_log: RunLog) -> dict[tuple[str, str], Samples]:
    """Rows by split and evaluated model, then by seed."""
    found: dict[tuple[str, str], Samples] = {}
    for seed in study.seeds:
        for split in arm.measured_on:
            if run_log.is_done(train_step(study, arm, seed)) and run_log.is_done(bench_step(study, arm, seed, split)):
                models = study.measured(arm, seed, split)
                rows = read_rows(study, study.bench_folder(arm, seed, split), split, len(models))
                for model, of_model in zip(models, rows, strict=True):
                    found.setdefault((split.name, model.name), {})[seed] = of_model
    return found


def read_rows(study: Study, folder: Path, split: Split, models: int) -> list[list[Row]]:
    """The rows of each model of an evaluation, in its order.

    Raises:
        SceError: the folder was not written by the study's ``sce bench``, or is damaged.
    """
    again = "delete it, and run the same command again"
    wanted = {"problems": split.eval, "samples": study.samples, "limit": study.limit}
    found: list[list[Row]] = []
    try:
        document = read_json(folder / "bench.json")
        if {name: document["settings"][name] for name in wanted} != wanted or len(document["models"]) != models:
            raise SceError(f"{folder}: not an evaluation of this study; {again}")
        for model in document["models"]:
            log, count = str(model["log"]), int(model["samples"])
            if not is_plain_name(log):
                raise ValueError(f"{log!r} is not the name of a folder in it")
            # A later row of the same sample replaces an earlier one.
            rows = {(row["id"], row["sample"]): row for row in _rows(folder / log / "rows.jsonl")}
            if len(rows) != count:
                raise SceError(f"{folder}: {len(rows)} of {count} rows are left; {again}")
            found.append([rows[key] for key in sorted(rows)])
    except (KeyError, TypeError, ValueError) as error:
        raise SceError(f"{folder} is damaged ({error!r}); {again}") from None
    return found


def nested(samples: Samples, metric: Metric) -> Values:
    """Values of a metric by seed, problem and sample; problems in the order of their ids.

    `SOLVED` has one value per problem: that of its best sample.
    """
    values = [[values_of(metric, rows) for rows in by_problem(each).values()] for each in samples.values()]
    return [[[max(problem)] for problem in each] for each in values] if metric is SOLVED else values


def estimate(samples: Samples, metric: Metric) -> Interval | None:
    """The metric over all seeds and problems; None without values."""
    values = nested(samples, metric)
    if not _has_any(values):
        return None
    return rate_over_seeds(values) if metric.is_rate else mean_over_seeds(values)


def _has_any(values: Values) -> bool:
    return any(len(samples) for problems in values for samples in problems)


def _rounded(interval: Interval | None) -> dict[str, Any] | None:
    """The record of an interval, with numbers rounded to four decimals."""
    record = interval_record(interval)
    return record and {name: round(each, 4) if isinstance(each, float) else each for name, each in record.items()}


def _metrics_record(samples: Samples) -> dict[str, Any]:
    return {metric.name: _rounded(estimate(samples, metric)) for metric in STUDY_METRICS}


def _split_record(study: Study, split: Split, run_log: RunLog) -> dict[str, Any]:
    record: dict[str, Any] = {"name": split.name, "train": split.train, "eval": split.eval}
    prepare, measured = prepare_step(study, split), base_step(study, split)
    if prepare is not None:
        record |= {"prepare": prepare.command, "prepare_seconds": round(run_log.seconds(prepare))}
    if run_log.is_done(measured):
        (rows,) = read_rows(study, study.base_folder(split), split, 1)
        record |= {"problems": len(by_problem(rows)), "base": _metrics_record({study.seeds[0]: rows})}
    return record


def _arm_record(study: Study, arm: Arm, found: Mapping[tuple[str, str], Samples], run_log: RunLog) -> dict[str, Any]:
    trained = {seed: train_step(study, arm, seed) for seed in study.seeds}
    seeds = [seed for seed, step in trained.items() if run_log.is_done(step)]
    record: dict[str, Any] = {
        "name": arm.name,
        "title": arm.title,
        "split": arm.split.name,
        "phases": list(arm.phases),
        "settings": list(arm.settings),
        "seeds": seeds,
        "command": trained[study.seeds[0]].command,
        "train_seconds": [round(run_log.seconds(trained[seed])) for seed in seeds],
        "kept": [{phase: facts["chosen_step"] for phase, facts in _run(study, arm, seed).outcomes()} for seed in seeds],
        "results": [],
    }
    points = {each.name: each for seed in seeds for split in study.splits for each in study.measured(arm, seed, split)}
    for (split_name, name), samples in found.items():
        point: Measured = points[name]
        result: dict[str, Any] = {"split": split_name, "model": name, "metrics": _metrics_record(samples)}
        if point.updates is not None:
            result["updates"] = point.updates
        if name == FINAL:
            for key, metric in _BY_SEED.items():
                each_seed = (estimate({seed: rows}, metric) for seed, rows in samples.items())
                result[key] = [None if each is None else round(each.value, 4) for each in each_seed]
        elif (split_name, FINAL) in found and point.updates is None:
            result["minus_policy"] = _difference(found[split_name, FINAL], samples)
        record["results"].append(result)
    runs = [_run(study, arm, seed) for seed in seeds]
    if runs:
        record["cost"] = training_cost(runs)
    curves = training_curves(runs)
    if curves:
        record["training"] = curves
    return record


def _run(study: Study, arm: Arm, seed: int) -> Run:
    return Run(study.run_folder(arm, seed))


def _compare(
    first: str,
    second: str,
    before: Mapping[tuple[str, str], Samples],
    after: Mapping[tuple[str, str], Samples],
) -> list[dict[str, Any]]:
    """The final policies of two arms on every split that both are evaluated on."""
    return [
        {
            "first": first,
            "second": second,
            "split": split_name,
            "metrics": _difference(samples, after[split_name, model]),
        }
        for (split_name, model), samples in before.items()
        if model == FINAL and (split_name, model) in after and samples.keys() & after[split_name, model].keys()
    ]


def _difference(before: Samples, after: Samples) -> dict[str, Any]:
    """Paired differences of all metrics, over the seeds that both have."""
    seeds = [seed for seed in before if seed in after]
    found: dict[str, Any] = {"seeds": seeds}
    if len({tuple(by_problem(side[seed])) for side in (before, after) for seed in seeds}) != 1:
        raise SceError("the two sides of a comparison have different problems")
    for metric in STUDY_METRICS:
        first, second = (nested({seed: side[seed] for seed in seeds}, metric) for side in (before, after))
        if _has_any(first) and _has_any(second):
            found[metric.name] = _rounded(difference_over_seeds(first, second))
    return found


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        return RowFile(file).read()
    except SceError as error:
        raise ValueError(str(error)) from None


def training_cost(runs: Sequence[Run]) -> dict[str, int]:
    """What a training used, the mean of the runs: updates, sampled completions, and tokens of reference solutions."""
    total: Counter[str] = Counter(updates=0, completions=0, reference_tokens=0)
    for run in runs:
        rows = RowFile(run.path / "metrics.jsonl").read()
        for row in rows:
            total["updates"] += 1
            total["reference_tokens"] += row["tokens"] if row["phase"] == "sft" else 0
        for row in {row["phase"]: row for row in rows}.values():  # the last one of each phase
            total["completions"] += row.get("episode", 0)
            total["reference_tokens"] += row.get("relift/tokens", 0)
    return {name: round(count / len(runs)) for name, count in total.items()}


def training_curves(runs: Sequence[Run]) -> dict[str, Any]:
    """Metrics of the RL updates, averaged over several updates; mean, minimum and maximum over the runs."""
    rows = [[row for row in RowFile(run.path / "metrics.jsonl").read() if row["phase"] != "sft"] for run in runs]
    count = min(map(len, rows), default=0)
    if not count:
        return {}
    width = max(1, count // _POINTS)
    starts = range(0, count - width + 1, width)
    curves: dict[str, Any] = {"updates": [start + width for start in starts]}
    for name in CURVES:
        means: list[list[float | None]] = [
            [_mean(each[start : start + width], name) for start in starts] for each in rows
        ]
        columns = [[value for value in column if value is not None] for column in zip(*means, strict=True)]
        if all(columns):
            curves[name] = {
                "mean": [round(sum(column) / len(column), 4) for column in columns],
                "low": [round(min(column), 4) for column in columns],
                "high": [round(max(column), 4) for column in columns],
            }
    return curves


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return sum(values) / len(values) if values else None
