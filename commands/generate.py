"""``sce generate``: programs for prompts, tested and scanned before they are printed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import data, duration, say, talk, track, warn_of_level
from securecoderl_edge.commands.options import model_option, options_from
from securecoderl_edge.errors import UsageError
from securecoderl_edge.generation.inputs import example_tests, parse_test, read_prompt, read_requests, read_tests
from securecoderl_edge.generation.repair import answer_and_repair
from securecoderl_edge.languages.language import LANGUAGE_NAMES, PYTHON
from securecoderl_edge.models.files import BUILT_IN
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.runtimes import note_on
from securecoderl_edge.runtimes.opening import RuntimeSettings, check_runtime, opened
from securecoderl_edge.runtimes.protocol import (
    MAX_SAMPLES,
    OnToken,
    Runtime,
    Sampling,
    SamplingSettings,
    batch_seed,
)
from securecoderl_edge.runtimes.spec import resolve_model
from securecoderl_edge.text import escape_controls, unescaped

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer

# Prompts of one file are decoded in groups; the results of a group are written before the next one begins.
_SAMPLES_TOGETHER = 64


@dataclass(frozen=True)
class GenerateSettings(RuntimeSettings, SamplingSettings):
    """How a model is computed, asked and sampled."""


@click.command()
@click.argument("prompt", required=False, metavar="[PROMPT|-|@FILE]")
@model_option
@click.option(
    "-n",
    "n",
    type=click.IntRange(1, MAX_SAMPLES),
    default=1,
    show_default=True,
    help="Programs to sample; the best one is printed.",
)
@click.option(
    "--language",
    type=click.Choice(LANGUAGE_NAMES),
    help="Language of the program.  [default: that of the model]",
)
@click.option("--tests", "tests_file", type=click.Path(path_type=Path), help="File of tests (JSON or JSONL).")
@click.option(
    "--test",
    "tests",
    multiple=True,
    metavar="in=..,out=..",
    help="A test: input and expected output; \\n is a line break. May be repeated.",
)
@options_from(GenerateSettings)
@click.option("--stop", "stops", multiple=True, metavar="TEXT", help="Stop at this text; may be repeated.")
@click.option(
    "--repair",
    "repairs",
    count=True,
    help="Show a failed program with its errors to the model, and sample again. Repeat for more rounds.",
)
@click.option(
    "--code-only/--raw",
    "code_only",
    default=None,
    help="Print the program, or the raw completion.  [default: the program]",
)
@click.option("--jsonl", type=click.Path(path_type=Path), help="File of prompts, one JSON object per line.")
def generate(
    prompt: str | None,
    model: str | None,
    n: int,
    language: str | None,
    tests_file: Path | None,
    tests: tuple[str, ...],
    config: GenerateSettings,
    stops: tuple[str, ...],
    repairs: int,
    code_only: bool | None,
    jsonl: Path | None,
) -> None:
    """Generate a program for a prompt; test and scan it before printing it.

    PROMPT is a text, @FILE, or - (the default in a pipe) for standard input. The program is parsed, scanned with
    Bandit (a program in C: with static analyzers and sanitizers), and run in the sandbox: on the tests or the example
    of the prompt, else once with empty input. The program goes to stdout, the verdict to stderr. Exit code 1 if no
    program passes its checks.

    With --jsonl FILE, each line of FILE is {"prompt": ...} or a problem record. Each output line is a JSON object with
    the best program, its completion and its score.
    """
    from securecoderl_edge.scoring.explain import about_failure
    from securecoderl_edge.scoring.scorer import Scorer

    if jsonl is not None and (prompt is not None or tests or tests_file):
        raise UsageError("--jsonl FILE has its own prompts and tests. Leave out PROMPT, --test and --tests.")
    if jsonl is not None and code_only is not None:
        raise UsageError("--code-only and --raw have no effect with --jsonl: each line has both fields.")
    spec = resolve_model(model, language)
    language = language or spec.language()
    given, security_tests = read_tests(tests_file) if tests_file else ([], [])
    given += [parse_test(text) for text in tests]
    if jsonl is not None:
        problems = read_requests(jsonl, language)
    else:
        # A process may be started without a standard input or output.
        text = read_prompt(prompt, sys.stdin.buffer if sys.stdin else io.BytesIO())
        if prompt is not None and os.path.isfile(prompt):
            say(f"the prompt is the name of a file; for its text write @{prompt}")
        shown_tests = tuple(given or example_tests(text))
        attacks = tuple(security_tests)
        problems = [Problem("prompt", text, tests=shown_tests, security_tests=attacks, language=language)]
    config = replace(config, max_tokens=config.max_tokens or spec.max_tokens())
    sampling = config.sampling(tuple(map(unescaped, stops)))
    warn_of_level(config.sandbox)
    check_runtime([spec], config, say)
    if note := note_on(spec):
        say(note)
    with (
        Scorer(sandbox=config.sandbox) as scorer,
        opened(spec, config, thinking=config.thinking, reuses_prefixes=repairs > 0) as (runtime, format),
    ):
        if jsonl is not None:
            is_accepted = _answer_all(runtime, scorer, problems, n, sampling, repairs, format)
        else:
            started = time.monotonic()
            with _draft(n == 1 and data.is_terminal and talk.is_terminal) as shown:
                (found,) = answer_and_repair(runtime, scorer, problems, n, sampling, repairs, shown, format)
            verdict = found.verdict("tests" if given else "examples in the prompt")
            spent = f"{found.tokens} tokens in {duration(time.monotonic() - started)}"
            by = ""
            if model is None:  # then the line names the chosen one
                is_built_in = spec.source in BUILT_IN
                by = f", by {f'the built-in {spec.label} (train your own: sce train)' if is_built_in else spec.label}"
            say(f"{verdict}, seed {sampling.seed}, {spent}{by}")
            for line in [] if found.best.is_accepted else about_failure(scorer, problems[0], found.best.score):
                say(f"  {escape_controls(line)}")
            if language == PYTHON.name and "#include <" in found.best.completion.text:
                say("this looks like C: with --language c, it is compiled and run as such")
            _print_program(found.best.completion.text if code_only is False else found.best.score.program)
            is_accepted = found.accepted > 0
    if not is_accepted:
        raise click.exceptions.Exit(1)


def _answer_all(
    runtime: Runtime,
    scorer: Scorer,
    problems: list[Problem],
    n: int,
    sampling: Sampling,
    repairs: int,
    format: PromptFormat,
) -> bool:
    """Answer many prompts, one JSON line each; return whether all have a program that passed."""
    accepted, width = 0, max(1, _SAMPLES_TOGETHER // n)
    with track(len(problems), "prompts", lines=False) as progress:
        for start in range(0, len(problems), width):
            group = problems[start : start + width]
            of_group = replace(sampling, seed=batch_seed(sampling.seed, start))
            for found in answer_and_repair(runtime, scorer, group, n, of_group, repairs, None, format):
                click.echo(json.dumps({**found.to_record(), "seed": sampling.seed}))
                accepted += found.accepted > 0
                progress.update(1, f"{accepted} passed")
    say(f"{accepted} of {len(problems)} prompts have a program that passed its checks, seed {sampling.seed}")
    return accepted == len(problems)


def _print_program(text: str) -> None:
    """Print a program: unchanged to a pipe, with escaped control characters to a terminal."""
    if text and sys.stdout:
        shown = escape_controls(text) if data.is_terminal else text
        # Not click.echo, which would remove escape sequences from a program's text.
        sys.stdout.write(shown if shown.endswith("\n") else f"{shown}\n")
        sys.stdout.flush()


@contextlib.contextmanager
def _draft(is_wanted: bool) -> Iterator[OnToken | None]:
    """Show the text on stderr while it is decoded; it disappears when the checked program is printed."""
    if not is_wanted:
        yield None
        return
    from rich.live import Live
    from rich.text import Text

    written: list[str] = []
    with Live(console=talk, transient=True, refresh_per_second=12) as live:

        def show(_prompt: int, _sample: int, text: str) -> None:
            written.append(text)
            lines = escape_controls("".join(written)).split("\n")
            live.update(Text("\n".join(lines[-max(1, talk.height - 2) :]), style="dim"))

        yield show
