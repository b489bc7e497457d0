"""What ``sce generate`` shows: the text while it is decoded, then the program and why it fails."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from securecoderl_edge.commands.console import data, say, talk
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.runtimes.protocol import OnToken
from securecoderl_edge.text import escape_controls

if TYPE_CHECKING:
    from securecoderl_edge.generation.answers import Answer
    from securecoderl_edge.scoring.scorer import Scorer


@contextlib.contextmanager
def draft(is_wanted: bool) -> Iterator[OnToken | None]:
    """Show the text on a terminal while it is decoded; it disappears when the checked program is printed."""
    if not (is_wanted and data.is_terminal and talk.is_terminal):
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


def show_answer(answer: Answer, scorer: Scorer, *, is_raw: bool) -> None:
    """Print the best program, or its completion, and on stderr why it fails."""
    from securecoderl_edge.scoring.explain import about_failure

    best = answer.best
    for line in [] if best.is_accepted else about_failure(scorer, answer.problem, best.score):
        say(f"  {escape_controls(line)}")
    if answer.problem.language == PYTHON.name and "#include <" in best.completion.text:
        say("this looks like C: with --language c, it is compiled and run as such")
    _print_program(best.completion.text if is_raw else best.score.program)


def _print_program(text: str) -> None:
    """Print a program: unchanged to a pipe, with escaped control characters to a terminal."""
    if text and sys.stdout:
        shown = escape_controls(text) if data.is_terminal else text
        # Not click.echo, which would remove escape sequences from a program's text.
        sys.stdout.write(shown if shown.endswith("\n") else f"{shown}\n")
        sys.stdout.flush()
