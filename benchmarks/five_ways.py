"""What an update of each way to train costs with a real code model: SFT, RL, RFT, distillation, your own reward.

    python benchmarks/five_ways.py --json benchmarks/results/five-ways.json

Each way makes two updates of 16 completions or solutions of `mbpp:clean`, one way after the other; the second update
counts, of RFT the last of four that kept a completion. RL trains on all completions, also of groups without variance:
the most that it costs. ``sce models pull qwen-0.5b`` and ``qwen-1.5b`` (the teacher) come first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from record import publish

REWARD = """def brevity(completions, scores, **columns):
    pairs = zip(completions, scores)
    return [max(0, 1 - len(text) / 4000) if score["passed"] == score["total"] else 0.0 for text, score in pairs]
"""
_ALL = ("--set", "ppo.drop_zero_variance_groups=false")
WAYS: dict[str, list[str]] = {
    "sft": ["--phases", "sft"],
    "rl": ["--phases", "binary", *_ALL],
    "rft": ["--phases", "rft", "--max-steps", "4"],
    "distill": ["--phases", "distill", "--set", "ppo.reference=TEACHER"],
    "own reward": ["--phases", "binary", "--reward-function", "rewards.py:brevity", *_ALL],
}
TIMES = ("seconds", "seconds_sample", "seconds_score", "seconds_update", "tokens", "tokens_sampled", "tokens_trained")


def measure(way: str, model: str, teacher: str, folder: Path) -> dict[str, Any]:
    """The last update of one way that trained, its dtype, and the peak memory and times of the whole command."""
    (folder / "rewards.py").write_text(REWARD)
    run = folder / way.replace(" ", "-")
    words = [word.replace("TEACHER", teacher) for word in WAYS[way]]
    command = [sys.executable, "-m", "securecoderl_edge", "train", "--recipe", "instruct", "--max-steps", "2"]
    command += ["--model", model, *words]
    command += ["--set", "ppo.batch_size=16", "--set", "sft.batch_size=16", "--device", "cpu"]
    started = time.monotonic()
    process = subprocess.Popen([*command, "--out", str(run)], cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{way} failed:\n{said[-2000:]}")
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    *_, row = (row for row in rows if row.get("kept_rate") != 0)
    return {
        "products": json.loads((run / "environment.json").read_text())["products"],
        **{name: row[name] for name in TIMES if name in row},
        "peak_gib": round(used.ru_maxrss / 2**20, 2),
        "wall_seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
    }


def main() -> None:
    """Measure each way, or some; publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="qwen-0.5b")
    parser.add_argument("--teacher", default="qwen-1.5b")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    ways = {}
    with tempfile.TemporaryDirectory() as temporary:
        for way in arguments.only:
            ways[way] = measure(way, arguments.model, arguments.teacher, Path(temporary))
            sys.stderr.write(f"{way}: {ways[way]}\n")
    publish({"model": arguments.model, "teacher": arguments.teacher, "ways": ways}, arguments.json)


if __name__ == "__main__":
    main()
