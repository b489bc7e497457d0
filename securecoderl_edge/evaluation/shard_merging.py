"""Shards of an evaluation, joined: the rows and tables of one run, without its models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from securecoderl_edge.config import build
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.evaluation.bench import Bench, BenchSettings, bench_batches, bench_problems
from securecoderl_edge.evaluation.evaluate import Evaluation
from securecoderl_edge.evaluation.log import EvaluationLog
from securecoderl_edge.evaluation.shards import Shard, shard_of
from securecoderl_edge.problems.groups import groups_by_id
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import digest_of_problems
from securecoderl_edge.runtimes.manifests import is_plain_name
from securecoderl_edge.runtimes.protocol import Usage
from securecoderl_edge.runtimes.spec import ModelSpec
from securecoderl_edge.scoring.metrics import Row
from securecoderl_edge.system.files import read_json

_AGAIN = "run its sce bench command again"
_Kind = Literal["gguf", "onnx", "hf"]


@dataclass(frozen=True)
class _Part:
    """The folder of one finished shard.

    Attributes:
        document: its ``bench.json``.
        keys: by model, all that its rows depend on.
    """

    folder: Path
    document: Mapping[str, Any]
    settings: BenchSettings
    keys: list[dict[str, Any]]

    @property
    def shard(self) -> Shard:
        return shard_of(self.settings.shard)

    def log(self, model: int) -> EvaluationLog:
        return EvaluationLog(self.folder / self.document["models"][model]["log"])


def merge(folders: Sequence[Path], is_comparing: bool = False, out: Path | None = None) -> Bench:
    """The evaluation that the shards in ``folders`` are parts of; its rows have the order of one run.

    The shards may have other time limits, as their machines have other speeds; the largest factor is reported.

    Args:
        is_comparing: compare each model with the first, not only the pairs that the shards compare.
        out: folder for the rows.

    Raises:
        UsageError: a shard is missing, or is there twice; or see `bench_problems`.
        SceError: shards with other settings or models; one that is damaged, is not finished, or is of other problems.
    """
    parts = sorted(map(_read, folders), key=lambda part: part.shard.index)
    first = parts[0]
    for part in parts[1:]:
        _demand_equal(first, part)
    _demand_all(parts)
    settings = replace(first.settings, shard=None)
    problems = bench_problems(settings)
    factor = max(keys["time_factor"] for part in parts for keys in part.keys)
    models = range(len(first.keys))
    done = {model: _evaluation(parts, model, settings, problems) for model in models}
    if out is not None:
        for model, each in done.items():
            keys = {**first.keys[model], "time_factor": factor}
            with EvaluationLog.held(out, each.label, keys) as log:
                log.replace(each.rows, each.usage)
            done[model] = replace(each, log=log.folder)
    labels = [each.label for each in done.values()]
    pairs = [(labels.index(each["first"]), labels.index(each["second"])) for each in first.document["comparisons"]]
    if is_comparing:
        pairs = [(0, other) for other in models[1:]]
    specs = [_spec(each) for each in first.document["models"]]
    return Bench(specs, done, pairs, problems, settings, factor, [part.document["machine"] for part in parts])


def _read(folder: Path) -> _Part:
    file = folder / "bench.json"
    if not file.is_file():
        raise UsageError(f"{folder}: not a finished shard, since it has no bench.json; {_AGAIN}")
    document = read_json(file)
    try:
        values = {name: value for name, value in document["settings"].items() if value is not None}
        settings = build(BenchSettings, values, str(file))
        if settings.shard is None:
            raise UsageError(f"{folder}: not a shard; make it with sce bench --shard I/N --out DIR")
        names = [str(each["log"]) for each in document["models"]]
        if not names or not all(map(is_plain_name, names)):
            raise ValueError("a folder of rows is missing")
        labels = {_spec(each).label for each in document["models"]}
        if not labels >= {each[side] for each in document["comparisons"] for side in ("first", "second")}:
            raise ValueError("it compares other models than it has")
        keys = [read_json(folder / name / "settings.json") for name in names]
        _ = json.dumps(document["machine"], allow_nan=False)
        if not all(isinstance(each["label"], str) and float(each["time_factor"]) > 0 for each in keys):
            raise ValueError("a label that is not text, or a time factor that is not above 0")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SceError(f"{file} is damaged ({error!r}); {_AGAIN}") from None
    return _Part(folder, document, settings, keys)


def _demand_equal(first: _Part, part: _Part) -> None:
    same = "Evaluate all shards with the same settings and models"
    ours, theirs = (asdict(each.settings) | {"shard": f"I/{each.shard.count}"} for each in (first, part))
    for name, value in theirs.items():
        if value != ours[name]:
            raise SceError(f"{part.folder}: {name} is {value}, but {ours[name]} in {first.folder}. {same}")
    labels = [[each["label"] for each in shard.keys] for shard in (first, part)]
    if labels[0] != labels[1]:
        raise SceError(f"{part.folder} has {', '.join(labels[1])}; {first.folder} has {', '.join(labels[0])}. {same}")
    for our, their in zip(first.keys, part.keys, strict=True):
        for name in sorted({*our, *their} - {"time_factor"}):
            if our.get(name) != their.get(name):
                what = "content (sha256)" if name == "sha256" else name
                raise SceError(f"{part.folder}: {our['label']} has another {what} than in {first.folder}. {same}")


def _demand_all(parts: Sequence[_Part]) -> None:
    by_shard: dict[Shard, Path] = {}
    for part in parts:
        if part.shard in by_shard:
            raise UsageError(f"{by_shard[part.shard]} and {part.folder} are both shard {part.shard}. Give one of them.")
        by_shard[part.shard] = part.folder
    count = parts[0].shard.count
    missing = [str(each) for number in range(count) if (each := Shard(number + 1, count)) not in by_shard]
    if missing:
        raise UsageError(f"missing shard {', '.join(missing)}: give its folder, too, once its sce bench is finished")


def _evaluation(parts: Sequence[_Part], model: int, settings: BenchSettings, problems: Sequence[Problem]) -> Evaluation:
    batches: dict[int, list[Row]] = {}
    usage = Usage()
    for part in parts:
        log = part.log(model)
        rows, usage = log.rows(), usage + log.usage()
        for start, batch in bench_batches(part.settings, problems).items():
            digest = digest_of_problems(batch)
            wanted = [rows.get((each.id, sample), {}) for each in batch for sample in range(settings.samples)]
            if any(row.get("batch_hash") != digest for row in wanted):
                raise SceError(f"{log.folder}: rows are missing, or are of other problems than here; {_AGAIN}")
            batches[start] = wanted
    record = parts[0].document["models"][model]
    return Evaluation(
        record["model"],
        tuple(row for start in sorted(batches) for row in batches[start]),
        usage,
        record["file_bytes"],
        record["prompt_style"],
        record["bits_per_weight"],
        device=record["device"],
        groups=groups_by_id(problems),
    )


def _spec(record: Mapping[str, Any]) -> ModelSpec:
    """The model of a record of `Bench.record`; its files need not be here."""
    adapter, kind = record["adapter"], record["kind"]
    kinds: dict[str, _Kind] = {"gguf": "gguf", "onnx": "onnx", "hf": "hf"}
    texts, numbers = ("model", "prompt_style", "device"), ("file_bytes", "bits_per_weight")
    if any(not isinstance(record[name], str | None) for name in texts):
        raise TypeError(f"{', '.join(texts)}: one is not text")
    if any(not isinstance(record[name], int | float | None) for name in numbers):
        raise TypeError(f"{', '.join(numbers)}: one is not a number")
    return ModelSpec(record["model"], kinds[kind], str(record["source"]), Path(adapter) if adapter else None)
