"""Fields of a foreign JSON record, with their types checked."""

from __future__ import annotations

from typing import Any

from securecoderl_edge.datasets.tally import MalformedRecord


def text(record: dict[str, Any], name: str) -> str:
    """The string under ``name``; empty when it is missing or null.

    Raises:
        MalformedRecord: it is something else.
    """
    value = record.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedRecord(f'"{name}" must be a string, found {type(value).__name__}')
    return value


def texts(record: dict[str, Any], name: str) -> list[str]:
    """The list of strings under ``name``; empty when it is missing or null.

    Raises:
        MalformedRecord: it is something else.
    """
    value = record.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise MalformedRecord(f'"{name}" must be a list of strings')
    return value
