"""Does the sampler sample from the policy that trains? Small LoRA updates in 16 bits, merged into weights and apart.

    python benchmarks/sampler_agreement.py --model nano --json benchmarks/results/sampler-agreement.json

LoRA's second factor is what Adam's first step makes of it at a learning rate: plus or minus that, by the sign of a
gradient (here that of the log-probabilities of every other completion, minus the rest). The same completions are
read by each sampler, by training's forward pass and by PEFT's; training's in float32 is the truth:

* ``weights``: how much of the update is in the sampler's weights, sum of found x true / sum of true squared. ``plain``
  layers have the base's own weights, which the dtype holds exactly; in others the factors of a norm are multiplied in.
* ``share``: of the effect on the log-probabilities, in the same way; each token of the vocabulary by its probability.
* ``noise``: root mean square of the rest, divided by that of the true effect.
* ``kl``: KL(read || truth) in nats per token; without an update (size 0) it is that of the rounding alone.

Then each sampler decodes on one thread, by turns: tokens per CPU second.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported

import torch
from record import publish
from torch import Tensor

from securecoderl_edge.models.adapters import LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.models.joined_linear import JoinedLinear
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.running_batch import RunningBatch
from securecoderl_edge.models.sampling import Sampler, sample
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.models.transformer import hidden_states, output_weight
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.prompts.styles import OURS
from securecoderl_edge.training.update.sequences import completion_log_probs, make_batch

TARGETS = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
# dtype, and whether the adapter is merged.
WAYS: dict[str, tuple[torch.dtype, bool]] = {
    "bf16 merged": (torch.bfloat16, True),
    "bf16 apart": (torch.bfloat16, False),
    "fp16 merged": (torch.float16, True),
    "fp32 merged": (torch.float32, True),
}
PLAIN, NORMED = ("out", "down"), ("qkv", "gate_up")
Pairs = list[tuple[list[int], tuple[int, ...]]]  # prompts and completions
Distributions = list[Tensor]  # (T, V) log-probabilities of each completion


def main() -> None:
    """Measure agreement, then speed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="nano")
    parser.add_argument("--base-precision", default="bf16", help="of the frozen base; the dtype holds its weights")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--targets", default=TARGETS)
    parser.add_argument("--sizes", default="0,2e-5,2e-4,2e-3", help="of the update; 0 first")
    parser.add_argument("--rows", type=int, default=32, help="completions")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", default="bf16 merged,bf16 apart", help=f"of {', '.join(WAYS)}; the first is the peer")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.quick:
        given.rows, given.tokens, given.rounds = 4, 8, 1
    torch.set_num_threads(1)
    folder, ways, sizes = base_folder(given.model), given.ways.split(","), list(map(float, given.sizes.split(",")))
    lora = LoraSettings(given.rank, 2 * given.rank, tuple(given.targets.split(",")))
    model = add_adapters(load_base(folder, given.base_precision, given.device), lora, seed=1)
    texts = [OURS.prompt(problem) for problem in load_problems("starter:train")[: max(1, given.rows // 4)]]
    prompts = [read_tokenizer(folder).encode_prompt(text) for text in texts for _ in range(4)][: given.rows]
    pairs = list(zip(prompts, sampled(Decoder(model, torch.float32), prompts, given.tokens), strict=True))
    agreement = agree(model, ways, sizes, pairs)
    rates = speed(model, ways, prompts, given.tokens, given.rounds)
    for row in agreement:
        print(
            " ".join(
                f"{name} {value:.3g}" if isinstance(value, float) else f"{value:12}" for name, value in row.items()
            )
        )
    best = {way: max(each) for way, each in rates.items()}
    for way, rate in best.items():
        print(f"{way}: {rate:.1f} tokens per CPU second, x{rate / best[ways[0]]:.3f}")
    names = ("model", "base_precision", "device", "rank", "targets", "rows", "tokens")
    results = {name: getattr(given, name) for name in names}
    publish({**results, "agreement": agreement, "tokens_per_cpu_second": rates}, given.json, keep_earlier=True)


def direction_of(model: Any, pairs: Pairs) -> dict[str, Tensor]:
    """The sign of each entry of the gradient, by name of the second factor: every other completion was good."""
    factors = {name: value for name, value in adapter_parameters(model).items() if "lora_B" in name}
    batch = make_batch(pairs, 0, next(iter(factors.values())).device)
    log_probs, _ = completion_log_probs(model, batch, 1.0)
    rewards = torch.tensor([1.0 if row % 2 else -1.0 for row in range(len(pairs))], device=log_probs.device)
    gradients = torch.autograd.grad([(rewards[:, None] * log_probs).sum()], list(factors.values()))
    return {name: gradient.sign() for name, gradient in zip(factors, gradients, strict=True)}


def set_update(model: Any, direction: dict[str, Tensor], size: float) -> None:
    """Make every entry of the policy's second factors plus or minus ``size``."""
    with torch.no_grad():
        for name, factor in adapter_parameters(model).items():
            if name in direction:
                factor.copy_(size * direction[name])


def sampled(decoder: Decoder, prompts: list[list[int]], length: int) -> list[tuple[int, ...]]:
    """One completion of each prompt, each of ``length`` tokens."""
    uniforms = torch.rand(len(prompts), length, generator=torch.Generator().manual_seed(3))
    done = sample(decoder, prompts, 1, Sampler(1.0, length, frozenset(), uniforms))
    return [each.token_ids for each in done]


def agree(model: Any, ways: list[str], sizes: list[float], pairs: Pairs) -> list[dict[str, Any]]:
    """The row of each size and way, of training's forward pass in bfloat16 and of PEFT's."""
    direction = direction_of(model, pairs)
    readers: dict[str, Callable[[], Distributions]] = {
        **{way: partial(by_decoder, model, *WAYS[way], pairs) for way in ways},
        "learner bf16": partial(by_learner, model, torch.bfloat16, pairs),
        "PEFT bf16": partial(by_peft, model, pairs),
    }
    found: list[dict[str, Any]] = []
    before: dict[str, Distributions] = {}
    weights_before: dict[str, dict[str, Tensor]] = {}
    for size in sizes:
        set_update(model, direction, size)
        truth, weights = by_learner(model, torch.float32, pairs), weights_of(model, torch.float32, merge=True)
        if not size:
            true_before, true_weights_before = truth, weights
        for way, read in readers.items():
            seen, own = read(), weights_of(model, *WAYS[way]) if way in WAYS else {}
            row: dict[str, Any] = {"way": way, "size": size, "kl": kl(seen, truth)}
            if size:
                row |= effect(seen, before[way], truth, true_before)
                for kind, names in (("plain", PLAIN), ("normed", NORMED)) if own else ():
                    row[f"weights_{kind}"] = weight_share(own, weights_before[way], weights, true_weights_before, names)
            else:
                before[way], weights_before[way] = seen, own
            found.append(row)
    return found


def by_learner(model: Any, dtype: torch.dtype, pairs: Pairs) -> Distributions:
    """As training computes them, but for the output layer, which is float32 throughout."""
    found, weight = [], output_weight(model).float()
    for prompt, completion in pairs:
        tokens = torch.tensor([[*prompt, *completion]], device=weight.device)
        with torch.no_grad():
            states, _ = hidden_states(model, tokens, dtype=dtype)
            found.append((states[len(prompt) - 1 : -1] @ weight.T).log_softmax(-1))
    return found


def by_peft(model: Any, pairs: Pairs) -> Distributions:
    """As transformers and PEFT compute them in mixed precision: the adapter is a second product, added to the first."""
    found, device = [], output_weight(model).device
    for prompt, completion in pairs:
        tokens = torch.tensor([[*prompt, *completion]], device=device)
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
            found.append(model(tokens).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1))
    return found


def by_decoder(model: Any, dtype: torch.dtype, merge: bool, pairs: Pairs) -> Distributions:
    """As sampling computes them, token by token with a KV cache."""
    decoder = Decoder(model, dtype, merge=merge)
    decoder.refresh()
    batch, steps = RunningBatch(decoder), []
    tokens = torch.tensor([completion for _, completion in pairs], device=decoder.device)
    with torch.no_grad():
        batch.admit(list(range(len(pairs))), [prompt for prompt, _ in pairs])
        for place in range(tokens.shape[1]):
            steps.append(batch.logits.float().log_softmax(-1))
            batch.step(tokens[:, place])
    return list(torch.stack(steps, 1))


def weights_of(model: Any, dtype: torch.dtype, merge: bool) -> dict[str, Tensor]:
    """What a sampler multiplies with in its first layer, adapter included, in float32."""
    decoder = Decoder(model, dtype, merge=merge)
    decoder.refresh()
    return {name: whole(getattr(decoder.layers[0], name)) for name in (*PLAIN, *NORMED)}


def whole(linear: JoinedLinear) -> Tensor:
    """W, or W + s B A of factors that are apart."""
    assert isinstance(linear.weight, Tensor)
    weight = (linear.weight.to_dense() if linear.weight.is_mkldnn else linear.weight).float()
    if linear.reduce is None:
        return weight
    width = linear.reduce.shape[1]
    return weight[:, :width] + weight[:, width:] @ linear.reduce.float()


def weight_share(
    own: dict[str, Tensor],
    before: dict[str, Tensor],
    true: dict[str, Tensor],
    true_before: dict[str, Tensor],
    names: tuple[str, ...],
) -> float:
    """How much of the update is in the weights of some layers."""
    moved = torch.cat([(own[name] - before[name]).double().flatten() for name in names])
    real = torch.cat([(true[name] - true_before[name]).double().flatten() for name in names])
    return float((moved @ real) / (real @ real))


def kl(seen: Distributions, truth: Distributions) -> float:
    """Mean over the tokens of KL(seen || truth)."""
    both = [(one.double(), two.double()) for one, two in zip(seen, truth, strict=True)]
    return float(torch.stack([(one.exp() * (one - two)).sum(-1).mean() for one, two in both]).mean())


def effect(
    seen: Distributions, before: Distributions, truth: Distributions, true_before: Distributions
) -> dict[str, float]:
    """``share`` and ``noise``, see the head of the file."""
    cross = square = own = 0.0
    for one, old, two, true_old in zip(seen, before, truth, true_before, strict=True):
        weights, moved, real = true_old.double().exp(), one.double() - old.double(), two.double() - true_old.double()
        cross += float((weights * moved * real).sum())
        square += float((weights * real * real).sum())
        own += float((weights * moved * moved).sum())
    share = cross / square
    return {"share": share, "noise": (max(0.0, own - share * share * square) / square) ** 0.5}


def speed(model: Any, ways: list[str], prompts: list[list[int]], length: int, rounds: int) -> dict[str, list[float]]:
    """Tokens per CPU second of each round, by turns."""
    decoders = {way: Decoder(model, WAYS[way][0], merge=WAYS[way][1]) for way in ways}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for decoder in decoders.values():
        decoder.refresh()
        sampled(decoder, prompts, 4)  # the first calls set up their kernels
    for _ in range(rounds):
        for way, decoder in decoders.items():
            started = time.process_time()
            sampled(decoder, prompts, length)
            rates[way].append(len(prompts) * length / (time.process_time() - started))
    return rates


if __name__ == "__main__":
    main()
