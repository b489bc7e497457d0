"""What does each `--base-precision` of `sce bench` and `sce generate` cost, in memory and in speed?

    python benchmarks/precision.py --json benchmarks/results/precision.json

A model of SmolLM2-135M's shape with random weights (or --model FOLDER) answers 16 prompts, 8 at a time, in a process of
its own for each precision. The peers are fp32 and, for replacing finished completions by waiting ones, batches that
end with their longest completion. Completions have random lengths.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from record import publish, worker

PRECISIONS = ("fp32", "bf16", "int8")
PROMPTS, AT_A_TIME, TOKENS = 16, 8, 96
SHAPE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
    "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
    "max_position_embeddings": 8192, "rope_theta": 100000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip


def make_model(folder: Path) -> None:
    """Random float16 weights of the shape, with the tokenizer of nano."""
    import shutil

    import torch
    from safetensors.torch import save_file

    from securecoderl_edge.models.architecture import architecture_of
    from securecoderl_edge.models.files import NANO, base_folder

    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(base_folder(NANO) / name, folder / name)
    (folder / "config.json").write_text(json.dumps(SHAPE))
    shapes = architecture_of(dict(SHAPE), "shape").tensors()
    save_file({name: (torch.randn(size) * 0.02).half() for name, size in shapes.items()}, folder / "model.safetensors")


def measure(folder: str, precision: str, is_static: bool) -> dict[str, Any]:
    """Load the model in this process and decode; the lengths are those at which ``on_token`` ends a completion."""
    import random

    import torch

    from securecoderl_edge.models.sampling import Sampler, sample
    from securecoderl_edge.runtimes.hf import HfRuntime
    from securecoderl_edge.system.machine import peak_rss_bytes

    before, started = peak_rss_bytes(), time.monotonic()
    runtime = HfRuntime(folder, threads=1, base_precision=precision)
    loaded, decoder = time.monotonic() - started, runtime._decoder
    assert decoder is not None
    chooser = random.Random(1)
    prompts = [[chooser.randrange(300, 400) for _ in range(chooser.randint(20, 60))] for _ in range(PROMPTS)]
    lengths = [chooser.randint(8, TOKENS) for _ in range(PROMPTS)]

    def decode(numbers: list[int]) -> int:
        drawn: dict[int, int] = {}

        def is_last(prompt: int, _sample: int, _token: int) -> bool:
            drawn[prompt] = drawn.get(prompt, 0) + 1
            return drawn[prompt] == lengths[numbers[prompt]]

        uniforms = torch.rand(len(numbers), TOKENS, generator=torch.Generator().manual_seed(1))
        sampler = Sampler(1.0, TOKENS, frozenset(), uniforms, on_token=is_last)
        return sum(
            len(done.token_ids) for done in sample(decoder, [prompts[n] for n in numbers], 1, sampler, AT_A_TIME)
        )

    every = list(range(PROMPTS))
    decode(every[:1])  # the first calls set up their kernels
    started = time.process_time()
    parts = [every[n : n + AT_A_TIME] for n in range(0, PROMPTS, AT_A_TIME)] if is_static else [every]
    tokens = sum(map(decode, parts))
    seconds = time.process_time() - started
    return {
        "load_seconds": loaded,
        "peak_mib": (peak_rss_bytes() - before) >> 20,
        "weights_mib": decoder.weight_bytes >> 20,
        "tokens": tokens,
        "cpu_seconds": seconds,
        "tokens_per_cpu_second": tokens / seconds,
    }


def main() -> None:
    """Measure every precision several times by turns, and print the best of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", type=Path, help="a model folder instead of random weights")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        folder, precision, way = arguments.one
        print(json.dumps(measure(folder, precision, way == "static")))
        return
    cases = [(precision, "refilled") for precision in PRECISIONS] + [("fp32", "static")]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as place:
        folder = arguments.model or Path(place) / "model"
        if arguments.model is None:
            make_model(folder)
        for _ in range(1 if arguments.quick else arguments.runs):
            for case in cases:
                found[case].append(worker(__file__, "--one", folder, *case))
    best = {" ".join(case): max(runs, key=lambda run: run["tokens_per_cpu_second"]) for case, runs in found.items()}
    peer = best["fp32 refilled"]["tokens_per_cpu_second"]
    for name, row in best.items():
        row["speed_against_fp32"] = row["tokens_per_cpu_second"] / peer
        print(
            f"{name:15} {row['weights_mib']:6} MiB weights {row['peak_mib']:6} MiB peak "
            f"{row['tokens_per_cpu_second']:8.1f} tokens/CPU s  x{row['speed_against_fp32']:.2f}"
        )
    publish({"shape": None if arguments.model else SHAPE, "results": best}, arguments.json)


if __name__ == "__main__":
    main()
