"""Problem -> prompt.

One template serves supervised training, reinforcement learning, bench and generate: a model that was trained
on one prompt and measured on another is measured on the difference between them.
"""

from __future__ import annotations

from securecoderl_edge.problems import Problem
from securecoderl_edge.text import replace_surrogates

PROBLEM_HEADING, SOLUTION_HEADING = "### Problem", "### Solution"
# A line that starts with one of these opens a section of our own template: the program has ended before it.
STOP_MARKERS = (PROBLEM_HEADING, SOLUTION_HEADING)


def format_prompt(problem: Problem) -> str:
    """The text a model continues; the program is to follow it directly."""
    return format_statement(problem.statement, problem.starter_code)


def format_statement(statement: str, starter_code: str = "") -> str:
    """`format_prompt` for a statement that comes without a problem record, as in ``sce generate``."""
    given_code = starter_code.rstrip().lstrip("\r\n")
    given = f"\n\n### Given code\n{given_code}" if given_code else ""
    return replace_surrogates(f"{PROBLEM_HEADING}\n{statement.strip()}{given}\n\n{SOLUTION_HEADING}\n")
