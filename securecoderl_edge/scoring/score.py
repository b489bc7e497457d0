"""The score of a program on a problem, as a value and as a line of JSON, which comes from untrusted files."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from securecoderl_edge.languages.targets import footprint_of
from securecoderl_edge.sandbox.security import Finding, Scan
from securecoderl_edge.sandbox.severity import SeverityScale, severity, weight_of_weakness
from securecoderl_edge.scoring.reward import (
    STAGE_NAMES,
    CreditRule,
    Outcome,
    SecurityRule,
    Verdict,
    beyond_constant,
    combine,
    functional_reward,
    security_reward,
    stage,
)
from securecoderl_edge.scoring.signs import SIGNS

_COUNTS = ("sample", "stage", "passed", "total", "security_total")
_NUMBERS = ("r_func", "r_sec", "severity", "reward", "reward_paper", "r_tests", "seconds")
_TEXTS = ("id", "program", "extract", "credit_rule", "security", "severity_scale", "sandbox", "problem_hash")
_LISTS = ("findings", "signs", "verdicts", "security_verdicts")


@dataclass(frozen=True)
class SecurityVerdict:
    """The verdict of one security test."""

    name: str
    cwe: int
    verdict: Verdict


@dataclass(frozen=True)
class Score:
    """The score of one program on one problem.

    Attributes:
        stage: the reward level: 0 does not parse; 1 parses, but no test ends cleanly; 2 runs clean, but prints nothing;
            3 prints, with k < T tests passed; 4 passes all T. (Under the ``all`` rule "clean" and "prints" mean every
            test.)
        r_func, r_sec, severity: the parts of R; severity is 0 for unparsable output, which cannot be scanned.
        reward: R, which is 0 for unparsable output.
        reward_paper: R, which is 0.4 (for security) for unparsable output, as in the paper; 0 with security tests.
        r_tests: k/T.
        security_verdicts: of the problem's security tests, if the program parses. security_total: their number.
        findings: medium and high ones.
        program: the scored text, extracted from the completion with the mode ``extract``.
        seconds: CPU time of all test runs.
        extract, credit_rule, security, severity_scale: the settings that the program and the parts of R depend on.
        sandbox: the level that the program ran under.
        limits: of a test, without the problem's ``time_limit_s``.
        problem_hash: tells the problem from an edited one with the same id.
        signs: of reward hacking, see `signs`; never penalized.
        footprint: the `Footprint` of a program that was built for a target, else empty.
        analyzers: the version of each static analyzer that read a program in C, else empty.
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
    security: str = "both"
    severity_scale: str = "bandit"
    sandbox: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    problem_hash: str = ""
    signs: tuple[str, ...] = ()
    security_verdicts: tuple[SecurityVerdict, ...] = ()
    security_total: int = 0
    footprint: Mapping[str, Any] = field(default_factory=dict)
    analyzers: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed_security(self) -> tuple[SecurityVerdict, ...]:
        """The security tests that the program does not pass."""
        return tuple(each for each in self.security_verdicts if each.verdict != "pass")

    @property
    def parses(self) -> bool:
        """Whether the text is a program in its problem's language."""
        return self.stage > 0

    @property
    def passes_all_tests(self) -> bool:
        """Whether there are tests, and the program passes all of them."""
        return 0 < self.total == self.passed

    def to_record(self) -> dict[str, Any]:
        """The JSON object of the score; without a footprint if there is no target, and without analyzers if none."""
        record = dataclasses.asdict(self)
        for name in ("footprint", "analyzers"):
            if not record[name]:
                del record[name]
        return record


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
    security: SecurityRule = "both",
    security_verdicts: tuple[SecurityVerdict, ...] = (),
    security_total: int = 0,
    constant_passes: int = 0,
    seconds: float = 0.0,
    **facts: Any,
) -> Score:
    """Build a `Score`; ``outcomes`` is None if the text does not parse, and then there is nothing to scan.

    Args:
        constant_passes: of a problem with security tests, see `beyond_constant`.
        facts: other fields of `Score`, such as ``limits``.
    """
    passed = sum(each.verdict == "pass" for each in outcomes or ())
    danger = 0.0 if outcomes is None else severity(scan, scale)
    # Security tests do not run on text that does not parse. It closes no weakness, or it would earn more than a try.
    secured = _secured(security_verdicts, scale) if security_verdicts else 0.0 if security_total else None
    r_func = functional_reward(outcomes, rule)
    r_sec = security_reward(danger, secured, beyond_constant(passed, total, constant_passes), security)
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
        security=security,
        severity_scale=scale,
        security_verdicts=security_verdicts,
        security_total=security_total,
        **facts,
    )


