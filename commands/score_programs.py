"""``sce score FILE``: one program on one test, with its score explained; or the findings of files that are not run."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click

from securecoderl_edge.commands.console import say, track, warn_of_level
from securecoderl_edge.commands.score_gate import check_gate, show_program
from securecoderl_edge.commands.score_options import ScoreConfig, opened_scorer
from securecoderl_edge.errors import SceError, UsageError, not_utf8
from securecoderl_edge.languages.analyzers import AnalyzerChoice
from securecoderl_edge.languages.language import LANGUAGES, PYTHON, C, Language
from securecoderl_edge.languages.python_source import declared_encoding
from securecoderl_edge.languages.targets import TargetBudget, budget_of
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import MAX_TESTS
from securecoderl_edge.problems.sources import is_benchmark, load_problems
from securecoderl_edge.sandbox.source_files import kinds_in_words, named_language
from securecoderl_edge.scoring.program_folder import programs_in
from securecoderl_edge.system.cluster import is_ray
from securecoderl_edge.text import counted, document, on_one_line, unescaped, without_commands

_LONGEST_PROGRAM = 64 << 20
_MOST_NAMES = 3


def scan_programs(paths: Sequence[Path], config: ScoreConfig) -> bool:
    """Print the medium and high findings of files, and return whether all are programs without any."""
    from securecoderl_edge.sandbox import SandboxPool
    from securecoderl_edge.sandbox.security import Scan, SecurityScanner
    from securecoderl_edge.scoring.explain import about_file
    from securecoderl_edge.scoring.scorer import analyzers_of

    _check_alone(config)
    for flag in ("junit", "sarif", "fail_on", "fail_under", "fail_on_denied"):
        if getattr(config, flag) not in (None, False):
            name = flag.replace("_", "-")
            raise UsageError(f"--{name} needs --expect, or a FOLDER. To scan files only, use sce scan.")
    if config.input is not None or config.json or config.target is not None or config.budget is not None:
        raise UsageError("Missing option --expect: the expected output of the program.")
    warn_of_level(config.sandbox)
    for path in paths:
        language = _language(path, config)
        if not language.has_text_scan and not analyzers_of(language.name, cast(AnalyzerChoice, config.analyzers)):
            raise UsageError(f"{path}: no static analyzer reads it. Give --input and --expect to run the program.")
    faulty = 0
    has_analyzers = config.analyzers == "auto"
    with SandboxPool(1, None, config.sandbox, has_analyzers) as pool, SecurityScanner() as scanner:
        for path in paths:
            language = _language(path, config)
            try:
                program = _read_program(path, language)
            except UsageError:
                raise
            except SceError as error:  # the files behind it are scanned
                click.echo(without_commands(str(error)))
                faulty += 1
                continue
            run = pool.run(program, language=language.name)
            scan = scanner.scan(program) if language.has_text_scan else run.analysis or Scan()
            lines = about_file(str(path), run, scan, language)
            faulty += bool(lines)
            for line in lines:
                click.echo(without_commands(line))
    say(f"scanned {counted(len(paths), 'file')}, ran none; {faulty or 'none'} with findings")
    return not faulty


def explain_program(paths: Sequence[Path], config: ScoreConfig) -> bool:
    """Print the score of one program on one test, and return whether it passes."""
    from securecoderl_edge.scoring.explain import explain

    _check_alone(config)
    if len(paths) > 1:
        raise UsageError("--expect is for one FILE. Give one file, or leave out --expect to scan all.")
    (path,) = paths
    assert config.expect is not None
    expected = _text_of("--expect", config.expect)
    if not expected.strip():
        raise UsageError("--expect is empty: a program that prints nothing would pass. Give the expected output.")
    language = _language(path, config)
    program = _read_program(path, language)
    test = Test(_text_of("--input", config.input or ""), expected)
    budget = _budget(language, config)
    problem = Problem(
        id=path.name, statement="", tests=(test,), language=language.name, target=config.target or "", budget=budget
    )
    with opened_scorer(config) as scorer:
        result, run = scorer.inspect(problem, program)
    if config.json:
        click.echo(document(json.dumps(result.to_record())))
    else:
        shown = explain(result, run, problem, config.limits())
        click.echo(without_commands(shown))
    return check_gate({str(path): result}, config, 1.0)


def score_folder(folder: Path, config: ScoreConfig) -> bool:
    """Print the verdict on each program of a folder and one line about all; returns whether the gate is passed."""
    config.refuse(("completions", "out", "input", "expect", "target", "budget", "language", "extract"), "a FOLDER")
    problems = None
    if config.problems is not None:
        limit = sys.maxsize if is_benchmark(config.problems) else MAX_TESTS
        problems = {each.id: each for each in load_problems(config.problems, limit, say)}
    programs, others, missing = programs_in(folder, problems)
    if others:
        say(f"left out: {kinds_in_words(others)}")
    if missing:
        shown = on_one_line(", ".join(missing[:_MOST_NAMES])) + ", ..." * (len(missing) > _MOST_NAMES)
        say(f"{counted(len(missing), 'problem')} without a program: {shown}")
    scores = {}
    with opened_scorer(config) as scorer, track(len(programs), "scoring", lines=False) as progress:
        names = iter(programs)
        for batch in scorer.in_batches(programs.values()):
            for (score, _), name in zip(batch, names, strict=False):
                scores[name] = score
                if not config.json:
                    show_program(name, score)
            progress.update(len(batch))
    passing = sum(each.passes_all_tests for each in scores.values())
    reward = sum(each.reward for each in scores.values()) / len(scores)
    say(f"{passing} of {counted(len(scores), 'program')} passed all tests; mean reward {reward:.3f}")
    return check_gate(scores, config, 1.0, is_shown=True, missing=missing)


def _check_alone(config: ScoreConfig) -> None:
    config.refuse(("problems", "completions", "out", "extract"), "FILE")
    if is_ray(config.engine):
        raise UsageError("--engine cannot be combined with FILE. Leave one of them out.")


def _language(path: Path, config: ScoreConfig) -> Language:
    return named_language(str(path), config.language) if path.is_file() else LANGUAGES.get(config.language, PYTHON)


def _budget(language: Language, config: ScoreConfig) -> TargetBudget:
    if config.target is not None and language != C:
        raise UsageError("--target is for programs in C.")
    if config.budget is not None and config.target is None:
        raise UsageError("Missing option --target, for which --budget limits programs.")
    try:
        return budget_of(json.loads(config.budget or "{}"))
    except ValueError as error:
        raise UsageError(f"--budget: {error}") from None


def _read_program(path: Path, language: Language) -> str:
    try:
        with path.open("rb") as file:
            encoding = "utf-8"
            if language == PYTHON:  # where a comment can name another encoding
                encoding = declared_encoding(lambda: file.readline(_LONGEST_PROGRAM))
                file.seek(0)
            with io.TextIOWrapper(file, encoding) as decoded:
                text = decoded.read(_LONGEST_PROGRAM + 1)
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    except (SyntaxError, UnicodeError) as error:
        raise SceError(f"{path}: not UTF-8 text ({error})") from None
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: a folder, not a file") from None
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None
    if len(text) > _LONGEST_PROGRAM:
        raise UsageError(f"{path}: too long; the limit is {_LONGEST_PROGRAM >> 20} Mi characters")
    return text


def _text_of(option: str, value: str) -> str:
    """The text of an option, or of the file that it names; see `unescaped`.

    Raises:
        SceError: the file is not UTF-8 text.
        UsageError: it cannot be read.
    """
    try:
        # Never an error, however long the text is. `sce generate` writes @ before the name of a file.
        if file := next(filter(os.path.isfile, (value, value.removeprefix("@"))), None):
            return Path(file).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(f"{option} {value}", error) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{option} {value}: cannot be read ({error})") from None
    if value.endswith((".txt", ".in", ".out")):
        say(f"{option} {value}: no such file, so it is taken as the text")
    return unescaped(value)
