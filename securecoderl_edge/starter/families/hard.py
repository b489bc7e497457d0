"""Families of longer problems, in which a reward for passing all tests is rare."""

from __future__ import annotations

from securecoderl_edge.starter.families import hard_groups, hard_logs, hard_records, hard_state
from securecoderl_edge.starter.family import Family

FAMILIES: tuple[Family, ...] = (
    *hard_groups.FAMILIES,
    *hard_records.FAMILIES,
    *hard_state.FAMILIES,
    *hard_logs.FAMILIES,
)
