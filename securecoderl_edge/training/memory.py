"""Estimate of the memory of a phase, by part, from sizes alone: before anything is loaded, and without torch.

One peak is at the end of sampling (the sampler's weights, KV cache), the other in the backward pass (activations,
logits). The larger one counts, since those weights are dropped before the update. `benchmarks/gpu_fit.py` compares the
estimate with measured peaks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.models.gpus import Gpu
from securecoderl_edge.models.other import OtherArchitecture
from securecoderl_edge.models.sizes import (
    ALIGNED,
    CACHE_GROWTH,
    GIB,
    PREFILL_TOKENS,
    Formats,
    drawn_at_a_time,
    logits_at_a_time,
)
from securecoderl_edge.system.heap import GROWTH_BYTES
from securecoderl_edge.system.machine import memory_limit_bytes
from securecoderl_edge.training.phase_settings import BY_PPO, RL_PHASES, PpoSettings
from securecoderl_edge.training.settings import TrainSettings

# The context of CUDA and the workspaces of its libraries; an assumption, not measured on a GPU.
_CUDA_CONTEXT_BYTES = GIB // 2
# The imported torch, transformers and peft, and their caches: measured in training of the built-in model, on Linux with
# torch's CPU build.
_CPU_FRAMEWORK_BYTES = 1000 << 20
_VALUE_HEAD_WIDTH = 256
_BLOCK = 256  # numbers that share a scale in an 8-bit optimizer
_SMALLEST_8BIT = 4096  # smaller tensors keep states of 32 bits


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by part: ``always`` allocated, and added in ``sampling`` or in the ``update``.

    Attributes:
        is_whole: False if transformers computes the model, whose memory is not estimated: its ``generate`` keeps every
            prompt's keys for each of its completions, and much more.
    """

    always: dict[str, int]
    sampling: dict[str, int]
    update: dict[str, int]
    is_whole: bool = True

    @property
    def peak(self) -> int:
        """Peak memory."""
        return sum(self.always.values()) + max(sum(self.sampling.values()), sum(self.update.values()))

    @property
    def peaks_in(self) -> str:
        """The part of an update with the peak: ``sampling`` or ``update``."""
        return "sampling" if sum(self.sampling.values()) > sum(self.update.values()) else "update"


