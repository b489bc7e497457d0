"""The flags of ``sce scan``, and the rules and files that they stand for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from securecoderl_edge.commands.console import say
from securecoderl_edge.commands.gate import LEVELS, fail_on_setting, isolated_setting
from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.languages.language import LANGUAGE_NAMES
from securecoderl_edge.sandbox.levels import sandbox_setting
from securecoderl_edge.sandbox.limits import workers_setting
from securecoderl_edge.sandbox.sanitizers import analyzers_setting

if TYPE_CHECKING:
    from securecoderl_edge.languages.language import Language
    from securecoderl_edge.sandbox.bandit_config import ScanRules
    from securecoderl_edge.sandbox.file_scan import FileScanner
    from securecoderl_edge.sandbox.source_files import FoundFiles

_BANDITS_ID = re.compile(r"(?:b|sce)\d+")
FORMATS = ("text", "json", "sarif", "github", "junit")


@dataclass(frozen=True)
class ScanConfig:
    """Flags of `sce scan`."""

    exclude: tuple[str, ...] = setting(
        (), "Files and folders to leave out: patterns of names or paths, with commas between them.", metavar="LIST"
    )
    select: tuple[str, ...] = setting((), "Ids of checks to run, such as B602,B605.  [default: all]", metavar="LIST")
    skip: tuple[str, ...] = setting((), "Ids of checks to leave out.", metavar="LIST")
    severity: str | None = setting(None, "The lowest severity to report.  [default: low]", choices=LEVELS)
    confidence: str | None = setting(None, "The lowest confidence to report.  [default: low]", choices=LEVELS)
    fail_on: str | None = fail_on_setting("what is reported")
    exit_zero: bool = setting(False, "Exit with 0 also if there are findings.")
    format: str = setting("text", "Format of the report.", choices=FORMATS)
    out: str | None = setting(None, "File for the report, instead of standard output.", metavar="FILE")
    baseline: str | None = setting(None, "Do not report the findings that this file knows.", metavar="FILE")
    write_baseline: str | None = setting(
        None, "Write all findings to a file for --baseline, and report none.", metavar="FILE"
    )
    config: str | None = setting(
        None,
        "Bandit's configuration: pyproject.toml, an INI file or YAML.  [default: .bandit, pyproject.toml or "
        "bandit.yaml of the current folder]",
        metavar="FILE",
    )
    isolated: bool = isolated_setting()
    respect_nosec: bool = setting(False, "Obey comments # nosec: for code that people wrote and reviewed.")
    language: str = setting(
        "auto",
        "Scan files in this language only; also those that are named and have another suffix.",
        choices=("auto", *LANGUAGE_NAMES),
    )
    workers: int | None = workers_setting("Files to scan")
    analyzers: str = analyzers_setting()
    sandbox: str = sandbox_setting()


def with_known_ids(config: ScanConfig) -> ScanConfig:
    """With Bandit's ids in capitals, as it writes them."""
    select, skip = (
        tuple(each.upper() if _BANDITS_ID.fullmatch(each) else each for each in ids)
        for ids in (config.select, config.skip)
    )
    return replace(config, select=select, skip=skip)


def rules_of(config: ScanConfig) -> tuple[ScanRules, Path | None]:
    """What to look for, and the configuration file that is obeyed, if any."""
    from securecoderl_edge.sandbox.bandit_config import ScanRules, find_config, read_config

    if config.isolated and (config.config or config.respect_nosec):
        raise UsageError("--isolated obeys no file of a project. Leave out --config and --respect-nosec.")
    if config.config is not None:
        path: Path | None = Path(config.config)
    else:
        path = None if config.isolated else find_config(Path())
    rules = ScanRules() if path is None else read_config(path)
    if path is not None:
        say(f"configuration: {path}")
    return replace(
        rules,
        tests=config.select or rules.tests,
        skips=rules.skips + config.skip,
        nosec=config.respect_nosec,
        severity=(config.severity or rules.severity).upper(),
        confidence=(config.confidence or rules.confidence).upper(),
    ), path


def check_ids(config: ScanConfig, rules: ScanRules, scanner: FileScanner, languages: Set[Language]) -> None:
    """Name the ids that no check has: those of flags as an error, those of a file as a message.

    Raises:
        UsageError: a flag has an unknown id, or no check is left for files in these languages.
    """
    from securecoderl_edge.languages.language import PYTHON, C
    from securecoderl_edge.sandbox.file_scan import NOT_SCANNED

    known = scanner.checks(PYTHON) | scanner.checks(C)
    always = f"files that are not scanned in full ({NOT_SCANNED}) are always reported"
    for flag, ids in (("--select", config.select), ("--skip", config.skip)):
        for each in ids:
            if each == NOT_SCANNED:
                raise UsageError(f"{flag} {each}: {always}. Leave it out.")
            if each not in known:
                raise UsageError(f"{flag} {each}: no such check. Ids are like B602 or -Wanalyzer-double-free.")
    named = {*rules.tests, *rules.skips}
    if old := sorted(named - set(known) - {"B001", NOT_SCANNED}):
        say(f"the configuration names checks that do not exist: {', '.join(old)}")
    if NOT_SCANNED in named:
        say(f"the configuration cannot change that {always}")
    if languages and not any(is_chosen for each in languages for is_chosen in scanner.checks(each).values()):
        raise UsageError("No check is left to run on these files. Select others, or skip fewer.")


def files_of(paths: tuple[str, ...], config: ScanConfig, rules: ScanRules) -> FoundFiles:
    """The files to scan.

    Raises:
        UsageError: there are none, other than named files that are all excluded.
    """
    from securecoderl_edge.languages.language import C
    from securecoderl_edge.sandbox.source_files import EXCLUDED, Selection, find_sources, kinds_in_words

    selection = Selection(config.exclude, rules.exclude, rules.include, config.language)
    found = find_sources(paths, selection)
    in_c = [each for each in found.files if each.language == C]
    if in_c and config.analyzers == "off":
        found.files = [each for each in found.files if each.language != C]
        found.left_out += Counter({".c without an analyzer (--analyzers off)": len(in_c)})
    # A hook of a commit names what has changed, which may be excluded.
    is_excluded = set(found.left_out) == {EXCLUDED} and not any(Path(each).is_dir() for each in paths)
    if not found.files and not is_excluded:
        kinds = f" Left out: {kinds_in_words(found.left_out)}." if found.left_out else ""
        raise UsageError(f"{', '.join(paths)}: no files in Python or C to scan.{kinds}")
    return found
