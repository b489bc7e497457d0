"""Reading a body: JSON, and fields of the right type within their bounds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from securecoderl_edge.serving.faults import Fault, invalid
from securecoderl_edge.serving.serve_settings import LONGEST_STOP, MAX_STOPS

_LARGEST, _MOST_DIGITS = 1e6, 400


def read_body(content: bytes) -> dict[str, Any]:
    """The JSON object in a body, which may begin with a byte order mark.

    Raises:
        Fault: it is not one, names a key twice, or holds text that is not Unicode.
    """
    try:
        body = json.loads(
            content.decode("utf-8-sig"),
            parse_int=_integer_of,
            parse_float=_float_of,
            parse_constant=_refuse_constant,
            object_pairs_hook=_without_repetition,
        )
        json.dumps(body, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise invalid(None, f"the body is not valid JSON ({str(error)[:120]})", code="invalid_json") from None
    if not isinstance(body, dict):
        raise invalid(None, "the body must be a JSON object", code="invalid_json")
    return body


def boolean(body: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """A field that is true or false."""
    value = body.get(name, default)
    if not isinstance(value, bool):
        raise invalid(name, "must be true or false")
    return value


def integer(body: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``."""
    value = body.get(name, default)
    if isinstance(value, float) and value.is_integer():  # languages with one kind of number write 8.0
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise invalid(name, f"must be a whole number from {low} to {high}")
    return value


def number(body: Mapping[str, Any], name: str, default: float, largest: float = _LARGEST) -> float:
    """A number of at most this size."""
    value = body.get(name, default)
    # The bounds keep out NaN, and whole numbers that no float holds.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -largest <= value <= largest:
        raise invalid(name, "must be a number" + (f" from {-largest:g} to {largest:g}" if largest < _LARGEST else ""))
    return float(value)


def text(body: Mapping[str, Any], name: str) -> str:
    """A text, empty if it is missing."""
    value = body.get(name, "")
    if not isinstance(value, str):
        raise invalid(name, "must be text")
    return value


def stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The field ``stop``: a text or a list of them; empty ones stop nothing."""
    found = body.get("stop", [])
    found = [found] if isinstance(found, str) else found
    if not isinstance(found, list) or not all(isinstance(stop, str) and len(stop) <= LONGEST_STOP for stop in found):
        raise invalid("stop", f"must be a text of at most {LONGEST_STOP} characters, or a list of them")
    if len(found) > MAX_STOPS:
        raise invalid("stop", f"must be at most {MAX_STOPS} texts")
    return tuple(filter(None, found))


def unsupported(name: str, why: str) -> Fault:
    """The fault of a field that this server, or its model, cannot honour."""
    return invalid(name, why, code="unsupported_parameter")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. A proxy that checks requests may read the other one of two values with one key."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("an object has the same key twice")
    return record


def _integer_of(digits: str) -> int:
    """A number of a request; reading long ones would keep the others waiting."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError("a number has too many digits")
    return int(digits)


def _float_of(digits: str) -> float:
    """A number of a request; an infinite one could not be written as JSON again."""
    if math.isinf(found := float(digits)):
        raise ValueError("a number is too large")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
