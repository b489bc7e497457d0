"""Select problems whose prompts fit into a model's context; truncate or drop the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.styles import PromptFormat

# Replaces the end of a truncated statement.
CUT = "[...]"


@dataclass(frozen=True)
class Fitted:
    """Problems whose prompts fit.

    Attributes:
        cut: number of problems with a truncated statement.
        left_out: number of dropped problems, which did not fit.
    """

    problems: tuple[Problem, ...]
    cut: int = 0
    left_out: int = 0


def fit_problem(
    problem: Problem, format: PromptFormat, count_tokens: Callable[[str], int], room: int
) -> Problem | None:
    """The problem with a prompt of at most ``room`` tokens: unchanged, or with its statement truncated at a word.

    Returns:
        None if even the prompt without a statement is too long.
    """
    if fits(format.prompt(problem), count_tokens, room):
        return problem
    words = list(re.finditer(r"\S+", problem.statement))
    fitting, kept, too_many = None, -1, len(words)
    while too_many - kept > 1:
        middle = (kept + too_many) // 2
        shorter = replace(problem, statement=f"{problem.statement[: words[middle].start()]}{CUT}")
        if fits(format.prompt(shorter), count_tokens, room):
            fitting, kept = shorter, middle
        else:
            too_many = middle
    return fitting


def fit_problems(
    problems: Sequence[Problem], format: PromptFormat, count_tokens: Callable[[str], int], room: int, overlong: str
) -> Fitted:
    """Select the problems whose prompts have at most ``room`` tokens.

    Args:
        overlong: ``drop`` drops the others, ``truncate`` truncates their statements.
    """
    fitting, cut = [], 0
    for problem in problems:
        fitted = fit_problem(problem, format, count_tokens, room)
        if fitted is not None and (fitted is problem or overlong == "truncate"):
            fitting.append(fitted)
            cut += fitted is not problem
    return Fitted(tuple(fitting), cut, len(problems) - len(fitting))


def fits(text: str, count_tokens: Callable[[str], int], room: int) -> bool:
    """Whether a text has at most ``room`` tokens; short texts need no tokenizer."""
    # The supported tokenizers make at most one token per byte, plus a start and an end token.
    return len(text.encode("utf-8")) + 2 <= room or count_tokens(text) <= room
