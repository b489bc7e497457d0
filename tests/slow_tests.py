"""Which tests `make test` leaves out besides those marked as slow: what took long when all tests were run.

python -m pytest -n 2 --junitxml all.xml     # on two idle cores
python tests/slow_tests.py all.xml           # writes tests/slow.txt
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

SLOW = Path(__file__).with_name("slow.txt")
SECONDS = 1.5  # of all cases of a test together; what takes less fits into six minutes


def slow_tests() -> frozenset[str]:
    """The tests, as ``tests/room/test_file.py::test_name``."""
    return frozenset(SLOW.read_text().split())


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark those of the list as slow, and tell results which ones were marked already."""
    listed = slow_tests()
    for item in items:
        if item.get_closest_marker("slow"):
            item.user_properties.append(("slow", "marked"))
        elif item.nodeid.partition("[")[0] in listed:
            item.add_marker("slow")


def main(results: str) -> None:
    """Write the list from pytest's results in JUnit's format."""
    seconds: Counter[str] = Counter()
    for case in ElementTree.parse(results).iter("testcase"):
        if case.find("properties/property[@name='slow']") is not None:
            continue
        name = case.attrib["name"].partition("[")[0]
        seconds[f"{case.attrib['classname'].replace('.', '/')}.py::{name}"] += float(case.attrib["time"])
    SLOW.write_text("".join(f"{name}\n" for name in sorted(seconds) if seconds[name] >= SECONDS))


if __name__ == "__main__":
    main(sys.argv[1])
