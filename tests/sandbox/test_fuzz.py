"""The properties of `fuzzing`, each for some examples; and what `fuzz_files` reads, undamaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import fuzz_files
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


@pytest.mark.parametrize("name", ["problems", "scores", "requests"])
def test_the_fuzzer_of_files_reads_what_it_damages(name: str, tmp_path: Path) -> None:
    way = fuzz_files.WAYS[name]
    assert way.make(tmp_path)
    way.read(tmp_path)