def _secured(verdicts: Sequence[SecurityVerdict], scale: SeverityScale) -> float:
    """The part of the weaknesses of which no security test failed, weighted as their findings would be.

    Not the part of the tests: one attack that succeeds is enough, and several are often variants of it.
    """
    weights = {each.cwe: weight_of_weakness(each.cwe, scale) for each in verdicts}
    failed = {each.cwe for each in verdicts if each.verdict != "pass"}
    return sum(weight for cwe, weight in weights.items() if cwe not in failed) / sum(weights.values())


def score_line(score: Score) -> str:
    """One line of a score file."""
    return json.dumps(score.to_record()) + "\n"


def score_from_record(value: object) -> Score:
    """The `Score` of a JSON value that `score_line` wrote; unknown fields are ignored.

    Raises:
        ValueError: not a score.
    """
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    fields = {field.name: value[field.name] for field in dataclasses.fields(Score) if field.name in value}
    _check(fields, _TEXTS, lambda value: isinstance(value, str))
    _check(fields, _COUNTS, lambda value: type(value) is int and value >= 0)
    _check(fields, _NUMBERS, is_amount)
    _check(fields, ("limits",), lambda value: isinstance(value, dict) and all(map(is_amount, value.values())))
    _check(fields, ("analyzers",), lambda value: isinstance(value, dict) and {*map(type, value.values())} <= {str})
    _check(fields, _LISTS, lambda value: isinstance(value, (list, tuple)))
    fields |= {name: tuple(fields[name]) for name in ("signs", "verdicts") if name in fields}
    try:
        fields["findings"] = tuple(map(_finding, fields["findings"]))
        fields["security_verdicts"] = tuple(map(_security_verdict, fields.get("security_verdicts", ())))
        if fields.get("footprint"):
            footprint_of(fields["footprint"])
        score = Score(**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a field is missing: {error}") from None
    if not (0 < score.total >= score.passed and score.stage < len(STAGE_NAMES)):
        raise ValueError("inconsistent counts")
    words = (*score.verdicts, *(each.verdict for each in score.security_verdicts))
    if not all(word in get_args(Verdict) for word in words) or not all(word in SIGNS for word in score.signs):
        raise ValueError("unknown verdict or sign")
    return score


def _check(fields: dict[str, Any], names: tuple[str, ...], is_right: Callable[[Any], bool]) -> None:
    wrong = [name for name in names if name in fields and not is_right(fields[name])]
    if wrong:
        raise ValueError(f"invalid {wrong[0]}")


def is_amount(value: object) -> bool:
    """Whether a JSON value is a finite number of at least 0."""
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max  # type: ignore[operator]


def _security_verdict(record: Any) -> SecurityVerdict:
    if not isinstance(record, dict) or type(record.get("cwe")) is not int or not isinstance(record.get("name"), str):
        raise ValueError("invalid security verdict")
    return SecurityVerdict(**record)


def _finding(record: Any) -> Finding:
    if not isinstance(record, dict) or {type(record.get(name)) for name in ("cwe", "line")} != {int}:
        raise ValueError("invalid finding")
    finding = Finding(**record)
    if not all(isinstance(text, str) for text in (finding.test_id, finding.severity, finding.confidence)):
        raise ValueError("invalid finding")
    return finding
