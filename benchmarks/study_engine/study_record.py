"""The JSON record of a study, from its figures: results with intervals over seeds and problems, and differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.tables import interval_record
from securecoderl_edge.problems.groups import groups_by_id
from securecoderl_edge.scoring.cluster_intervals import (
    METHOD,
    Values,
    difference_over_seeds,
    mean_over_seeds,
    merged,
    rate_over_seeds,
)
from securecoderl_edge.scoring.intervals import Interval
from securecoderl_edge.scoring.metrics import METRICS, Metric, Row
from securecoderl_edge.system.machine import describe_machine
from study_engine.arms import FINAL, Arm, Split, Study
from study_engine.figures import CURVES, STUDY_METRICS, Evaluated, Figures, load_figures, nested
from study_engine.run_log import RunLog, evaluation_problems
from study_engine.steps import (
    all_steps,
    arm_chain,
    base_chain,
    chains,
    prepare_step,
    train_step,
)

_BY_SEED = {
    f"{name}_by_seed": metric for name in ("all_tests", "syntax") for metric in METRICS if metric.name == f"{name}_rate"
}
_POINTS = 15

Record = Mapping[str, Any]
Samples = dict[int, Evaluated]  # by seed, with the samples of each group of problems
_Groups = Mapping[str, str | None]  # of each problem by its id; None leaves it out


def study_record(
    study: Study,
    jobs: int,
    left_out: Collection[str] = (),
    removed: Sequence[Record] = (),
    pairs: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """The record of all finished arms and seeds; ``seeds`` and ``steps_done`` show what is missing.

    Intervals are over seeds and groups of problems, since variants of a task depend on each other.

    Args:
        left_out: ids of problems.
        removed: earlier records of arms that the study no longer has; their results are computed anew from their
            figures. pairs: further comparisons.

    Raises:
        SceError: a file of figures is damaged, or problems cannot be read.
    """
    run_log = RunLog(study.folder)
    every = list(chains(study, jobs))
    groups: dict[str, dict[str, str | None]] = {
        each.name: {**groups_by_id(evaluation_problems(each.eval)), **dict.fromkeys(left_out)} for each in study.splits
    }
    trained = {arm.name: _figures_of(study, arm, run_log) for arm in study.arms}
    samples = {name: _samples_of(figures, groups) for name, figures in trained.items()}
    samples |= {arm["name"]: _samples_of(_figures_of_removed(study, arm), groups) for arm in removed}
    evaluated = {
        each.name: figures.evaluated[0]
        for each in study.splits
        if (figures := base_chain(study, each).figures(run_log))
    }
    bases = {name: _grouped(each, groups[name]) for name, each in evaluated.items()}
    arms = [_arm_record(study, arm, trained[arm.name], samples[arm.name], bases, run_log) for arm in study.arms]
    arms += [{**arm, "results": _results(samples[arm["name"]], bases)} for arm in removed]
    return {
        "study": study.name,
        "recipe": study.recipe,
        "seeds": list(study.seeds),
        "samples": study.samples,
        "limit": study.limit,
        "intervals": METHOD,
        "splits": [_split_record(study, each, evaluated.get(each.name), groups[each.name], run_log)
                   for each in study.splits],
        "arms": arms,
        "comparisons": list(_comparisons((*study.comparisons, *pairs), samples)),
        "steps": sum(len(chain.steps()) for chain in every),
        "steps_done": sum(chain.count_done(run_log) for chain in every),
        "jobs": jobs,
        "wall_seconds": round(run_log.wall_seconds(all_steps(study, jobs))),
        "machine": describe_machine(),
    }  # fmt: skip


def on_parts(
    study: Study,
    jobs: int,
    left_out: Mapping[str, Collection[str]],
    removed: Sequence[Record] = (),
    pairs: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """The rates of passed tests on parts of the problems; ``left_out`` has the ids that each part leaves out."""
    found = {}
    for name, ids in left_out.items():
        part = study_record(study, jobs, ids, removed, pairs)
        found[name] = {
            "splits": [_of_tests(each) for each in part["splits"]],
            "arms": [_of_tests(each) | {"results": [*map(_of_tests, each["results"])]} for each in part["arms"]],
            "comparisons": [*map(_of_tests, part["comparisons"])],
        }
    return found


def _of_tests(part: Record) -> dict[str, Any]:
    """The names and numbers of a part of a record, and of its metrics those of tests."""
    metrics = {
        key: {name: each for name, each in part[key].items() if name in ("all_tests_rate", "base_tests_rate")}
        for key in ("metrics", "base", "minus_base")
        if key in part
    }
    names = ("name", "split", "model", "first", "second", "problems", "groups", "seeds")
    return {name: part[name] for name in names if name in part} | metrics


def _figures_of(study: Study, arm: Arm, run_log: RunLog) -> dict[int, Figures]:
    """The figures of an arm, by seed."""
    by_seed = {seed: arm_chain(study, arm, seed).figures(run_log) for seed in study.seeds}
    return {seed: figures for seed, figures in by_seed.items() if figures}


def _figures_of_removed(study: Study, arm: Record) -> dict[int, Figures]:
    """The figures of an arm that the study no longer has, by seed."""
    by_name = replace(study.arms[0], name=arm["name"])
    by_seed = {seed: load_figures(study.figures_file(by_name, seed)) for seed in arm["seeds"]}
    return {seed: figures for seed, figures in by_seed.items() if figures}


def _samples_of(figures: Mapping[int, Figures], groups: Mapping[str, _Groups]) -> dict[tuple[str, str], Samples]:
    """Evaluations on the splits of the study, by split and evaluated model, then by seed."""
    samples: dict[tuple[str, str], Samples] = {}
    for seed, of_seed in figures.items():
        for each in of_seed.evaluated:
            if each.split in groups:
                samples.setdefault((each.split, each.name), {})[seed] = _grouped(each, groups[each.split])
    return samples


def _grouped(evaluated: Evaluated, groups: _Groups) -> Evaluated:
    """The values of a group's problems together, as if they were samples of one problem."""
    labels = [groups.get(problem, problem) for problem in evaluated.problems]
    kept = [index for index, label in enumerate(labels) if label is not None]
    of_kept = [label for label in labels if label is not None]
    values = {
        name: merged([of_problem[index] for index in kept], of_kept) for name, of_problem in evaluated.values.items()
    }
    return replace(evaluated, problems=list(dict.fromkeys(of_kept)), values=values)


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


