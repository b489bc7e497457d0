"""The processes that train one policy together, through Hugging Face Accelerate.

    accelerate launch --num_processes 2 -m securecoderl_edge train ...

Every process has the whole model and the whole batch. It samples and scores a part of the prompts and computes the
gradients of a part of the batch. Gradients are summed before each step, so all processes make the same step. Only the
first process writes files. Processes exchange tensors and JSON, never pickles.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Team:
    """A single process."""

    index = 0
    count = 1
    local_count = 1  # on this machine

    @property
    def is_writer(self) -> bool:
        """Whether this process writes files and prints messages."""
        return self.index == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """The items for this process; ``items`` must be the same in all processes."""
        return list(items[self.index :: self.count])

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all processes."""

    def collect(self, records: list[Any]) -> list[Any]:
        """The records (JSON values) of all processes, in the order of the processes."""
        return records

    def agree(self, wish: bool) -> bool:
        """Whether ``wish`` is true in any process."""
        return wish

    def wait(self) -> None:
        """Wait until all processes call this."""


class _Processes(Team):
    def __init__(self, device: str) -> None:
        from accelerate import PartialState

        self._state = PartialState(cpu=device == "cpu")
        self.index, self.count = self._state.process_index, self._state.num_processes
        self.local_count = int(os.environ.get("LOCAL_WORLD_SIZE", self.count))

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        every = list(tensors)
        flat = torch.cat([tensor.detach().float().flatten() for tensor in every]).to(self._state.device)
        torch.distributed.all_reduce(flat)
        start = 0
        for tensor in every:
            part = flat[start : start + tensor.numel()]
            tensor.detach().copy_(part.view_as(tensor))
            start += tensor.numel()

    def collect(self, records: list[Any]) -> list[Any]:
        text = torch.frombuffer(bytearray(json.dumps(records).encode()), dtype=torch.uint8).to(self._state.device)
        lengths = self._gathered(torch.tensor([len(text)], device=self._state.device))
        longest = max(int(length) for length in lengths)
        texts = self._gathered(torch.nn.functional.pad(text, (0, longest - len(text))))
        whole: list[Any] = []
        for length, each in zip(lengths, texts, strict=True):
            whole += json.loads(bytes(each[: int(length)].cpu().numpy()))
        return whole

    def agree(self, wish: bool) -> bool:
        flag = torch.tensor([float(wish)])
        self.add_up([flag])
        return bool(flag > 0)

    def wait(self) -> None:
        self._state.wait_for_everyone()

    def _gathered(self, tensor: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(tensor) for _ in range(self.count)]
        torch.distributed.all_gather(parts, tensor)
        return parts


def is_launched() -> bool:
    """Whether a launcher has started several processes of this program."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first_process() -> bool:
    """Whether this process writes files and prints messages; can be called before the processes are connected."""
    return os.environ.get("RANK", "0") == "0"


def join(device: str) -> Team:
    """The team of processes that a launcher started, or a team of one."""
    return _Processes(device) if is_launched() else Team()


def leave() -> None:
    """Disconnect from the other processes; without this the last one may wait forever."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
