"""`sce scan`: security findings of files and folders, which are not run; a gate for pipelines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from securecoderl_edge.commands.console import check_outputs, say, track, warn_of_level
from securecoderl_edge.commands.gate import at_or_above, check_level, in_words, is_passed, without_defaults
from securecoderl_edge.commands.names import PATH_TEXT
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.commands.scan_options import ScanConfig, check_ids, files_of, rules_of, with_known_ids
from securecoderl_edge.commands.scan_output import Report
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.text import counted, on_one_line

if TYPE_CHECKING:
    from securecoderl_edge.sandbox.file_scan import FileFinding


@click.command(
    epilog=examples(
        "sce scan src",
        "sce scan . --fail-on medium --format sarif --out findings.sarif",
        "sce scan . --write-baseline known.json",
        "sce scan . --baseline known.json",
    )
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=PATH_TEXT)
@options_from(ScanConfig)
@click.pass_context
def scan(ctx: click.Context, paths: tuple[str, ...], config: ScanConfig) -> None:
    """Scan files and folders for security findings, without running them.

    PATH is a file in Python or C, a folder, or - for standard input.

    Exit code 0 if there is nothing to report, 1 if there are findings, or files that cannot be scanned; 2 for errors.
    """
    with _errors_as_two():
        if not _scan(paths, with_known_ids(without_defaults(config))):
            ctx.exit(1)


def _scan(paths: tuple[str, ...], config: ScanConfig) -> bool:
    """Whether the exit code is 0."""
    from securecoderl_edge.languages.analyzers import absent_analyzers
    from securecoderl_edge.languages.language import C
    from securecoderl_edge.sandbox.bandit_config import CONFIG_SUFFIXES
    from securecoderl_edge.sandbox.file_scan import NOT_SCANNED, FileScanner
    from securecoderl_edge.sandbox.source_files import SUFFIXES
    from securecoderl_edge.scoring.baseline import Baseline, write_baseline
    from securecoderl_edge.scoring.reports import plain_path

    if config.baseline is not None and config.write_baseline is not None:
        raise UsageError("--baseline and --write-baseline exclude each other. Leave one of them out.")
    for name in ("format", "out", "fail_on") if config.write_baseline is not None else ():
        if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = name.replace("_", "-")
            raise UsageError(f"--write-baseline makes no report, and fails nothing. Leave out --{flag}, or run both.")
    warn_of_level(config.sandbox)
    rules, configuration = rules_of(config)
    level = config.fail_on or rules.severity.lower()
    check_level(level, rules.severity.lower(), configuration if config.severity is None else None)
    found = files_of(paths, config, rules)
    check_outputs(
        {"--out": config.out, "--write-baseline": config.write_baseline},
        [*paths, *(each.path for each in found.files), config.baseline, configuration],
        {*SUFFIXES, *CONFIG_SUFFIXES},
    )
    baseline = Baseline(Path(config.baseline)) if config.baseline is not None else None
    report = Report(config.format, Path(config.out) if config.out else None, level)
    everything: list[FileFinding] = []
    known = 0
    with FileScanner(rules, len(found.files), config.workers, config.sandbox, config.analyzers == "auto") as scanner:
        check_ids(config, rules, scanner, {each.language for each in found.files})
        with track(len(found.files), "scanning", lines=False) as progress:
            for file, findings in zip(found.files, scanner.scan(found.files), strict=True):
                if config.write_baseline is not None:
                    everything += findings
                else:
                    new = [each for each in findings if baseline is None or not baseline.knows(each)]
                    known += len(findings) - len(new)
                    report.add(file.name, new)
                progress.update()
    if config.write_baseline is not None:
        write_baseline(Path(config.write_baseline), everything)
        for each in everything:
            if each.test_id == NOT_SCANNED:
                say(on_one_line(f"not in the baseline: {each.path}: {each.text}"))
        known = sum(each.test_id != NOT_SCANNED for each in everything)
        wrote = f"{counted(known, 'finding')} in {counted(len(found.files), 'file')}"
        say(f"wrote {wrote} to {config.write_baseline}")
        return True
    gone = baseline.gone if baseline is not None else 0
    failing = at_or_above(report.counts, level)
    left_out = {plain_path(kind): number for kind, number in found.left_out.items()}
    facts = {"files": len(found.files), "known": known, "left_out": left_out}
    report.finish({**facts, "configuration": configuration and plain_path(str(configuration)), "passed": not failing})
    if any(each.language == C for each in found.files) and (absent := absent_analyzers()):
        say(f"missing for programs in C: {', '.join(f'{name} ({hint})' for name, hint in absent.items())}")
    _summarize(len(found.files), report.counts, known, gone, found.left_out)
    reasons = [f"{counted(failing, 'finding')} of severity {level}{' or higher' * (level != 'high')}"]
    return is_passed(reasons if failing else [], is_zero=config.exit_zero)


def _summarize(files: int, counts: Counter[str], known: int, gone: int, left_out: Counter[str]) -> None:
    from securecoderl_edge.sandbox.source_files import kinds_in_words

    parts = [f"scanned {counted(files, 'file')}, ran none: {in_words(counts)}"]
    parts += [f"{known} known"] if known else []
    parts += [f"{gone} of the baseline not found any more"] if gone else []
    parts += [f"left out: {kinds_in_words(left_out)}"] if left_out else []
    say("; ".join(parts))


@contextmanager
def _errors_as_two() -> Iterator[None]:
    """Findings have exit code 1, so errors have another; and none advises to run programs without isolation."""
    from securecoderl_edge.sandbox.levels import OFF_HINT

    try:
        yield
    except SceError as error:
        error.args = (str(error).replace(OFF_HINT, "see `sce doctor`"),)
        error.exit_code = 2
        raise
    except BrokenPipeError:
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else "the report cannot be written: "
        raise UsageError(f"{place}{error.strerror or error}") from None
