"""Records of studies as tables in the paper's columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from securecoderl_edge.evaluation.tables import Table, interval_cell
from securecoderl_edge.scoring.intervals import Interval
from securecoderl_edge.scoring.metrics import METRICS, Metric
from study_engine.arms import FINAL

Record = Mapping[str, Any]


def interval_of(record: Mapping[str, Any] | None) -> Interval | None:
    """The `Interval` that `evaluation.tables.interval_record` wrote."""
    if record is None:
        return None
    low, high = (float("nan") if record[name] is None else float(record[name]) for name in ("low", "high"))
    return Interval(float(record["value"]), low, high, int(record["n"]))


def metric_cells(
    metrics: Mapping[str, Any], columns: Sequence[Metric], *, lines: int, signed: bool = False
) -> list[str]:
    """One cell per metric, from the results that `study_record` wrote."""
    return [interval_cell(interval_of(metrics.get(each.name)), each, lines=lines, signed=signed) for each in columns]


def result_rows(record: Record, split: str) -> list[tuple[Record, Record]]:
    """(arm, result) of every model that was trained and evaluated on a split, without snapshots."""
    return [
        (arm, result)
        for arm in record["arms"]
        if arm["split"] == split
        for result in arm["results"]
        if result["split"] == split and "updates" not in result
    ]


def result_table(record: Record, split: str, columns: Sequence[Metric] = METRICS, *, lines: int = 1) -> Table:
    """Results on a split: the base model, then each arm trained for it, before and after quantization."""
    base = split_of(record, split).get("base")
    rows = [] if base is None else [("base model", "", *metric_cells(base, columns, lines=lines))]
    for arm, result in result_rows(record, split):
        weights = "float" if result["model"] == FINAL else result["model"]
        rows.append((arm["title"], weights, *metric_cells(result["metrics"], columns, lines=lines)))
    return Table(("Variant", "weights", *(metric.title for metric in columns)), tuple(rows))


def transfer_table(record: Record, split: str, columns: Sequence[Metric] = METRICS, *, lines: int = 1) -> Table:
    """Results on a split of arms that were trained for other splits."""
    rows = [
        (f"{arm['title']}, trained on {arm['split']}", *metric_cells(result["metrics"], columns, lines=lines))
        for arm in record["arms"]
        for result in arm["results"]
        if arm["split"] != split == result["split"] and result["model"] == FINAL
    ]
    return Table(("Variant", *(metric.title for metric in columns)), tuple(rows))


def difference_table(
    record: Record, split: str, columns: Sequence[Metric] = METRICS, *, lines: int = 1, first: str | None = None
) -> Table:
    """Paired differences on a split between arms trained for it; ``first`` picks those from one arm."""
    arms = {arm["name"]: arm for arm in record["arms"]}
    chosen = {
        _pair(arms, each): each["metrics"]
        for each in record["comparisons"]
        if each["split"] == split == arms[each["second"]]["split"] and first in (None, each["first"])
    }
    return _differences_of(chosen, columns, lines)


def transfer_difference_table(
    record: Record, split: str, columns: Sequence[Metric] = METRICS, *, lines: int = 1, from_first: bool = True
) -> Table:
    """Paired differences on a split between arms trained for another one, from the first of them or from any arm."""
    arms = {arm["name"]: arm for arm in record["arms"]}
    first_of: dict[str, str] = {}
    for arm in record["arms"]:
        first_of.setdefault(arm["split"], arm["name"])
    chosen = {}
    for each in record["comparisons"]:
        home = arms[each["second"]]["split"]
        if each["split"] == split != home and (each["first"] == first_of[home] or not from_first):
            chosen[f"{_pair(arms, each)}, trained on {home}"] = each["metrics"]
    return _differences_of(chosen, columns, lines)


def _differences_of(differences: Mapping[str, Record], columns: Sequence[Metric], lines: int) -> Table:
    rows = [
        (title, *metric_cells(metrics, columns, lines=lines, signed=True), str(len(metrics["seeds"])))
        for title, metrics in differences.items()
    ]
    return Table(("Difference", *(metric.title for metric in columns), "Seeds"), tuple(rows))


def _pair(arms: Mapping[str, Record], comparison: Record) -> str:
    return " − ".join(arms[comparison[side]]["title"].removeprefix("PPO-") for side in ("second", "first"))


def quantization_table(record: Record, split: str, columns: Sequence[Metric] = METRICS, *, lines: int = 1) -> Table:
    """Paired differences between each export and its policy."""
    rows = _differences(record, split, "minus_policy", columns, lines)
    return Table(("Quantized − float", *(metric.title for metric in columns)), tuple(rows))


def gain_table(record: Record, split: str, columns: Sequence[Metric] = METRICS, *, lines: int = 1) -> Table:
    """Paired differences between each final policy and the base model."""
    rows = _differences(record, split, "minus_base", columns, lines)
    return Table(("Policy − base model", *(metric.title for metric in columns)), tuple(rows))


def _differences(
    record: Record, split: str, kind: str, columns: Sequence[Metric], lines: int
) -> Iterator[tuple[str, ...]]:
    for arm, result in result_rows(record, split):
        if kind in result:
            name = arm["title"] if result["model"] == FINAL else f"{arm['title']}, {result['model']}"
            yield name, *metric_cells(result[kind], columns, lines=lines, signed=True)


def split_of(record: Record, name: str) -> Record:
    """The part of a record about a split."""
    split: Record = next(each for each in record["splits"] if each["name"] == name)
    return split


def study_tables(record: Record, *, lines: int = 1) -> list[tuple[str, Table]]:
    """All tables of a study that have rows, each with its title."""
    titled = []
    for each in record["splits"]:
        size = f"{each.get('problems', '?')} problems in {each.get('groups', '?')} groups"
        split, evaluated = each["name"], f"evaluated on {size} of {each['eval']}, intervals over seeds and groups"

        titled += [
            (f"Trained on {each['train']}, {evaluated}:", result_table(record, split, lines=lines)),
            ("Differences from the base model, paired by problem:", gain_table(record, split, lines=lines)),
            ("Differences, paired by problem and seed:", difference_table(record, split, lines=lines)),
            ("Quantized minus float, paired by problem and seed:", quantization_table(record, split, lines=lines)),
            (f"Trained on other problems, {evaluated}:", transfer_table(record, split, lines=lines)),
            (
                "Differences between these, paired by problem and seed:",
                transfer_difference_table(record, split, lines=lines),
            ),
        ]
    return [(title, table) for title, table in titled if table.rows]
