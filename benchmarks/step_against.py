"""An RL update of Qwen2.5-Coder-0.5B-Instruct by `sce train`: this checkout against an earlier one, by turns.

    git worktree add ../earlier a3d71ad
    python benchmarks/step_against.py ../earlier --isa avx2 --json benchmarks/results/step-against.json   # 15 minutes
    python benchmarks/step_against.py ../earlier --bench 164 --json benchmarks/results/bench-against.json
    python benchmarks/step_against.py --model qwen-1.5b --completions 16 \\
        --more "--base-precision int8 --set ppo.micro_batch_tokens=1024" --json step-1.5b.json

The model is that of `sce models pull qwen-0.5b`, the problems `mbpp:clean`, 32 completions of at most 160 tokens, in
the dtypes that `sce` chooses. The commands are those of a user, since what is inside of `sce` has changed: programs
run on their tests, and the memory is that of the whole command, which also converts the file. Completions are of the
same seed, but not the same, so there are seconds per 1,000 sampled tokens, too. The first update of each run warms
up. With ``--isa avx2`` torch and its libraries use no more than AVX2, and `sce` computes in float32, as on processors
that have no more. With ``--bench`` the command is `sce bench` instead, greedy, on so many problems of HumanEval.
Without another checkout this one is measured alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from qwen_step import AVX2, MODEL
from record import commit, publish

from securecoderl_edge.models.stored import stored_path
from securecoderl_edge.system.rows import RowFile

ALL = "import sys; from securecoderl_edge.cli import main; main(sys.argv[1:])"
# The processor still says that it has such units.
IN_FLOAT32 = f"from securecoderl_edge.models import device; device.cpu_has_bf16 = lambda: False; {ALL}"
BENCH_METRICS = ("completion_tokens_mean", "prompt_tokens_per_second", "decode_tokens_per_second")
ROOT = Path(__file__).resolve().parents[1]
RECIPE = (
    'phases = ["binary"]',
    'problems = "mbpp:clean"',
    "checkpoint_every = 1000",
    "readiness_problems = 0",
    "[prompt]",
    'style = "chat"',
    "max_tokens = 768",
    "[lora]",
    "rank = 16",
    "alpha = 32",
    'targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]',
    "[ppo]",
    "batch_size = 32",
    "samples_per_prompt = 8",
    'advantage = "rloo"',
    "drop_zero_variance_groups = false",
    "epochs = 1",
    "learning_rate = 2e-5",
    "kl_coefficient = 0",
    "temperature = 0.8",
    "max_tokens = 160",
    "micro_batch_tokens = 4096",
    "rollout_sequences = 32",
    "[binary]",
    "steps = 2",
    "[selection]",
    "problems = 0",
)  # of a file


def main() -> None:
    """Run the commands by turns; print costs and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("earlier", type=Path, nargs="?", help="the other checkout")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--more", default="", metavar="WORDS", help="more options for sce train")
    parser.add_argument("--isa", choices=("all", "avx2"), default="all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--completions", type=int, default=32)
    parser.add_argument("--bench", type=int, metavar="N", help="problems to evaluate, instead of an update")
    parser.add_argument("--json", type=Path, help="file for the results")
    given = parser.parse_args()
    checkouts = {"now": ROOT, **({"earlier": given.earlier.resolve()} if given.earlier else {})}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for turn in range(given.rounds):
        for name in checkouts if turn % 2 == 0 else reversed(checkouts):
            runs[name].append(measured(checkouts[name], given))
            sys.stdout.write(f"{name}: {runs[name][-1]}\n")
    medians = {
        name: {key: statistics.median(run[key] for run in some) for key in some[0]} for name, some in runs.items()
    }
    facts = {name: getattr(given, name) for name in ("model", "isa", "threads", "rounds", "completions", "bench")}
    if given.earlier:
        ratios = {key: round(value / medians["earlier"][key], 3) for key, value in medians["now"].items()}
        facts |= {"now_over_earlier": ratios, "against": commit(given.earlier)}
    publish({"medians": medians, **facts}, given.json)


def measured(checkout: Path, given: argparse.Namespace) -> dict[str, float]:
    """The second update of a run by a checkout, or the evaluation, and the peak memory of the command."""
    model, threads = str(stored_path(given.model)), str(given.threads)
    if given.bench is None:
        words = ["train", "--recipe", "recipe.toml", "--model", model, "--out", "run", "--seed", "7"]
        words += ["--batch-size", str(given.completions), *shlex.split(given.more)]
    else:
        words = ["bench", model, "--problems", "humaneval", "--limit", str(given.bench), "--samples", "1"]
        words += ["--temperature", "0", "--max-tokens", "512", "--device", "cpu", "--threads", threads]
        words += ["--out", "bench"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "recipe.toml").write_text("\n".join(RECIPE))
        environment = {
            **os.environ, "PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(folder / "cache"),
            "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **(AVX2 if given.isa == "avx2" else {}),
        }  # fmt: skip
        log, started = folder / "log.txt", time.monotonic()
        with log.open("w") as out:
            command = [sys.executable, "-P", "-c", IN_FLOAT32 if given.isa == "avx2" else ALL, *words]
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
            _, status, used = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(log.read_text())
        memory = {"peak_gib": round(used.ru_maxrss / 2**20, 2)}
        if given.bench is not None:
            (found,) = json.loads((folder / "bench" / "bench.json").read_text())["models"]
            facts = {key: round(found[key], 1) for key in BENCH_METRICS}
            passed = round(found["all_tests_rate"]["value"], 3)
            return {"seconds": round(time.monotonic() - started, 1), "pass_at_1": passed, **facts, **memory}
        rows: list[dict[str, Any]] = RowFile(folder / "run" / "metrics.jsonl").read()
    last = next(row for row in reversed(rows) if "tokens" in row)
    return {
        "seconds": round(last["seconds"], 1),
        "seconds_per_1000_tokens": round(1000 * last["seconds"] / last["tokens"], 2),
        "seconds_sample": round(last["seconds_sample"], 1),
        "seconds_update": round(last["seconds_update"], 1),
        "tokens": last["tokens"],
        **memory,
    }


if __name__ == "__main__":
    main()
