"""Tables of evaluations on a terminal: side by side from 92 columns, else one model below the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from securecoderl_edge.commands.console import data, new_console, show_table
from securecoderl_edge.config import JSON_HELP
from securecoderl_edge.evaluation.summary import EvaluationSummary
from securecoderl_edge.evaluation.tables import (
    NOT_DISTINGUISHABLE,
    Comparison,
    Table,
    bench_tables,
    comparison_table,
    devices_in_words,
    prompts_in_words,
    size_in_words,
    to_markdown,
)
from securecoderl_edge.system.files import write_atomically
from securecoderl_edge.text import escape_controls

if TYPE_CHECKING:
    from securecoderl_edge.export.quantization_report import QuantizationReport

TABLE_FORMATS = {"json": JSON_HELP, "markdown": "Markdown tables on stdout."}
WIDE = 92
_PIPE_WIDTH = 100
_FOOTNOTE = (
    "Syn.: parses; Sec.Clean: of these, no medium/high finding; ≥1-P, All-P: passes a test, all.",
    "R: mean reward; R paper: with 0.4 instead of 0 for unparsable output; R tests: rate of tests passed.",
)


def show_bench(
    summaries: Sequence[EvaluationSummary], comparisons: Sequence[Comparison], conclusions: Sequence[str]
) -> None:
    """Print the conclusions, quality, speed and reward levels of each model, then the paired comparisons."""
    # A pipe has no width; rich would take 80 columns.
    console = data if data.is_terminal else new_console(width=_PIPE_WIDTH)
    for line in conclusions:
        console.print(escape_controls(line))
    console.print()
    if console.width >= WIDE:
        for table in bench_tables(summaries, lines=2):
            _print(console, table)
    else:
        for summary in summaries:
            _print_below(console, summary)
    for comparison in comparisons:
        pair = f"{comparison.second} minus {comparison.first}"
        console.print(f"{escape_controls(pair)}, paired over {size_in_words(comparison)}:")
        _print(console, comparison_table(comparison, with_p_values=console.width >= WIDE))
    for line in (*prompts_in_words(summaries), *devices_in_words(summaries)):
        console.print(escape_controls(line))
    largest = max(summaries, key=lambda summary: summary.problems)
    way = "over problems: Wilson for rates, bootstrap for means"
    if largest.groups < largest.problems:
        way = "over groups: Wilson for rates, Student's for means"
    for line in _FOOTNOTE:
        console.print(line)
    console.print(f"{size_in_words(largest)}; 95 % intervals {way}; times: p50/p90/p99.")


def show_quantization(report: QuantizationReport) -> None:
    """Print the loss by quantization: one line per file, and its scores below."""
    for row in report.table.rows:
        facts = [f"{title} {cell}" for title, cell in zip(report.table.columns[1:5], row[1:5], strict=True)]
        data.print(f"{row[0]:8} {', '.join(facts)}", soft_wrap=True)
        for title, value, difference in zip(report.table.columns[5::2], row[5::2], row[6::2], strict=True):
            data.print(f"{'':8} {title:8} {value}  {difference}", soft_wrap=True)
    data.print(report.sentence(), soft_wrap=True)


def _show_tables(tables: Iterable[tuple[str, Table]]) -> None:
    """Print tables with their titles; on a narrow terminal row by row."""
    console = data if data.is_terminal else new_console(width=_PIPE_WIDTH)
    for title, table in tables:
        console.print(escape_controls(title))
        if console.width >= WIDE:
            _print(console, table)
            continue
        for row in table.rows:
            named = 2 if table.columns[1] == "weights" else 1
            console.print(escape_controls(" ".join(filter(None, row[:named]))), style="bold")
            for column, cell in zip(table.columns[named:], row[named:], strict=True):
                console.print(escape_controls(f"  {column:14}{cell}").replace("\n", "  "))
        console.print()


def publish_tables(
    output: str | None, record: Mapping[str, Any], tables: Callable[[int], Iterable[tuple[str, Table]]], file: Path
) -> None:
    """Save a record, and print it as one of `TABLE_FORMATS`, or its tables for a terminal.

    Args:
        tables: makes them with one line per cell, or with two, the interval below the value.
    """
    document = json.dumps(record, indent=1, allow_nan=False)
    with write_atomically(file) as out:
        out.write(f"{document}\n")
    if output == "json":
        click.echo(document)
    elif output == "markdown":
        click.echo("\n".join(f"{title}\n\n{to_markdown(table)}" for title, table in tables(1)), nl=False)
    else:
        _show_tables(tables(2))


def _print(console: Console, table: Table) -> None:
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for position, column in enumerate(table.columns):
        # Numbers keep their width; names are folded.
        shown.add_column(
            escape_controls(column), overflow="fold", justify="right" if position else "left", no_wrap=position > 0
        )
    for row in table.rows:
        shown.add_row(*map(escape_controls, row), style="dim" if row[-1] == NOT_DISTINGUISHABLE else "")
    show_table(shown, console)
    console.print()


def _print_below(console: Console, summary: EvaluationSummary) -> None:
    """Print all results of one model, one line each."""
    shown = RichTable(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for table in bench_tables([summary]):
        for title, cell in zip(table.columns[1:], table.rows[0][1:], strict=True):
            shown.add_row(title, escape_controls(cell))
    console.print(escape_controls(summary.label), style="bold")
    show_table(shown, console)
    console.print()
