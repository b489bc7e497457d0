"""Every interval on a page for readers is one of a committed record: no result is typed without one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from securecoderl_edge.scoring.intervals import wilson_interval

# The results' own page has the intervals of before, of conclusions that were withdrawn. Pages of settings have ranges.
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in ("cli.md", "settings.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "securecoderl_edge/models").glob("*/*.md")),
]
RECORDS = [*(ROOT / "benchmarks/results").glob("*.json")]
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_INTERVAL = re.compile(r"\[([-+]?\d[\d.]*), ([-+]?\d[\d.]*)\]")


def bounds_in(content: Any) -> Iterator[tuple[float, float]]:
    """Of each interval of a record; of a ratio also what it is above 1."""
    if isinstance(content, list):
        for each in content:
            yield from bounds_in(each)
    if not isinstance(content, dict):
        return
    if isinstance(content.get("low"), float | int) and isinstance(content.get("high"), float | int):
        yield content["low"], content["high"]
    if isinstance(ratio := content.get("interval"), list):
        yield from ((low - above, high - above) for low, high in (ratio,) for above in (0, 1))
    if "as_extracted" in content:  # counts of greedy answers
        for passed in content["sce"].values():
            yield wilson_interval(passed, content["problems"])
    for each in content.values():
        yield from bounds_in(each)


def shown(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


@pytest.fixture(scope="module")
def recorded() -> set[tuple[str, str]]:
    """The bounds of all records as pages show them: as they are or in percent, with any number of digits.

    A bound that a record has rounded to ...5 may be shown rounded up or down.
    """
    return {
        (shown(scale * (low + below), digits), shown(scale * (high + above), digits))
        for file in RECORDS
        for low, high in bounds_in(json.loads(file.read_text(encoding="utf-8")))
        for scale in (1, 100)
        for digits in range(4)
        for below in (-1e-9, 1e-9)
        for above in (-1e-9, 1e-9)
    }


def intervals_of(text: str) -> list[tuple[str, str]]:
    prose = _CODE.sub("", text)
    found = [tuple(bound.lstrip("+") for bound in match.groups()) for match in _INTERVAL.finditer(prose)]
    return [tuple(bound.lstrip("-") if float(bound) == 0 else bound for bound in pair) for pair in found]  # type: ignore[misc]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(Path(page).relative_to(ROOT)))
def test_every_interval_of_a_page_is_one_of_a_record(page: Path, recorded: set[tuple[str, str]]) -> None:
    assert [pair for pair in intervals_of(page.read_text(encoding="utf-8")) if pair not in recorded] == []


def test_an_interval_without_a_record_is_found(recorded: set[tuple[str, str]]) -> None:
    text = "gains +8.8 [+5.3, +12.3], `[0.2, 0.28]`\n```\n[1.0, 2.0]\n```\n0.0 [-0.0, 4.1]"
    assert intervals_of(text) == [("5.3", "12.3"), ("0.0", "4.1")]
    assert ("5.3", "12.34") not in recorded
