"""``sce generate``: programs for prompts, tested and scanned before they are printed."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import duration, say, track, warn_of_level
from securecoderl_edge.commands.generate_edit import edit
from securecoderl_edge.commands.generate_flags import GenerateFlags
from securecoderl_edge.commands.generate_output import activity, show_answer, style_of
from securecoderl_edge.commands.names import PATH
from securecoderl_edge.commands.options import Integer, adapter_option, examples, gathered, model_option, options_from
from securecoderl_edge.errors import UsageError
from securecoderl_edge.generation.answering import Answerer
from securecoderl_edge.generation.inputs import given_tests, prompt_problem, read_prompt, read_requests
from securecoderl_edge.languages.language import LANGUAGE_NAMES
from securecoderl_edge.models.catalog import DEFAULT_PULL
from securecoderl_edge.models.files import BUILT_IN
from securecoderl_edge.models.stored import pulled
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.runtimes.adapted import resolve_adapted
from securecoderl_edge.runtimes.opening import RuntimeSettings, check_runtime, note_on, opened
from securecoderl_edge.runtimes.protocol import MAX_SAMPLES, SamplingSettings, batch_seed
from securecoderl_edge.system.files import standard_input
from securecoderl_edge.text import unescaped

if TYPE_CHECKING:
    from securecoderl_edge.runtimes.spec import ModelSpec

# Prompts of one file are decoded in groups; the results of a group are written before the next one begins.
_SAMPLES_TOGETHER = 64


@dataclass(frozen=True)
class GenerateSettings(RuntimeSettings, SamplingSettings):
    """How a model is computed, asked and sampled."""


@click.command(
    epilog=examples(
        'sce generate "Write a function is_prime(n)." -n 4 --assert "is_prime(7)"',
        'sce generate -m nano "Read two integers and print their sum." --test "in=1 2\\n,out=3\\n"',
        'sce generate --edit shop.py "Round total() to cents." --tests test_shop.py',
        "sce generate @prompt.txt --code-only > program.py",
    )
)
@click.argument("prompt", required=False, metavar="[PROMPT|-|@FILE]")
@model_option
@adapter_option
@click.option(
    "-n",
    "n",
    type=Integer(1, MAX_SAMPLES),
    default=1,
    show_default=True,
    help="Programs to sample; the best one is printed.",
)
@click.option(
    "--language",
    type=click.Choice(LANGUAGE_NAMES),
    help="Language of the program.  [default: that of the model]",
)
@click.option(
    "--tests",
    "tests_file",
    type=PATH,
    help="File of tests: JSON, JSONL, or a text with assertions or examples; with --edit also Python.",
)
@click.option(
    "--test",
    "tests",
    multiple=True,
    metavar="in=..,out=..",
    help="A test: input and expected output; \\n is a line break. May be repeated.",
)
@click.option(
    "--assert",
    "assertions",
    multiple=True,
    metavar="EXPRESSION",
    help='A test of a function: "is_prime(7)" or "f(2) == 4". May be repeated.',
)
@click.option("--hide-tests", "hides_tests", is_flag=True, help="Do not show the tests to the model.")
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
@click.option("--jsonl", type=PATH, help="File of prompts, one JSON object per line; - for standard input.")
@click.option("--edit", type=PATH, help="Python file to change as PROMPT asks; prints a diff.")
@click.option("--write", is_flag=True, help="With --edit: write the file, if the best edit passes its checks.")
@gathered(GenerateFlags, "flags")
def generate(config: GenerateSettings, flags: GenerateFlags) -> None:
    """Generate a program for a prompt; test and scan it before printing it.

    PROMPT is a text, @FILE, or - (the default in a pipe) for standard input. The program is parsed, scanned with
    Bandit (a program in C: with static analyzers and sanitizers), and run in the sandbox on the tests: those of --test,
    --assert and --tests, else the examples in the prompt. Of several programs that no test tells apart, the one is
    chosen that agrees with most others on further inputs. The program goes to stdout, the verdict to stderr. Exit code
    1 if no program passes its checks.

    With --jsonl FILE, each line of FILE is {"prompt": ...} or a problem record. Each output line is a JSON object with
    the best program, its completion and its score.

    With --edit FILE, PROMPT is a change of a Python file. The model writes whole functions, which replace those of a
    copy. --tests FILE can then also be a Python file of tests, as for pytest, which runs in the sandbox.
    """
    from securecoderl_edge.scoring.scorer import Scorer

    if flags.edit is not None or flags.write:
        edit(config, config, flags)
        return
    if flags.jsonl is not None and (flags.prompt is not None or flags.tests or flags.assertions or flags.tests_file):
        raise UsageError("--jsonl FILE has its own prompts and tests. Leave out PROMPT and the options of tests.")
    if flags.jsonl is not None and flags.code_only is not None:
        raise UsageError("--code-only and --raw have no effect with --jsonl: each line has both fields.")
    spec = resolve_adapted(flags.model, flags.adapter, flags.language)
    language = flags.language or spec.language()
    given = given_tests(flags.tests_file, flags.tests, flags.assertions)
    stdin = standard_input()
    if flags.jsonl is not None:
        problems = read_requests(flags.jsonl, language, stdin)
    else:
        text = read_prompt(flags.prompt, stdin)
        if flags.prompt is not None and os.path.isfile(flags.prompt):
            say(f"the prompt is the name of a file; for its text write @{flags.prompt}")
        problems = [prompt_problem(text, language, given)]
    config = replace(config, max_tokens=config.max_tokens or spec.max_tokens())
    sampling = config.sampling(tuple(map(unescaped, flags.stops)))
    warn_of_level(config.sandbox)
    check_runtime([spec], config, say)
    if note := note_on(spec):
        say(note)
    with Scorer(sandbox=config.sandbox) as scorer:
        model = opened(spec, config, thinking=config.thinking, reuses_prefixes=flags.repairs > 0)
        if flags.jsonl is not None:
            with model as (runtime, format):
                format = replace(format, shows_tests=not flags.hides_tests)
                answerer = Answerer(runtime, scorer, flags.n, sampling, format)
                is_accepted = _answer_all(answerer, problems, flags.repairs)
        else:
            started = time.monotonic()
            with activity(flags.n, f"loading {spec.label}") as shown, model as (runtime, format):
                format = replace(format, shows_tests=not flags.hides_tests)
                answerer = Answerer(runtime, scorer, flags.n, sampling, format, shown)
                (answer,) = answerer.answer(problems, flags.repairs)
            spent = f"seed {sampling.seed}, {answer.tokens} tokens in {duration(time.monotonic() - started)}"
            by = _chosen(spec) if flags.model is None else ""
            tests = "tests" if given.tests or given.assertions else "examples in the prompt"
            say(f"{answer.verdict(tests)}, {spent}{by}", style_of(answer))
            show_answer(answer, scorer, is_raw=flags.code_only is False)
            is_accepted = answer.accepted > 0
    if not is_accepted:
        raise click.exceptions.Exit(1)


def _chosen(spec: ModelSpec) -> str:
    """The model in words, if the user named none."""
    if spec.source not in BUILT_IN:
        return f", by {spec.label}"
    too_large = f"{', '.join(pulled())} would not fit the free memory"
    hint = too_large if pulled() else f"for a better one: sce models pull {DEFAULT_PULL}"
    return f", by the built-in {spec.label}, a toy; {hint}"


def _answer_all(answerer: Answerer, problems: list[Problem], repairs: int) -> bool:
    """Answer many prompts, one JSON line each; return whether all have a program that passed."""
    accepted, width, sampling = 0, max(1, _SAMPLES_TOGETHER // answerer.n), answerer.sampling
    with track(len(problems), "prompts", lines=False) as progress:
        for start in range(0, len(problems), width):
            group = problems[start : start + width]
            of_group = replace(sampling, seed=batch_seed(sampling.seed, start))
            for answer in replace(answerer, sampling=of_group).answer(group, repairs):
                click.echo(json.dumps({**answer.to_record(), "seed": sampling.seed}))
                accepted += answer.accepted > 0
                progress.update(1, f"{accepted} passed")
    say(f"{accepted} of {len(problems)} prompts have a program that passed its checks, seed {sampling.seed}")
    return accepted == len(problems)
