"""`sce doctor`: tests of the sandbox, runtimes and libraries on this machine."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import say
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.config import JSON_HELP, setting
from securecoderl_edge.sandbox.levels import SANDBOX_CHOICES
from securecoderl_edge.text import escape_controls

if TYPE_CHECKING:
    from securecoderl_edge.doctor import Check, Report

TITLES = {"llama_cpp": "llama.cpp"}
COLORS = {"ok": "green", "note": "cyan", "missing": "yellow", "bad": "red"}
_WIDEST = 120


@dataclass(frozen=True)
class DoctorConfig:
    """Flags of `sce doctor`."""

    sandbox: str = setting("auto", "Isolation level to test.", choices=SANDBOX_CHOICES)
    json: bool = setting(False, JSON_HELP)


@click.command(
    epilog=examples(
        "sce doctor",
        "sce doctor --json",
    )
)
@options_from(DoctorConfig)
@click.pass_context
def doctor(ctx: click.Context, config: DoctorConfig) -> None:
    """Check this machine: CPU, sandbox, optional packages, llama.cpp, torch.

    Runs attack programs in the sandbox. They are harmless even if isolation fails. Also runs the quantized kernels of
    llama.cpp, in separate processes that may crash. Exit code 1 if a check fails; a missing package is not a failure.
    """
    from securecoderl_edge.doctor import examine

    say("testing the sandbox, llama.cpp and torch; this takes a few seconds")
    report = examine(config.sandbox)
    if config.json:
        click.echo(json.dumps(report.to_record(), indent=1, allow_nan=False))
    else:
        click.echo(_render(report))
    if not report.ok:
        ctx.exit(1)


def _render(report: Report) -> str:
    """Format groups of aligned lines, then a summary."""
    # A pipe has no width.
    width = min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)
    name_width = max(len(finding.name) for finding in report.findings)
    lines = []
    for group, section in report.sections.items():
        lines.append(click.style(TITLES.get(group, group), bold=True))
        for finding in section.findings:
            lines += _lines(finding, name_width, width)
        lines.append("")
    return "\n".join([*lines, _closing(report)])


def _lines(finding: Check, name_width: int, width: int) -> list[str]:
    indent = " " * (name_width + 13)
    text = " ".join(escape_controls(finding.found).split())
    first, *rest = textwrap.wrap(text, max(30, width - len(indent)), break_on_hyphens=False) or [""]
    state = click.style(f"{finding.state:7}", fg=COLORS[finding.state])
    lines = [f"  {state}  {finding.name:{name_width}}  {first}", *(indent + line for line in rest)]
    if finding.next_step:
        lines.append(f"{indent}-> {escape_controls(finding.next_step)}")  # not wrapped, to be copied
    return lines


def _closing(report: Report) -> str:
    counts = Counter(finding.state for finding in report.findings)
    if not report.ok:
        return f"{counts['bad']} of {len(report.findings)} checks failed (bad). Follow the arrows (->)."
    missing = f", {counts['missing']} missing" if counts["missing"] else ""
    return f"No check failed: {counts['ok']} of {len(report.findings)} are ok{missing}."
