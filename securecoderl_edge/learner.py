"""What supervised and reinforcement updates share: trained parameters, the optimizer step, the order of problems."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from securecoderl_edge.device import Compute
from securecoderl_edge.errors import SceError
from securecoderl_edge.model import POLICY, adapter_parameters
from securecoderl_edge.parallel import Team
from securecoderl_edge.problems import Problem
from securecoderl_edge.prompts import format_prompt
from securecoderl_edge.rollout import Decoder


class NotFiniteError(SceError):
    """A number that is not finite came up. ``tensors`` is what it came from, for inspection."""

    def __init__(self, what: str, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(f"{what} is not finite")
        self.what = what
        self.tensors = dict(tensors)


@dataclass
class Learner:
    """Everything that an update reads or changes.

    Attributes:
        decoder: samples from the policy; None where nothing is sampled.
        value_head: with GAE only.
        scaler: keeps small gradients in float16; does nothing in other formats.
        running: numbers that go from update to update, such as the scale of the advantages; part of a checkpoint.
        prompts: caches each problem's prompt tokens by problem id.
    """

    model: Any
    tokenizer: Any
    compute: Compute
    optimizer: torch.optim.Optimizer
    decoder: Decoder | None = None
    value_head: nn.Module | None = None
    team: Team = field(default_factory=Team)
    running: dict[str, float] = field(default_factory=dict)
    prompts: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        enabled = self.compute.autocast_dtype is torch.float16
        self.scaler = torch.amp.GradScaler(self.compute.device, enabled=enabled)

    def prompt_tokens(self, problem: Problem) -> list[int]:
        """Token ids of the problem's prompt."""
        if problem.id not in self.prompts:
            self.prompts[problem.id] = list(self.tokenizer(format_prompt(problem))["input_ids"])
        return self.prompts[problem.id]

    def backward(self, loss: Tensor, tensors: Mapping[str, Tensor]) -> None:
        """Add the gradients of a loss.

        Raises:
            NotFiniteError: the loss is none; ``tensors`` is what it was computed from.
        """
        if not torch.isfinite(loss):
            raise NotFiniteError("the loss", tensors)
        self.scaler.scale(loss).backward()

    def step(self, max_norm: float, tensors: Mapping[str, Tensor]) -> float:
        """Add up the gradients of all processes, clip the adapter's, update, clear; the norm before clipping.

        Raises:
            NotFiniteError: a gradient is not finite, and not because float16 overflowed, which only skips the step.
        """
        policy = list(adapter_parameters(self.model, POLICY).values())
        trained = [*policy, *(self.value_head.parameters() if self.value_head is not None else ())]
        if self.team.count > 1:
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            self.team.add_up(parameter.grad for parameter in trained if parameter.grad is not None)
        self.scaler.unscale_(self.optimizer)
        norm = float(nn.utils.clip_grad_norm_(policy, max_norm))
        whole = norm + sum(float(p.grad.abs().sum()) for p in trained[len(policy) :] if p.grad is not None)
        if not math.isfinite(whole) and not self.scaler.is_enabled():
            raise NotFiniteError("the gradient", tensors)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm


def seed_of(*parts: object) -> int:
    """A 63-bit seed from readable parts, so that no generator's state has to be stored to resume."""
    digest = hashlib.sha256("/".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def next_problems(problems: Sequence[Problem], count: int, step: int, seed: int) -> list[Problem]:
    """The problems of update ``step`` (from 1): consecutive pieces of one seeded shuffle an epoch."""
    chosen = []
    for position in range((step - 1) * count, step * count):
        epoch, index = divmod(position, len(problems))
        chosen.append(problems[shuffled(len(problems), seed_of(seed, "order", epoch))[index]])
    return chosen


def shuffled(count: int, seed: int) -> list[int]:
    """The numbers below ``count`` in an order that the seed fixes."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


@contextmanager
def memory_for(what: str, remedy: str) -> Iterator[None]:
    """Turn running out of memory inside the block into a sentence that names the knob to lower.

    Raises:
        SceError: there was not enough memory.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        pass
    except RuntimeError as error:
        if "not enough memory" not in str(error):
            raise
    else:
        return
    raise SceError(f"out of memory while {what}; {remedy}. The last checkpoint is intact, so the run can go on")
