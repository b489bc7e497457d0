"""Variants of one task, recognized by the structure of their reference solutions."""

from __future__ import annotations

import ast
from collections import Counter

from securecoderl_edge.languages.python_source import parse

_SIMILARITY = 0.5
# Of each group the oldest and the newest are compared: variants follow one another, with strays in between.
_COMPARED = 4

_Structure = Counter[tuple[str, ...]]


class Variants:
    """Groups of programs, in the order in which they come.

    A program joins the group with the most similar program of the same kind, if the Jaccard similarity of their
    structures is at least 0.5. A structure is the multiset of three neighboring nodes of the syntax tree; names do not
    count, except those of attributes.
    """

    def __init__(self) -> None:
        self._groups: dict[str, list[list[_Structure]]] = {}

    def group_of(self, kind: str, program: str) -> int:
        """The number of the program's group among those of its kind."""
        own = _structure(program)
        groups = self._groups.setdefault(kind, [])
        nearest = max(
            (
                ((own & other).total() / max(1, (own | other).total()), number)
                for number, group in enumerate(groups)
                for other in group[:_COMPARED] + group[_COMPARED:][-_COMPARED:]
            ),
            default=(0.0, 0),
        )
        if nearest[0] < _SIMILARITY:
            groups.append([own])
            return len(groups) - 1
        groups[nearest[1]].append(own)
        return nearest[1]


def _structure(program: str) -> _Structure:
    nodes = [
        type(node).__name__ + (node.attr if isinstance(node, ast.Attribute) else "")
        for node in ast.walk(parse(program) or ast.Module([], []))
    ]
    return Counter(zip(nodes, nodes[1:], nodes[2:], strict=False))
