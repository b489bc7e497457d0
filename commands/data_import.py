"""`sce data import`: data sets in other formats, converted to problem files."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from securecoderl_edge.commands.console import refuse_to_overwrite, say, track, warn_of_level
from securecoderl_edge.commands.names import PROBLEMS
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.config import FORCE_HELP, JSON_HELP, setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.datasets.importing import (
    FORMATS,
    KINDS,
    MAX_TESTS_KEPT,
    NEED_EVALUATION,
    Imported,
    detect_format,
    import_loaded,
    import_problems,
    parts_of,
)
from securecoderl_edge.problems.datasets.tally import Dropped
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import is_built_in, load_problems
from securecoderl_edge.sandbox.levels import sandbox_setting
from securecoderl_edge.system.hub import download_dataset, is_hub_id
from securecoderl_edge.text import counted


@dataclass(frozen=True)
class ImportConfig:
    """Flags of `sce data import`."""

    format: str = setting("auto", "Format of SRC; auto detects it.", choices=("auto", *FORMATS))
    out: str | None = setting(None, "JSONL file to write.  [default: FORMAT-problems.jsonl]", metavar="FILE")
    kind: str = setting(
        "all", "Problems to keep. stdin: tests compare printed text; call: tests call a function.", choices=KINDS
    )
    max_tests: int = setting(MAX_TESTS_KEPT, "Tests to keep per problem, the first ones.", minimum=1, metavar="N")
    files: str | None = setting(
        None, "Files of a repo or folder to read: a shell pattern, such as test*.", metavar="PATTERN"
    )
    security_policy: bool = setting(
        True, "SecCodePLT: put the security policy into the statement; without it the model has to know."
    )
    strict: bool = setting(False, "Stop with an error at the first unusable record, and write nothing.")
    force: bool = setting(False, FORCE_HELP)
    sandbox: str = sandbox_setting()
    json: bool = setting(False, JSON_HELP)


@click.command(
    "import",
    epilog=examples(
        "sce data import APPS/train --out apps.jsonl",
        "sce data import mbpp:clean --out mbpp.jsonl",
    ),
)
@click.argument("source", type=PROBLEMS, metavar="SRC")
@options_from(ImportConfig)
def import_(source: str, config: ImportConfig) -> None:
    """Convert a data set to a problem file (JSONL).

    SRC is a file, a folder, a Hugging Face repo id (owner/name), which is downloaded, or a set that needs no file
    (starter[:SPLIT], humaneval, mbpp[:SPLIT]). Files are JSON, JSONL, CSV, Parquet or Arrow; text may end in .gz, .bz2,
    .xz. A folder has such files, or problems of APPS. Formats are those of --format (docs/reference/formats.md), among
    them problem files of sce, to filter them.

    Some sets have no expected outputs (evalplus, codeio, safesql): their programs run in the sandbox, which takes
    minutes.

    Unusable records are counted and reported; with --strict they are errors.
    """
    paths = download_dataset(source, config.files) if is_hub_id(source) else parts_of(Path(source), config.files)
    if config.files is not None and paths == [Path(source)]:
        raise UsageError("--files needs a Hugging Face repo id or a folder as SRC. Leave it out.")
    with ExitStack() as stack:
        imported = _imported(source, paths, config, stack)
        out = _write(imported, paths, config)
    _report(imported, out)
    if config.json:
        click.echo(json.dumps(_record(imported, out)))


def _imported(source: str, paths: list[Path], config: ImportConfig, stack: ExitStack) -> Imported:
    choice = (config.kind, config.max_tests, config.strict)
    if is_built_in(source):
        if config.format != "auto":
            raise UsageError(f"--format is for files, and {source} is not one. Leave it out.")
        return import_loaded(load_problems(source, sys.maxsize, say), source.replace(":", "-"), *choice)
    format = detect_format(paths[0]) if config.format == "auto" else config.format
    if format not in NEED_EVALUATION:
        return import_problems(paths, format, *choice)
    from securecoderl_edge.scoring.reference_solutions import reference_outputs

    warn_of_level(config.sandbox)
    evaluate = stack.enter_context(reference_outputs(config.sandbox))
    return import_problems(paths, format, *choice, evaluate, config.security_policy)


def _write(imported: Imported, paths: list[Path], config: ImportConfig) -> Path:
    out = Path(config.out if config.out is not None else f"{imported.format}-problems.jsonl")
    refuse_to_overwrite(out, config.force, *paths)
    with track(None, "problems read", lines=False) as progress:
        write_problems(out, _at_least_one(imported, progress.update))
    return out


def _at_least_one(imported: Imported, on_problem: Callable[[], None]) -> Iterator[Problem]:
    for problem in imported.problems:
        on_problem()
        yield problem
    tally = imported.tally
    if tally.kept == 0:
        reasons = "; ".join(filter(None, (_counts(tally.dropped), _counts(tally.filtered))))
        raise SceError(f"no problem to write: {reasons or 'the source is empty'}")


def _report(imported: Imported, out: Path) -> None:
    tally = imported.tally
    say(f"{imported.format}: read {counted(tally.read, 'problem')}, wrote {tally.kept} to {out}")
    for done, noun, counts in (
        ("filtered out", "problem", tally.filtered),
        ("dropped", "problem", tally.dropped),
        ("filtered out", "test", tally.filtered_tests),
        ("dropped", "test", tally.dropped_tests),
        ("dropped", "solution", tally.dropped_solutions),
    ):
        if counts:
            say(f"{done} {counted(sum(entry.count for entry in counts.values()), noun)}: {_counts(counts)}")
    say(f"next: sce data check {shlex.quote(str(out))}")


def _counts(dropped: dict[str, Dropped]) -> str:
    ordered = sorted(dropped.items(), key=lambda item: -item[1].count)
    return "; ".join(f"{entry.count} {reason} (first: {entry.first})" for reason, entry in ordered)


def _record(imported: Imported, out: Path) -> dict[str, Any]:
    tally = imported.tally
    counts = {
        name: {reason: {"count": entry.count, "first": entry.first} for reason, entry in getattr(tally, name).items()}
        for name in ("filtered", "dropped", "filtered_tests", "dropped_tests", "dropped_solutions")
    }
    return {"format": imported.format, "out": str(out), "read": tally.read, "kept": tally.kept, **counts}
