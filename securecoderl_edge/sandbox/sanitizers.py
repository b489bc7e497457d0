"""Security findings of a program in C: what the sanitizers stopped its runs for.

Covers faults that its tests bring about. Does not cover faults that no test reaches, nor a program that changes its own
code to hide one (SECURITY.md).
"""

from __future__ import annotations

import re
from dataclasses import replace

from securecoderl_edge.languages.toolchain import SANITIZER_STATUS
from securecoderl_edge.languages.weaknesses import sanitizer_report
from securecoderl_edge.sandbox.records import Execution, ProgramRun
from securecoderl_edge.sandbox.security import Finding, Scan

# The first words of a report. Another thread can end the program before it is complete.
_REPORT = re.compile(r"^==\d+==ERROR: AddressSanitizer: ", re.MULTILINE)


def with_its_report(execution: Execution) -> Execution:
    """The run with the exit status of a report if it printed one and left in another way."""
    is_hidden = execution.returncode >= 0 and _REPORT.search(execution.stderr) is not None
    return replace(execution, returncode=SANITIZER_STATUS) if is_hidden else execution


def findings_of(run: ProgramRun) -> Scan:
    """The faults in all runs of a program, each kind in each line once."""
    found = [_finding(each) for each in run.executions if was_reported(each)]
    return Scan(tuple(dict.fromkeys(found)))


def was_reported(execution: Execution) -> bool:
    """Whether a sanitizer stopped this run; a program can only claim that of itself."""
    is_native = not execution.on_target  # where there are no sanitizers
    return is_native and execution.returncode == SANITIZER_STATUS and not execution.stopped_by


def _finding(execution: Execution) -> Finding:
    kind, line, weakness = sanitizer_report(execution.stderr)
    return Finding(kind, weakness.cwe, weakness.severity, "HIGH", line)
