"""Cost of an update in CPU time and memory, compared with ours on Hugging Face's generate, and with TRL's RLOO.

    python benchmarks/ppo_step.py --json benchmarks/results/ppo-step.json
    python benchmarks/ppo_step.py --model random-256-4 --json benchmarks/results/ppo-step-bf16.json
    python benchmarks/ppo_step.py --model smollm2 --json benchmarks/results/smollm2-step.json

The peer is an optional dependency of this script alone: ``pip install -c constraints.txt trl==1.16.0``.

With ``--model smollm2`` the model is that of the recipe `smollm2`, LoRA of rank 16 on all linear layers of
SmolLM2-135M. An update has 4 prompts of MBPP with 8 completions of exactly 160 tokens each, and one pass over those 32
with a KL penalty; the recipe has 128 completions and no penalty. Ours chooses its
dtypes; TRL has float32 weights, with and without its mixed precision.

With the default model all take a small random Llama (hidden size 256, 4 layers, 4,096 words, float32), LoRA of rank 16
on q, k, v, o, 4 prompts of 64 tokens with 2 completions of exactly 128 tokens each, and 4 passes over those 8 with a KL
penalty. ``--model random-256-4`` is the same with the dtypes that ours chooses, and TRL with its mixed precision, too.

The end of sequence is an id past the model's vocabulary: nobody can draw it, so all have the same work. The reward is a
checksum of the completion's text, no program runs. Every measurement is a process of its own, by turns, with the same
environment; its CPU seconds are counted after one update to warm up. Completions differ, so that ours finds none to
process once, and all of a small batch fit into one piece.

Remaining differences:

* Ours processes a prompt once for its two completions, TRL each sequence whole: 1,280 tokens a pass against 1,536.
* Ours samples from a copy of the weights, in float32 with the adapter merged; `hf` and TRL from the model that trains.
* The reference of ours is a second adapter, TRL's is the model without one, which is cheaper.
* TRL computes the exact entropy for its log, ours estimates it from the tokens drawn; ours logs more of the ratios, and
  looks for a program in each completion.
* RLOO takes one ratio a sequence, ours one a token. Neither has a value head: ours has none with advantage = rloo.
* TRL's process also holds what it imports (datasets, pandas, pyarrow); memory before the first update is told apart.

Gradient checkpointing, a default of TRL, is off, since it costs time; so is bfloat16 with ``--model random``, in ours
as well.
`sce train` also returns large blocks to the system to save memory; this is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ppo_step_worker import BATCH, NEW_TOKENS
from record import publish, worker

from securecoderl_edge.system.files import write_atomically

# torch is imported by the workers alone: a child's peak memory begins with that of the process that started it.

TRL_VERSION = "1.16.0"
TRL_MISSING = f"no TRL {TRL_VERSION}, so no results of it: pip install -c constraints.txt trl=={TRL_VERSION}\n"
WAYS = {
    "random": {"ours": "own", "ours, HF generate": "hf", "TRL RLOO": "trl-rloo"},
    "random-256-4": {"ours": "own", "TRL RLOO": "trl-rloo", "TRL RLOO in bf16": "trl-rloo-bf16"},
    "smollm2": {
        "ours": "own",
        "TRL RLOO": "trl-rloo",
        "TRL RLOO in bf16": "trl-rloo-bf16",
        "TRL GRPO in bf16": "trl-grpo-bf16",
    },
}
TOKENS = {"random": BATCH * NEW_TOKENS, "random-256-4": BATCH * NEW_TOKENS, "smollm2": 32 * 160}
SCALING = (8, 16, 32, 64)
WORKER = Path(__file__).with_name("ppo_step_worker.py")


def main() -> None:
    """Make the model, run the workers by turns, print costs and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", choices=WAYS, default="random")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each contender and number of threads")
    parser.add_argument("--updates", type=int, default=2, help="timed updates of a process, after one to warm up")
    parser.add_argument("--quick", action="store_true", help="one round of one update, one thread, no scaling")
    parser.add_argument(
        "--folder", type=Path, help="keep what results of each process; a stopped run resumes from them"
    )
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    rounds, updates = (1, 1) if arguments.quick else (arguments.rounds, arguments.updates)
    model, known = arguments.model, WAYS[arguments.model]
    ways = {name: way for name, way in known.items() if "trl" not in way or trl_version() == TRL_VERSION}
    if len(ways) < len(known):
        sys.stderr.write(TRL_MISSING)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        run(model, "make", folder, 0, 1)
        for threads, suffix in ((1, ""), (2, "_2_threads")) if not arguments.quick else ((1, ""),):
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
            for turn in range(rounds):
                for name in ways if turn % 2 == 0 else reversed(ways):
                    runs[name].append(run(model, ways[name], folder, updates, threads, turn))
            result |= compare(runs, threads, suffix, TOKENS[model])
        result["seconds_by_part"] = run(model, "parts", folder, updates, 1)["seconds_by_part"]
        sizes = SCALING if model == "random" and not arguments.quick else ()
        result["scaling"] = [{"batch": size, **run(model, f"batch-{size}", folder, 1, 1)["scaling"]} for size in sizes]
    for part, seconds in result["seconds_by_part"].items():
        sys.stdout.write(f"ours: {part:36s} {seconds:6.2f} s CPU per update\n")
    for row in result["scaling"]:
        sys.stdout.write("ours  " + "  ".join(f"{name} {value}" for name, value in row.items()) + "\n")
    facts = {"model": model, "rounds": rounds, "updates": updates, "trl": trl_version() or None}
    publish({**result, **facts}, arguments.json)


