"""Do ten thousand programs in a row leave anything behind? Through one pool, workers replaced on the way.

    python benchmarks/reward_leaks.py --json benchmarks/results/reward-leaks.json

Honest programs and such as crash, hang, fill memory, print without end, start threads or are no programs. Looked at
before and after: our memory and descriptors, the processes below us, open files of the system.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from record import publish

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.scorer import Scorer, Submission

PROBLEM = Problem("p", "Double it.", tests=(Test("2\n", "4\n"), Test("3\n", "6\n")))
PROGRAMS = (
    "print(int(input()) * 2)",
    "import heapq, collections, re\nprint(heapq.nsmallest(1, map(int, input().split()))[0] * 2)",
    "raise ValueError(input())",
    "def f(:",
    "import os\nos._exit(3)",
    "import ctypes\nctypes.string_at(0)",
    "x = ' ' * 10**9 * 10",
    "print('x' * 3_000_000)",
    "import os\nos.fork()",
    "import threading, time\nfor _ in range(50): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return f(n + 1)\nf(0)",
    "import statistics, json, decimal\nprint(json.dumps(input()))",
    "import subprocess\nsubprocess.run(input(), shell=True)",
    "\ud800",
)
WARM_UP = 500


def main() -> None:
    """Score the programs again and again, and compare what is there at the end with what was there at first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="1,000 programs")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    count = 1000 if arguments.quick else arguments.programs
    with Scorer(arguments.workers, Limits(cpu_seconds=0.5, wall_seconds=2, memory_mib=256)) as scorer:
        run(scorer, WARM_UP)
        before = look(scorer)
        run(scorer, count)
        after = look(scorer)
    left = len(descendants(os.getpid()))
    for name in before:
        sys.stdout.write(f"{name:28s} {before[name]:>12,} -> {after[name]:>12,}\n")
    sys.stdout.write(f"{'processes after closing':28s} {left:>28}\n")
    publish({"programs": count, "before": before, "after": after, "processes_after_closing": left}, arguments.json)


def run(scorer: Scorer, count: int) -> None:
    """Score that many programs."""
    batch = 2 * len(PROGRAMS)
    for start in range(0, count, batch):
        programs = [PROGRAMS[number % len(PROGRAMS)] for number in range(start, min(start + batch, count))]
        scorer.score_all(Submission(PROBLEM, program) for program in programs)


def look(scorer: Scorer) -> dict[str, Any]:
    """What a leak would raise."""
    workers = [sum(memory(pid) for pid in [pid, *descendants(pid)]) for pid in scorer.pids()]
    return {
        "our memory, KiB": memory(os.getpid()),
        "our descriptors": len(os.listdir("/proc/self/fd")),
        "our threads": len(os.listdir("/proc/self/task")),
        "processes below us": len(descendants(os.getpid())),
        "memory of workers, KiB": sum(workers),
        "open files of the system": int(Path("/proc/sys/fs/file-nr").read_text().split()[0]),
    }


def memory(pid: int) -> int:
    """Private memory of a process in KiB: what it shares with others would count twice."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def descendants(pid: int) -> list[int]:
    """Processes below a process."""
    lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    children = [int(child) for text in lists for child in text.split()]
    return children + [each for child in children for each in descendants(child)]


if __name__ == "__main__":
    main()
