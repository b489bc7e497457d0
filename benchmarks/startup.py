"""Start-up time of ``sce --help``, compared with the smallest program that uses click; and of what computes with torch.

    python benchmarks/startup.py --json benchmarks/results/startup.json

Of the packages of training, which `sce train` and `sce bench` of a folder begin with, the peer is a plain import of
them. All are run in turn, so that other users of the machine disturb them alike; CPU time is the child's own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from record import publish

PACKAGES = "securecoderl_edge.models.packages"
COMMANDS = {
    "import click": [sys.executable, "-c", "import click"],
    "sce --help": [sys.executable, "-m", "securecoderl_edge", "--help"],
    "sce bench --help": [sys.executable, "-m", "securecoderl_edge", "bench", "--help"],
    "import peft": [sys.executable, "-c", "import torch, transformers, peft"],
    "packages of train": [sys.executable, "-c", f"from {PACKAGES} import require_torch; require_torch()"],
}
# Each with its peer.
PEERS = {"sce --help": "import click", "sce bench --help": "import click", "packages of train": "import peft"}


def run(command: list[str]) -> tuple[float, float]:
    """(wall, CPU) seconds of one process."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Time all commands in turn and print the ratios of the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="3 rounds")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(3 if arguments.quick else arguments.rounds):
        for name, command in COMMANDS.items():
            times[name].append(run(command))
    medians = {
        name: {
            "wall_seconds": round(statistics.median(wall for wall, _ in rows), 4),
            "cpu_seconds": round(statistics.median(cpu for _, cpu in rows), 4),
        }
        for name, rows in times.items()
    }
    ratios = {
        name: {unit: round(medians[name][unit] / medians[peer][unit], 3) for unit in medians[name]}
        for name, peer in PEERS.items()
    }
    for name, measured in medians.items():
        ratio = f"  x{ratios[name]['cpu_seconds']:.2f}" if name in PEERS else ""
        sys.stdout.write(
            f"{name:18s} {measured['wall_seconds']:.3f} s wall  {measured['cpu_seconds']:.3f} s CPU{ratio}\n"
        )
    result = {"ratios": ratios, "medians": medians, "rounds": len(times["import click"])}
    publish(result, arguments.json)


if __name__ == "__main__":
    main()
