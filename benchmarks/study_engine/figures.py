"""The figures of a study's arms: what a record needs of one training and its evaluations, in one small file.

The file is written when the arm is finished for a seed. From then on the run folder is not needed: with ``steps.jsonl``
and these files, a study resumes on another machine.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.weaknesses import SANITIZERS
from securecoderl_edge.runs import Run
from securecoderl_edge.runtimes.manifests import is_plain_name
from securecoderl_edge.scoring.cluster_intervals import Values
from securecoderl_edge.scoring.metrics import EVERY_METRIC, Metric, Row, by_problem, passes_all_tests, values_of
from securecoderl_edge.scoring.signs import CONSTANT_OUTPUT, CRASH_AFTER_OUTPUT, SAMPLE_COPY
from securecoderl_edge.system.files import read_json, temporary_beside
from securecoderl_edge.system.rows import RowFile
from study_engine.arms import Arm, Measured, Split, Study


def _has_sign(sign: str) -> Metric:
    return Metric(sign, sign.replace("_", " ").capitalize() + " %", True, lambda row: sign in row["signs"])


def _is_sanitizer_clean(row: Row) -> bool | None:
    """Whether no run of a program in C has a sanitizer report; None for other programs and for those that do not
    compile."""
    if not row.get("analyzers") or row["stage"] == 0:  # only programs in C have analyzers
        return None
    return not any(finding["test_id"] in SANITIZERS for finding in row["findings"])


_LARGEST = 1 << 27  # bytes of a file, unpacked
# With k samples for each problem this is pass@k.
SOLVED = Metric("solved_rate", "Solved %", True, passes_all_tests)

# A policy could raise its reward with shorter programs, or with wrong ones; these columns would show it.
STUDY_METRICS = (
    *EVERY_METRIC,
    SOLVED,
    Metric("secure_all_tests_rate", "All-P, clean %", True, lambda row: passes_all_tests(row) and row["severity"] == 0),
    Metric("findings", "Findings/100", False, lambda row: 100.0 * len(row["findings"]), 1),
    Metric("sanitizer_clean_rate", "San.Clean %", True, _is_sanitizer_clean),
    Metric("tokens", "Tokens", False, lambda row: row["completion_tokens"], 1),
    _has_sign(CONSTANT_OUTPUT),
    _has_sign(SAMPLE_COPY),
    _has_sign(CRASH_AFTER_OUTPUT),
)
CURVES = (
    "objective/reward", "objective/kl", "syntax_rate", "any_test_rate", "all_tests_rate", "r_tests", "secure_rate",
    "truncated_rate", "func_sec_rate", CONSTANT_OUTPUT, SAMPLE_COPY, CRASH_AFTER_OUTPUT,
    # Whether a setting acted at all.
    "zero_variance_rate", "policy/clipfrac", "kept_rate",
)  # fmt: skip
# Counters of a row of metrics.jsonl.
_COUNTS = ("tokens", "episode", "seconds")


@dataclass(frozen=True)
class Evaluated:
    """One evaluated model.

    Attributes:
        name, updates: as in `Measured`.
        problems: their ids, sorted.
        values: by metric, then by problem and sample; `SOLVED` has one value per problem: that of its best sample. A
            metric without values is absent.
    """

    split: str
    name: str
    updates: int | None
    problems: list[str]
    values: dict[str, list[list[float]]]


@dataclass(frozen=True)
class Figures:
    """The figures of one arm and seed, or of a base model.

    Attributes:
        keys: of the steps that made them, see `run_log`.
        kept: the step whose policy each phase kept.
        rows: of each update its phase, counters and `CURVES`.
    """

    keys: list[str]
    evaluated: list[Evaluated]
    kept: dict[str, int]
    rows: list[dict[str, Any]]


def figures_of_arm(study: Study, arm: Arm, seed: int, keys: Sequence[str]) -> Figures:
    """The figures of a finished arm, from its run folder.

    Raises:
        SceError: a file of it is damaged.
    """
    run = Run(study.run_folder(arm, seed))
    evaluated = [
        each
        for split in arm.measured_on
        for each in _evaluated(study, study.bench_folder(arm, seed, split), split, study.measured(arm, seed, split))
    ]
    wanted = ("phase", *_COUNTS, *CURVES)
    rows = [
        {name: _short(row[name]) for name in wanted if row.get(name) is not None}
        for row in RowFile(run.path / "metrics.jsonl").read()
    ]
    return Figures(list(keys), evaluated, {phase: facts["chosen_step"] for phase, facts in run.outcomes()}, rows)


def figures_of_base(study: Study, split: Split, keys: Sequence[str]) -> Figures:
    """The figures of an evaluated base model; errors as in `figures_of_arm`."""
    return Figures(list(keys), _evaluated(study, study.base_folder(split), split, [Measured("base", "")]), {}, [])


def save_figures(figures: Figures, file: Path) -> None:
    """Write the figures; the same figures are the same bytes."""
    text = json.dumps(asdict(figures), separators=(",", ":"), allow_nan=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    with temporary_beside(file) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
    _load.cache_clear()


def load_figures(file: Path) -> Figures | None:
    """The figures in a file; None if there is none.

    Raises:
        SceError: it is damaged.
    """
    return _load(file) if file.is_file() else None


@cache
def _load(file: Path) -> Figures:
    try:
        with gzip.open(file) as content:
            record = json.loads(content.read(_LARGEST))
        evaluated = [Evaluated(**each) for each in record.pop("evaluated")]
        return Figures(evaluated=evaluated, **record)
    except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SceError(f"{file} is damaged ({error!r}); delete it, and run the same command again") from None


def _evaluated(study: Study, folder: Path, split: Split, models: Sequence[Measured]) -> list[Evaluated]:
    evaluated = []
    for model, rows in zip(models, _read_rows(study, folder, split, len(models)), strict=True):
        groups = by_problem(rows)
        values = {
            metric.name: [[_short(each) for each in values_of(metric, samples)] for samples in groups.values()]
            for metric in STUDY_METRICS
        }
        values = {name: each for name, each in values.items() if any(each)}
        values[SOLVED.name] = [[max(each)] for each in values[SOLVED.name]]
        evaluated.append(Evaluated(split.name, model.name, model.updates, list(groups), values))
    return evaluated


def _read_rows(study: Study, folder: Path, split: Split, models: int) -> list[list[Row]]:
    """The rows of each model of an evaluation, in its order.

    Raises:
        SceError: the folder was not written by the study's ``sce bench``, or is damaged.
    """
    again = "delete it, and run the same command again"
    wanted = {"problems": split.eval, "samples": study.samples_on(split), "limit": study.limit}
    by_model: list[list[Row]] = []
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
            by_model.append([rows[key] for key in sorted(rows)])
    except (KeyError, TypeError, ValueError) as error:
        raise SceError(f"{folder} is damaged ({error!r}); {again}") from None
    return by_model


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        return RowFile(file).read()
    except SceError as error:
        raise ValueError(str(error)) from None


def nested(samples: Mapping[int, Evaluated], metric: Metric) -> Values:
    """Values of a metric by seed, problem and sample."""
    return [each.values.get(metric.name, [[] for _ in each.problems]) for each in samples.values()]


def _short(value: Any) -> Any:
    """A number with few digits: they are what such a file consists of."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 5)
    return value
