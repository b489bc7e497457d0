"""Inputs of EvalPlus: their Python types, which JSON does not have, and their source text.

The ids are facts of MBPP+ v0.2.0: its loader restores the same types.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from securecoderl_edge.languages.hash_floods import spread
from securecoderl_edge.problems.datasets.tally import DropRecord

_LONGEST_DECIMAL_BITS = 8192  # Python does not write longer integers as decimals


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _list_of_tuples(value: Any) -> Any:
    return [_tuple(item) for item in value] if isinstance(value, list) else value


def _tuple_of_tuples(value: Any) -> Any:
    return _tuple(_list_of_tuples(value))


def _tuples_all_the_way(value: Any) -> Any:
    return tuple(map(_tuples_all_the_way, value)) if isinstance(value, list) else value


def _list_of_sets(value: Any) -> Any:
    # An empty set is an empty dictionary in the published tests.
    return [set(spread(item)) if isinstance(item, list) and item else {} for item in value]


def _values_to_tuples(value: Any) -> Any:
    return {key: _tuple(item) for key, item in value.items()}


# Ids of MBPP+ problems, the argument that is converted (None: all of them), and how.
_CONVERSIONS: tuple[tuple[str, int | None, Callable[[Any], Any]], ...] = (
    ("2 116 132 143 222 261 273 394 399 421 424 429 470 560 579 596 616 630 726 740 744 809", None, _tuple),
    ("63 64 70 94 120 237 272 299 400 409 417 438 473 614 780", None, _list_of_tuples),
    ("75 413 444 753", 0, _list_of_tuples),
    ("106 750", 1, _tuple),
    ("115", 0, _list_of_sets),
    ("124", 0, float),
    ("124", 1, complex),
    ("250 307 405 446 617 720 763 808", 0, _tuple),
    ("252", 0, complex),
    ("259 278 401 445", None, _tuple_of_tuples),
    ("580 615 791", None, _tuples_all_the_way),
    ("722", 0, _values_to_tuples),
)
_OF_ID = {
    number: [(place, convert) for ids, place, convert in _CONVERSIONS if number in ids.split()]
    for number in {each for ids, _, _ in _CONVERSIONS for each in ids.split()}
}


def with_python_types(number: str, inputs: list[list[Any]]) -> list[list[Any]]:
    """The inputs of the MBPP+ problem ``number`` with the tuples, sets and complex numbers that its function takes.

    Raises:
        DropRecord: an input has another type than the published ones.
    """
    try:
        for place, convert in _OF_ID.get(number, ()):
            inputs = [
                [convert(value) if place in (None, at) else value for at, value in enumerate(arguments)]
                for arguments in inputs
            ]
    except (TypeError, ValueError, AttributeError):
        raise DropRecord("an input has another type than in MBPP+") from None
    return inputs


def source_of(value: Any) -> str:
    """Python source text of a value, also of infinity, NaN and long integers; the same for equal sets."""
    match value:
        case int() if value.bit_length() > _LONGEST_DECIMAL_BITS:
            return hex(value)
        case float() if not math.isfinite(value):
            return "(1e999 - 1e999)" if math.isnan(value) else "1e999" if value > 0 else "-1e999"
        case list():
            return f"[{', '.join(map(source_of, value))}]"
        case tuple():
            return f"({''.join(f'{source_of(item)}, ' for item in value)})"
        case set() if value:
            return f"{{{', '.join(sorted(map(source_of, value)))}}}"
        case dict():
            return f"{{{', '.join(f'{source_of(key)}: {source_of(item)}' for key, item in value.items())}}}"
    return repr(value)


def literal_inputs(tree: ast.AST) -> list[list[Any]] | None:
    """The list that a module assigns to ``inputs``, as in the tests of EvalPlus on Hugging Face; None without one."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id="inputs")], value=value):
                try:
                    found = ast.literal_eval(_Infinities().visit(value))
                except (ValueError, TypeError, RecursionError, MemoryError):
                    return None
                return [list(each) for each in found] if _are_arguments(found) else None
    return None


def _are_arguments(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(each, (list, tuple)) for each in found)


class _Infinities(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        named = {"inf": math.inf, "nan": math.nan}
        return ast.Constant(named[node.id]) if node.id in named else node
