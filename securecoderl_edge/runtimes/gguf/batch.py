"""An open batch in the child process that has the model; each call is one question to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import Any

from securecoderl_edge.runtimes.protocol import Completion, Progress, Task


class GgufBatch:
    """Implements `protocol.Batch`.

    Args:
        ask: sends a message to the child and returns its answer.
    """

    def __init__(self, ask: Callable[[dict[str, Any]], dict[str, Any]], rows: int, length: int) -> None:
        self._ask = ask
        self.rows = min(rows, int(ask({"type": "batch", "rows": rows, "length": length})["rows"]))

    def add(self, tasks: Sequence[Task]) -> None:
        """See `protocol.Batch.add`."""
        self._ask({"type": "add", "tasks": [asdict(task) for task in tasks]})

    def step(self) -> list[Progress]:
        """See `protocol.Batch.step`."""
        return [
            Progress(each["key"], each["text"], decode_completion(each["completion"]) if each["completion"] else None)
            for each in self._ask({"type": "step"})["progress"]
        ]

    def drop(self, keys: Collection[int]) -> None:
        """See `protocol.Batch.drop`."""
        self._ask({"type": "drop", "keys": list(keys)})

    def close(self) -> None:
        """Nothing to do: the child keeps its context for the next request."""


def decode_completion(record: dict[str, Any]) -> Completion:
    """The completion that the child sent."""
    lists = {name: tuple(record[name]) for name in ("token_ids", "logprobs", "token_seconds")}
    return Completion(**{**record, **lists})
