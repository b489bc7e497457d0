"""What tests of exports share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _known_references(known_references: None) -> None:
    """Sources are read once, see there."""
