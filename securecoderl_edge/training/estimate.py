"""Time of a run on a GPU that is not there, from sizes and the GPU's data sheet.

An upper bound of the work: every prompt and every completion has its maximum length. Running the programs is left out.
A pass over tokens takes two floating-point operations per weight and token, at a share of the peak. A decoding step
reads all weights and the KV cache once. It takes at least the latency of its kernels, and a pass over a micro-batch at
least the time that the host takes to start it, both as measured on one machine.
"""

from __future__ import annotations

from dataclasses import replace

from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.models.gpus import Gpu
from securecoderl_edge.models.sizes import Formats
from securecoderl_edge.training.phase_settings import BY_PPO, MOST_PER_PROBLEM, PpoSettings
from securecoderl_edge.training.readiness import completions_per_problem
from securecoderl_edge.training.recipe import most_completions
from securecoderl_edge.training.settings import TrainSettings

# Assumptions, usual for code without kernels of its own: shares of the peaks.
_COMPUTE_SHARE, _BANDWIDTH_SHARE = 0.3, 0.6
# Of a layer in a decoding step, and in a pass over a micro-batch; from an H200 (benchmarks/results/gpu-day.json).
_SECONDS_PER_STEP, _SECONDS_PER_PASS = 2e-4, 5e-3


def seconds_per_update(
    shape: Architecture,
    settings: TrainSettings,
    formats: Formats,
    gpu: Gpu,
    phase: str,
    longest_prompt: int,
    teacher: Architecture | None = None,
) -> float:
    """Of one update of a phase.

    Args:
        longest_prompt: tokens.
        teacher: the model in place of the reference.
    """
    # A pass backwards costs as much as one forwards, since frozen weights get no gradient.
    epoch = 3 if settings.gradient_checkpointing else 2

    def one_pass(prompts: int, completions: int, new_tokens: int, shape: Architecture = shape) -> float:
        pieces = -(-(prompts * longest_prompt + completions * new_tokens) // settings.ppo.micro_batch_tokens)
        one = _pass(shape, formats, gpu, prompts, longest_prompt, completions, new_tokens)
        return max(one, pieces * shape.layers * _SECONDS_PER_PASS)

    if phase == "sft":
        return epoch * one_pass(settings.sft.batch_size, settings.sft.batch_size, settings.sft.max_tokens)
    ppo = settings.ppo
    prompts = ppo.batch_size // ppo.samples_per_prompt
    trained = prompts * min(MOST_PER_PROBLEM, ppo.samples_per_prompt) if phase == "rft" else ppo.batch_size
    passes, asking = float(epoch * (settings.rft.epochs if phase == "rft" else 1)), 0.0
    if phase in BY_PPO:
        # One forward pass each of the reference and of the sampling policy, where advantages or minibatches need it.
        # The first optimizer step reuses the last piece of the latter, which may be all of it or little.
        measures_kl = settings.measures_kl(phase)
        passes = epoch * ppo.epochs + (measures_kl or ppo.advantage == "gae" or ppo.minibatches > 1)
        if measures_kl:
            asking = one_pass(prompts, ppo.batch_size, ppo.max_tokens, teacher or shape)
    sampled = most_completions(settings, phase)
    sampling = seconds_of_sampling(shape, formats, gpu, ppo, sampled, longest_prompt, ppo.samples_per_prompt)
    return one_pass(prompts, trained, ppo.max_tokens) * passes + asking + sampling


def seconds_of_evaluation(
    shape: Architecture, settings: TrainSettings, formats: Formats, gpu: Gpu, longest_prompt: int
) -> float:
    """Of one evaluation on the held-out problems."""
    count, samples = settings.selection.problems, settings.selection.samples
    return seconds_of_sampling(shape, formats, gpu, settings.ppo, count * samples, longest_prompt, samples)


def seconds_of_readiness(
    shape: Architecture, settings: TrainSettings, formats: Formats, gpu: Gpu, longest_prompt: int
) -> float:
    """Of the samples of the readiness report."""
    count, samples = settings.readiness_problems, completions_per_problem(settings.ppo)
    return seconds_of_sampling(shape, formats, gpu, settings.ppo, count * samples, longest_prompt, samples)


def seconds_of_sampling(
    shape: Architecture, formats: Formats, gpu: Gpu, ppo: PpoSettings, completions: int, prompt: int, samples: int = 1
) -> float:
    """Of drawing completions after prompts of ``prompt`` tokens.

    Args:
        samples: completions that share a prompt.
    """
    if not completions:
        return 0.0
    prompts = max(1, completions // samples)
    sampled = replace(formats, products=formats.rollout)
    prefill = _pass(shape, sampled, gpu, prompts, prompt, 0, 0)
    new_tokens, parallel = ppo.max_tokens, ppo.rollout_sequences
    batches, rows = -(-completions // parallel), min(completions, parallel)
    weights = shape.parameters() * formats.rollout
    cache = 2 * shape.layers * shape.key_value_size * formats.rollout * (prompt + new_tokens / 2)
    reading = (weights + rows * cache) / (_BANDWIDTH_SHARE * gpu.gb_per_second * 1e9)
    return prefill + batches * new_tokens * max(reading, shape.layers * _SECONDS_PER_STEP)


def _pass(
    shape: Architecture, formats: Formats, gpu: Gpu, prompts: int, prompt: int, completions: int, new_tokens: int
) -> float:
    """Seconds of a pass over prompts and their completions."""
    linears = sum(rows * columns for rows, columns in shape.linears().values())
    tokens = prompts * prompt + completions * new_tokens
    seen = prompts * prompt * prompt / 2 + completions * new_tokens * (prompt + new_tokens / 2)
    layers = shape.layers * (2 * linears * tokens + 4 * shape.query_size * seen)
    output = 2 * shape.vocabulary * shape.hidden * completions * new_tokens
    peak = gpu.half_tflops if formats.products == 2 else gpu.float_tflops
    return float((layers + output) / (_COMPUTE_SHARE * peak * 1e12))
