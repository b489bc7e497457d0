"""Findings -> V, on both scales."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.sandbox.security import Finding, Scan
from securecoderl_edge.sandbox.severity import CWE_WEIGHTS, SEVERITY_SCALES, SeverityScale, severity

WORDS = st.sampled_from(["LOW", "MEDIUM", "HIGH"])
FINDINGS = st.builds(Finding, st.just("B000"), st.sampled_from([0, 78, 377, 502, 9999]), WORDS, WORDS, st.just(1))
SCALES = st.sampled_from(SEVERITY_SCALES)


def finding(severity: str, cwe: int = 0, confidence: str = "HIGH") -> Finding:
    return Finding("B000", cwe, severity, confidence, 1)


def test_severity_adds_up_and_is_capped() -> None:
    low, medium, high = map(finding, ("LOW", "MEDIUM", "HIGH"))
    assert severity(Scan((low, low))) == 0.0
    assert severity(Scan((medium, low))) == 0.5
    assert severity(Scan((medium, medium))) == 1.0
    assert severity(Scan((high, medium))) == 1.0


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(finding("MEDIUM", 78), 1.0, id="eval of input: likely exploited, certain"),
        pytest.param(finding("MEDIUM", 89, "LOW"), 0.25, id="a string that may be SQL"),
        pytest.param(finding("MEDIUM", 502), 0.5, id="pickle: medium likelihood"),
        pytest.param(finding("MEDIUM", 377, "MEDIUM"), 0.125, id="a path below /tmp: likelihood not stated"),
        pytest.param(finding("LOW", 78), 0.0, id="low severity counts on neither scale"),
        pytest.param(finding("MEDIUM", 9999, "MEDIUM"), 0.25, id="a weakness outside the table: Bandit's weight"),
    ],
)
def test_the_cwe_scale_weighs_likelihood_and_confidence(found: Finding, expected: float) -> None:
    assert severity(Scan((found,)), "cwe") == expected


@pytest.mark.parametrize("scale", SEVERITY_SCALES)
def test_a_failed_scan_is_the_worst_on_any_scale(scale: SeverityScale) -> None:
    assert severity(Scan(failed=True), scale) == 1.0


@given(st.lists(FINDINGS, max_size=6), FINDINGS, SCALES)
def test_one_finding_more_never_makes_a_program_safer(
    found: list[Finding], another: Finding, scale: SeverityScale
) -> None:
    before, after = severity(Scan(tuple(found)), scale), severity(Scan((*found, another)), scale)
    assert 0 <= before <= after <= 1


def test_the_table_has_every_weakness_that_bandit_reports() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # stevedore's, while it loads the plugins
        from bandit.core.issue import Cwe

    known = {value for name, value in vars(Cwe).items() if name.isupper() and isinstance(value, int)}
    assert known - {Cwe.NOTSET} <= set(CWE_WEIGHTS)
