"""Problem -> prompt, and completion -> program.

One template serves supervised training, reinforcement learning, bench and generate: a model that was trained
on one prompt and measured on another is measured on the difference between them.
"""

from __future__ import annotations

import re

from securecoderl_edge.problems import Problem
from securecoderl_edge.text import replace_surrogates

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*$", re.MULTILINE)

# A line that starts with one of these opens a section of our own template: the program has ended before it.
STOP_MARKERS = ("### Problem", "### Solution")


def format_prompt(problem: Problem) -> str:
    """The text a model continues; the program is to follow it directly."""
    return format_statement(problem.statement, problem.starter_code)


def format_statement(statement: str, starter_code: str = "") -> str:
    """`format_prompt` for a statement that comes without a problem record, as in ``sce generate``."""
    given_code = starter_code.rstrip().lstrip("\r\n")
    given = f"\n\n### Given code\n{given_code}" if given_code else ""
    return replace_surrogates(f"### Problem\n{statement.strip()}{given}\n\n### Solution\n")


def extract_program(completion: str, mode: str = "auto") -> str:
    """The Python text in a completion.

    ``raw`` takes the completion as it is. ``auto`` takes the first fenced block if there is one (to the end
    of the text when the fence is never closed) and cuts what follows one of our own section headings.

    Raises:
        ValueError: unknown mode.
    """
    if mode == "raw":
        return completion
    if mode != "auto":
        raise ValueError(f"extract mode must be 'auto' or 'raw', not {mode!r}")
    for marker in STOP_MARKERS:
        if completion.startswith(marker):
            return ""
        completion = completion.split(f"\n{marker}", 1)[0]
    opening = _FENCE.search(completion)
    if opening is None:
        return completion
    body = completion[opening.end() + 1 :]
    closing = next((fence for fence in _FENCE.finditer(body) if fence[1].startswith(opening[1])), None)
    return body[: closing.start()] if closing else body
