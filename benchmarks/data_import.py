"""Real data: how long importing and checking two benchmarks takes, and how much memory a large file.

    python benchmarks/data_import.py --mbpp mbpp.jsonl --humaneval HumanEval.jsonl.gz \\
        --json benchmarks/results/data-import.json

Three questions, each with its peer in the same run:

* `sce data import` and `check` of all MBPP and HumanEval problems: CPU seconds of all processes together, the sandbox's
  included. Peer: each reference with its tests as one file, by a bare `python FILE`: no isolation, no limits.
* `sce data import` of a synthetic APPS+ file of 2 GB: peak resident memory. Peer: `json.load` of that file, half as
  large a file for want of memory.
* Near-duplicates among as many statements as the paper has prompts: CPU seconds. Peer: comparing all pairs.

Without the files of the two benchmarks the first question is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

from record import publish

from securecoderl_edge.problems.near_duplicates import SIMILARITY, clusters, jaccard, word_pairs
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.sources import load_problems

GB = 10**9
STATEMENTS = 7_408
_JSON_LOAD = "import json, sys; json.load(open(sys.argv[1], encoding='utf-8'))"


def run(command: list[str], folder: Path) -> dict[str, float]:
    """CPU seconds of a process and all that it waited for, and the peak memory of the largest of them."""
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed:\n{errors.decode()}")
    return {
        "wall_seconds": round(time.monotonic() - started, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": round(usage.ru_maxrss * 1024 / 1e6, 1),
    }


def sce(*arguments: str) -> list[str]:
    """The command line of one of our commands."""
    return [sys.executable, "-m", "securecoderl_edge", *arguments]


def references(files: dict[str, Path], folder: Path) -> dict[str, Any]:
    """Import and check each file; the same references without a sandbox."""
    measured: dict[str, Any] = {}
    total = 0.0
    for name, file in files.items():
        out = f"{name}.jsonl"
        imported = run(sce("data", "import", str(file.resolve()), "--format", name, "--out", out), folder)
        checked = run(sce("data", "check", out), folder)
        problems = load_problems(str(folder / out))
        bare = 0.0
        for problem in problems:
            script = folder / "reference.py"
            text = "\n".join([*problem.solutions[:1], *problem.assertions])
            script.write_text(f"from typing import *\n{text}\n", encoding="utf-8")
            before = os.times()
            subprocess.run([sys.executable, str(script)], capture_output=True, check=False)
            after = os.times()
            bare += after.children_user + after.children_system - before.children_user - before.children_system
        spent = imported["cpu_seconds"] + checked["cpu_seconds"]
        total += spent
        measured[name] = {
            "problems": len(problems), "import": imported, "check": checked, "bare_python_cpu_seconds": round(bare, 2),
            "ratio": round(spent / bare, 3),
        }  # fmt: skip
        sys.stdout.write(f"{name}: {len(problems)} problems, {spent:.1f} s CPU, bare python {bare:.1f} s\n")
    measured["cpu_seconds"] = round(total, 2)
    return measured


def write_apps_plus(path: Path, size: int) -> int:
    """An APPS+ file of ``size`` bytes, its records as large as the real ones; how many there are."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(2000)]
    count = 0
    with path.open("w", encoding="utf-8") as out:
        out.write("[")
        while out.tell() < size:
            tests = [" ".join(str(rng.randint(0, 10**9)) for _ in range(rng.randint(1, 400))) for _ in range(12)]
            record = {
                "name": f"p{count}", "question": " ".join(rng.choices(words, k=250)), "inputs": tests,
                "outputs": [str(len(test)) for test in tests], "difficulty": "interview",
                "solutions": ["print(len(input()))\n" * 30], "starter_code": "",
            }  # fmt: skip
            out.write(f"{',' if count else ''}{json.dumps(record)}")
            count += 1
        out.write("]")
    return count


def large_file(folder: Path, size: int) -> dict[str, Any]:
    """Import an APPS+ file of ``size`` bytes, and load one of half the size whole."""
    path, half = folder / "data.json", folder / "half.json"
    count = write_apps_plus(path, size)
    imported = run(sce("data", "import", str(path), "--out", "apps-plus.jsonl", "--force"), folder)
    path.unlink()
    (folder / "apps-plus.jsonl").unlink()
    write_apps_plus(half, size // 2)
    loaded = run([sys.executable, "-c", _JSON_LOAD, str(half)], folder)
    half.unlink()
    sys.stdout.write(
        f"{count} records, {size / GB:.2f} GB: import peaks at {imported['peak_mb']:.0f} MB in "
        f"{imported['wall_seconds']:.0f} s; json.load of half of it at {loaded['peak_mb']:.0f} MB\n"
    )
    return {"bytes": size, "records": count, "import": imported, "json_load_of_half": loaded}


def near_duplicates(count: int) -> dict[str, Any]:
    """Group statements of 50 to 250 words, a tenth of them near-duplicates of another; compare all pairs of a few."""
    rng = random.Random(2)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(4000)]
    texts: list[list[str]] = []
    for _ in range(count):
        if texts and rng.random() < 0.1:
            text = [rng.choice(words) if rng.random() < 0.08 else word for word in rng.choice(texts)]
        else:
            text = rng.choices(words[:300], k=rng.randint(50, 250)) if rng.random() < 0.5 else rng.choices(words, k=150)
        texts.append(text)
    problems = [Problem(str(n), " ".join(text), tests=(Test("1", "1"),)) for n, text in enumerate(texts)]
    before = time.process_time()
    groups = clusters(problems)
    ours = time.process_time() - before
    few = problems[: min(count, 1500)]
    before = time.process_time()
    sets = [word_pairs(problem) for problem in few]
    sum(jaccard(first, second) >= SIMILARITY for first, second in combinations(sets, 2))
    pairs = len(few) * (len(few) - 1) / 2
    all_pairs = (time.process_time() - before) / pairs * count * (count - 1) / 2
    sys.stdout.write(f"{count} statements, {len(groups)} groups: {ours:.1f} s CPU; all pairs about {all_pairs:.1f} s\n")
    return {
        "statements": count, "groups": len(groups), "cpu_seconds": round(ours, 2),
        "all_pairs_cpu_seconds_extrapolated": round(all_pairs, 1), "ratio": round(ours / all_pairs, 3),
    }  # fmt: skip


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mbpp", type=Path, help="mbpp.jsonl")
    parser.add_argument("--humaneval", type=Path, help="HumanEval.jsonl.gz")
    parser.add_argument("--quick", action="store_true", help="a file of 20 MB, 1,000 statements")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    files = {name: file for name in ("mbpp", "humaneval") if (file := getattr(arguments, name)) is not None}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measured: dict[str, Any] = {"references": references(files, folder)} if files else {}
        measured["large_file"] = large_file(folder, 20_000_000 if arguments.quick else 2 * GB)
        measured["near_duplicates"] = near_duplicates(1000 if arguments.quick else STATEMENTS)
    publish(measured, arguments.json)


if __name__ == "__main__":
    main()
