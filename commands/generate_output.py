"""What ``sce generate`` shows: what is going on, then the program and why it fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import data, say, talk
from securecoderl_edge.generation.answering import Watcher
from securecoderl_edge.languages.language import LANGUAGES, PYTHON
from securecoderl_edge.text import counted, escape_controls

if TYPE_CHECKING:
    from rich.console import RenderableType

    from securecoderl_edge.generation.answers import Answer, Candidate
    from securecoderl_edge.scoring.scorer import Scorer


class Activity(Watcher):
    """What is going on, for a terminal: the text of a single program as it is decoded, and a line that counts.

    Args:
        n: programs per round.
        has_text: whether the text is shown.
    """

    def __init__(self, n: int, has_text: bool) -> None:
        from rich.spinner import Spinner

        self._n, self._has_text = n, has_text
        self._spinner = Spinner("dots")
        self._stage = ""
        self._written: list[str] = []
        self._pieces, self._first = 0, 0.0
        self._checked = self._passed = 0

    def stage(self, text: str) -> None:
        """Begin a stage, such as "loading the model"."""
        self._stage = text

    def token(self, prompt: int, sample: int, text: str) -> None:
        """A piece of text, about a token."""
        self._stage = ""
        self._first = self._first or time.monotonic()
        self._pieces += 1
        if self._has_text:
            self._written.append(text)

    def check(self, candidate: Candidate) -> None:
        """A candidate is checked."""
        self._checked += 1
        self._passed += candidate.is_accepted

    def repair(self, faults: list[str]) -> None:
        """Show the faults, and begin a round."""
        _reject(faults)
        self._written, self._pieces, self._first, self._checked, self._passed = [], 0, 0.0, 0, 0

    def compare(self, programs: int) -> None:
        """The comparison is a stage."""
        self.stage(f"comparing {programs} programs")

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        self._spinner.update(text=Text(f" {self._line()}", overflow="ellipsis", no_wrap=True))
        lines = escape_controls("".join(self._written)).split("\n")[-max(1, talk.height - 3) :]
        return Group(Text("\n".join(lines), style="dim"), self._spinner) if self._written else self._spinner

    def _line(self) -> str:
        if self._stage:
            return self._stage
        speed = self._pieces / max(time.monotonic() - self._first, 0.1)
        checked = f", {self._checked} checked, {self._passed} passed" if self._checked else ""
        return f"{counted(self._n, 'program')}, {self._pieces} tokens, {speed:.0f} tokens/s{checked}"


class _Plain(Watcher):
    """Without a terminal: only the faults of what is repaired."""

    def repair(self, faults: list[str]) -> None:
        """Show the faults."""
        _reject(faults)


@contextlib.contextmanager
def activity(n: int, stage: str) -> Iterator[Watcher]:
    """Show on a terminal what is going on, at first a stage; it disappears at the end."""
    if not talk.is_terminal:
        yield _Plain()
        return
    from rich.live import Live

    shown = Activity(n, has_text=n == 1 and data.is_terminal)
    shown.stage(stage)
    with Live(shown, console=talk, transient=True, refresh_per_second=12):
        yield shown


def _reject(faults: list[str]) -> None:
    say("rejected; the model is asked to repair it", "red")
    show_faults(faults)


def show_faults(lines: Iterable[str]) -> None:
    """Show on stderr why a program fails; the lines may have its output."""
    for line in lines:
        say(f"  {escape_controls(line)}")


def style_of(answer: Answer) -> str:
    """The color of its verdict."""
    if not answer.accepted:
        return "red"
    return "green" if answer.best.is_tested else "yellow"


def show_answer(answer: Answer, scorer: Scorer, *, is_raw: bool) -> None:
    """Print the best program, or its completion, and on stderr why it fails."""
    from securecoderl_edge.scoring.explain import about_failure

    best = answer.best
    show_faults([] if best.is_accepted else about_failure(scorer, answer.problem, best.score))
    if answer.problem.language == PYTHON.name and "#include <" in best.completion.text:
        say("this looks like C: with --language c, it is compiled and run as such")
    _print_program(best.completion.text if is_raw else best.score.program, "" if is_raw else answer.problem.language)


def _print_program(text: str, language: str) -> None:
    """Print a program: unchanged to a pipe; to a terminal in colors, with escaped control characters."""
    if not text:
        return
    if data.is_terminal and language:
        from rich.syntax import Syntax

        shown = escape_controls(text).strip("\n")
        data.print(Syntax("", LANGUAGES[language].fence, theme="ansi_dark").highlight(shown), soft_wrap=True, end="")
        return
    shown = escape_controls(text) if data.is_terminal else text
    # With color: else escape sequences would be removed from a program's text.
    click.echo(shown, nl=not shown.endswith("\n"), color=True)
