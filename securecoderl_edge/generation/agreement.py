"""Choice among programs that no test tells apart: what others give as well is more often right.

The programs run on inputs in the sandbox; the one whose results most others share wins: minimum Bayes risk (Shi et al.,
"Natural language to code translation with execution", EMNLP 2022). Unlike the largest group of programs that agree on
everything (AlphaCode), it allows for inputs outside of what the problem asks for, on which right programs differ. The
expected results that the model writes, which CodeT counts (Chen et al., ICLR 2023), are not used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


def agreement(programs: Sequence[str], results: Mapping[str, Sequence[str | None]]) -> list[float]:
    """For each program, the share of the others that give the same value, on average over inputs: 0 to 1.

    A failure is no value, even if others fail as well.

    Args:
        results: of each program, see `results_on`.
    """
    given = [results[program] for program in programs]
    count = max(map(len, given), default=0)
    counts = [Counter(each[place] for each in given if len(each) > place) for place in range(count)]
    others = max(1, count * (len(programs) - 1))
    return [
        sum(counts[place][result] - 1 for place, result in enumerate(each) if result is not None) / others
        for each in given
    ]
