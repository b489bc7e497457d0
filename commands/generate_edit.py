"""``sce generate --edit``: a change of a Python file, tested before its diff is shown, written only if asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import data, duration, say, warn_of_level
from securecoderl_edge.commands.generate_output import activity, show_faults, style_of
from securecoderl_edge.errors import UsageError
from securecoderl_edge.generation.edited_file import EditedFile, read_edited_file
from securecoderl_edge.generation.examples import Examples
from securecoderl_edge.generation.inputs import given_tests, prompt_problem, read_prompt
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.test_file import read_test_file
from securecoderl_edge.runtimes.adapted import resolve_adapted
from securecoderl_edge.runtimes.opening import RuntimeSettings, check_runtime, note_on, opened
from securecoderl_edge.runtimes.protocol import SamplingSettings
from securecoderl_edge.system.files import standard_input
from securecoderl_edge.text import escape_controls, unescaped

if TYPE_CHECKING:
    from securecoderl_edge.commands.generate_flags import GenerateFlags
    from securecoderl_edge.generation.answers import Answer
    from securecoderl_edge.scoring.scorer import Scorer

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def edit(config: RuntimeSettings, sampled: SamplingSettings, flags: GenerateFlags) -> None:
    """Change a file as the prompt asks; print the diff and the verdict.

    Raises:
        UsageError: the request cannot be served, as a whole.
        SceError: the tests cannot run, or the model or the sandbox failed.
        click.exceptions.Exit: no edit passed its checks.
    """
    from securecoderl_edge.generation.answering import Answerer
    from securecoderl_edge.generation.editing import edit_and_repair, edit_task
    from securecoderl_edge.scoring.scorer import Scorer

    if flags.edit is None:
        raise UsageError("--write needs --edit FILE.")
    if flags.jsonl is not None or flags.code_only is not None:
        raise UsageError("--edit prints the diff of one file. Leave out --jsonl, --raw and --code-only.")
    if flags.hides_tests:
        raise UsageError("--edit never shows the tests to the model. Leave out --hide-tests.")
    if flags.language not in (None, PYTHON.name):
        raise UsageError("--edit changes Python files only. Leave out --language.")
    instruction = read_prompt(flags.prompt, standard_input(), f"the change of {flags.edit}")
    file = read_edited_file(flags.edit)
    problem = _problem(file, flags)
    spec = resolve_adapted(flags.model, flags.adapter, PYTHON.name)
    sampling = sampled.sampling(tuple(map(unescaped, flags.stops)))
    warn_of_level(config.sandbox)
    check_runtime([spec], config, say)
    if note := note_on(spec):
        say(note)
    with Scorer(sandbox=config.sandbox) as scorer:
        task = edit_task(scorer, file, instruction, problem)
        if parse(file.text) is None:
            say(f"before the edit: {file.path} does not parse")
        elif problem.test_count:
            say(f"before the edit: passed {task.before.passed}/{task.before.total} tests")
        model = opened(spec, config, thinking=sampled.thinking, reuses_prefixes=flags.repairs > 0)
        started = time.monotonic()
        with activity(flags.n, f"loading {spec.label}") as shown, model as (runtime, format):
            answerer = Answerer(runtime, scorer, flags.n, sampling, format, shown)
            answer = edit_and_repair(answerer, task, flags.repairs, sampled.max_tokens)
        spent = f"{answer.tokens} tokens in {duration(time.monotonic() - started)}"
        by = f", by {spec.label}" if flags.model is None else ""
        say(f"{answer.verdict()}, seed {sampling.seed}, {spent}{by}", style_of(answer))
        _show(answer, scorer, file)
    if not answer.accepted:
        if flags.write:
            say("nothing was written")
        raise click.exceptions.Exit(1)
    if flags.write:
        target = file.write(answer.best.score.program)
        say(f"wrote {target}" + (f", which {file.path} leads to" if file.path.is_symlink() else ""))


def _problem(file: EditedFile, flags: GenerateFlags) -> Problem:
    """The tests of the edit, as a problem without a statement."""
    path = flags.tests_file
    if path is None or path.suffix != PYTHON.suffix:
        given = given_tests(path, flags.tests, flags.assertions)
        return prompt_problem("", PYTHON.name, given, Examples(), id="edit")
    if flags.tests or flags.assertions:
        raise UsageError(f"--test and --assert have no effect with the tests of {path}. Leave them out.")
    tests = read_test_file(path, file.path)
    return Problem("edit", "", kind="call", assertions=tests.tests, test_file=tests)


def _show(answer: Answer, scorer: Scorer, file: EditedFile) -> None:
    """Print the diff of the best edit, if it is a program, and on stderr why it fails."""
    from securecoderl_edge.scoring.explain import about_failure

    best = answer.best
    if best.score.program and not best.is_accepted:
        show_faults(about_failure(scorer, answer.problem, best.score))
    if best.score.program and best.score.parses:
        _print_diff(file.diff(best.score.program))


def _print_diff(text: str) -> None:
    """Print a diff: unchanged to a pipe; to a terminal with colors, and control characters escaped."""
    if not data.is_terminal:
        click.echo(text, nl=False, color=True)
        return
    from rich.text import Text

    for line in text.replace("\r\n", "\n").removesuffix("\n").split("\n"):
        data.print(Text(escape_controls(line), style=_STYLES.get(line[:1], "")), soft_wrap=True)
