"""`sce data`: import problems of other formats, check their solutions, show one as a model sees it."""

from __future__ import annotations

import difflib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import warn_of_level
from securecoderl_edge.commands.options import options_from
from securecoderl_edge.config import setting
from securecoderl_edge.datasets import FORMATS, KINDS, Dropped, Imported, import_problems
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems import (
    STARTER,
    Problem,
    load_problems,
    problem_to_record,
    read_problems,
    write_problems,
)
from securecoderl_edge.switches import sandbox_setting
from securecoderl_edge.text import escape_controls

if TYPE_CHECKING:
    from rich.progress import Progress

    from securecoderl_edge.checks import CheckReport


@dataclass(frozen=True)
class ImportConfig:
    """Flags of `sce data import`."""

    format: str = setting("auto", "Format of SRC; auto recognises it.", choices=("auto", *FORMATS))
    out: str | None = setting(None, "JSONL file to write.  [default: FORMAT-problems.jsonl]", metavar="FILE")
    kind: str = setting("all", "Problems to keep: judged by printed text, by calls, or all.", choices=KINDS)
    force: bool = setting(False, "Overwrite --out when it exists.")


@dataclass(frozen=True)
class CheckConfig:
    """Flags of `sce data check`."""

    drop_failing: str | None = setting(None, "Write the problems that did not fail to this file.", metavar="OUT")
    force: bool = setting(False, "Overwrite OUT when it exists.")
    sandbox: str = sandbox_setting()
    workers: int | None = setting(None, "Solutions run at a time.  [default: one a core]", minimum=1, metavar="N")
    json: bool = setting(False, "Print the outcome as one JSON document.")


@dataclass(frozen=True)
class ShowConfig:
    """Flags of `sce data show`."""

    json: bool = setting(False, "Print the record, with its prompt, as one JSON document.")


@click.group()
def data() -> None:
    """Import, check and show problem files."""


@data.command("import")
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@options_from(ImportConfig)
def import_(source: Path, config: ImportConfig) -> None:
    """Turn a data set into a problem file (JSONL).

    SRC is APPS as a folder (its root, a split or one problem) or as the hub's JSONL, APPS+ (data.json), MBPP or
    HumanEval as JSONL (.gz too), or a problem file of ours, which is then filtered.
    """
    imported = import_problems(source, config.format, config.kind)
    out = Path(config.out if config.out is not None else f"{imported.format}-problems.jsonl")
    if out.exists() and source.exists() and out.samefile(source):
        raise UsageError(f"{out} is the file to import; name another with --out")
    _refuse_to_overwrite(out, config.force)
    with _progress("importing") as progress:
        task = progress.add_task("problems read", total=None)
        write_problems(out, _at_least_one(imported, lambda: progress.advance(task)))
    _report_import(imported, out)


@data.command()
@click.argument("file", metavar="FILE")
@options_from(CheckConfig)
@click.pass_context
def check(ctx: click.Context, file: str, config: CheckConfig) -> None:
    """Run the reference solutions of FILE (or starter[:SPLIT]) in the sandbox.

    A problem passes when one of its solutions passes all its tests. Exit code 1 when a problem fails.
    """
    from securecoderl_edge.checks import check_problems
    from securecoderl_edge.scorer import Scorer

    if config.drop_failing is not None:
        _refuse_to_overwrite(Path(config.drop_failing), config.force)
    problems = load_problems(file)
    warn_of_level(config.sandbox)
    with _progress("checking") as progress, Scorer(config.workers, sandbox=config.sandbox) as scorer:
        task = progress.add_task("solutions run", total=sum(len(problem.solutions) for problem in problems))
        report = check_problems(problems, scorer, lambda count: progress.advance(task, count))
    if config.json:
        click.echo(json.dumps(report.to_record()))
    _report_check(report, file, listed=not config.json)
    if config.drop_failing is not None:
        _write_passing(file, report, Path(config.drop_failing))
    if report.failed:
        ctx.exit(1)


