"""Fields of an imported JSON record, with type checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from securecoderl_edge.problems.datasets.tally import DropRecord


def first_of(record: dict[str, Any], names: Sequence[str]) -> Any:
    """The value under the first of the names that has one."""
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def given_id(record: dict[str, Any], names: Sequence[str]) -> str | None:
    """The text or number under the first of the names that has a value; None without one."""
    value = first_of(record, names)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    return str(value).strip() or None


def check_pairs(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Check that every input has its output.

    Raises:
        DropRecord: there are none, or their numbers differ.
    """
    if not inputs or not outputs:
        raise DropRecord("no tests")
    if len(inputs) != len(outputs):
        raise DropRecord("different numbers of inputs and outputs")
