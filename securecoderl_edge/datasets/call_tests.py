"""Tests of call problems that come as Python: those that can tell programs apart."""

from __future__ import annotations

from collections.abc import Sequence

from securecoderl_edge.datasets.python_source import fault_of_assertion
from securecoderl_edge.datasets.tally import DropRecord, Tally


def usable_assertions(written: Sequence[str], identifier: str, tally: Tally) -> list[str]:
    """The tests in Python that can fail; the others are counted.

    Raises:
        DropRecord: there are none.
    """
    faults = {test: fault_of_assertion(test) for test in written}
    for test in written:
        if (fault := faults[test]) is not None:
            tally.drop_test(identifier, fault)
    if kept := [test for test in written if faults[test] is None]:
        return kept
    raise DropRecord("no usable tests")
