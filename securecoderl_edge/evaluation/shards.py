"""Work for several machines: an engine, or shards, which are parts that know nothing of each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError

T = TypeVar("T")
ENGINE_HELP = "Machines to use: local, ray (the cluster of this machine) or ray://HOST:PORT."


@dataclass(frozen=True)
class Shard:
    """Part ``index`` of ``count``, counted from 1: every ``count``-th item, so that parts have about equal work."""

    index: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def of(self, items: Sequence[T], noun: str) -> Sequence[T]:
        """Its items, in their order.

        Args:
            noun: the items in words, for the message.

        Raises:
            UsageError: there are more shards than items, so some would have nothing to do.
        """
        if self.count > max(1, len(items)):
            raise UsageError(f"--shard {self}: there are {len(items)} {noun}. Use at most {len(items)} shards.")
        return items[self.index - 1 :: self.count]


WHOLE = Shard()


def shard_of(text: str | None) -> Shard:
    """The shard that ``I/N`` names; without a text the whole.

    Raises:
        UsageError: it is not of that form, or I is not from 1 to N.
    """
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text or "1/1")
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard {text}: expected I/N with I from 1 to N, for example 2/8")
    return Shard(int(match[1]), int(match[2]))


def shard_setting(help: str) -> Any:
    """The setting for a shard."""
    return setting(None, help, metavar="I/N")


def engine_setting() -> Any:
    """The setting for the machines that do the work."""
    from securecoderl_edge.system.cluster import LOCAL

    return setting(LOCAL, ENGINE_HELP, metavar="ENGINE")
