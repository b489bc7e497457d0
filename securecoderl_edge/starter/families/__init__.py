"""All families of starter problems, in a fixed order."""

from securecoderl_edge.starter.families import (
    arithmetic,
    choices,
    commands,
    games,
    groups,
    hard,
    letters,
    lists,
    mappings,
    matrices,
    matrix_shapes,
    parts,
    queries,
    security,
    sorting,
    stacks,
    stepping,
    words,
)
from securecoderl_edge.starter.family import Family

GENERAL: tuple[Family, ...] = (
    *lists.FAMILIES,
    *choices.FAMILIES,
    *parts.FAMILIES,
    *sorting.FAMILIES,
    *words.FAMILIES,
    *letters.FAMILIES,
    *mappings.FAMILIES,
    *groups.FAMILIES,
    *matrices.FAMILIES,
    *matrix_shapes.FAMILIES,
    *arithmetic.FAMILIES,
    *stepping.FAMILIES,
    *stacks.FAMILIES,
    *games.FAMILIES,
    *queries.FAMILIES,
    *commands.FAMILIES,
)
SECURITY: tuple[Family, ...] = security.FAMILIES
HARD: tuple[Family, ...] = hard.FAMILIES