def plan_memory(
    shape: Architecture | OtherArchitecture,
    settings: TrainSettings,
    formats: Formats,
    longest_prompt: int,
    phase: str,
    framework: int | None = None,
    teacher: Architecture | OtherArchitecture | None = None,
) -> MemoryPlan:
    """The memory of one phase.

    Args:
        longest_prompt: tokens.
        teacher: the model in place of the reference, which stays in memory in all phases.
        framework: bytes of the process before the model is loaded; by default the constants above.
    """
    if framework is None:
        framework = _CPU_FRAMEWORK_BYTES if formats.device == "cpu" else _CUDA_CONTEXT_BYTES
    if isinstance(shape, OtherArchitecture):
        return _plan_weights(shape, settings, formats, framework, teacher)
    ppo = settings.ppo
    is_sft = phase == "sft"
    gae = phase in RL_PHASES and ppo.advantage == "gae"
    adapted = [shape.linears()[name] for name in shape.linears() if name.split(".")[1] in settings.lora.targets]
    trained = shape.layers * sum(settings.lora.rank * (rows + columns) for rows, columns in adapted)
    head = (shape.hidden + 2) * _VALUE_HEAD_WIDTH + 1 if gae else 0
    always = {
        "base weights": _weights(shape, formats),
        "teacher": 0 if teacher is None else _weights(teacher, formats),
        "adapters": 2 * 4 * trained,  # policy and reference
        "gradients": 4 * (trained + head),
        "optimizer": _optimizer(shape, settings, adapted) + 8 * head,
        "value head": 4 * head,
        "framework": framework,
    }
    if formats.device == "cpu":
        # What an interrupted update returns to.
        always["last update"] = 4 * (trained + head) + always["optimizer"]
    # Every phase evaluates on held-out problems.
    batches = [(settings.selection.problems, settings.selection.samples)]
    if not is_sft:
        batches.append((ppo.batch_size // ppo.samples_per_prompt, ppo.samples_per_prompt))
    # Next to the weights of up to three layers that are computed as one, see `models.joined_linear`.
    apart = shape.layers * sum(settings.lora.rank * (3 * rows + columns) for rows, columns in adapted)
    sampled = [_sampling(shape, formats, ppo, longest_prompt, apart, *batch) for batch in batches if batch[0]]
    sampling = max(sampled, key=lambda parts: sum(parts.values()), default={})
    if is_sft:
        batch = settings.sft.max_tokens, settings.sft.batch_size, 1
    else:
        # RFT and SSD take one step on everything that they keep.
        prompts = ppo.batch_size // ppo.samples_per_prompt // (ppo.minibatches if phase in BY_PPO else 1)
        batch = ppo.max_tokens, prompts, ppo.samples_per_prompt
    update = _update(shape, settings, formats, longest_prompt, *batch, adapted)
    if isinstance(teacher, Architecture) and settings.teacher_of(phase) is not None:
        asking = _asking(teacher, settings, formats, longest_prompt, *batch)
        update = max(update, asking, key=lambda parts: sum(parts.values()))
    return MemoryPlan({name: size for name, size in always.items() if size}, sampling, update)


def fitting_plan(
    shape: Architecture | OtherArchitecture,
    settings: TrainSettings,
    formats: Formats,
    longest_prompt: int,
    phase: str,
    limit: int,
    teacher: Architecture | OtherArchitecture | None = None,
) -> MemoryPlan:
    """As `plan_memory`, and checked against ``limit`` bytes.

    Raises:
        UsageError: it exceeds the limit; the message names settings that help.
    """
    plan = plan_memory(shape, settings, formats, longest_prompt, phase, teacher=teacher)
    if plan.peak <= limit:
        return plan
    changed, smaller, helping = settings, plan, {}
    while smaller.peak > limit:
        change = _next_setting(changed, smaller, formats)
        if change is None:
            break
        name, flag, changed = change
        if changed.base_precision == "int8":
            formats = replace(formats, base=1, other=formats.rollout, products=formats.rollout)
        before, smaller = smaller.peak, plan_memory(shape, changed, formats, longest_prompt, phase, teacher=teacher)
        if smaller.peak < before:
            helping[name] = flag
    advice = f"Use {' '.join(helping.values())}"
    if smaller.peak > limit:
        advice = f"{f'It does not fit even with {advice[4:]}: lower' if helping else 'Lower'} prompt.max_tokens"
        advice += " or take a smaller model" if teacher is None else " or take a smaller model or teacher"
    raise UsageError(
        f"{phase} needs about {plan.peak / GIB:.1f} GiB, most of it in {plan.peaks_in}; "
        f"{limit / GIB:.1f} GiB are available. {advice}"
    )


def _plan_weights(
    shape: OtherArchitecture,
    settings: TrainSettings,
    formats: Formats,
    framework: int,
    teacher: Architecture | OtherArchitecture | None,
) -> MemoryPlan:
    """A lower bound for a model that transformers computes: what is in memory before the first update."""
    trained = settings.lora.rank * sum(shape.lora_sizes().get(name, 0) for name in settings.lora.targets)
    always = {
        "base weights": _weights(shape, formats),
        "adapters": 2 * 4 * trained,
        "gradients": 4 * trained,
        "optimizer": (8 if settings.optimizer == "adamw" else 2) * trained,
        "framework": framework,
    }
    if teacher is not None:
        always["teacher"] = _weights(teacher, formats)
    return MemoryPlan(always, {}, {}, is_whole=False)


def _next_setting(settings: TrainSettings, plan: MemoryPlan, formats: Formats) -> tuple[str, str, TrainSettings] | None:
    """The next change that lowers the peak: its name, its flag, and the changed settings."""
    ppo = settings.ppo
    if plan.peaks_in == "sampling":
        rows = ppo.rollout_sequences // 2
        if rows >= ppo.samples_per_prompt:
            changed = replace(settings, ppo=replace(ppo, rollout_sequences=rows))
            return "rows", f"--set ppo.rollout_sequences={rows}", changed
    else:
        if not settings.gradient_checkpointing:
            return "recompute", "--gradient-checkpointing", replace(settings, gradient_checkpointing=True)
        tokens = ppo.micro_batch_tokens // 2
        if tokens >= ppo.max_tokens:
            changed = replace(settings, ppo=replace(ppo, micro_batch_tokens=tokens))
            return "tokens", f"--set ppo.micro_batch_tokens={tokens}", changed
    if formats.base != 1:
        return "base", "--base-precision int8", replace(settings, base_precision="int8")
    return None


def _weights(shape: Architecture | OtherArchitecture, formats: Formats) -> int:
    if isinstance(shape, OtherArchitecture):
        return shape.parameters() * formats.base
    linears = shape.layers * sum(rows * columns for rows, columns in shape.linears().values())
    scales = shape.layers * sum(rows for rows, _ in shape.linears().values()) if formats.base == 1 else 0
    return linears * formats.base + 4 * scales + (shape.parameters() - linears) * formats.other


def _optimizer(shape: Architecture, settings: TrainSettings, adapted: list[tuple[int, int]]) -> int:
    total = 0
    for rows, columns in adapted:
        for size in (settings.lora.rank * rows, settings.lora.rank * columns):
            if settings.optimizer == "adamw" or size < _SMALLEST_8BIT:
                total += 8 * size
            else:
                total += 2 * (size + 4 * math.ceil(size / _BLOCK))
    return shape.layers * total


def _sampling(
    shape: Architecture,
    formats: Formats,
    ppo: PpoSettings,
    longest_prompt: int,
    apart: int,
    problems: int,
    samples: int,
) -> dict[str, int]:
    linears = shape.layers * sum(rows * columns for rows, columns in shape.linears().values())
    output = shape.vocabulary * shape.hidden
    prompts = min(problems, max(1, ppo.rollout_sequences // samples))
    rows = prompts * samples
    length = longest_prompt + math.ceil(ppo.max_tokens / CACHE_GROWTH) * CACHE_GROWTH
    if problems > prompts:
        length += CACHE_GROWTH  # Rows that begin later than others end anywhere.
    token = 2 * shape.layers * shape.key_value_size * formats.rollout
    # One layer's tensors, while the prompts are processed: float32 residuals, the two halves of the MLP, their product.
    at_a_time = min(prompts, max(1, PREFILL_TOKENS // longest_prompt))
    prompt_pass = at_a_time * longest_prompt * (12 * shape.hidden + 4 * shape.intermediate * formats.rollout)
    if formats.device != "cpu":
        length += 2 * ALIGNED
    # Logits, and those of the step before; of some rows scores and probabilities. A recorded step keeps its own.
    drawn = min(rows, drawn_at_a_time(formats.device, shape.vocabulary))
    drawing = 2 * shape.vocabulary * (rows * formats.rollout + drawn * 2 * 4)
    # A layer's halves of the MLP in float32, joined and scaled, while the weights are merged.
    merging = 4 * 4 * shape.hidden * shape.intermediate
    # One layer is copied when the cache grows.
    growing = rows * length * token // shape.layers
    shares = formats.device == "cpu" and formats.base == 1 and formats.rollout == 4  # see `joined_linear.SharedLinear`
    weights = apart if shares else linears + (apart if formats.rollout < 4 else 0)
    parts = {
        "sampler's weights": (weights + (output if formats.rollout != formats.other else 0)) * formats.rollout,
        "KV cache": rows * length * token,
        "one step": max(prompt_pass, drawing + growing, merging - rows * length * token),
    }
    return parts | _free_blocks(formats, parts["one step"] // 2)


def _update(
    shape: Architecture,
    settings: TrainSettings,
    formats: Formats,
    longest_prompt: int,
    completion: int,
    prompts: int,
    samples: int,
    adapted: list[tuple[int, int]],
) -> dict[str, int]:
    """The forward and backward pass of the largest piece."""
    hidden, products = shape.hidden, formats.products
    prompt_tokens, completions = _largest_piece(settings, longest_prompt, completion, prompts, samples)
    key_values = shape.key_value_size if formats.device == "cpu" else shape.query_size  # see `fused.torchs_attention`
    names = settings.lora.targets
    *inner, _ = (name.split(".")[1] for name in shape.kind.mlp)
    inputs = hidden * (bool({"q_proj", "k_proj", "v_proj"} & set(names)) + bool({*inner} & set(names)))
    normed = hidden * len(shape.kind.norms.names())
    normed += shape.query_size + shape.key_value_size if shape.kind.query_key_norm else 0

    def one_pass(count: int, seen: int) -> tuple[int, int]:
        """Bytes that a layer keeps for ``count`` tokens that see ``seen`` keys, and those its backward pass adds."""
        # The inputs of the norms, of the adapters, the attention and the MLP.
        kept = count * (4 * normed + products * (inputs + 2 * shape.query_size + 2 * shape.intermediate))
        kept += 2 * seen * key_values * products + count * products * settings.lora.rank * len(adapted)
        if formats.is_bnb:
            kept += count * 4 * sum(columns for _, columns in adapted)  # peft's copies in float32
        # Gradients of the KV cache and of the MLP; one dequantized weight.
        added = 2 * seen * key_values * products + count * products * shape.intermediate
        added += (products if products != formats.base else 0) * hidden * shape.intermediate
        return kept, added

    # Prompts are processed first, then the completions, each of which sees its own copy of its prompt's keys.
    prompt_kept, prompt_added = one_pass(prompt_tokens, prompt_tokens)
    kept, added = one_pass(completions * completion, completions * (longest_prompt + completion))
    predicted = completions * completion
    # The backward pass frees the activations of completions, and collects gradients of their prompts' KV cache instead.
    shared = 2 * prompt_tokens * shape.key_value_size * products
    if settings.gradient_checkpointing:
        held = 4 * hidden * prompt_tokens + shared + max(4 * hidden * predicted, shared)
        layer = max(prompt_kept + prompt_added, kept + added)
    else:
        held, layer = prompt_kept + max(kept, shared), max(prompt_added, added)
    if formats.is_bnb:
        # Its backward pass keeps the inputs of every linear layer where checkpointing cannot free them.
        held += (prompt_tokens + predicted) * products * (2 * hidden + shape.query_size + shape.intermediate)
    # Before the layers: a chunk of logits and its packed copy, the predicting hidden states (twice, with their
    # gradients), and that part of the output projection in float32.
    rows, tokens = logits_at_a_time(formats.device, shape.vocabulary)
    output = tokens * hidden * 4 if formats.other != 4 else 0
    logits = 2 * min(predicted, rows) * tokens * 4 + 3 * 4 * predicted * hidden + output
    parts = {"activations": shape.layers * held, "one layer or logits": max(layer, logits)}
    return parts | _free_blocks(formats, parts["one layer or logits"])


def _largest_piece(
    settings: TrainSettings, longest_prompt: int, completion: int, prompts: int, samples: int
) -> tuple[int, int]:
    """Tokens of its prompts, and its completions.

    It has whole prompts with their completions, up to the bound, or a single sequence over it.
    """
    most = max(settings.ppo.micro_batch_tokens, longest_prompt + completion)
    if whole := min(prompts, most // (longest_prompt + samples * completion)):
        return whole * longest_prompt, whole * samples
    return longest_prompt, max(1, (most - longest_prompt) // completion)


def _asking(
    teacher: Architecture,
    settings: TrainSettings,
    formats: Formats,
    longest_prompt: int,
    completion: int,
    prompts: int,
    samples: int,
) -> dict[str, int]:
    """The teacher's forward pass over the largest piece, which keeps nothing but the keys and values."""
    hidden, products = teacher.hidden, formats.products
    prompt_tokens, completions = _largest_piece(settings, longest_prompt, completion, prompts, samples)
    predicted = completions * completion
    tokens = max(prompt_tokens, predicted)
    key_values = 2 * teacher.key_value_size * products * (prompt_tokens + predicted)
    # Residuals before and after, normed; queries and the mix; the halves of the MLP and their product; keys of prompts
    # that completions see; one dequantized weight.
    layer = tokens * (3 * 4 * hidden + products * (2 * teacher.query_size + 3 * teacher.intermediate))
    layer += 2 * completions * (longest_prompt + completion) * teacher.key_value_size * products
    layer += (products if products != formats.base else 0) * hidden * teacher.intermediate
    rows, vocabulary = logits_at_a_time(formats.device, teacher.vocabulary)
    output = vocabulary * hidden * 4 if formats.other != 4 else 0
    logits = min(predicted, rows) * vocabulary * 4 + 2 * 4 * predicted * hidden + output
    parts = {"teacher's KV cache": teacher.layers * key_values, "teacher's layer or logits": max(layer, logits)}
    return parts | _free_blocks(formats, parts["teacher's layer or logits"])


def _free_blocks(formats: Formats, measured: int) -> dict[str, int]:
    """What glibc keeps of freed blocks, bounded by `heap.bound_free_memory`. jemalloc keeps nothing.

    Measured: half of what a step of sampling frees, and as much as a layer frees between what layers keep.
    """
    return {"free blocks": min(measured, GROWTH_BYTES)} if formats.device == "cpu" else {}


def memory_limit(settings: TrainSettings, device: str, processes: int = 1, gpu: Gpu | None = None) -> int:
    """Bytes that a process of the run may use: its part of the memory of its GPU, or of the machine.

    Args:
        processes: of the run, that share the device.
        gpu: the GPU to plan for, if not that of this machine.
    """
    budget = math.inf if settings.memory_gib is None else settings.memory_gib * GIB
    if device == "cpu":
        there = memory_limit_bytes() / processes
    elif gpu is not None:
        there = gpu.memory_bytes
    else:
        import torch

        there = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory / processes
    return int(min(budget, there))


def require_free_memory(plan: MemoryPlan, device: str) -> None:
    """Check that other processes leave the GPU's memory that a phase needs.

    Raises:
        UsageError: they do not.
    """
    if device == "cpu":
        return
    import torch

    free, total = torch.cuda.mem_get_info()
    own = torch.cuda.memory_reserved()
    if plan.peak > free + own:
        raise UsageError(
            f"the run needs about {plan.peak / GIB:.1f} GiB, and {free / GIB:.1f} of the GPU's {total / GIB:.1f} GiB "
            "are free: another process uses it. Wait for it, or choose another GPU with CUDA_VISIBLE_DEVICES"
        )
