"""Which parameters of a test `make test` runs; `make test-all` runs them all."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def few(values: Iterable[object], *quick: object) -> list[object]:
    """The values as parameters of a test: all but the ``quick`` ones are slow."""
    values = list(values)
    assert all(value in values for value in quick), "an unknown value would leave none that is quick"
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
