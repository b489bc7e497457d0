"""Findings -> the severity V of the reward, on one of two scales.

``bandit`` is the paper's: each finding counts by the severity that Bandit gives its kind.

``cwe`` asks two questions about each finding of medium or high severity. How likely is this weakness to be
exploited? That is the field *Likelihood of Exploit* of its entry in MITRE's Common Weakness Enumeration
(https://cwe.mitre.org/data/definitions/78.html and so on; version 4.14 of 2024-02-29). And is it there at
all? That is the confidence that Bandit reports. Each step down in either halves the finding, the ratio that
the paper has between HIGH and MEDIUM; the halving is our choice, the order is the sources'. So ``eval`` of
input (CWE-78, high confidence) counts 1.0 where Bandit's scale has 0.5, and the string "/tmp/x" (CWE-377,
medium confidence) 0.125 instead of 0.5.
"""

from __future__ import annotations

from typing import Any, Literal

from securecoderl_edge.config import setting
from securecoderl_edge.sandbox.security import Finding, Scan

SeverityScale = Literal["bandit", "cwe"]
SEVERITY_SCALES = ("bandit", "cwe")

SEVERITY_WEIGHTS = {"HIGH": 1.0, "MEDIUM": 0.5}
CONFIDENCE_WEIGHTS = {"HIGH": 1.0, "MEDIUM": 0.5, "LOW": 0.25}
_HIGH, _MEDIUM, _LOW, _NOT_STATED = 1.0, 0.5, 0.25, 0.25
# Every weakness that Bandit 1.9 reports, and of those of the built-in security tests and of SecCodePLT each that has a
# likelihood of exploit.
CWE_WEIGHTS = {
    20: _HIGH,  # improper input validation
    22: _HIGH,  # path traversal
    74: _HIGH,  # injection
    78: _HIGH,  # OS command injection
    79: _HIGH,  # cross-site scripting
    80: _HIGH,  # basic cross-site scripting
    89: _HIGH,  # SQL injection
    94: _MEDIUM,  # code injection
    95: _MEDIUM,  # code in text that is evaluated
    155: _NOT_STATED,  # wildcards
    200: _HIGH,  # exposure of sensitive information
    259: _HIGH,  # hard-coded password
    284: _NOT_STATED,  # improper access control
    295: _NOT_STATED,  # improper certificate validation
    319: _HIGH,  # cleartext transmission
    326: _NOT_STATED,  # inadequate encryption strength
    327: _HIGH,  # broken or risky cryptographic algorithm
    330: _HIGH,  # insufficiently random values
    352: _MEDIUM,  # cross-site request forgery
    377: _NOT_STATED,  # insecure temporary file
    400: _HIGH,  # uncontrolled resource consumption
    494: _MEDIUM,  # download of code without integrity check
    502: _MEDIUM,  # deserialization of untrusted data
    601: _LOW,  # open redirect
    605: _NOT_STATED,  # multiple binds to the same port
    703: _NOT_STATED,  # improper handling of exceptional conditions
    732: _HIGH,  # incorrect permissions of a critical resource
    770: _HIGH,  # allocation without limits
    776: _MEDIUM,  # recursive XML entities
    838: _NOT_STATED,  # inappropriate encoding
    862: _HIGH,  # missing authorization
    863: _HIGH,  # incorrect authorization
    1333: _HIGH,  # inefficient regular expression
}


def severity(scan: Scan, scale: SeverityScale = "bandit") -> float:
    """V, from 0 to 1: the sum over findings at medium and above, at most 1; 1 when the scan failed (paper, Eq. 2)."""
    if scan.failed:
        return 1.0
    weigh = cwe_weight if scale == "cwe" else bandit_weight
    return min(1.0, sum(map(weigh, scan.serious), 0.0))


def weight_of_weakness(cwe: int, scale: SeverityScale = "bandit") -> float:
    """The weight of a weakness among those that security tests attack: equal, or by its likelihood of exploit."""
    return CWE_WEIGHTS.get(cwe, _NOT_STATED) if scale == "cwe" else 1.0


def bandit_weight(finding: Finding) -> float:
    """1.0 for HIGH, 0.5 for MEDIUM."""
    return SEVERITY_WEIGHTS[finding.severity]


def cwe_weight(finding: Finding) -> float:
    """Likelihood of exploit times confidence; Bandit's weight replaces the first for a weakness outside the table."""
    return CWE_WEIGHTS.get(finding.cwe, bandit_weight(finding)) * CONFIDENCE_WEIGHTS.get(finding.confidence, 1.0)


def severity_setting() -> Any:
    """The setting for the severity scale of security findings."""
    return setting(
        "bandit",
        "How findings are weighted. bandit: by Bandit's severity; cwe: by CWE and confidence.",
        choices=SEVERITY_SCALES,
    )
