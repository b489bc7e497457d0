"""All families of starter problems, in a fixed order."""

from family import Family

from families import (
    arithmetic,
    choices,
    commands,
    derived,
    firmware_buffers,
    firmware_bytes,
    firmware_signals,
    firmware_timing,
    from_runs,
    from_tables,
    from_words,
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

# The numbers stand in the input, or one plain expression away from it.
PLAIN_LISTS: tuple[Family, ...] = (*lists.FAMILIES, *derived.FAMILIES)
OTHERS: tuple[Family, ...] = (
    *from_words.FAMILIES,
    *from_tables.FAMILIES,
    *from_runs.FAMILIES,
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
GENERAL: tuple[Family, ...] = (*PLAIN_LISTS, *OTHERS)
SECURITY: tuple[Family, ...] = security.FAMILIES
HARD: tuple[Family, ...] = hard.FAMILIES
# Only for C: what firmware does with samples, bytes and events.
FIRMWARE: tuple[Family, ...] = (
    *firmware_buffers.FAMILIES,
    *firmware_bytes.FAMILIES,
    *firmware_signals.FAMILIES,
    *firmware_timing.FAMILIES,
)
