"""Families of longer problems, in which a reward for passing all tests is rare."""

from __future__ import annotations

from family import Family

from families import hard_levels, hard_numbers, hard_tables, hard_words

FAMILIES: tuple[Family, ...] = (
    *hard_numbers.FAMILIES,
    *hard_levels.FAMILIES,
    *hard_tables.FAMILIES,
    *hard_words.FAMILIES,
)
