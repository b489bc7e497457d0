"""`sce data show` and `sce data stats`: one problem with its prompt; statistics of all problems."""

from __future__ import annotations

import difflib
import json
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import say
from securecoderl_edge.commands.names import PROBLEMS
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.config import JSON_HELP, setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import problem_to_record
from securecoderl_edge.problems.sources import open_problems
from securecoderl_edge.prompts.styles import CHAT_STYLES, OURS, STYLES, PromptFormat
from securecoderl_edge.text import escape_controls

if TYPE_CHECKING:
    from securecoderl_edge.problems.statistics import Spread, Stats
    from securecoderl_edge.runtimes.opening import Reader

_STYLE_HELP = "Prompt style. auto: the style of the model, or stdin without --model."
_MOST_LISTED = 8
_LONGEST_ASSERTION = 2000  # those of EvalPlus have hundreds of inputs


@dataclass(frozen=True)
class ShowConfig:
    """Flags of `sce data show`."""

    model: str | None = setting(
        None, "Count tokens with the tokenizer of this model, and use its prompt style.", metavar="MODEL"
    )
    prompt_style: str = setting("auto", _STYLE_HELP, choices=("auto", *STYLES))
    json: bool = setting(False, JSON_HELP)


@dataclass(frozen=True)
class StatsConfig:
    """Flags of `sce data stats`."""

    model: str | None = setting(None, "Count tokens with the tokenizer of this model.", metavar="MODEL")
    prompt_style: str = setting("auto", _STYLE_HELP, choices=("auto", *STYLES))
    json: bool = setting(False, JSON_HELP)


@click.command(
    short_help="Show a problem with its prompt and tests.",
    epilog=examples("sce data show mbpp:test mbpp-11 --model qwen-0.5b"),
)
@click.argument("file", type=PROBLEMS, metavar="FILE")
@click.argument("problem_id", metavar="ID")
@options_from(ShowConfig)
def show(file: str, problem_id: str, config: ShowConfig) -> None:
    """Show the problem ID of FILE: its prompt, as a model gets it, and its tests.

    FILE may also be starter[:SPLIT], humaneval or mbpp[:SPLIT].
    """
    problems = {problem.id: problem for problem in open_problems(file, sys.maxsize, say)}
    if problem_id not in problems:
        close = difflib.get_close_matches(problem_id, problems, n=1)
        hint = f". Did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"{file} has no problem {problem_id!r}{hint}")
    problem = problems[problem_id]
    with _reader(config.model, config.prompt_style) as reader:
        prompt = reader.format.prompt(problem) if reader else _format(config.prompt_style).prompt(problem)
        tokens = reader.count(prompt) if reader else None
    if config.json:
        counted = {} if tokens is None else {"prompt_tokens": tokens}
        click.echo(json.dumps({**problem_to_record(problem), "prompt": prompt, **counted}))
    else:
        click.echo(escape_controls(_description(problem, prompt, tokens, config.model)))


@click.command(
    short_help="Show statistics of a problem file.", epilog=examples("sce data stats mine.jsonl --model qwen-0.5b")
)
@click.argument("file", type=PROBLEMS, metavar="FILE")
@options_from(StatsConfig)
def stats(file: str, config: StatsConfig) -> None:
    """Show statistics of the problems of FILE (or starter[:SPLIT], humaneval, mbpp[:SPLIT]).

    Kinds, tests, solutions, duplicates and, with --model, lengths in tokens. The constant output is a baseline: how
    many tests pass if a program always prints the same text. Reinforcement learning can exploit such tests.
    """
    from securecoderl_edge.problems.statistics import compute_stats

    if config.model is None and config.prompt_style != "auto":
        raise UsageError("--prompt-style needs --model. Add --model, or leave it out.")
    problems = open_problems(file, sys.maxsize, say)
    with _reader(config.model, config.prompt_style) as reader:
        statistics = compute_stats(problems, reader.lengths(problems) if reader else None)
    if config.json:
        click.echo(json.dumps(asdict(statistics)))
        return
    for name, text in _facts(statistics, config.model).items():
        click.echo(escape_controls(f"{name:18} {text}"))


