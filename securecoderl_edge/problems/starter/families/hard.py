"""Families of longer problems, in which a reward for passing all tests is rare."""

from __future__ import annotations

from securecoderl_edge.problems.starter.families import hard_levels, hard_numbers, hard_tables, hard_words
from securecoderl_edge.problems.starter.family import Family

FAMILIES: tuple[Family, ...] = (
    *hard_numbers.FAMILIES,
    *hard_levels.FAMILIES,
    *hard_tables.FAMILIES,
    *hard_words.FAMILIES,
)
