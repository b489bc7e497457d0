"""Scores as lines of JSON, and back: what is read may have been written by anybody."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any, get_args

from securecoderl_edge.meters import SIGNS
from securecoderl_edge.reward import STAGE_NAMES, Score, Verdict
from securecoderl_edge.sandbox.security import Finding

_COUNTS = ("sample", "stage", "passed", "total")
_NUMBERS = ("r_func", "r_sec", "severity", "reward", "reward_paper", "r_tests", "seconds")
_TEXTS = ("id", "program", "extract", "stage_rule", "severity_scale", "sandbox", "problem_hash")


def score_line(score: Score) -> str:
    """One line of a score file."""
    return json.dumps(score.to_record()) + "\n"


def score_from_record(record: object) -> Score:
    """The `Score` of a JSON value that `score_line` wrote; unknown fields are ignored.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(record, dict):
        raise ValueError("no object")
    fields = {field.name: record[field.name] for field in dataclasses.fields(Score) if field.name in record}
    _check(fields, _TEXTS, lambda value: isinstance(value, str))
    _check(fields, _COUNTS, lambda value: type(value) is int and value >= 0)
    _check(fields, _NUMBERS, _is_amount)
    _check(fields, ("limits",), lambda value: isinstance(value, dict) and all(map(_is_amount, value.values())))
    _check(fields, ("findings", "signs", "verdicts"), lambda value: isinstance(value, (list, tuple)))
    fields |= {name: tuple(fields[name]) for name in ("signs", "verdicts") if name in fields}
    try:
        fields["findings"] = tuple(map(_finding, fields["findings"]))
        score = Score(**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a field is missing: {error}") from None
    if not (0 < score.total >= score.passed and score.stage < len(STAGE_NAMES)):
        raise ValueError("counts that cannot be")
    if not all(word in get_args(Verdict) for word in score.verdicts) or not all(word in SIGNS for word in score.signs):
        raise ValueError("a verdict or a sign that there is not")
    return score


def _check(fields: dict[str, Any], names: tuple[str, ...], is_right: Callable[[Any], bool]) -> None:
    wrong = [name for name in names if name in fields and not is_right(fields[name])]
    if wrong:
        raise ValueError(f"not what {wrong[0]} can be")


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max  # type: ignore[operator]


def _finding(record: Any) -> Finding:
    if not isinstance(record, dict) or {type(record.get(name)) for name in ("cwe", "line")} != {int}:
        raise ValueError("no finding")
    finding = Finding(**record)
    if not all(isinstance(text, str) for text in (finding.test_id, finding.severity, finding.confidence)):
        raise ValueError("no finding")
    return finding
