"""Where `sce bench` of a GGUF file spends its time: the functions of all its processes, sampled by perf.

    sce export smollm2 --quant q8_0 --out smollm2-q8_0.gguf
    python benchmarks/bench_profile.py smollm2 smollm2-q8_0.gguf --json benchmarks/results/bench-profile.json

Needs Linux's ``perf``. Greedy, one program for each problem of HumanEval, on two threads. ``at_most`` is how many times
as fast everything would be if all but the first function took no time: a bound for work on the rest.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from record import publish

BENCH = (
    *("--problems", "humaneval:test", "--temperature", "0", "--samples", "1", "--max-tokens", "160"),
    *("--device", "cpu", "--threads", "2", "--json"),
)
SPEEDS = ("prompt_tokens_per_second", "decode_tokens_per_second", "completion_tokens_mean")
SHOWN = 8
# A line of `perf report`: percent, library, [.] or [k], and the function.
_LINE = re.compile(r"^\s+(?P<percent>[\d.]+)%\s+(?P<library>\S+)\s+\[.\]\s+(?P<name>\S+)", re.M)


def main() -> None:
    """Evaluate each file under perf, print and save the functions that take most of the time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="+", metavar="MODEL", help="models for sce bench")
    parser.add_argument("--limit", type=int, help="only the first N problems")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    limit = [] if arguments.limit is None else ["--limit", str(arguments.limit)]
    found = {Path(model).name: profile(model, limit) for model in arguments.models}
    for name, row in found.items():
        functions = ", ".join(f"{function} {percent} %" for function, percent in row["functions"].items())
        sys.stdout.write(f"{name}: {row['seconds']} s; {functions}\n")
    shown = {name: {key: row[key] for key in ("seconds", "at_most", *SPEEDS)} for name, row in found.items()}
    publish({"models": found}, arguments.json, shown=shown)


def profile(model: str, limit: list[str]) -> dict[str, Any]:
    """Time, speeds and functions of one evaluation."""
    with tempfile.TemporaryDirectory() as name:
        samples = f"{name}/perf.data"
        bench = [sys.executable, "-m", "securecoderl_edge", "bench", model, *BENCH, *limit, "--out", f"{name}/bench"]
        started = time.monotonic()
        done = subprocess.run(["perf", "record", "-o", samples, *bench], capture_output=True, text=True)
        seconds = time.monotonic() - started
        if done.returncode:
            raise SystemExit(done.stderr)
        (result,) = json.loads((Path(name) / "bench" / "bench.json").read_text(encoding="utf-8"))["models"]
        report = ["perf", "report", "-i", samples, "--no-children", "--sort", "dso,symbol", "--stdio"]
        text = subprocess.run(report, capture_output=True, text=True, check=True).stdout
    functions: defaultdict[str, float] = defaultdict(float)
    for line in _LINE.finditer(text):
        functions[_function(line["library"], line["name"])] += float(line["percent"])
    top = sorted(functions.items(), key=lambda item: -item[1])[:SHOWN]
    return {
        "seconds": round(seconds),
        **{key: round(result[key], 1) for key in SPEEDS},
        "functions": {function: round(percent, 1) for function, percent in top},
        "at_most": round(100 / top[0][1], 2),
    }


def _function(library: str, name: str) -> str:
    """The name; of a function without one, its library and page: a loop of machine code is shorter than a page."""
    return f"{library} at {int(name, 16) >> 12 << 12:#x}" if name.startswith("0x") else name


if __name__ == "__main__":
    main()
