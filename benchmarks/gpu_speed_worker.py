"""A comparison of `gpu_day.py`, in a process of its own: how a step decodes, or attention of torch or of cuDNN.

    python benchmarks/gpu_speed_worker.py WHAT FOLDER [--quick]      prints the results as JSON

recorded: sampling where each step is recorded as a CUDA graph, and where the host starts each kernel.
decoding: seconds of a step where the host reads each token or eight at once, steps are recorded or not, and the step is
    computed with few kernels or as on a CPU; its kernels by torch's profiler; whether all draw the same tokens.
attention: forward and backward pass over batches of shapes that are new to the process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from securecoderl_edge.models.adapters import LoraSettings, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import choose_compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.sampling import Sampler, sample
from securecoderl_edge.models.sizes import GPU_PACE
from securecoderl_edge.training.update.sequences import completion_log_probs, make_batch

SEQUENCES = 16
# Tokens between two reads by the host, whether steps are recorded, whether they have few kernels.
FORMS = {
    "few_8": (8, True, True), "few_1": (1, True, True), "few_eager_8": (8, False, True), "many_1": (1, True, False),
}  # fmt: skip
EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Tokens of prompts and completions; no two of them are equal, so every batch has a new shape.
SHAPES = {
    "torch": ((200, 160), (213, 151), (187, 160), (222, 133)),
    "cudnn": ((201, 159), (214, 150), (188, 159), (223, 132)),
}


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall time until the device is done."""
    synchronize()
    started = time.monotonic()
    work()
    synchronize()
    return round(time.monotonic() - started, 3)


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def recorded(model: Any, compute: Any, quick: bool) -> dict[str, Any]:
    """The better of two rounds, for few and for many sequences."""
    decoder = Decoder(model, compute.rollout_dtype)
    facts: dict[str, Any] = {}
    for rows, tokens in ((2, 8),) if quick else ((2, 64), (128, 160)):
        prompts = [list(range(10, 210))] * rows
        uniforms = torch.rand(rows, tokens, generator=torch.Generator().manual_seed(1))
        sampler = Sampler(0.7, tokens, frozenset(), uniforms)
        draw = partial(sample, decoder, prompts, 1, sampler)
        for name in ("eager", "recorded"):
            decoder.records_steps = name == "recorded" and compute.device == "cuda"
            facts[f"{name}_seconds_{rows}x{tokens}"] = min(seconds_of(draw) for _ in range(2))
    return facts


def decoding(model: Any, compute: Any, quick: bool) -> dict[str, Any]:
    """Milliseconds of a step in each form, and what it draws; all rows have the same length, so there are no gaps."""
    decoder, is_gpu = Decoder(model, compute.rollout_dtype), compute.device == "cuda"
    facts: dict[str, Any] = {"dtype": str(compute.rollout_dtype)}
    tokens, longest, times = (10, 30, 1) if quick else (96, 210, 2)
    for rows in (2, 4) if quick else (128, 512):
        # Equal prompts are computed once; their rows differ by their numbers.
        prompts = [list(range(10, longest))] * rows
        uniforms = torch.rand(rows, tokens, generator=torch.Generator().manual_seed(1))
        whole = Sampler(0.8, tokens, frozenset(), uniforms, tempered=True)
        drawn = {}
        for name, (rounds, is_recorded, on_card) in FORMS.items():
            if not is_recorded and rows > 128:
                continue  # the host takes as long as for few rows
            decoder.pace = replace(GPU_PACE, rounds=rounds)
            decoder.records_steps, decoder.on_card = is_recorded and is_gpu, on_card
            decoder.refresh()  # forms have different tables of angles
            draw = partial(sample, decoder, prompts, 1)
            drawn[name] = [done.token_ids for done in draw(whole)]  # the first call loads kernels
            half = replace(whole, max_tokens=tokens // 2)
            seconds = [min(seconds_of(partial(draw, how)) for _ in range(times)) for how in (whole, half)]
            # Both have the prompts and one recording.
            facts[f"{name}_ms_{rows}"] = round(1e3 * (seconds[0] - seconds[1]) / (tokens - half.max_tokens), 3)
            facts[f"{name}_seconds_{rows}x{tokens}"] = seconds[0]
            if rounds == 1 and is_gpu and rows == 128:
                facts[f"{name}_kernels"] = kernels_of_a_step(draw, replace(whole, max_tokens=16))
        first = drawn["few_8"]
        # Other roundings move nearly every token of random weights; tests/cuda compares the logits of both forms.
        facts[f"equal_{rows}"] = all(found == first for name, found in drawn.items() if name != "many_1")
    if is_gpu:
        facts["reserved_gib"] = round(torch.cuda.max_memory_reserved() / 2**30, 2)
    return facts


def kernels_of_a_step(draw: Callable[[Sampler], Any], longer: Sampler) -> float:
    """What the device does in a step: kernels, copies and fills."""
    shorter, counts = replace(longer, max_tokens=longer.max_tokens // 2), []
    for how in (shorter, longer):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            draw(how)
            synchronize()
        counts.append(sum(str(event.device_type).endswith("CUDA") for event in profile.events()))
    return round((counts[1] - counts[0]) / (longer.max_tokens - shorter.max_tokens), 1)


def attention(model: Any, compute: Any, quick: bool) -> dict[str, Any]:
    """Seconds of each batch; the first of each, which loads the kernels, is not among them."""
    generator = torch.Generator().manual_seed(3)

    def tokens(count: int) -> list[int]:
        return torch.randint(10, 9000, (count,), generator=generator).tolist()

    def learn(shape: Sequence[int]) -> None:
        pairs = [(tokens(shape[0]), tokens(shape[1])) for _ in range(2 if quick else SEQUENCES)]
        completion_log_probs(model, make_batch(pairs, 0, compute.device), 0.7, compute)[0].sum().backward()

    facts: dict[str, Any] = {}
    for name, shapes in SHAPES.items():
        torch.backends.cuda.enable_cudnn_sdp(name == "cudnn")
        learn((199, 161))
        facts[f"{name}_seconds"] = [seconds_of(partial(learn, shape)) for shape in (shapes[:1] if quick else shapes)]
        facts[f"{name}_seconds_again"] = seconds_of(partial(learn, shapes[0 if quick else -1]))
    return facts


def main(what: str, folder: Path, quick: bool) -> None:
    """Load the model with adapters, and compare: in int8, for decoding as the GPU computes without a choice."""
    precision, targets = ("auto", EVERY) if what == "decoding" else ("int8", LoraSettings().targets)
    compute = choose_compute("auto", precision)
    base = load_base(folder, compute.base_precision, compute.device, compute.products)
    model = add_adapters(base, LoraSettings(targets=targets), 0)
    facts = {"recorded": recorded, "decoding": decoding, "attention": attention}[what](model, compute, quick)
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), "--quick" in sys.argv)
