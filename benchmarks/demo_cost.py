"""Cost of a demo's four commands: wall time, CPU time and memory; and what its evaluation finds.

    python benchmarks/demo_cost.py --json benchmarks/results/demo-cost.json
    python benchmarks/demo_cost.py --demo demo-c --json benchmarks/results/demo-c.json
    python benchmarks/demo_cost.py --demo demo-real --json benchmarks/results/demo-real.json

They run one after the other in an empty folder, as ``make demo`` and its variants run them after installing.
Memory is the largest sum of the resident sizes of a command and all of its descendants, looked at ten times a second.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from record import publish

from securecoderl_edge.system.files import read_json

MAKEFILE = Path(__file__).parent.parent / "Makefile"
INTERVAL_SECONDS = 0.1


def demo_commands(target: str) -> list[list[str]]:
    """The commands of a target of the Makefile, without the folder of the virtual environment."""
    recipe = MAKEFILE.read_text(encoding="utf-8").partition(f"\n{target}:")[2].partition("\n\n")[0]
    lines = recipe.replace("\\\n", " ").splitlines()[1:]
    commands = [shlex.split(line.replace("$(BIN)/", "").replace("$$", "$")) for line in lines]
    return [[sys.executable, "-m", "securecoderl_edge", *words[1:]] for words in commands if words[0] == "sce"]


def tree_rss(root: int) -> int:
    """Bytes that a process and its descendants hold; shared pages count once for each, so this errs upwards."""
    parents, sizes = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended while we looked
                continue
            parents[int(entry)], sizes[int(entry)] = int(fields[1]), int(fields[21])
    total, wanted = 0, [root]
    while wanted:
        process = wanted.pop()
        total += sizes.get(process, 0)
        wanted += [child for child, parent in parents.items() if parent == process]
    return total * os.sysconf("SC_PAGE_SIZE")


def run(command: list[str], folder: Path) -> dict[str, Any]:
    """Run one command to its end, watching its memory."""
    peak, ended = 0, threading.Event()
    started, before = time.monotonic(), os.times()
    process = subprocess.Popen(command, cwd=folder)

    def watch() -> None:
        nonlocal peak
        while not ended.wait(INTERVAL_SECONDS):
            peak = max(peak, tree_rss(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    status = process.wait()
    ended.set()
    watcher.join()
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        "command": " ".join(["sce", *command[3:]]),
        "exit_status": status,
        "wall_seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(cpu, 1),
        "peak_gib": round(peak / 2**30, 2),
    }


def main() -> None:
    """Run the demo and print what each command took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="2 updates a phase instead of the whole recipe")
    parser.add_argument("--demo", choices=("demo", "demo-c", "demo-real"), default="demo", help="Makefile target")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    rows, rates = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for command in demo_commands(arguments.demo):
            if arguments.quick and "train" in command:
                command += ["--max-steps", "2"]
            rows.append(run(command, Path(folder)))
        for file in Path(folder).glob("runs/*/bench/bench.json"):
            rates = {model["model"]: model["all_tests_rate"] for model in read_json(file)["models"]}
    for row in rows:
        sys.stdout.write(
            f"{row['wall_seconds']:8.1f} s wall {row['cpu_seconds']:8.1f} s CPU {row['peak_gib']:6.2f} GiB  "
            f"exit {row['exit_status']}  {row['command']}\n"
        )
    result = {
        "wall_seconds": round(sum(row["wall_seconds"] for row in rows), 1),
        "train_wall_seconds": next(row["wall_seconds"] for row in rows if row["command"].startswith("sce train")),
        "peak_gib": max(row["peak_gib"] for row in rows),
        "commands": rows,
        **({"passes_all_tests": rates} if rates else {}),
    }
    publish(result, arguments.json)


if __name__ == "__main__":
    main()