def _split_record(
    study: Study, split: Split, base: Evaluated | None, groups: _Groups, run_log: RunLog
) -> dict[str, Any]:
    record: dict[str, Any] = {"name": split.name, "train": split.train, "eval": split.eval}
    prepare = prepare_step(study, split)
    if prepare is not None:
        record |= {"prepare": prepare.command, "prepare_seconds": round(run_log.seconds(prepare))}
    if base:
        found = _grouped(base, groups)
        count = sum(groups.get(problem, problem) is not None for problem in base.problems)
        record |= {"problems": count, "groups": len(found.problems)}
        record |= {"base": _metrics_record({study.seeds[0]: found})}
    return record


def _arm_record(
    study: Study,
    arm: Arm,
    figures: Mapping[int, Figures],
    evaluations: Mapping[tuple[str, str], Samples],
    bases: Mapping[str, Evaluated],
    run_log: RunLog,
) -> dict[str, Any]:
    trained = {seed: train_step(study, arm, seed) for seed in study.seeds}
    record: dict[str, Any] = {
        "name": arm.name,
        "title": arm.title,
        "split": arm.split.name,
        "phases": list(arm.phases),
        "settings": list(arm.settings),
        "seeds": list(figures),
        "command": trained[study.seeds[0]].command,
        "train_seconds": [round(run_log.seconds(trained[seed])) for seed in figures],
        "kept": [each.kept for each in figures.values()],
        "results": _results(evaluations, bases),
    }
    rows = [each.rows for each in figures.values()]
    if rows:
        record["cost"] = _training_cost(rows)
    curves = training_curves(rows)
    if curves:
        record["training"] = curves
    return record


def _results(evaluations: Mapping[tuple[str, str], Samples], bases: Mapping[str, Evaluated]) -> list[dict[str, Any]]:
    """The results of each evaluated model of an arm."""
    results = []
    for (split_name, name), samples in evaluations.items():
        (updates,) = {each.updates for each in samples.values()}
        result: dict[str, Any] = {"split": split_name, "model": name, "metrics": _metrics_record(samples)}
        if updates is not None:
            result["updates"] = updates
        if name == FINAL:
            for key, metric in _BY_SEED.items():
                each_seed = (estimate({seed: each}, metric) for seed, each in samples.items())
                result[key] = [None if each is None else round(each.value, 4) for each in each_seed]
            if split_name in bases:
                result["minus_base"] = _difference(dict.fromkeys(samples, bases[split_name]), samples)
        elif (split_name, FINAL) in evaluations and updates is None:
            result["minus_policy"] = _difference(evaluations[split_name, FINAL], samples)
        results.append(result)
    return results


def _comparisons(
    pairs: Iterable[tuple[str, str]], evaluations: Mapping[str, Mapping[tuple[str, str], Samples]]
) -> Iterator[dict[str, Any]]:
    """The final policies of two arms on every split that both are evaluated on."""
    for first, second in pairs:
        for (split, model), before in evaluations[first].items():
            after = evaluations[second].get((split, model), {})
            if model == FINAL and before.keys() & after.keys():
                yield {"first": first, "second": second, "split": split, "metrics": _difference(before, after)}


def _difference(before: Samples, after: Samples) -> dict[str, Any]:
    """Paired differences of all metrics, over the seeds that both have."""
    seeds = [seed for seed in before if seed in after]
    differences: dict[str, Any] = {"seeds": seeds}
    if len({tuple(side[seed].problems) for side in (before, after) for seed in seeds}) != 1:
        raise SceError("the two sides of a comparison have different problems")
    for metric in STUDY_METRICS:
        first, second = (nested({seed: side[seed] for seed in seeds}, metric) for side in (before, after))
        if _has_any(first) and _has_any(second):
            differences[metric.name] = _rounded(difference_over_seeds(first, second))
    return differences


def _training_cost(trainings: Sequence[Sequence[Row]]) -> dict[str, int]:
    """What a training used, the mean of several: updates, their seconds, completions, tokens of reference solutions.

    A phase that was reused from another run counts like one that was trained.

    Args:
        trainings: of each training the rows of its updates.
    """
    total: Counter[str] = Counter(updates=0, completions=0, reference_tokens=0, seconds=0)
    for rows in trainings:
        for row in rows:
            total["updates"] += 1
            total["seconds"] += row["seconds"]
            total["reference_tokens"] += row["tokens"] if row["phase"] == "sft" else 0
        for row in {row["phase"]: row for row in rows}.values():  # the last one of each phase
            total["completions"] += row.get("episode", 0)
    return {name: round(count / len(trainings)) for name, count in total.items()}


def training_curves(trainings: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """Metrics of the RL updates, averaged over several updates; mean, minimum and maximum over the trainings."""
    rows = [[row for row in each if row["phase"] != "sft"] for each in trainings]
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
