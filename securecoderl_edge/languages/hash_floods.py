"""Sets and dictionaries whose items have the same hash: to make one of n of them takes the square of n."""

from __future__ import annotations

import ast
from collections import Counter
from contextlib import suppress
from operator import itemgetter
from typing import Any

# Of one hash: a set with more was made to be slow. Texts so long have too few to matter.
_MOST_ALIKE, _SHORT = 64, 1 << 14


def spread(items: list[Any]) -> list[Any]:
    """The items of a set or the keys of a dictionary.

    Raises:
        ValueError: many of them have the same hash.
    """
    commonest, count = max(Counter(map(hash, items)).items(), key=itemgetter(1), default=(0, 0))
    if count > _MOST_ALIKE and len({repr(item) for item in items if hash(item) == commonest}) > _MOST_ALIKE:
        raise ValueError("items with the same hash")
    return items


def without_floods(source: str, tree: Any) -> Any:
    """The syntax tree of a text.

    Raises:
        ValueError: it has a literal of many items with the same hash.
    """
    if len(source) <= _SHORT or ("{" not in source and "set" not in source):
        return tree
    unhashable = set[ast.expr]()
    for node in reversed(list(ast.walk(tree))):  # what is inside first: to evaluate it could take long by itself
        items: list[ast.expr] = []
        match node:
            case ast.Tuple(elts=parts) if not unhashable.isdisjoint(parts):
                unhashable.add(node)
            case ast.List():
                unhashable.add(node)
            case ast.Set(elts=items):
                unhashable.add(node)
            case ast.Dict(keys=keys):
                unhashable.add(node)
                items = [each for each in keys if each is not None]
            case ast.Call(ast.Name("set" | "frozenset"), [ast.List(elts=items) | ast.Tuple(elts=items)]):
                pass
        if len(items) > _MOST_ALIKE:
            spread([value for each in items if each not in unhashable for value in _hashable(each)])
    return tree


def _hashable(node: ast.expr) -> list[Any]:
    """The value of an item that is a literal."""
    with suppress(ValueError, TypeError, RecursionError):
        value = ast.literal_eval(node)
        hash(value)
        return [value]
    return []
