"""An RL update of Qwen2.5-Coder-0.5B-Instruct: CPU time, the share of the processor's peak, and TRL's updates.

    python benchmarks/qwen_step.py --json benchmarks/results/qwen-step.json           # half an hour, idle cores
    python benchmarks/qwen_step.py --completions 8 --tokens 64 --ways ours            # five minutes
    python benchmarks/qwen_step.py --isa avx2

The model is that of `sce models pull qwen-0.5b`, the settings are those of the recipe `qwen-0.5b` on MBPP, but each
update has ``--completions``, eight of a prompt, of exactly ``--tokens`` tokens, drawn at temperature 1.2 so that they
differ. As in `ppo_step.py`, whose worker this
uses, every measurement is a process of its own, by turns, after one update to warm up; the reward is a checksum, and no
program runs. `step_against.py` compares with earlier commits. With ``--isa avx2`` torch and its libraries
use no more than AVX2, and ours computes in float32, as on processors that have no more. TRL needs
``pip install -c constraints.txt trl==1.16.0``; its remaining differences are listed in `ppo_step.py`.

The arithmetic of an update, on paper, is that of an algorithm which wastes nothing: a product of a weight and a token
takes two operations per number. Sampling: each prompt once, each completion's tokens once, the output layer for the
tokens that are drawn. Learning: a forward pass over each prompt and each completion once, a backward pass of the same
size, for frozen weights have no gradient, and the output layer twice for the tokens of completions; LoRA's factors are
added, and attention by the entries that tokens see. ``share`` is that arithmetic per CPU second, divided by the peak:
the best that a product of the MLP's size reached on this machine in this dtype, for sampling with as many rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from ppo_step import TRL_MISSING, TRL_VERSION, WORKER, compare, trl_version
from record import publish, worker

from securecoderl_edge.models.architecture import Architecture, read_architecture
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.training.recipe import resolve

MODEL, SAMPLES = "qwen-0.5b", 8
WAYS = {
    "ours": "own", "TRL GRPO": "trl-grpo", "TRL RLOO": "trl-rloo", "TRL GRPO in bf16": "trl-grpo-bf16"
}  # fmt: skip
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
# Of the worker, which measures around functions.
SAMPLING = "sampling"


def main() -> None:
    """Run the workers by turns, print costs, ratios and shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--completions", type=int, default=32, help="of an update")
    parser.add_argument("--tokens", type=int, default=160, help="of a completion")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1, help="processes of each way")
    parser.add_argument("--updates", type=int, default=1, help="timed updates of a process, after one to warm up")
    parser.add_argument("--ways", default="ours,TRL GRPO,TRL RLOO", help=f"of {', '.join(WAYS)}; ours first")
    parser.add_argument("--isa", choices=("all", "avx2"), default="all")
    parser.add_argument("--quick", action="store_true", help="8 completions of 8 tokens, ours alone")
    parser.add_argument("--json", type=Path, help="file for the results")
    given = parser.parse_args()
    if given.quick:
        given.completions, given.tokens, given.ways = SAMPLES, 8, "ours"
    ways = [name for name in given.ways.split(",") if "TRL" not in name or trl_version() == TRL_VERSION]
    if len(ways) < len(given.ways.split(",")):
        sys.stderr.write(TRL_MISSING)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(given.rounds):
            for name in ways if turn % 2 == 0 else reversed(ways):
                runs[name].append(measured(name, given, folder))
    result = compare(runs, given.threads, "", given.completions * given.tokens)
    result["ours_by_part"] = shares(runs["ours"], given)
    facts = {name: getattr(given, name) for name in ("completions", "tokens", "threads", "rounds", "updates", "isa")}
    publish({**result, **facts, "trl": trl_version() or None}, given.json)


def measured(name: str, given: argparse.Namespace, folder: str) -> dict[str, Any]:
    """One worker's results."""
    threads, way = str(given.threads), WAYS[name]
    only = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "CUDA_VISIBLE_DEVICES": ""}
    if given.isa == "avx2":
        only |= AVX2
        way += "-fp32" if way == "own" else ""
    model = f"{MODEL}:{given.completions}:{given.tokens}"
    return worker(WORKER, model, way, folder, given.updates, **only, TRL_EXPERIMENTAL_SILENCE="1")


def shares(runs: list[dict[str, Any]], given: argparse.Namespace) -> dict[str, Any]:
    """Print and return the CPU seconds of the parts of an update, with their arithmetic and share of the peak."""
    parts = {key: statistics.median(run["seconds_by_part"][key] for run in runs) for key in runs[0]["seconds_by_part"]}
    system, faults = (
        statistics.median(each[place] for run in runs for each in run["system_seconds_and_faults"]) for place in (0, 1)
    )
    spent = {"sampling": parts[SAMPLING], "learning": parts["all"] - parts[SAMPLING]}
    # Of whole prompts: they count once for the completions that share them.
    operations = arithmetic(runs[0]["prompt_tokens"] // SAMPLES, given.completions, given.tokens)
    found: dict[str, Any] = {"seconds": parts, "system_seconds": round(system, 2), "page_faults": int(faults)}
    for part, seconds in spent.items():
        peak = statistics.median(run["peaks"][part] for run in runs)
        rate = operations[part] / seconds / 1e9
        found[part] = {
            "cpu_seconds": round(seconds, 2), "tflop": round(operations[part] / 1e12, 3), "gflop_per_second":
            round(rate, 1), "peak_gflop_per_second": peak, "share": round(rate / peak, 3),
        }  # fmt: skip
        sys.stdout.write(
            f"ours: {part:8s} {seconds:7.2f} s CPU for {operations[part] / 1e12:.2f} TFLOP: {rate:.0f} GFLOP/s, "
            f"{100 * rate / peak:.0f} % of the peak of {peak:.0f}\n"
        )
    sys.stdout.write(f"ours: {system:.1f} s in the system, {faults:,.0f} page faults per update\n")
    return found


def arithmetic(prompt_tokens: int, completions: int, tokens: int) -> dict[str, float]:
    """The operations of sampling and of learning, see the head of this file.

    Args:
        prompt_tokens: of all prompts, each once.
    """
    shape = read_architecture(base_folder(MODEL))
    assert isinstance(shape, Architecture)
    weights = shape.layers * sum(rows * columns for rows, columns in shape.linears().values())
    lora = resolve(MODEL, (), {}).lora
    adapters = shape.layers * sum(
        lora.rank * sum(size) for name, size in shape.linears().items() if name.split(".")[1] in lora.targets
    )
    new, output = completions * tokens, shape.vocabulary * shape.hidden
    longest = prompt_tokens * SAMPLES / completions
    seen = prompt_tokens * longest / 2 + new * (longest + tokens / 2)
    attention = 4 * shape.layers * shape.query_size * seen
    forward = 2 * (weights + adapters) * (prompt_tokens + new) + attention
    # Products of the scores and of the values have two gradients each; of adapters, the inputs and the factors.
    backward = 2 * (weights + 2 * adapters) * (prompt_tokens + new) + 2 * attention
    return {
        "sampling": 2 * weights * (prompt_tokens + new) + attention + 2 * output * new,
        "learning": forward + backward + 4 * output * new,
    }


if __name__ == "__main__":
    main()
