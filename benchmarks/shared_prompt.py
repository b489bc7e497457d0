"""What does it save to process a prompt once for all of its completions?

    python benchmarks/shared_prompt.py --json benchmarks/results/shared-prompt.json

The peer is the same update on prompts that differ in one token, so that nothing can be shared: what a trainer does that
takes every prompt and completion for a sequence of its own. Both process equally many completions of equal lengths;
the time is this process's CPU time, the best of several runs by turns.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

from record import publish

from securecoderl_edge.models.adapters import POLICY_ADAPTER, adapter_parameters, add_adapters
from securecoderl_edge.models.device import choose_compute
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.update.sequences import TokenBatch, completion_log_probs, make_batch, micro_batches

PROMPTS, SAMPLES = 8, 8


def draw_batch(prompt_tokens: int, completion_tokens: int, *, shared: bool) -> TokenBatch:
    """`PROMPTS` x `SAMPLES` random sequences of lengths around the given ones, the same in both cases."""
    rng = random.Random(1)
    pairs = []
    for _ in range(PROMPTS):
        prompt = [rng.randrange(2, 2000) for _ in range(rng.randint(prompt_tokens * 3 // 4, prompt_tokens * 5 // 4))]
        for sample in range(SAMPLES):
            size = rng.randint(completion_tokens * 3 // 4, completion_tokens * 5 // 4)
            own = prompt if shared else [2 + sample, *prompt[1:]]
            pairs.append((own, [rng.randrange(2, 2000) for _ in range(size)]))
    return make_batch(pairs, 0, "cpu")


def update_seconds(model: Any, batch: TokenBatch, micro_tokens: int) -> float:
    """CPU seconds of one forward and backward pass over the batch."""
    compute = choose_compute("cpu", "auto")
    started = time.process_time()
    for rows in micro_batches(batch, micro_tokens):
        log_probs, _ = completion_log_probs(model, batch.rows(rows), 0.7, compute)
        log_probs.sum().backward()
    for parameter in adapter_parameters(model, POLICY_ADAPTER).values():
        parameter.grad = None
    return time.process_time() - started


def main() -> None:
    """Measure nano at the starter's lengths and at prompts several times as long as their completions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one run")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    settings = resolve("starter", (), {"model": "nano"})
    model = add_adapters(load_base(base_folder("nano")), settings.lora, settings.seed)
    rows = []
    for prompt_tokens, completion_tokens in ((130, 65), (400, 100)):
        batches = [draw_batch(prompt_tokens, completion_tokens, shared=shared) for shared in (True, False)]
        best = [float("inf")] * 2
        for _ in range(1 if arguments.quick else arguments.runs):
            for index, batch in enumerate(batches):
                best[index] = min(best[index], update_seconds(model, batch, settings.ppo.micro_batch_tokens))
        rows.append(
            {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "shared_seconds": round(best[0], 3),
                "separate_seconds": round(best[1], 3),
                "ratio": round(best[1] / best[0], 2),
            }
        )
        sys.stdout.write("  ".join(f"{name} {value}" for name, value in rows[-1].items()) + "\n")
    publish({"prompts": PROMPTS, "samples_per_prompt": SAMPLES, "rows": rows}, arguments.json)


if __name__ == "__main__":
    main()
