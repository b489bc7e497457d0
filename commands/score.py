"""`sce score`: scores of completions on problems, or of one program on one test; findings in files."""

from __future__ import annotations

import json
import os
import sys
import tokenize
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from securecoderl_edge.commands.console import new_console, refuse_to_overwrite, say, talk, track, warn_of_level
from securecoderl_edge.commands.options import options_from
from securecoderl_edge.config import setting
from securecoderl_edge.errors import SceError, UsageError, not_utf8
from securecoderl_edge.evaluation.shards import engine_setting
from securecoderl_edge.languages.analyzers import AnalyzerChoice
from securecoderl_edge.languages.language import LANGUAGE_NAMES, LANGUAGES, PYTHON, C, Language, language_of_file
from securecoderl_edge.languages.targets import TARGET_NAMES, TargetBudget, budget_of
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.records import MAX_TESTS
from securecoderl_edge.problems.sources import is_benchmark, load_problems
from securecoderl_edge.prompts.extraction import EXTRACT_MODES
from securecoderl_edge.sandbox.levels import sandbox_setting
from securecoderl_edge.sandbox.limits import MAX_MEMORY_MIB, MAX_WALL_SECONDS
from securecoderl_edge.sandbox.sanitizers import analyzers_setting
from securecoderl_edge.sandbox.severity import severity_setting
from securecoderl_edge.scoring.reward import credit_rule_setting, security_rule_setting
from securecoderl_edge.system.cluster import is_ray
from securecoderl_edge.text import escape_controls, unescaped

if TYPE_CHECKING:
    from securecoderl_edge.sandbox import Limits
    from securecoderl_edge.scoring.cluster import ClusterScorer
    from securecoderl_edge.scoring.score import Score
    from securecoderl_edge.scoring.scorer import Scorer

_LONGEST_PROGRAM = 64 << 20


@dataclass(frozen=True)
class ScoreConfig:
    """Flags of `sce score`."""

    problems: str | None = setting(None, "Problems: JSONL, starter[:SPLIT], humaneval or mbpp[:SPLIT].", metavar="FILE")
    completions: str | None = setting(None, 'Completions: JSONL of {"id", "sample", "completion"}.', metavar="FILE")
    out: str | None = setting(
        None, "File for the scores; if it exists, only missing scores are computed.", metavar="FILE"
    )
    extract: str = setting(
        "auto", "auto: extract the code from the completion; raw: score the text unchanged.", choices=EXTRACT_MODES
    )
    input: str | None = setting(
        None, "With FILE: standard input of the program, as text or a file name.", metavar="TEXT"
    )
    expect: str | None = setting(None, "With FILE: expected output, as text or a file name.", metavar="TEXT")
    language: str = setting(
        "auto",
        "With FILE: language of the program; auto: C for FILE.c, else Python.",
        choices=("auto", *LANGUAGE_NAMES),
    )
    target: str | None = setting(
        None, "With FILE in C: build it for this target too, and run it on an emulated board.", choices=TARGET_NAMES
    )
    budget: str | None = setting(
        None, 'With --target: its limits, as in a problem: {"code_bytes": 512, "heap": false}.', metavar="JSON"
    )
    workers: int | None = setting(
        None, "Programs to run at the same time.  [default: one per core]", minimum=1, metavar="N"
    )
    cpu_seconds: float = setting(5.0, "CPU time limit per test.", minimum=0.01, metavar="S")
    wall_seconds: float = setting(
        10.0, "Wall time limit per test.", minimum=0.01, maximum=MAX_WALL_SECONDS, metavar="S"
    )
    memory_mib: int = setting(1024, "Memory limit per test, in MiB.", minimum=128, maximum=MAX_MEMORY_MIB, metavar="N")
    credit_rule: str = credit_rule_setting()
    security: str = security_rule_setting()
    severity: str = severity_setting()
    analyzers: str = analyzers_setting()
    sandbox: str = sandbox_setting()
    engine: str = engine_setting()
    json: bool = setting(False, "With FILE: print the score as one JSON document.")


