"""Parts that SFT and PPO updates share: trained parameters, the optimizer step, the order of problems."""

from __future__ import annotations

import copy
import hashlib
import math
import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.models.adapters import POLICY_ADAPTER, adapter_parameters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.packages import require_bitsandbytes
from securecoderl_edge.models.sizes import GIB
from securecoderl_edge.models.tokenizer import Tokenizer
from securecoderl_edge.problems.problem import Problem, with_sentence
from securecoderl_edge.prompts.styles import OURS, PromptFormat
from securecoderl_edge.system.machine import peak_rss_bytes
from securecoderl_edge.text import replace_surrogates
from securecoderl_edge.training.memory import MemoryPlan
from securecoderl_edge.training.parallel import Team
from securecoderl_edge.training.phase_settings import PhaseSettings, SelfTrainingSettings, SftSettings
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.update.meter import Meter
from securecoderl_edge.training.update.pass_rates import PassRates

if TYPE_CHECKING:
    from securecoderl_edge.scoring.own_reward import OwnReward
    from securecoderl_edge.scoring.scorer import Scorer

# Below this scale small float16 numbers are lost again, and a remaining overflow is not caused by the scale.
_SMALLEST_LOSS_SCALE = 1.0
# The numbers of tokens that a phase counts, in `Learner.running` and in rows of metrics.
SAMPLED, TRAINED = "tokens_sampled", "tokens_trained"
VALUE_LEARNING_RATE = 1e-3  # of AdamW, at its peak
# What torch says if memory is short, beside OutOfMemoryError: its CPU allocator, CUDA's own, and that of cuBLAS.
_NO_MEMORY = ("not enough memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


class NotFiniteError(SceError):
    """NaN or Inf in an update; ``tensors`` are those it was computed from, for inspection."""

    def __init__(self, what: str, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(f"NaN or Inf in {what}")
        self.what = what
        self.tensors = dict(tensors)


@dataclass(frozen=True)
class Kept:
    """A completion of the policy to train on, and what decides between it and others of its problem.

    Attributes:
        problem: its id.
        reward: higher ones are preferred.
    """

    problem: str
    program: str
    reward: float
    prompt: tuple[int, ...]
    completion: tuple[int, ...]


@dataclass(frozen=True)
class _Finished:
    """What an interrupted update changes, as it was after update ``step``.

    Attributes:
        weights, optimizer: copies; None until the next update changes them, and on a GPU.
    """

    step: int
    running: dict[str, float]
    pool: tuple[Kept, ...]
    pass_rates: PassRates
    scaler: dict[str, Any]
    weights: list[Tensor] | None = None
    optimizer: dict[str, Any] | None = None


@dataclass
class Learner:
    """The state that an update reads or changes.

    Attributes:
        decoder: samples from the policy; None if nothing is sampled.
        value_head: with GAE only.
        scaler: keeps small gradients in float16; has no effect with other dtypes.
        memory: the memory estimate of the phase.
        running: running statistics across updates, such as the scale of the advantages; part of a checkpoint.
        pool: of rft, what the updates of the present round kept; part of a checkpoint.
        pass_rates: of the problems, with ``sampling.method = "adaptive"``; part of a checkpoint.
        format: the prompt format.
        prompts: cache of prompt tokens by problem id and hint; a list takes nine times the memory.
        end_tokens: EOS and stop tokens, always including the tokenizer's.
        losses: those of this process since the last step.
        skipped_steps: optimizer steps of this process that were skipped because float16 overflowed.
        extract: what of a completion is its program, see `extraction.extract_program`.
        own_reward: the user's own reward function, where it counts.
        measures_kl: whether RL updates compute the KL to the reference.
        teacher: the frozen model that is the reference; None: the reference adapter of the policy's model.
        meter: is told what is being done; changes nothing.
    """

    model: Any
    tokenizer: Tokenizer
    compute: Compute
    optimizer: torch.optim.Optimizer
    decoder: Decoder | None = None
    value_head: nn.Module | None = None
    team: Team = field(default_factory=Team)
    memory: MemoryPlan | None = None
    running: dict[str, float] = field(default_factory=dict)
    pool: tuple[Kept, ...] = ()
    pass_rates: PassRates = field(default_factory=PassRates)
    format: PromptFormat = OURS
    prompts: dict[tuple[str, str], array[int]] = field(default_factory=dict)
    end_tokens: frozenset[int] = frozenset()
    skipped_steps: int = 0
    extract: str = "auto"
    own_reward: OwnReward | None = None
    measures_kl: bool = True
    teacher: Any = None
    meter: Meter = field(default_factory=Meter)
    losses: list[Tensor] = field(default_factory=list, init=False)
    _finished: _Finished | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        enabled = self.compute.products is torch.float16
        self.end_tokens |= self.tokenizer.ends
        self.scaler = torch.amp.GradScaler(self.compute.device, enabled=enabled)
        self.finish(0)

    def trained(self) -> list[Tensor]:
        """The adapter's parameters, then those of the value head."""
        policy: list[Tensor] = list(adapter_parameters(self.model, POLICY_ADAPTER).values())
        return [*policy, *(self.value_head.parameters() if self.value_head is not None else ())]

    def finish(self, step: int) -> None:
        """Make the present state that of finished update ``step``, to which `undo` returns."""
        # One assignment: a signal can come before or after it, not in between. To copy its state, a GPU would have to
        # be read; there the last checkpoint has to do.
        if self.compute.device == "cpu":
            self._finished = _Finished(step, dict(self.running), self.pool, self.pass_rates, self.scaler.state_dict())

    def undo(self) -> int:
        """Discard what an interrupted update has changed; returns the number of the last finished one, or 0."""
        before = self._finished
        self.discard_gradients()
        if before is None:
            return 0
        self.running, self.pool, self.pass_rates = dict(before.running), before.pool, before.pass_rates
        self.scaler.load_state_dict(before.scaler)
        if before.weights is not None and before.optimizer is not None:
            with torch.no_grad():
                for parameter, weight in zip(self.trained(), before.weights, strict=True):
                    parameter.copy_(weight)
            self.optimizer.load_state_dict(before.optimizer)
        return before.step

    def _keep_finished(self, trained: Sequence[Tensor]) -> None:
        """Copy what the first optimizer step of an update will change."""
        if self._finished is not None and self._finished.weights is None:
            weights = [parameter.detach().clone() for parameter in trained]
            optimizer = copy.deepcopy(self.optimizer.state_dict())
            self._finished = replace(self._finished, weights=weights, optimizer=optimizer)

    def count(self, what: str, tokens: int) -> None:
        """Add tokens to those of the phase: sampled, or trained on, forward and backward, in all processes together."""
        self.running[what] = self.running.get(what, 0) + tokens

    def counted(self) -> dict[str, int]:
        """The tokens of the phase so far: those of completions and solutions, without prompts and evaluations."""
        return {what: int(self.running.get(what, 0)) for what in (SAMPLED, TRAINED)}

    def has_spent(self, settings: SftSettings | PhaseSettings | SelfTrainingSettings) -> bool:
        """Whether the phase has reached a budget of its settings."""
        budgets = {what: getattr(settings, f"max_{what}", None) for what in (SAMPLED, TRAINED)}
        return any(most is not None and self.counted()[what] >= most for what, most in budgets.items())

    def prompt_tokens(self, problem: Problem, hint: str = "") -> Sequence[int]:
        """Token ids of the problem's prompt, with a hint as the last paragraph of the statement if there is one."""
        key = problem.id, hint
        if key not in self.prompts:
            prompt = self.format.prompt(with_sentence(problem, hint))
            self.prompts[key] = array("i", self.tokenizer.encode_prompt(prompt))
        return self.prompts[key]

    def solution_tokens(self, program: str, language: str = PYTHON.name) -> list[int]:
        """Token ids of a reference solution, with the end of sequence."""
        # No start token: the prompt already has it.
        answer = replace_surrogates(self.format.answer(program, language))
        return [*self.tokenizer.encode(answer), self.tokenizer.eos_token_id]

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss. Nothing is read from the device; `step` looks whether the loss is finite."""
        self.losses.append(loss.detach())
        self.scaler.scale(loss).backward()

    def discard_gradients(self) -> None:
        """Forget the losses and gradients since the last step."""
        self.losses.clear()
        self.optimizer.zero_grad()

    def step(self, max_norm: float, tensors: Mapping[str, Tensor]) -> tuple[float, float]:
        """Sum the gradients of all processes, clip the adapter's, update, clear.

        Args:
            tensors: those that the losses were computed from.

        Returns:
            the sum of the losses of all processes since the last step, and the gradient's norm before clipping.

        Raises:
            NotFiniteError: a loss or a gradient is NaN or Inf, in all processes if it is in one; except for an overflow
                of float16 in a gradient, which only skips the step.
        """
        trained = self.trained()
        policy = trained[: len(adapter_parameters(self.model, POLICY_ADAPTER))]
        losses = sum(self.losses, torch.zeros((), device=policy[0].device))
        self.losses.clear()
        if self.team.count > 1:
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            self.team.add_up([losses, *(parameter.grad for parameter in trained if parameter.grad is not None)])
        self.scaler.unscale_(self.optimizer)
        clipped = nn.utils.clip_grad_norm_(policy, max_norm)
        others = sum(
            (p.grad.abs().sum() for p in trained[len(policy) :] if p.grad is not None), torch.zeros_like(losses)
        )
        loss, norm, rest = torch.stack([losses, clipped, others]).tolist()
        if not math.isfinite(loss):
            raise NotFiniteError("the loss", tensors)
        if not math.isfinite(norm + rest) and not self.scaler.is_enabled():
            raise NotFiniteError("the gradient", tensors)
        self._keep_finished(trained)
        before = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scaler.is_enabled():
            # The scaler lowers its scale if and only if it skipped a step.
            scale = self.scaler.get_scale()
            self.skipped_steps += scale < before
            if scale < _SMALLEST_LOSS_SCALE:
                raise NotFiniteError("the gradient, at every loss scale,", tensors)
        self.optimizer.zero_grad(set_to_none=True)
        return loss, norm


@dataclass(frozen=True)
class Update:
    """One update of a phase: its settings, and what it can train on.

    Attributes:
        settings: of the run. phase: its name.
        problems: all that the phase trains on.
        step: its number in the phase, from 1.
        scorer: runs programs, in phases that do.
    """

    settings: TrainSettings
    phase: str
    problems: Sequence[Problem]
    step: int
    scorer: Scorer

    @property
    def steps(self) -> int:
        """Number of updates of the phase."""
        return self.settings.phase(self.phase).steps

    def seed(self, purpose: str) -> tuple[object, ...]:
        """The parts of a seed, see `seed_of`."""
        return self.settings.seed, self.phase, purpose, self.step

    def prompted(self) -> list[Problem]:
        """The problems that completions are sampled of."""
        ppo = self.settings.ppo
        count = ppo.batch_size // ppo.samples_per_prompt
        return next_problems(self.problems, count, self.step, seed_of(self.settings.seed, self.phase))


def make_value_head(hidden_size: int, seed: int) -> nn.Module:
    """A small MLP from a hidden state to the expected return, starting at 0 everywhere.

    It reads detached hidden states: on small models a shared trunk lets the value loss damage the policy.
    """
    torch.manual_seed(seed)
    last = nn.Linear(256, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(hidden_size, 256), nn.Tanh(), last)


def make_optimizer(name: str, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """AdamW (arXiv:1711.05101) without weight decay, which would pull LoRA's factors to zero.

    Args:
        name: ``adamw``, or ``adamw8bit`` of bitsandbytes (arXiv:2110.02861), which keeps the states of tensors with at
            least 4,096 numbers in 8 bits.

    Raises:
        MissingExtra: bitsandbytes is required and not installed.
    """
    betas = (0.9, 0.95)
    if name == "adamw":
        return torch.optim.AdamW(groups, betas=betas, weight_decay=0.0)
    require_bitsandbytes()
    import bitsandbytes

    of_bitsandbytes: Any = bitsandbytes.optim
    optimizer: torch.optim.Optimizer = of_bitsandbytes.AdamW8bit(groups, betas=betas, weight_decay=0.0)
    return optimizer


def seed_of(*parts: object) -> int:
    """A 63-bit seed from readable parts, so that a checkpoint needs no state of random generators."""
    digest = hashlib.sha256("/".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def next_problems(problems: Sequence[Problem], count: int, step: int, seed: int) -> list[Problem]:
    """The problems of update ``step`` (from 1): consecutive parts of a seeded shuffle per epoch."""
    turns = [divmod(position, len(problems)) for position in range((step - 1) * count, step * count)]
    orders = {epoch: shuffled(len(problems), seed_of(seed, "order", epoch)) for epoch in {epoch for epoch, _ in turns}}
    return [problems[orders[epoch][index]] for epoch, index in turns]


def shuffled(count: int, seed: int) -> list[int]:
    """The numbers below ``count``, shuffled with the seed."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def norm_metric(norms: Sequence[float]) -> dict[str, float]:
    """The mean of the gradients' norms before clipping, without those of steps that an overflow of float16 skipped."""
    finite = [norm for norm in norms if math.isfinite(norm)]
    return {"grad_norm": sum(finite) / len(finite)} if finite else {}


def precision_metrics(learner: Learner, skipped_before: int) -> dict[str, Any]:
    """Metrics of dtypes and memory in an update."""
    metrics: dict[str, Any] = {"peak_rss_mib": round(peak_rss_bytes() / 2**20, 1)}
    if learner.scaler.is_enabled():
        metrics["loss_scale"] = learner.scaler.get_scale()
        metrics["skipped_steps"] = learner.skipped_steps - skipped_before
    if learner.compute.is_accelerator:
        metrics["peak_cuda_mib"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return metrics


@contextmanager
def memory_for(what: str, setting: str, plan: MemoryPlan | None = None) -> Iterator[None]:
    """Convert an out-of-memory error inside the block into a message that names the setting to lower.

    Args:
        plan: the estimate that was too low for ``what`` (sampling, or the update).

    Raises:
        SceError: not enough memory.
    """
    try:
        yield
        return
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and not any(words in str(error) for words in _NO_MEMORY):
            raise
    planned = ""
    if plan is not None:
        lines = {**plan.always, **(plan.sampling if what == "sampling" else plan.update)}
        planned = f" (estimated in GiB: {', '.join(f'{name} {size / GIB:.2f}' for name, size in lines.items())})"
    raise SceError(f"out of memory while {what}{planned}. Lower {setting} and resume from the last checkpoint")
