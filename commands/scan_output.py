"""The report of ``sce scan`` in each format: text and commands of GitHub as files are scanned, documents at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from securecoderl_edge.commands.console import data
from securecoderl_edge.commands.gate import at_or_above
from securecoderl_edge.text import counted, document, on_one_line, without_commands

if TYPE_CHECKING:
    from securecoderl_edge.sandbox.file_scan import FileFinding
    from securecoderl_edge.scoring.reports import Case

VERSION = 1
_STYLES = {"high": "bold red", "medium": "yellow", "low": "cyan"}


class Report:
    """Takes the findings of one file after the other.

    Args:
        out: the file that it is written to, or None for standard output.
        level: the severity from which a finding fails, in lower case.
    """

    def __init__(self, format: str, out: Path | None, level: str) -> None:
        self._format, self._out, self._level = format, out, level
        self.counts: Counter[str] = Counter()
        self._findings: list[FileFinding] = []
        self._cases: list[Case] = []
        self._lines: list[str] = []

    def add(self, name: str, findings: Sequence[FileFinding]) -> None:
        """Show the findings of a file, or keep them."""
        from securecoderl_edge.scoring.reports import Case, github_command

        here = Counter(each.severity.lower() for each in findings)
        self.counts += here
        if self._format == "text":
            for each in findings:
                self._show(each)
        elif self._format == "github":
            for each in findings:
                self._print(github_command(each))
        elif self._format == "junit":
            failing = at_or_above(here, self._level)
            details = "\n".join(line for each in findings for line in in_text(each).plain.split("\n"))
            self._cases.append(Case(name, counted(failing, "finding") if failing else "", details))
        else:
            self._findings += findings

    def finish(self, facts: dict[str, Any]) -> None:
        """Write what is left; ``facts`` are those of the whole scan."""
        from securecoderl_edge.scoring.reports import finding_record, junit, sarif
        from securecoderl_edge.system.files import write_atomically

        if self._format == "json":
            head = json.dumps({"version": VERSION, **facts, "counts": self.counts})
            rows = ",\n".join(json.dumps(finding_record(each)) for each in self._findings)
            self._print(document(f'{head[:-1]}, "findings": [\n{rows}\n]}}'))
        elif self._format == "sarif":
            self._print(document(json.dumps(sarif(self._findings), indent=1)))
        elif self._format == "junit":
            self._print(junit("sce scan", self._cases).rstrip("\n"))
        if self._out is not None:
            with write_atomically(self._out) as file:
                file.writelines(f"{line}\n" for line in self._lines)

    def _show(self, finding: FileFinding) -> None:
        text = in_text(finding)
        if self._out is None and data.color_system is not None:
            data.print(text, soft_wrap=True)
        else:
            self._print(text.plain)

    def _print(self, line: str) -> None:
        if self._out is None:
            click.echo(line)
        else:
            self._lines.append(line)


def in_text(finding: FileFinding) -> Text:
    """Two lines: place, severity, check, weakness and message; and the page of the check."""
    from securecoderl_edge.sandbox.file_scan import ADDED
    from securecoderl_edge.scoring.reports import cwe_page

    severity = finding.severity.lower()
    place = "".join(f":{number}" for number in (finding.line, finding.column) if number)
    weakness = f" (CWE-{finding.cwe})" if finding.cwe else ""
    addition = " (in addition to Bandit)" if finding.tool == ADDED else ""
    page = finding.page or cwe_page(finding.cwe)
    return Text.assemble(
        (without_commands(on_one_line(finding.path)), "bold"),
        f"{place}: ",
        (severity, _STYLES.get(severity, "")),
        f" {finding.test_id}{weakness}: {without_commands(on_one_line(finding.text))}{addition}",
        (f"\n  {page}" if page else "", "dim"),
    )