@click.command()
@click.argument("programs", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@options_from(ScoreConfig)
@click.pass_context
def score(ctx: click.Context, programs: tuple[Path, ...], config: ScoreConfig) -> None:
    """Score programs: run their tests in the sandbox, and scan them.

    \b
    Many:  sce score --problems FILE --completions FILE [--out FILE]
           One JSON line per completion on stdout (or in --out), and a summary on stderr.
    One:   sce score FILE --input TEXT --expect TEXT
           An explanation of the score. Exit code 1 if the program does not pass.
    Scan:  sce score FILE...
           Security findings of files, which are not run; for git hooks.
           Exit code 1 if a file has findings, or does not parse or compile.
    """
    if not programs:
        _score_many(config)
    elif not (_explain(programs, config) if config.expect is not None else _scan(programs, config)):
        ctx.exit(1)


def _score_many(config: ScoreConfig) -> None:
    from securecoderl_edge.scoring.score import score_line
    from securecoderl_edge.scoring.score_files import open_scores, read_scores, read_submissions

    if config.problems is None or config.completions is None:
        raise UsageError("Missing arguments: give --problems and --completions, or FILE.")
    if config.expect is not None or config.input is not None or config.json:
        raise UsageError("--input, --expect and --json need FILE.")
    if config.target is not None or config.budget is not None:
        raise UsageError("--target and --budget need FILE. A problem has fields of these names.")
    problems = load_problems(config.problems, sys.maxsize if is_benchmark(config.problems) else MAX_TESTS, say)
    submissions = read_submissions(Path(config.completions), problems, config.extract)
    out = Path(config.out) if config.out is not None else None
    if out is not None:  # an existing one is continued
        refuse_to_overwrite(out, True, config.problems, config.completions)
    with _scorer(config) as scorer, open_scores(out) if out else nullcontext() as file:
        scores = read_scores(out, submissions, scorer.switches(config.extract), scorer.analyzers_of) if out else {}
        missing = [submission for submission in submissions if submission.key not in scores]
        if scores:
            say(f"{len(submissions) - len(missing)} of {len(submissions)} completions are already scored in {out}")
        with track(len(missing), "scoring", lines=False) as tracker:
            for batch in scorer.in_batches(missing):
                done = [score for score, _ in batch]
                text = "".join(map(score_line, done))
                if file is not None:
                    file.write(text)
                    file.flush()
                else:
                    click.echo(text, nl=False)
                scores |= {(each.id, each.sample): each for each in done}
                tracker.update(len(batch))
    _show_summary([scores[submission.key] for submission in submissions])


def _scorer(config: ScoreConfig) -> ClusterScorer | Scorer:
    from securecoderl_edge.scoring.cluster import open_scorer

    warn_of_level(config.sandbox)
    return open_scorer(
        config.engine,
        config.workers,
        _limits(config),
        config.credit_rule,
        config.severity,
        config.sandbox,
        security=config.security,
        analyzers=config.analyzers,
    )


def _limits(config: ScoreConfig) -> Limits:
    from securecoderl_edge.sandbox import Limits

    return Limits(config.cpu_seconds, config.wall_seconds, config.memory_mib)


def _show_summary(scores: Sequence[Score]) -> None:
    from rich import box
    from rich.table import Table

    from securecoderl_edge.scoring.metrics import EVERY_METRIC, mean_of_scores
    from securecoderl_edge.scoring.reward import STAGE_NAMES
    from securecoderl_edge.scoring.signs import SIGNS

    summary = mean_of_scores(scores)
    title = f"{len(scores)} scores"
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, title=title, title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for metric in EVERY_METRIC:
        if metric.name in summary:
            value = summary[metric.name]
            shown = "-" if value is None else f"{value * 100:.1f}" if metric.is_rate else f"{value:.3f}"
            table.add_row(metric.title, shown)
    for number, name in enumerate(STAGE_NAMES):
        table.add_row(f"level {number}: {name}", str(summary["stages"][name]))
    for sign in SIGNS:
        if summary[sign]:
            table.add_row(f"{sign.replace('_', ' ')} %", f"{summary[sign] * 100:.1f}")
    console = talk if talk.is_terminal else new_console(stderr=True, width=80)
    console.print(table)


def _scan(paths: Sequence[Path], config: ScoreConfig) -> bool:
    """Print the medium and high findings of files, and return whether all are programs without any."""
    from securecoderl_edge.sandbox import SandboxPool
    from securecoderl_edge.sandbox.security import Scan, SecurityScanner
    from securecoderl_edge.scoring.explain import about_file
    from securecoderl_edge.scoring.scorer import analyzers_of

    _check_alone(config)
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
                click.echo(escape_controls(str(error)))
                faulty += 1
                continue
            run = pool.run(program, language=language.name)
            scan = scanner.scan(program) if language.has_text_scan else run.analysis or Scan()
            lines = about_file(str(path), run, scan, language)
            faulty += bool(lines)
            for line in lines:
                click.echo(escape_controls(line))
    say(f"scanned {len(paths)} file{'s' * (len(paths) > 1)}, ran none; {faulty or 'none'} with findings")
    return not faulty


def _check_alone(config: ScoreConfig) -> None:
    for name in ("problems", "completions", "out"):
        if getattr(config, name) is not None:
            raise UsageError(f"--{name} cannot be combined with FILE. Leave one of them out.")
    if is_ray(config.engine):
        raise UsageError("--engine cannot be combined with FILE. Leave one of them out.")


def _explain(paths: Sequence[Path], config: ScoreConfig) -> bool:
    """Print the score of one program on one test, and return whether it passes."""
    from securecoderl_edge.scoring.explain import explain
    from securecoderl_edge.scoring.scorer import Scorer

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
    with _scorer(config) as scorer:
        assert isinstance(scorer, Scorer)
        result, run = scorer.inspect(problem, program)
    if config.json:
        click.echo(json.dumps(result.to_record()))
    else:
        limits = _limits(config)
        click.echo(escape_controls(explain(result, run, expected, limits, language, problem.target, budget)))
    return result.passed == result.total


def _language(path: Path, config: ScoreConfig) -> Language:
    return language_of_file(path) if config.language == "auto" else LANGUAGES[config.language]


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
    if path.suffix == ".ipynb":
        raise UsageError(f"{path}: a notebook, not a program. Convert it with: jupyter nbconvert --to script")
    try:
        # In Python, a comment can name another encoding.
        with tokenize.open(path) if language == PYTHON else path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_PROGRAM + 1)
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    except SyntaxError as error:
        raise SceError(f"{path}: not UTF-8 text ({error.msg})") from None
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