def run(model: str, way: str, folder: Path, updates: int, threads: int, turn: int = 0) -> dict[str, Any]:
    """One worker's results, from a process of its own, or from the same one of a run that was stopped."""
    file = folder / f"measured-{model}-{way}-{updates}-{threads}-{turn}.json"
    if file.is_file():
        return dict(json.loads(file.read_text(encoding="utf-8")))
    only = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    measured = worker(WORKER, model, way, folder, updates, **only, TRL_EXPERIMENTAL_SILENCE="1")
    with write_atomically(file) as out:
        out.write(json.dumps(measured))
    return measured


def compare(runs: dict[str, list[dict[str, Any]]], threads: int, suffix: str, tokens: int) -> dict[str, Any]:
    """Print and return the costs of the contenders at one number of threads, and the ratios of their medians.

    Args:
        tokens: that each must have sampled in an update.
    """
    table: dict[str, dict[str, float]] = {}
    for name, measured in runs.items():
        cpu = [seconds for each in measured for seconds in each["cpu_seconds"]]
        table[name] = {
            "cpu_seconds_min": round(min(cpu), 3),
            "cpu_seconds_median": round(statistics.median(cpu), 3),
            "wall_seconds_median": round(statistics.median(s for each in measured for s in each["wall_seconds"]), 3),
            "peak_rss_mib": round(statistics.median(each["peak_rss_mib"] for each in measured), 1),
            "rss_before_updates_mib": round(statistics.median(each["rss_before_mib"] for each in measured), 1),
            "prompt_tokens_an_update": measured[0]["prompt_tokens"],
            "sampled_tokens_an_update": measured[0]["sampled_tokens"],
        }
        row = table[name]
        sys.stdout.write(
            f"{threads} thread{'s' * (threads > 1)}  {name:18s} {row['cpu_seconds_median']:6.2f} s CPU an update (best "
            f"{row['cpu_seconds_min']:.2f})  {row['wall_seconds_median']:6.2f} s wall  {row['peak_rss_mib']:7.1f} MiB "
            f"(before {row['rss_before_updates_mib']:.1f})  {row['sampled_tokens_an_update']} tokens sampled\n"
        )
        if any(each["sampled_tokens"] != tokens for each in measured):
            raise SystemExit(
                f"{name} sampled another number of tokens: {[each['sampled_tokens'] for each in measured]}"
            )

    def ratio(key: str, peer: str) -> float:
        return round(table["ours"][key] / table[peer][key], 3)

    ratios = {}
    for peer in list(table)[1:]:
        slug = peer.removeprefix("ours, ").lower().replace(" ", "_")
        ratios[f"cpu_ratio_vs_{slug}"] = ratio("cpu_seconds_median", peer)
        ratios[f"wall_ratio_vs_{slug}"] = ratio("wall_seconds_median", peer)
        ratios[f"rss_ratio_vs_{slug}"] = ratio("peak_rss_mib", peer)
    return {**{name + suffix: value for name, value in ratios.items()}, f"contenders{suffix}": table}


def trl_version() -> str:
    """The installed version, or nothing."""
    try:
        return version("trl")
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
