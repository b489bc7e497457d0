"""Security findings of a program in C: what the sanitizers stopped its runs for, and what static analyzers found.

Covers faults that its tests bring about, and those that an analyzer sees in the text. Does not cover faults that no
test reaches and no analyzer follows, nor a program that changes its own code to hide one (SECURITY.md).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from securecoderl_edge.config import setting
from securecoderl_edge.languages.analyzers import ANALYZER_CHOICES
from securecoderl_edge.languages.toolchain import MEDIUM_STATUS, SANITIZER_STATUS
from securecoderl_edge.languages.weaknesses import ANALYZERS, sanitizer_report
from securecoderl_edge.sandbox.jobs import Execution, ProgramRun
from securecoderl_edge.sandbox.security import Finding, Scan, rank

# Of an analyzer, which has not seen the fault happen.
ANALYZER_CONFIDENCE = "MEDIUM"
# The first words of a report. Another thread or a signal can end or stop the program before it is complete.
_REPORT = re.compile(r"^==\d+==ERROR: AddressSanitizer: ", re.MULTILINE)
# Of the fault that a sanitizer stopped a program for, by exit status.
_SEVERITIES = {SANITIZER_STATUS: "HIGH", MEDIUM_STATUS: "MEDIUM"}
# Of faults. The sanitizer handles them, unless the program has blocked them: then they end it without a report.
_FAULTS = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL)


def with_its_report(execution: Execution) -> Execution:
    """The run with the exit status of a report, whatever limit it reached as well, if it has one.

    That is: it left with this status, or printed a report and ended in another way, or a fault ended it.
    """
    has_status = execution.returncode in _SEVERITIES
    is_fault = execution.returncode in _FAULTS and not execution.stopped_by
    if not (has_status or is_fault or _REPORT.search(execution.stderr)):
        return execution
    return replace(execution, returncode=execution.returncode if has_status else SANITIZER_STATUS, stopped_by="")


def findings_of(run: ProgramRun) -> Scan:
    """The faults of a program, each kind in each line once.

    Tools may place the same fault in different lines. So a weakness counts as the first tool reports it: sanitizers,
    then each analyzer.
    """
    found = tuple(dict.fromkeys(_finding(each) for each in run.executions if was_reported(each)))
    if run.analysis is None:
        return Scan(found)
    return Scan((*found, *_new(run.analysis.findings, found)), run.analysis.failed)


def _new(findings: Sequence[Finding], known: Sequence[Finding]) -> tuple[Finding, ...]:
    """Those of other weaknesses, or more severe: a program that reports itself must not hide what an analyzer found."""
    worst: dict[int, int] = {}
    for each in known:
        worst[each.cwe] = max(rank(each.severity), worst.get(each.cwe, -1))
    return tuple(each for each in findings if rank(each.severity) > worst.get(each.cwe, -1))


def analysis_of(reported: Any) -> Scan:
    """What the analyzers found: of each a list of rules and lines, or None for one that failed.

    Raises:
        ValueError: anything else.
    """
    if not isinstance(reported, list) or not all(each is None or isinstance(each, list) for each in reported):
        raise ValueError("not the reports of analyzers")
    found: tuple[Finding, ...] = ()
    for report in reported:
        found += _new([finding for each in report or () if (finding := _of_analyzer(each)) is not None], found)
    return Scan(found, failed=None in reported)


def _of_analyzer(each: Any) -> Finding | None:
    """A finding, or None for a rule that does not count."""
    if not (isinstance(each, list) and list(map(type, each)) == [str, int]):
        raise ValueError("not a finding")
    rule, line = each
    weakness = ANALYZERS.get(rule)
    return weakness and Finding(rule, weakness.cwe, weakness.severity, ANALYZER_CONFIDENCE, line)


def analyzers_setting() -> Any:
    """The setting for the static analyzers of programs in C."""
    return setting(
        "auto",
        "Static analyzers of programs in C. auto: gcc -fanalyzer and cppcheck, if installed; off: sanitizers only.",
        choices=ANALYZER_CHOICES,
    )


def was_reported(execution: Execution) -> bool:
    """Whether a sanitizer stopped this run; a program can only claim that of itself."""
    is_native = not execution.on_target  # where there are no sanitizers
    return is_native and execution.returncode in _SEVERITIES and not execution.stopped_by


def _finding(execution: Execution) -> Finding:
    kind, line, weakness = sanitizer_report(execution.stderr, _SEVERITIES[execution.returncode])
    return Finding(kind, weakness.cwe, weakness.severity, "HIGH", line)