@data.command()
@click.argument("file", metavar="FILE")
@click.argument("problem_id", metavar="ID")
@options_from(ShowConfig)
def show(file: str, problem_id: str, config: ShowConfig) -> None:
    """Show the problem ID of FILE (or starter[:SPLIT]): its prompt as a model sees it, its tests."""
    from securecoderl_edge.prompts import format_prompt

    problems = {problem.id: problem for problem in load_problems(file)}
    if problem_id not in problems:
        raise UsageError(f"{file} has no problem {problem_id!r}{_nearest(problem_id, list(problems))}")
    problem = problems[problem_id]
    if config.json:
        click.echo(json.dumps({**problem_to_record(problem), "prompt": format_prompt(problem)}))
    else:
        click.echo(escape_controls(_description(problem, format_prompt(problem))))


def _at_least_one(imported: Imported, on_problem: Callable[[], None]) -> Iterator[Problem]:
    for problem in imported.problems:
        on_problem()
        yield problem
    if imported.tally.kept == 0:
        raise SceError(f"no problem is left to write: {_counts(imported.tally.dropped) or 'the source holds none'}")


def _report_import(imported: Imported, out: Path) -> None:
    tally = imported.tally
    _say(f"{imported.format}: read {tally.read} problems, wrote {tally.kept} to {out}")
    if tally.dropped:
        _say(f"dropped {tally.read - tally.kept} problems: {_counts(tally.dropped)}")
    if tally.dropped_tests:
        left_out = sum(entry.count for entry in tally.dropped_tests.values())
        _say(f"left out {left_out} tests: {_counts(tally.dropped_tests)}")
    _say(f"next: sce data check {shlex.quote(str(out))}")


def _counts(dropped: dict[str, Dropped]) -> str:
    ordered = sorted(dropped.items(), key=lambda item: -item[1].count)
    return "; ".join(f"{entry.count} {reason} (first: {entry.first})" for reason, entry in ordered)


def _report_check(report: CheckReport, file: str, *, listed: bool) -> None:
    if listed:
        for failure in report.failed:
            click.echo(escape_controls(f"{failure.id}: {failure.reason}"))
    _say(f"{file}: {report.passed} of {report.total} problems pass, {len(report.failed)} fail")
    if report.failing_solutions:
        _say(f"{report.failing_solutions} of {report.solutions} solutions fail")
    if report.unchecked:
        _say(f"{len(report.unchecked)} problems have no solution to check (first: {report.unchecked[0]})")


def _write_passing(file: str, report: CheckReport, out: Path) -> None:
    failed = {failure.id for failure in report.failed}
    if len(failed) == report.total:
        raise SceError(f"{out} was not written: every problem of {file} fails")
    count = write_problems(out, (problem for problem in _with_all_tests(file) if problem.id not in failed))
    _say(f"wrote {count} problems to {out}")


def _with_all_tests(file: str) -> Iterator[Problem]:
    """The problems of a file without the limit on tests that loading sets."""
    if file == STARTER or file.startswith(f"{STARTER}:"):
        yield from load_problems(file)
    else:
        yield from (problem for _, problem in read_problems(Path(file), max_tests=sys.maxsize))


def _description(problem: Problem, prompt: str) -> str:
    facts = {
        "id": problem.id,
        "kind": problem.kind,
        "source": problem.source,
        "difficulty": problem.difficulty,
    }
    facts |= {"tags": ", ".join(problem.tags), "solutions": str(len(problem.solutions))}
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    lines += ["", "--- prompt", prompt.rstrip("\n")]
    for number, test in enumerate(problem.tests, 1):
        lines += ["", f"--- test {number}: input", test.input.rstrip("\n")]
        lines += [f"--- test {number}: expected output", test.output.rstrip("\n")]
    for number, assertion in enumerate(problem.assertions, 1):
        lines += ["", f"--- test {number}", assertion]
    return "\n".join(lines)


def _nearest(word: str, words: list[str]) -> str:
    close = difflib.get_close_matches(word, words, n=1)
    return f"; the nearest is {close[0]!r}" if close else ""


def _refuse_to_overwrite(out: Path, force: bool) -> None:
    if out.exists() and not force:
        raise UsageError(f"{out} exists; overwrite it with --force or name another file")


def _say(message: str) -> None:
    click.echo(escape_controls(message), err=True)


@contextmanager
def _progress(verb: str) -> Iterator[Progress]:
    """A progress bar on stderr that only a terminal shows."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(verb), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress
