"""The processes that train one policy together.

    torchrun --nproc-per-node 2 -m securecoderl_edge train ...

Every process has the whole model and the whole batch. It samples and scores a part of the prompts and computes the
gradients of a part of the batch. Gradients are summed before each step, so all processes make the same step. Only the
first process writes files; all read them. Processes exchange tensors and JSON, never pickles.

Everything is exchanged by gloo, in the memory of the CPU: also with GPUs, several processes on one GPU included, and a
process that ended is noticed at once. NCCL would sum faster, but gradients of LoRA are megabytes (24 MiB for the model
of 1.3 B parameters) and are summed once per optimizer step.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from securecoderl_edge.errors import SceError, UsageError, first_line

T = TypeVar("T")

# Longer than one process can work while the others wait. The connection to a process that ended closes at once.
_LONGEST_WAIT = timedelta(hours=6)
# A launcher looks for processes that ended several times a second, and names the first that it finds.
_SECONDS_UNTIL_NOTICED = 1.0
_PLACE_IN_GLOO = re.compile(r"^\[[^]]*\] *")  # file and line


class Team:
    """A single process.

    Attributes:
        index: 0 for the first process.
        count: number of processes.
        local_count: number of processes on this machine.
    """

    index = 0
    count = 1
    local_count = 1

    @property
    def is_writer(self) -> bool:
        """Whether this process writes files and prints messages."""
        return self.index == 0

    def sharing(self, device: str) -> int:
        """Number of processes that share the memory of this one's device."""
        devices = 1 if device == "cpu" else max(1, torch.cuda.device_count())
        return -(-self.local_count // devices)

    def share(self, items: Sequence[T]) -> list[T]:
        """The items for this process, none if there are too few; ``items`` must be the same in all processes."""
        return list(items[self.index :: self.count])

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all processes; the tensors of a call are on one device."""

    def collect(self, records: list[Any]) -> list[Any]:
        """The records (JSON values) of all processes, in the order of the processes."""
        return records

    def agree(self, wish: bool) -> bool:
        """Whether ``wish`` is true in any process."""
        return any(self.collect([wish]))

    def wait(self) -> None:
        """Wait until all processes call this."""
        self.collect([])


class ProcessLostError(SceError):
    """Another process of the team has ended."""


class _Processes(Team):
    """Several processes.

    Every method raises `ProcessLostError` if another process has ended.
    """

    def __init__(self) -> None:
        try:
            with self._connected():
                torch.distributed.init_process_group("gloo", timeout=_LONGEST_WAIT)
        except ValueError as error:
            raise UsageError(
                f"WORLD_SIZE is set, but no launcher started this process ({first_line(error)}). Use torchrun, or "
                "unset WORLD_SIZE"
            ) from None
        self.index, self.count = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.local_count = int(os.environ.get("LOCAL_WORLD_SIZE", self.count))

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        every = list(tensors)
        flat = torch.cat([tensor.detach().float().flatten() for tensor in every]).cpu()
        with self._connected():
            torch.distributed.all_reduce(flat)
        start = 0
        for tensor in every:
            part = flat[start : start + tensor.numel()]
            tensor.detach().copy_(part.view_as(tensor))
            start += tensor.numel()

    def collect(self, records: list[Any]) -> list[Any]:
        text = torch.frombuffer(bytearray(json.dumps(records).encode()), dtype=torch.uint8)
        lengths = [int(length) for length in self._gathered(torch.tensor([len(text)]))]
        texts = self._gathered(torch.nn.functional.pad(text, (0, max(lengths) - len(text))))
        whole: list[Any] = []
        for length, each in zip(lengths, texts, strict=True):
            whole += json.loads(bytes(each[:length].numpy()))
        return whole

    def _gathered(self, tensor: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(tensor) for _ in range(self.count)]
        with self._connected():
            torch.distributed.all_gather(parts, tensor)
        return parts

    @contextmanager
    def _connected(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            # The launcher has noticed, and ends this process too; or all were told to end, and the other was faster.
            with suppress(KeyboardInterrupt):
                time.sleep(_SECONDS_UNTIL_NOTICED)
            reason = _PLACE_IN_GLOO.sub("", first_line(error)).partition(". ")[0]
            raise ProcessLostError(
                f"process {os.environ['RANK']} stops because another process of the run has ended ({reason}). See its "
                "message; the same command resumes from the last checkpoint"
            ) from None


def is_restarted() -> bool:
    """Whether a launcher has started this program again after a failure (``torchrun --max-restarts``)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def join(device: str) -> Team:
    """The team of processes that a launcher started, or a team of one.

    Each process on a machine takes the next GPU; if there are fewer GPUs than processes, they share them.

    Args:
        device: the requested one, perhaps ``auto``.

    Raises:
        UsageError: the environment is not that of a launcher.
        ProcessLostError: another process has ended.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return Team()
    if device != "cpu" and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    return _Processes()


def leave() -> None:
    """Disconnect from the other processes; without this the last one may wait forever."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
