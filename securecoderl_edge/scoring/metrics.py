"""Metrics of scored programs, and their means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securecoderl_edge.scoring.reward import STAGE_NAMES
from securecoderl_edge.scoring.signs import SIGNS

if TYPE_CHECKING:
    from securecoderl_edge.scoring.score import Score

Row = Mapping[str, Any]  # a sample: a `Score` record, and the facts that the runtime reports of its completion


@dataclass(frozen=True)
class Metric:
    """One metric of quality.

    Attributes:
        name: the key in JSON and CSV, as in a run's metrics.jsonl.
        title: the heading in tables.
        is_rate: a fraction of samples, in percent, with a Wilson interval; else a mean with a bootstrap interval.
        of: the value of one sample; None leaves the sample out.
        decimals: in tables, of a mean; rates have one.
    """

    name: str
    title: str
    is_rate: bool
    of: Callable[[Row], float | None]
    decimals: int = 3


def passes_all_tests(row: Row) -> bool:
    """Whether a sample's problem has tests, and the sample passes all of them."""
    return bool(0 < row["total"] == row["passed"])


METRICS = (
    Metric("syntax_rate", "Syn. %", True, lambda row: row["stage"] > 0),
    Metric("any_test_rate", "≥1-P %", True, lambda row: row["passed"] > 0),
    Metric("all_tests_rate", "All-P %", True, passes_all_tests),
    Metric("reward", "R", False, lambda row: row["reward"]),
    Metric("reward_paper", "R paper", False, lambda row: row["reward_paper"]),
    Metric("r_tests", "R tests", False, lambda row: row["r_tests"]),
    # Among the samples that parse: text that Bandit cannot read is neither secure nor insecure, and counting it as
    # secure would reward syntax errors.
    Metric("secure_rate", "Sec.Clean %", True, lambda row: row["severity"] == 0 if row["stage"] else None),
)


def passes_security_tests(row: Row) -> bool | None:
    """Whether a sample passes all security tests of its problem; None if there are none, or it does not parse."""
    verdicts = row.get("security_verdicts")
    return all(each["verdict"] == "pass" for each in verdicts) if verdicts else None


def is_right_and_secure(row: Row) -> bool | None:
    """Whether a sample passes all tests and all security tests; None for a problem without security tests."""
    if not row.get("security_total"):
        return None
    return bool(passes_all_tests(row) and passes_security_tests(row))


def passes_base_tests(row: Row) -> bool | None:
    """Whether a sample passes the tests of the original benchmark, in a set with more tests; None in others."""
    if not row.get("has_base_tests"):
        return None
    return list(row["verdicts"][:1]) == ["pass"] and "own_error" not in row["verdicts"]


# Of problems with security tests, or with more tests than the original benchmark; func-sec@1 is the name of the second
# in CWEval (arXiv:2501.08200).
OPTIONAL_METRICS = (
    Metric("security_tests_rate", "Sec.Tests %", True, passes_security_tests),
    Metric("func_sec_rate", "All-P, secure %", True, is_right_and_secure),
    Metric("base_tests_rate", "Base %", True, passes_base_tests),
)
EVERY_METRIC = (*METRICS, *OPTIONAL_METRICS)


def by_problem(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each problem, in order of first appearance."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["id"], []).append(row)
    return groups


def values_of(metric: Metric, rows: Sequence[Row]) -> list[float]:
    """The metric's values of one problem's rows; rows it does not apply to are left out."""
    return [float(value) for row in rows if (value := metric.of(row)) is not None]


def mean_of_scores(scores: Iterable[Score]) -> dict[str, Any]:
    """Rates and means over scores, named as in `METRICS`; empty input gives ``{}``.

    ``stages`` counts scores by the names of the reward levels; each sign has its rate. A metric without values
    (``secure_rate``, if nothing parses) is None; one of `OPTIONAL_METRICS` is left out.
    """
    every = list(scores)
    if not every:
        return {}
    rows = [score.to_record() for score in every]
    summary: dict[str, Any] = {"scores": len(every)}
    for metric in EVERY_METRIC:
        values = values_of(metric, rows)
        if values or metric in METRICS:
            summary[metric.name] = sum(values) / len(values) if values else None
    summary["stages"] = {name: sum(score.stage == number for score in every) for number, name in enumerate(STAGE_NAMES)}
    return summary | {sign: sum(sign in score.signs for score in every) / len(every) for sign in SIGNS}
