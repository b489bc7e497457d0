"""Is training on a CPU slower with glibc's malloc? The same SFT at once with it and with another allocator.

    apt-get install libjemalloc2
    python benchmarks/allocator.py --json benchmarks/results/allocator.json

Both trainings are on one thread and see the same batches, so the tokens of an update are equal. The slower one
has the machine to itself at its end, so the ratios are lower bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from record import publish

ROOT = Path(__file__).parents[1]
TRAINING = ("train", "--recipe", "smollm2", "--phases", "sft", "--set", "readiness_problems=0")
WINDOW = 10  # updates


def started(folder: Path, updates: int, library: str) -> subprocess.Popen[bytes]:
    """A training whose allocator is ``library``, or glibc's if that is empty."""
    words = [sys.executable, "-m", "securecoderl_edge", *TRAINING]
    words += ["--set", f"sft.steps={updates}", "--out", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": library}
    return subprocess.Popen(words, cwd=ROOT, env=environment)


def measured(folder: Path) -> dict[str, Any]:
    """Seconds of an update in the first and in the last `WINDOW` updates, and the peak of memory."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    seconds = [row["seconds"] for row in rows if "loss/sft" in row]
    return {
        "updates": len(seconds),
        "first_seconds": round(fmean(seconds[:WINDOW]), 2),
        "last_seconds": round(fmean(seconds[-WINDOW:]), 2),
        "all_seconds": round(sum(seconds), 1),
        "peak_rss_mib": max(row.get("peak_rss_mib", 0) for row in rows),
    }


def main() -> None:
    """Train twice at the same time and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--library", default="libjemalloc.so.2", help="as for LD_PRELOAD")
    parser.add_argument("--quick", action="store_true", help="three updates")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        # In folders of their own, so that neither takes the other's finished phase.
        folders = {each: Path(name, each or "glibc", "run") for each in ("", arguments.library)}
        runs = [started(folder, 3 if arguments.quick else 60, library) for library, folder in folders.items()]
        statuses = [run.wait() for run in runs]
        if any(statuses):
            raise SystemExit("a training failed")
        result = {library or "glibc": measured(folder) for library, folder in folders.items()}
    publish(result, arguments.json)


if __name__ == "__main__":
    main()