def _reader(model: str | None, style: str) -> AbstractContextManager[Reader | None]:
    if model is None:
        return nullcontext()
    from securecoderl_edge.runtimes.opening import open_reader
    from securecoderl_edge.runtimes.spec import resolve_model

    return open_reader(resolve_model(model), style)


def _format(style: str) -> PromptFormat:
    if style in CHAT_STYLES:
        raise UsageError(f"--prompt-style {style} needs the chat template of a model. Add --model.")
    return OURS if style == "auto" else PromptFormat(style)


def _description(problem: Problem, prompt: str, tokens: int | None, model: str | None) -> str:
    facts = {
        "id": problem.id,
        "kind": problem.kind,
        "language": "" if problem.language == PYTHON.name else problem.language,
        "target": problem.target,
        "budget": str(problem.budget),
        "source": problem.source,
        "difficulty": problem.difficulty,
        "tags": ", ".join(problem.tags),
        "time limit": f"{problem.time_limit_s:g} s" if problem.time_limit_s else "",
        "solutions": str(len(problem.solutions)),
        "insecure solutions": str(len(problem.insecure_solutions) or ""),
    }
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    lines += ["", "--- prompt" + (f": {tokens} tokens of {model}" if tokens is not None else ""), prompt.rstrip("\n")]
    if problem.driver:
        lines += ["", "--- driver, compiled after the answer", problem.driver.rstrip("\n")]
    for number, test in enumerate(problem.tests, 1):
        lines += ["", f"--- test {number}: input", test.input.rstrip("\n")]
        lines += [f"--- test {number}: expected output", test.output.rstrip("\n")]
    for number, assertion in enumerate(problem.assertions, 1):
        lines += ["", f"--- test {number}", _shortened(assertion)]
    for number, each in enumerate(problem.security_tests, 1):
        title = f"--- security test {number} (CWE-{each.cwe}, {each.name})"
        if each.assertion:
            lines += ["", title, _shortened(each.assertion)]
            continue
        lines += ["", f"{title}: input", each.input.rstrip("\n")]
        judged = "text that must not be printed" if each.forbidden else "expected output"
        lines += [f"--- security test {number}: {judged}", (each.forbidden or each.output).rstrip("\n")]
    return "\n".join(lines)


def _shortened(assertion: str) -> str:
    more = len(assertion) - _LONGEST_ASSERTION
    return assertion if more <= 0 else f"{assertion[:_LONGEST_ASSERTION]} ... ({more} more characters)"


def _facts(counts: Stats, model: str | None) -> dict[str, str]:
    half, every = (f"{count} of {counts.problems}" for count in (counts.constant_half, counts.constant_all))
    facts = {
        "problems": f"{counts.problems}: {_listed(counts.kinds)}",
        "sources": _listed(counts.sources),
        "difficulty": _listed(counts.difficulties),
        "tests per problem": _spread(counts.tests),
        "solutions": f"{_spread(counts.solutions)}; {counts.without_solution} problems without",
        "duplicates": f"{counts.equal_statements} statements repeat an earlier one; {_near(counts)}",
        "constant output": (
            f"passes {counts.constant_share:.1%} of the tests (mean over problems), at least half of them in {half} "
            f"problems, all of two or more in {every}"
        ),
    }
    if counts.lengths is not None:
        lengths = counts.lengths
        facts["prompt tokens"] = f"{_spread(lengths.prompts)} (style {lengths.style}, {model})"
        if lengths.context is not None:
            facts["too long"] = f"{lengths.too_long} prompts do not fit the context of {lengths.context} tokens"
        if lengths.solutions is not None:
            facts["solution tokens"] = f"{_spread(lengths.solutions)} (shortest solution of each problem)"
    return facts


def _near(counts: Stats) -> str:
    return f"{counts.near_duplicates} problems have near-duplicates ({counts.groups} groups in all)"


def _spread(spread: Spread) -> str:
    return f"{spread.least} to {spread.most}, p50 {spread.p50}, p90 {spread.p90}, p99 {spread.p99}"


def _listed(counts: dict[str, int]) -> str:
    listed = [f"{count} {name}" for name, count in counts.items()]
    more = [f"{len(listed) - _MOST_LISTED} more kinds"] if len(listed) > _MOST_LISTED else []
    return ", ".join([*listed[:_MOST_LISTED], *more])
