"""What an evaluation says, in words."""

from __future__ import annotations

from collections.abc import Sequence

from securecoderl_edge.evaluation.summary import EvaluationSummary
from securecoderl_edge.evaluation.tables import SOLVED, Comparison, interval_cell, number_cell, size_in_words, verdict


def conclusions(
    summaries: Sequence[EvaluationSummary], comparisons: Sequence[Comparison], asked: str = ""
) -> list[str]:
    """What an evaluation says, in words: pass@k of each model, and of each comparison whether a difference is shown.

    Args:
        asked: the benchmark and its protocol.
    """
    lines = []
    for summary in summaries:
        rates = {1: summary.metrics["all_tests_rate"], **summary.pass_at}
        cells = [f"pass@{k} {interval_cell(rate, SOLVED)} %" for k, rate in rates.items()]
        if base := summary.metrics.get("base_tests_rate"):
            cells.append(f"with the base tests alone {interval_cell(base, SOLVED)} %")
        lines.append(f"{summary.label}: {', '.join(cells)} of {size_in_words(summary)}{asked}")
    for comparison in comparisons:
        found = {each.metric.name: each for each in comparison.differences}["all_tests_rate"]
        points = f"{number_cell(found.interval.value * 100, 1, True)} points"
        verdict_in_words = f"{verdict(found)}, {points}"
        if not found.distinguishable:
            verdict_in_words = f"no difference shown ({points})"
            if found.needed is not None and found.needed > comparison.problems:
                verdict_in_words += f"; about {_round_up(found.needed):,} problems would be needed for one of this size"
        lines.append(f"{comparison.second} against {comparison.first}: {verdict_in_words}")
    return lines


def _round_up(count: int) -> int:
    """To two digits: it is an estimate."""
    unit: int = 10 ** max(0, len(str(count)) - 2)
    return -(-count // unit) * unit
