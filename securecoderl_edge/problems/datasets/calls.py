"""Recorded calls of a function, as assertions on it."""

from __future__ import annotations

import math
import re
from typing import Any


def call_assertion(call: str, arguments: list[Any], expected: Any) -> str:
    """``assert call(arguments) == expected`` in literals.

    Raises:
        ValueError: a value has no literal that equals it (NaN, infinity).
    """
    return f"assert {call}({', '.join(literal(argument) for argument in arguments)}) == {literal(expected)}"


def literal(value: Any) -> str:
    """The Python literal of a decoded JSON value.

    Raises:
        ValueError: the value has no literal.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} has no Python literal")
    if isinstance(value, (list, tuple)):
        items = ", ".join(literal(item) for item in value)
        return f"[{items}]" if isinstance(value, list) else f"({items}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
    if value is not None and not isinstance(value, (str, int, float)):
        raise ValueError(f"a {type(value).__name__} has no Python literal")
    return repr(value)


def restore_integer_keys(value: Any) -> Any:
    """Convert the keys of dictionaries to integers, which JSON does not allow, if all of them look like integers."""
    if isinstance(value, list):
        return [restore_integer_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    restored = {key: restore_integer_keys(item) for key, item in value.items()}
    if not all(re.fullmatch(r"0|-?[1-9][0-9]{0,99}", key) for key in restored):
        return restored
    return {int(key): item for key, item in restored.items()}
