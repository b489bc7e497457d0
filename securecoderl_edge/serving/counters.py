"""Counters of the server, in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

_PREFIX = "sce_"
# Upper bounds of the histogram of request times, in seconds.
_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_COUNTERS = {
    "requests_total": "Finished requests, by path and status.",
    "prompt_tokens_total": "Tokens of prompts.",
    "completion_tokens_total": "Tokens of completions, of unused samples as well.",
    "programs_total": "Checked programs of choices, by whether they were accepted.",
    "scores_total": "Programs scored at /v1/score.",
}


class Metrics:
    """Counts from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._seconds = 0.0
        self._buckets = [0] * (len(_BUCKETS) + 1)

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter; values of labels are chosen by the server, never by a request."""
        with self._lock:
            self._counts[f"{name}{_labels(labels)}"] += amount

    def time(self, seconds: float) -> None:
        """Add the wall time of a request."""
        with self._lock:
            self._seconds += seconds
            self._buckets[sum(seconds > bound for bound in _BUCKETS)] += 1

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """All metrics; ``gauges`` have a help text and a value by name."""
        with self._lock:
            counts, seconds, buckets = dict(self._counts), self._seconds, list(self._buckets)
        lines = []
        for name, help in _COUNTERS.items():
            lines += _head(name, help, "counter")
            own = {key: value for key, value in counts.items() if key.partition("{")[0] == name} or {name: 0}
            lines += [f"{_PREFIX}{key} {value}" for key, value in sorted(own.items())]
        for name, (help, value) in gauges.items():
            lines += [*_head(name, help, "gauge"), f"{_PREFIX}{name} {value:g}"]
        name = "request_seconds"
        lines += _head(name, "Wall time of requests.", "histogram")
        for index, bound in enumerate((*_BUCKETS, float("inf"))):
            edge = "+Inf" if bound == float("inf") else f"{bound:g}"
            lines.append(f'{_PREFIX}{name}_bucket{{le="{edge}"}} {sum(buckets[: index + 1])}')
        lines += [f"{_PREFIX}{name}_sum {seconds:.6f}", f"{_PREFIX}{name}_count {sum(buckets)}"]
        return "\n".join(lines) + "\n"


def _head(name: str, help: str, kind: str) -> list[str]:
    return [f"# HELP {_PREFIX}{name} {help}", f"# TYPE {_PREFIX}{name} {kind}"]


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}" if labels else ""
