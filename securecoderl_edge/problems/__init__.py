"""Problem records and their sources."""

from __future__ import annotations

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.sources import load_problems

__all__ = ["Problem", "Test", "load_problems"]
