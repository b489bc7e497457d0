"""A comparison of `gpu_day.py`, in a process of its own: steps recorded or eager, attention of torch or of cuDNN.

    python benchmarks/gpu_speed_worker.py WHAT FOLDER [--quick]      prints the results as JSON

recorded: sampling where each step is recorded as a CUDA graph, and where the host starts each kernel.
attention: forward and backward pass over batches of shapes that are new to the process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from securecoderl_edge.models.adapters import LoraSettings, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import choose_compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.sampling import Sampler, sample
from securecoderl_edge.training.update.sequences import completion_log_probs, make_batch

SEQUENCES = 16
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
    """Load the model in int8 with adapters, and compare."""
    compute = choose_compute("auto", "int8")
    base = load_base(folder, compute.base_precision, compute.device, compute.products)
    model = add_adapters(base, LoraSettings(), 0)
    facts = (recorded if what == "recorded" else attention)(model, compute, quick)
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), "--quick" in sys.argv)
