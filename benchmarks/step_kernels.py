"""Kernels and bytes of a decoding step on a GPU, by part, counted without one.

    python benchmarks/step_kernels.py --json benchmarks/results/step-kernels.json

The step runs on tensors without numbers (torch's device `meta`), of the shape of Qwen2.5-Coder-0.5B in bfloat16 with
LoRA apart, in the form that a CPU computes and in that for a GPU. Counted are the operations that start a kernel there:
those that are no views and do not only allocate; of those that are made of several, as many as torch's CUDA code has.
`rms_norm` (torch 2.9) and attention with a mask are one each. Not known here: products that cuBLAS splits in two.

Bytes are those that operations read and write, as if no cache held any. ``needed`` are the weights, the entries of the
KV cache and the logits, once; over 4.3 TB/s they give the shortest time of a step.

Then a rollout of a tiny model whose rows end at fixed lengths: how often the host reads, how many steps start kernel by
kernel, and how many are recorded, at the pace of a CPU, as every device had before, and at that of a GPU.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from random_model import make_model
from record import publish
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from securecoderl_edge.models import decoder as decoders
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.drawing_batch import DrawingBatch
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.recorded_step import DecodingStep
from securecoderl_edge.models.sampling import Sampler, sample
from securecoderl_edge.models.sizes import CPU_PACE, GPU_PACE, Pace

SHAPE = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "vocab_size": 151936, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
}  # fmt: skip
TINY = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 64,
}  # fmt: skip
ENTRIES, BANDWIDTH = 456, 4.3e12
# Functions of the decoder, and the part that their operations are; the innermost counts.
PARTS = (
    (decoders.Decoder, "_normed", "norms"), (decoders.Decoder, "_angles_at", "rotary"),
    (decoders, "rotated", "rotary"), (decoders.Decoder, "_attended", "attention"),
    (decoders.Decoder, "_product", "products"), (decoders, "activated", "MLP"),
    (decoders.Decoder, "_added", "residual"), (DrawingBatch, "_draw_round", "drawing"),
)  # fmt: skip
FREE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view"}
# Operations that CUDA makes of several kernels.
MADE_OF = {"constant_pad_nd": 2, "logsumexp": 8}
# Of their operand only some rows are read, or written.
PICKED, PUT = {"embedding", "index", "gather", "index_select"}, {"index_put_", "_index_put_impl_", "index_fill_"}
# Functions that CUDA has a kernel for, and `meta` has not.
WHOLE = {
    functional.rms_norm: "norms", functional.scaled_dot_product_attention: "attention", functional.linear: "head",
}  # fmt: skip


@dataclass
class Count:
    """Kernels and bytes of each part; ``inside`` are the parts that are computed now, the innermost last."""

    kernels: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)
    inside: list[str] = field(default_factory=list)
    is_paused: bool = False

    def add(self, part: str, kernels: int, moved: int) -> None:
        """Kernels that have started."""
        self.kernels[part] += kernels
        self.moved[part] += moved

    @contextmanager
    def labelled(self) -> Iterator[None]:
        """While it lasts, the functions of `PARTS` name what they compute."""

        def within(function: Any, part: str) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                self.inside.append(part)
                try:
                    return function(*arguments, **named)
                finally:
                    self.inside.pop()

            return call

        with ExitStack() as stack:
            for owner, name, part in PARTS:
                stack.enter_context(patch.object(owner, name, within(getattr(owner, name), part)))
            stack.enter_context(_Functions(self))
            stack.enter_context(_Operations(self))
            yield


class _Functions(TorchFunctionMode):
    """Counts functions that are one kernel on a GPU, whatever they are made of elsewhere."""

    def __init__(self, count: Count) -> None:
        super().__init__()
        self._count = count

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function not in WHOLE:
            return function(*args, **(kwargs or {}))
        self._count.is_paused = True
        try:
            made = function(*args, **(kwargs or {}))
        finally:
            self._count.is_paused = False
        part = WHOLE[function]
        if part == "head" and self._count.inside:
            # The factors of LoRA are fewer columns or rows than any layer.
            part = "LoRA" if min(made.shape[-1], args[1].shape[1]) < 100 else self._count.inside[-1]
        self._count.add(part, 1, size_of((args, kwargs)) + size_of(made))
        return made


class _Operations(TorchDispatchMode):
    """Counts all other operations."""

    def __init__(self, count: Count) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._count = count

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if self._count.is_paused or function.is_view or name in FREE:
            return made
        self._count.add(self._part(name), MADE_OF.get(name, 1), moved_by(name, args, kwargs, made))
        return made

    def _part(self, name: str) -> str:
        part = self._count.inside[-1] if self._count.inside else ""
        if part == "products":
            return "LoRA" if name in ("mm", "cat") else "MLP" if name.startswith("mul") else "casts and copies"
        if not part and name in ("index_put_", "_index_put_impl_"):
            return "cache write"
        return part or "bookkeeping"


def size_of(value: Any) -> int:
    """Bytes of the tensors in nested arguments."""
    if isinstance(value, Tensor):
        return value.numel() * value.itemsize
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return 0
    return sum(map(size_of, value))


def moved_by(name: str, args: Any, kwargs: Any, made: Any) -> int:
    """Bytes that an operation reads and writes."""
    if name in PICKED:
        return 2 * size_of(made)
    if name in PUT:
        return 2 * size_of(args[2:])
    if name == "copy_":
        return size_of(args[:2])
    return size_of((args, kwargs)) + size_of(made)


def qwen_on_meta() -> Any:
    """A model of the 0.5 B shape with adapters on all linear layers, without numbers."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, Qwen2Config

    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(Qwen2Config(**SHAPE), dtype=torch.bfloat16)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return get_peft_model(base.eval(), LoraConfig(r=16, target_modules=targets)).to("meta")


