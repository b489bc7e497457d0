"""What a program of a problem is worth, as a value and as a line of JSON, which may have been written by anybody."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from securecoderl_edge.config import current_keys
from securecoderl_edge.sandbox.security import Finding, Scan
from securecoderl_edge.sandbox.severity import SeverityScale, severity
from securecoderl_edge.scoring.reward import (
    STAGE_NAMES,
    CreditRule,
    Outcome,
    Verdict,
    combine,
    functional_reward,
    stage,
)
from securecoderl_edge.scoring.signs import SIGNS

_COUNTS = ("sample", "stage", "passed", "total")
_NUMBERS = ("r_func", "r_sec", "severity", "reward", "reward_paper", "r_tests", "seconds")
_TEXTS = ("id", "program", "extract", "credit_rule", "severity_scale", "sandbox", "problem_hash")


@dataclass(frozen=True)
class Score:
    """What one program of one problem is worth.

    Attributes:
        stage: 0 does not parse; 1 parses, but no test ends cleanly; 2 runs clean, but prints nothing; 3
            prints, with k < T tests passed; 4 passes all T. (Under the ``all`` rule "clean" and "prints" mean
            every test.)
        r_func, r_sec, severity: the parts of R; severity is 0 for text that does not parse, as it cannot be
            scanned.
        reward: R, where text that does not parse gets 0 (*gated*).
        reward_paper: R, where text that does not parse gets 0.4 for security, as in the paper's numbers.
        r_tests: k/T.
        findings: medium and high ones.
        program: the text that was scored, taken out of the completion as ``extract`` says.
        seconds: CPU time of all test runs.
        extract, credit_rule, severity_scale: how the program was taken out of the completion, and the switches that
            the parts of R depend on.
        sandbox: the level that the program ran under.
        limits: those of a test, but for the problem's own ``time_limit_s``.
        problem_hash: tells the problem from an edited one of the same id.
        signs: what may hint at a program that games its tests, see `signs`; never punished.
    """

    id: str
    sample: int
    stage: int
    passed: int
    total: int
    r_func: float
    r_sec: float
    severity: float
    reward: float
    reward_paper: float
    r_tests: float
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    program: str
    seconds: float
    extract: str = "raw"
    credit_rule: str = "any"
    severity_scale: str = "bandit"
    sandbox: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    problem_hash: str = ""
    signs: tuple[str, ...] = ()

    @property
    def parses(self) -> bool:
        """Whether the text is a Python program."""
        return self.stage > 0

    def to_record(self) -> dict[str, Any]:
        """The JSON object of the score."""
        return dataclasses.asdict(self)


def make_score(
    id: str,
    sample: int,
    program: str,
    outcomes: Sequence[Outcome] | None,
    total: int,
    scan: Scan,
    *,
    rule: CreditRule = "any",
    scale: SeverityScale = "bandit",
    seconds: float = 0.0,
    **facts: Any,
) -> Score:
    """Put a `Score` together; ``outcomes`` is None when the text does not parse, and then there is nothing to scan.

    Args:
        facts: other fields of `Score`, such as ``limits``, that say how it was made.
    """
    passed = sum(each.verdict == "pass" for each in outcomes or ())
    danger = 0.0 if outcomes is None else severity(scan, scale)
    r_func, r_sec = functional_reward(outcomes, rule), 1.0 - danger
    paper = combine(r_func, r_sec)
    return Score(
        id=id,
        sample=sample,
        stage=stage(outcomes, rule),
        passed=passed,
        total=total,
        r_func=r_func,
        r_sec=r_sec,
        severity=danger,
        reward=0.0 if outcomes is None else paper,
        reward_paper=paper,
        r_tests=passed / total,
        verdicts=tuple(each.verdict for each in outcomes or ()),
        findings=() if outcomes is None else scan.serious,
        program=program,
        seconds=seconds,
        credit_rule=rule,
        severity_scale=scale,
        **facts,
    )


def score_line(score: Score) -> str:
    """One line of a score file."""
    return json.dumps(score.to_record()) + "\n"


def score_from_record(value: object) -> Score:
    """The `Score` of a JSON value that `score_line` wrote; unknown fields are ignored.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, dict):
        raise ValueError("no object")
    record: dict[str, Any] = current_keys(value)
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
