"""The properties of `fuzzing`, each for some examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import fuzzing
import pytest
from hypothesis import seed


@pytest.fixture(autouse=True, scope="module")
def closing() -> Iterator[None]:
    yield
    fuzzing.close()


@pytest.mark.slow
@pytest.mark.parametrize("check", fuzzing.PROPERTIES, ids=lambda check: check.__name__)
def test_it_holds_for_any_bytes(check: Callable[[], None]) -> None:
    seed(42)(fuzzing.limited(check, 60))()