@torch.no_grad()
def count_step(model: Any, rows: int, temperature: float, *, on_card: bool) -> dict[str, Any]:
    """Kernels and bytes of a recorded step of so many rows that draws its tokens."""
    decoder = Decoder(model, torch.bfloat16)
    decoder.on_card, decoder.records_steps, decoder.pace = on_card, True, GPU_PACE
    decoder.refresh()
    sampler = Sampler(temperature, 256, frozenset(), torch.empty(0), tempered=True)
    batch = DrawingBatch(decoder, sampler.draw)
    batch._set_tokens(torch.zeros(rows, dtype=torch.long, device="meta"))
    batch._positions = torch.zeros(rows, dtype=torch.long, device="meta")
    batch._bias = torch.zeros(rows, ENTRIES, dtype=torch.bfloat16, device="meta")
    batch._cache, batch._are_drawn = decoder.new_cache(rows, ENTRIES), True
    batch._append()  # the first step makes the table of angles
    assert batch._decoding_step is not None
    count = Count()
    batch._decoding_step._draw = lambda logits: batch._draw_round(logits)
    with count.labelled():
        batch._decoding_step._compute()
    cache = rows * ENTRIES * decoder.cache_bytes_per_token
    needed = decoder.weight_bytes + cache + rows * batch.logits.shape[1] * batch.logits.itemsize
    parts = sorted(count.kernels, key=lambda part: -count.kernels[part])
    return {
        "rows": rows,
        "form": "gpu" if on_card else "cpu",
        "temperature": temperature,
        "kernels": count.kernels.total(),
        "moved_mb": round(count.moved.total() / 1e6),
        "moved_ms": round(1e3 * count.moved.total() / BANDWIDTH, 3),
        "needed_mb": round(needed / 1e6),
        "needed_ms": round(1e3 * needed / BANDWIDTH, 3),
        "parts": {part: [count.kernels[part], round(count.moved[part] / 1e6, 1)] for part in parts},
    }


def lengths(rows: int, longest: int, mean: int) -> list[int]:
    """Fixed lengths of completions, spread as an exponential distribution and cut at ``longest``."""
    return [min(longest, 1 + round(-mean * math.log(1 - (row + 0.5) / rows))) for row in range(rows)]


def count_rollout(model: Any, pace: Pace, rows: int, parallel: int | None) -> dict[str, int]:
    """What sampling does for completions of up to 256 tokens, 90 in the mean before they are cut."""
    decoder, ends, drawn = Decoder(model, torch.float32), lengths(rows, 256, 90), Counter[int]()
    decoder.pace, decoder.on_card = pace, pace is GPU_PACE
    # Lengths are fixed, so that what is drawn does not matter.
    decoder.forward = lambda tokens, *_: torch.zeros(len(tokens), 4)  # type: ignore[method-assign]
    calls, reads = Counter[int](), Counter[str]()
    steps: list[DecodingStep] = []

    def is_last(prompt: int, _sample: int, _token: int) -> bool:
        drawn[prompt] += 1
        return drawn[prompt] == ends[prompt]

    call, decode = DecodingStep.__call__, DrawingBatch.decode

    def step(self: DecodingStep) -> Tensor:
        steps.append(self)  # kept, so that no other gets its id
        calls[id(self)] += 1
        return call(self)

    def read(self: DrawingBatch, *arguments: Any) -> Any:
        reads["reads"] += 1
        return decode(self, *arguments)

    order = [(7 * row) % rows for row in range(rows)]  # 7 and the numbers of rows have no common factor
    ends = [ends[row] for row in order]
    uniforms = torch.rand(rows, 256, generator=torch.Generator().manual_seed(1))
    with patch.object(DecodingStep, "__call__", step), patch.object(DrawingBatch, "decode", read):
        sample(decoder, [[5, 6, 7, 8]] * rows, 1, Sampler(1.0, 256, frozenset(), uniforms, on_token=is_last), parallel)
    return {
        "completions": rows,
        "parallel": parallel or rows,
        "tokens": sum(drawn.values()),
        "steps": calls.total(),
        "reads": reads["reads"],
        "started_kernel_by_kernel": len(calls),
        "recorded": sum(count > 1 for count in calls.values()),
        "replayed": sum(count - 1 for count in calls.values()),
    }


def main() -> None:
    """Count, print a table, write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="file of the results")
    parser.add_argument("--quick", action="store_true", help="the smallest of each")
    arguments = parser.parse_args()
    model = qwen_on_meta()
    cases = ((128, 0.8),) if arguments.quick else ((128, 0.8), (128, 1.0), (512, 0.8))
    steps = [count_step(model, *case, on_card=card) for case in cases for card in (False, True)]
    rollouts = {}
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), None, None, TINY)
        tiny = load_base(Path(folder))
        for name, pace in (("cpu", CPU_PACE), ("gpu", GPU_PACE)):
            sizes = ((16, None),) if arguments.quick else ((128, None), (512, 128))
            rollouts[name] = [count_rollout(tiny, pace, *size) for size in sizes]
    for step in steps:
        sys.stdout.write(" ".join(f"{key} {value}" for key, value in step.items() if key != "parts") + "\n")
        for part, (kernels, moved) in step["parts"].items():
            sys.stdout.write(f"    {part:18s}{kernels:6d} kernels {moved:9.1f} MB\n")
    for name, counts in rollouts.items():
        for counted in counts:
            sys.stdout.write(f"pace of {name}: {counted}\n")
    publish({"entries": ENTRIES, "bandwidth": BANDWIDTH, "steps": steps, "rollouts": rollouts}, arguments.json)


if __name__ == "__main__":
    main()
