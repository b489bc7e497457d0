"""Does PPO on a model of DeepSeek-Coder-1.3B's shape fit, how fast is it, and does the memory plan tell the truth?

    python benchmarks/gpu_fit.py --tokenizer DIR --json benchmarks/results/gpu-fit.json

Weights are random, of exactly that shape; DIR is a folder with that model's tokenizer files (the built-in model's by
default, which changes nothing but the text of completions). Each measurement is a process of its own:

* load: peak of memory while loading over what stays.
* update: one PPO update, batch 2 x (1,024 + 512) tokens, value head, 4 epochs; peaks of sampling and of learning apart.
* sft: one supervised update on the same sequences.
* rollout: 32 sequences of 1,536 tokens decoded at once.
* seed: the same batch by the approach of the paper's published code: a second model in 8 bits as the reference, no
  checkpointing, log-softmax over the whole vocabulary of whole sequences.

On CUDA the process is held to 16 GiB, peaks are the allocator's, and the plan's part for CUDA's own context is left out
of the comparison. Without CUDA the same is done on the CPU, with one epoch; peaks are resident memory, everything that
Python and torch need included, and the formats are those that the CPU computes in.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from random_model import make_model
from record import publish, worker

WORKER = Path(__file__).with_name("gpu_fit_worker.py")


def main() -> None:
    """Make the model, run the workers one after the other, print the table and the plan's errors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json and tokenizer_config.json")
    parser.add_argument("--model", type=Path, help="keep the random model here, and use it if it is there")
    parser.add_argument("--quick", action="store_true", help="two layers of the model, an eighth of the tokens")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.model or Path(name)
        if not (folder / "config.json").is_file():
            make_model(folder, arguments.tokenizer, layers=2 if arguments.quick else None)
        found: dict[str, dict[str, Any]] = {}
        whats = ["load-int8", "update-int8", "update-fp16", "update-bf16", "sft-int8", "rollout-int8", "seed"]
        for what in whats:
            found[what] = worker(WORKER, what, folder, *(["--quick"] if arguments.quick else []))
            if found[what]:
                sys.stdout.write(f"{what:12s} {describe(found[what])}\n")
                sys.stdout.flush()
    publish(summarize(found), arguments.json)


def describe(measured: dict[str, Any]) -> str:
    """A worker's results in a line."""
    return "  ".join(
        f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}" for name, value in measured.items()
    )


def summarize(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The promised results, and all of the workers'."""
    errors = {
        f"{what}: {part}": measured[f"{part}_planned_gib"] / measured[f"{part}_gib"] - 1
        for what, measured in found.items()
        for part in ("sampling", "learning", "sft")
        if f"{part}_planned_gib" in measured
    }
    for name, error in errors.items():
        sys.stdout.write(f"plan over measured, {name:28s} {error:+.1%}\n")
    int8, other = found["update-int8"], found["update-bf16"] or found["update-fp16"]
    return {
        "device": found["load-int8"]["device"],
        "update_peak_gib_int8": int8["learning_gib"],
        "update_peak_gib_fp16": found["update-fp16"]["learning_gib"],
        "seed_peak_gib": found["seed"]["learning_gib"],
        "load_peak_ratio": found["load-int8"]["load_peak_ratio"],
        "rollout_sequences": found["rollout-int8"]["sequences"],
        "plan_error": round(max(map(abs, errors.values())), 3),
        "int8_seconds_over_half": round(int8["seconds_learning"] / other["seconds_learning"], 3),
        "workers": found,
    }


if __name__ == "__main__":
    main()
