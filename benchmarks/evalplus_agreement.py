"""Do our verdicts on HumanEval+ agree with those of EvalPlus' own evaluator, on the programs that `sce bench` scored?

    sce data import HumanEvalPlus.jsonl.gz --out humaneval-plus.jsonl
    sce bench MODEL --problems humaneval-plus.jsonl --protocol evalplus --temperature 0 --out rows
    export HUMANEVAL_OVERRIDE_PATH=HumanEvalPlus.jsonl
    python benchmarks/evalplus_agreement.py rows/MODEL-*/rows.jsonl --json FILE

Needs a Python with evalplus (``pip install evalplus``; in an environment of its own). The evaluator runs the programs
without a sandbox, so use a machine that may be lost. It judges two texts for each completion: the program as we
extracted it, and what EvalPlus' own sanitizer makes of the same completion.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

Verdicts = dict[str, tuple[bool, bool]]  # base, and base with plus, by task


def main() -> None:
    """Print and write the numbers of agreements."""
    from evalplus.data import get_human_eval_plus
    from evalplus.sanitize import sanitize

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    tasks, results = get_human_eval_plus(), []
    for path in options.rows:
        rows = {_task(row): row for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())}
        ours = {task: (row["verdicts"][:1] == ["pass"], row["passed"] == row["total"]) for task, row in rows.items()}
        texts = {
            "as_extracted": {task: f"from typing import *\n{row['program']}" for task, row in rows.items()},
            "sanitized": {
                # A completion ends with its block, and tabs are four spaces, as in EvalPlus' decoding.
                task: sanitize(row["completion"].split("\n```")[0].replace("\t", " " * 4), tasks[task]["entry_point"])
                for task, row in rows.items()
            },
        }
        result: dict[str, Any] = {"model": path.parent.name.rpartition("-")[0], "problems": len(rows)}
        result["sce"] = _passed(ours)
        for name, programs in texts.items():
            theirs = judged(programs)
            differing = sorted(task for task in ours if ours[task] != theirs[task])
            result[name] = {**_passed(theirs), "agree": len(ours) - len(differing), "differing": differing}
        results.append(result)
    git = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    facts = {"command": " ".join(sys.argv), "commit": git.stdout.strip(), "machine": _machine()}
    text = json.dumps({**facts, "results": results}, indent=1)
    print(text)
    if options.json:
        options.json.write_text(f"{text}\n", encoding="utf-8")


def judged(programs: dict[str, str]) -> Verdicts:
    """The verdicts of EvalPlus."""
    from evalplus.evaluate import evaluate

    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "samples.jsonl"
        lines = [json.dumps({"task_id": task, "solution": program}) for task, program in programs.items()]
        samples.write_text("\n".join(lines) + "\n", encoding="utf-8")
        evaluate(dataset="humaneval", samples=str(samples), parallel=1, i_just_wanna_run=True)
        found = json.loads(samples.with_name("samples_eval_results.json").read_text(encoding="utf-8"))["eval"]
    base = {task: samples[0]["base_status"] == "pass" for task, samples in found.items()}
    return {task: (base[task], base[task] and found[task][0]["plus_status"] == "pass") for task in found}


def _task(row: dict[str, Any]) -> str:
    return f"HumanEval/{row['id'].rpartition('/')[2]}"


def _passed(verdicts: Verdicts) -> dict[str, int]:
    return {"base": sum(base for base, _ in verdicts.values()), "plus": sum(plus for _, plus in verdicts.values())}


def _machine() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")


if __name__ == "__main__":
    main()
