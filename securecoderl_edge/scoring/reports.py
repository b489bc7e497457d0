"""Findings and failed programs in formats that other tools read: SARIF 2.1.0, JUnit XML, commands of GitHub Actions.

Names of files and texts of findings come from untrusted files: each format escapes them.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from securecoderl_edge import __version__
from securecoderl_edge.sandbox.file_scan import BANDIT, NOT_SCANNED, OURS, FileFinding, not_scanned
from securecoderl_edge.sandbox.security import rank
from securecoderl_edge.sandbox.source_files import place_of
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.text import document, escape_controls

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
# Ids of results that are no findings: a program that fails its tests, or a security test.
FAILS, FAILS_SECURITY, DENIED = "SCE002", "SCE003", "SCE004"
_OF_C = "gcc, cppcheck or a sanitizer"
_OWN_NAMES = {FAILS: "fails_tests", FAILS_SECURITY: "fails_security_test", DENIED: "refused_attempt"}
_LEVELS = {"HIGH": "error", "MEDIUM": "warning", "LOW": "note"}
# GitHub's scale of `security-severity`, from 0 to 10: high from 7, medium from 4.
_SCALE = {"HIGH": "8.0", "MEDIUM": "5.0", "LOW": "2.0"}


@dataclass(frozen=True)
class Case:
    """One file or program in a report for JUnit: ``failure`` is why it fails, empty if it passes."""

    name: str
    failure: str = ""
    details: str = ""


def cwe_page(cwe: int) -> str:
    """The page of a weakness; empty for 0."""
    return f"https://cwe.mitre.org/data/definitions/{cwe}.html" if cwe else ""


def plain_path(path: str) -> str:
    """A path as valid text: bytes that are not UTF-8 are shown as ``\\xff``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def finding_record(finding: FileFinding) -> dict[str, Any]:
    """The JSON object of a finding; line and column are None if unknown."""
    return {
        "path": plain_path(finding.path),
        "line": finding.line or None,
        "column": finding.column or None,
        "id": finding.test_id,
        "name": finding.name,
        "severity": finding.severity.lower(),
        "confidence": finding.confidence.lower(),
        "cwe": finding.cwe or None,
        "text": finding.text,
        "tool": finding.tool,
        "link": finding.page or cwe_page(finding.cwe) or None,
        "cwe_link": cwe_page(finding.cwe) or None,
    }


def findings_of_score(path: str, score: Score, failure: str) -> list[FileFinding]:
    """The findings of a scored program, its failed security tests, what it tried in vain, and, if ``failure`` is not
    empty, that it fails.
    """
    found = [
        FileFinding(
            **vars(each),
            path=path,
            text=f"{each.severity.lower()} security finding {each.test_id}",
            tool=BANDIT if each.test_id[1:].isdigit() else _OF_C,
        )
        for each in score.findings
    ]
    for test in score.failed_security:
        text = f"fails the security test {test.name!r}: {test.verdict}"
        found.append(FileFinding(FAILS_SECURITY, test.cwe, "HIGH", "HIGH", 0, path, text=text, tool=OURS))
    if score.scan_failed:
        found.append(not_scanned(path, "the security scan failed"))
    if score.tried:
        found.append(FileFinding(DENIED, 0, "MEDIUM", "HIGH", 0, path, text=f"it {score.tried}", tool=OURS))
    if failure:
        found.append(FileFinding(FAILS, 0, "HIGH", "HIGH", 0, path, text=failure, tool=OURS))
    return found


