"""The score of a program on a problem, as a value and as a line of JSON, which comes from untrusted files."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from securecoderl_edge.languages.targets import footprint_of
from securecoderl_edge.sandbox.denied import Denied, denied_in_words
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
        signs: of reward hacking, see `signs`; R does not depend on them.
        footprint: the `Footprint` of a program that was built for a target, else empty.
        analyzers: the version of each static analyzer that read a program in C, else empty.
        denied: what the program tried in vain, in tests and security tests; None if nobody took notes.
        scan_failed: whether a scanner could not finish, so that V is 1 whatever the findings are.
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
    denied: tuple[Denied, ...] | None = None
    scan_failed: bool = False

    @property
    def failed_security(self) -> tuple[SecurityVerdict, ...]:
        """The security tests that the program does not pass."""
        return tuple(each for each in self.security_verdicts if each.verdict != "pass")

    @property
    def tried(self) -> str:
        """What the program tried in vain, in words; empty if it did not."""
        return denied_in_words(self.denied)

    @property
    def parses(self) -> bool:
        """Whether the text is a program in its problem's language."""
        return self.stage > 0

    @property
    def passes_all_tests(self) -> bool:
        """Whether there are tests, and the program passes all of them."""
        return 0 < self.total == self.passed

    @property
    def is_secure(self) -> bool:
        """Whether the text is a program with R_sec = 1: without findings, and passing all security tests, if any.

        Which of the two count is ``security``; with security tests the program passes all tests as well.
        """
        return self.parses and self.r_sec == 1

    def to_record(self) -> dict[str, Any]:
        """The JSON object of the score; without footprint, analyzers and ``scan_failed`` where they mean nothing."""
        record = dataclasses.asdict(self)
        for name in ("footprint", "analyzers", "scan_failed"):
            if not record[name]:
                del record[name]
        return record


@dataclass(frozen=True)
class RewardRules:
    """The rules that R depends on; `reward` and `severity` define them."""

    credit: CreditRule = "any"
    security: SecurityRule = "both"
    severity_scale: SeverityScale = "bandit"


@dataclass(frozen=True)
class CheckedProgram:
    """A program that was tested and scanned: all that its reward is computed from.

    Attributes:
        id, sample: the problem, and the number among its programs.
        outcomes: one per test; None if the text does not parse, and then there is nothing to scan.
        total: number of tests. security_total: of security tests.
        security_verdicts: of security tests, if they ran.
        constant_passes: of a problem with security tests, see `beyond_constant`.
    """

    id: str
    sample: int
    program: str
    outcomes: Sequence[Outcome] | None
    total: int
    scan: Scan
    security_verdicts: tuple[SecurityVerdict, ...] = ()
    security_total: int = 0
    constant_passes: int = 0


def make_score(checked: CheckedProgram, rules: RewardRules = RewardRules()) -> Score:
    """Compute R of a program, and its parts; the other fields of the `Score` have their defaults."""
    outcomes, total = checked.outcomes, checked.total
    passed = sum(each.verdict == "pass" for each in outcomes or ())
    danger = 0.0 if outcomes is None else severity(checked.scan, rules.severity_scale)
    solved = beyond_constant(passed, total, checked.constant_passes)
    r_func = functional_reward(outcomes, rules.credit)
    r_sec = security_reward(danger, _secured(checked, rules.severity_scale), solved, rules.security)
    paper = combine(r_func, r_sec)
    return Score(
        id=checked.id,
        sample=checked.sample,
        stage=stage(outcomes, rules.credit),
        passed=passed,
        total=total,
        r_func=r_func,
        r_sec=r_sec,
        severity=danger,
        reward=0.0 if outcomes is None else paper,
        reward_paper=paper,
        r_tests=passed / total,
        verdicts=tuple(each.verdict for each in outcomes or ()),
        findings=() if outcomes is None else checked.scan.serious,
        scan_failed=outcomes is not None and checked.scan.failed,
        program=checked.program,
        seconds=0.0,
        credit_rule=rules.credit,
        security=rules.security,
        severity_scale=rules.severity_scale,
        security_verdicts=checked.security_verdicts,
        security_total=checked.security_total,
    )


def _secured(checked: CheckedProgram, scale: SeverityScale) -> float | None:
    """The part of the weaknesses of which no security test failed, weighted as their findings would be.

    Not the part of the tests: one attack that succeeds is enough, and several are often variants of it. None if the
    problem has no security tests.
    """
    verdicts = checked.security_verdicts
    if not verdicts:
        # They do not run on text that does not parse. It closes no weakness, or it would earn more than a try.
        return 0.0 if checked.security_total else None
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
    score: Score = _from_json(value, Score)
    if score.footprint:
        footprint_of(score.footprint)
    if not (0 < score.total >= score.passed and score.stage < len(STAGE_NAMES)):
        raise ValueError("inconsistent counts")
    if not set(score.signs) <= set(SIGNS):
        raise ValueError("unknown sign")
    return score


def _from_json(value: Any, kind: Any, name: str = "") -> Any:
    """A decoded JSON value as an object of a type; numbers are finite and at least 0.

    Args:
        name: of the field that it is the value of.

    Raises:
        ValueError: it is of another type, or a field is missing.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType:  # with None
        return None if value is None else _from_json(value, parts[0], name)
    if kind is Any or (kind in (str, bool) and isinstance(value, kind)) or (kind is float and is_amount(value)):
        return value
    if (kind is int and is_count(value)) or (origin is Literal and value in parts):
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_from_json(each, parts[0], name) for each in value)
    if origin is Mapping and isinstance(value, dict):
        return {key: _from_json(each, parts[1], name) for key, each in value.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, dict):
        prefix, kinds = f"{name}." if name else "", _kinds_of(kind)
        fields = {each: _from_json(value[each], kinds[each], prefix + each) for each in kinds if each in value}
        try:
            return kind(**fields)
        except TypeError as error:
            raise ValueError(f"a field is missing: {error}") from None
    raise ValueError(f"invalid {name}" if name else "not a JSON object")


@cache
def _kinds_of(schema: type) -> dict[str, Any]:
    """The types of a dataclass's fields by name."""
    return get_type_hints(schema)


def is_count(value: object) -> bool:
    """Whether a JSON value is a whole number of at least 0, and none so large that many can have the same hash."""
    return type(value) is int and 0 <= value < 1 << 53


def is_amount(value: object) -> bool:
    """Whether a JSON value is a finite number of at least 0."""
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max  # type: ignore[operator]