def sarif(findings: Iterable[FileFinding]) -> dict[str, Any]:
    """A SARIF log of one run. Files that could not be scanned are results too, as viewers show nothing else."""
    worst: dict[str, FileFinding] = {}  # of each rule, whose severity viewers show for all its results
    places: dict[str, int] = {}
    results, seen, is_complete = [], Counter[tuple[str, str]](), True
    for each in findings:
        if rank(each.severity) >= rank(worst.setdefault(each.test_id, each).severity):
            worst[each.test_id] = each
        index = places.setdefault(each.test_id, len(places))
        seen[each.path, each.digest] += 1  # of equal ones in a file the fingerprint has the number
        is_complete &= each.test_id != NOT_SCANNED
        region = {"startLine": each.line, **({"startColumn": each.column} if each.column else {})}
        place = {"artifactLocation": _uri(each.path), **({"region": region} if each.line else {})}
        results.append(
            {
                "ruleId": each.test_id,
                "ruleIndex": index,
                "level": _LEVELS.get(each.severity, "warning"),
                "message": {"text": each.text},
                "locations": [{"physicalLocation": place}],
                **({"partialFingerprints": _fingerprint(each, seen)} if each.digest else {}),
                "properties": {"severity": each.severity, "confidence": each.confidence, "tool": each.tool},
            }
        )
    driver = {"name": "sce", "semanticVersion": __version__, "rules": list(map(_rule, worst.values()))}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": is_complete}],
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _fingerprint(finding: FileFinding, seen: Mapping[tuple[str, str], int]) -> dict[str, str]:
    return {"primaryLocationLineHash": f"{finding.digest}:{seen[finding.path, finding.digest]}"}


def _rule(finding: FileFinding) -> dict[str, Any]:
    # What viewers take for a weakness has the tag and the number; that tests fail is none.
    is_security = finding.test_id != FAILS
    tags = ["security"] * is_security + [f"external/cwe/cwe-{finding.cwe:03}"] * bool(finding.cwe)
    page = finding.page or cwe_page(finding.cwe)
    confidence = {"HIGH": "high", "MEDIUM": "medium", "LOW": "low"}.get(finding.confidence, "medium")
    name = finding.name or _OWN_NAMES.get(finding.test_id, finding.test_id)
    return {
        "id": finding.test_id,
        "name": name,
        "shortDescription": {"text": name},
        **({"helpUri": page} if page else {}),
        "defaultConfiguration": {"level": _LEVELS.get(finding.severity, "warning")},
        "properties": {
            "tags": tags,
            "precision": confidence,
            **({"security-severity": _SCALE.get(finding.severity, "5.0")} if is_security else {}),
        },
    }


def _uri(path: str) -> dict[str, str]:
    """Relative to where the scan ran, or absolute if it is elsewhere: viewers follow no ``..``."""
    if os.pardir in path.split(os.sep):
        place = place_of(path)
        below = os.path.relpath(place, os.path.realpath(os.curdir))
        path = place if below.split(os.sep)[0] == os.pardir else below
    text = quote(os.fsencode(path))
    if os.path.isabs(path):
        return {"uri": f"file://{text}"}
    return {"uri": text, "uriBaseId": "%SRCROOT%"}


def junit(name: str, cases: Sequence[Case]) -> str:
    """JUnit XML with one test case per file or program."""
    failures = sum(bool(each.failure) for each in cases)
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": "0", "skipped": "0"}
    root = ElementTree.Element("testsuites", {"name": "sce", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": name, **counts})
    for each in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=_for_xml(each.name))
        if each.failure:
            failure = ElementTree.SubElement(case, "failure", message=_for_xml(each.failure))
            failure.text = _for_xml(each.details)
    ElementTree.indent(root)
    text = document(ElementTree.tostring(root, encoding="unicode"), "&#35;")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _for_xml(text: str) -> str:
    """XML has no control characters and no halves of surrogate pairs, even escaped, nor two of the last characters."""
    return escape_controls(plain_path(text)).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def github_command(finding: FileFinding) -> str:
    """The workflow command of GitHub Actions that shows a finding at its line."""
    level = {"HIGH": "error", "MEDIUM": "warning"}.get(finding.severity, "notice")
    weakness = f" (CWE-{finding.cwe})" if finding.cwe else ""
    properties: Mapping[str, Any] = {
        "file": plain_path(finding.path),
        "line": finding.line or None,
        "col": finding.column or None,
        "title": f"{finding.test_id}{weakness}",
    }
    given = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items() if value)
    return f"::{level} {given}::{_message(finding.text)}"


def _message(text: str) -> str:
    return escape_controls(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
