"""A training of `gpu_day.py` under the limits of a V100 with 16 GB, in a process of its own.

python benchmarks/gpu_v100_worker.py RECIPE FORMAT MODEL [--quick]      prints the results as JSON

A larger card stands in for it: no more memory than there, and the dtypes of compute capability 7.0, so float16 and
never bfloat16. int8-bnb needs 7.5, and gets its dtypes. Kernels and speed are those of the card that computes.

The recipe trains with its own sizes, but for the number of updates and the phases. Its problems are built-in ones, each
with text behind the statement that the prompt cuts, so that prompts have the length of the plan.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from securecoderl_edge.models.device import Compute, choose_compute, compute_on_cuda
from securecoderl_edge.models.gpus import GPUS, PAPERS_GPU
from securecoderl_edge.models.sizes import GIB, HAS_INT8_UNITS
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.runs import Run
from securecoderl_edge.system.rows import RowFile
from securecoderl_edge.training import train
from securecoderl_edge.training.plan import make_plan
from securecoderl_edge.training.recipe import resolve

UPDATES = 20  # of each phase
PROBLEMS = 128
SETTINGS = ('phases=["sft", "binary"]', "readiness_problems=0", "selection.problems=0", "ppo.value_warmup_steps=0")
QUICK = (
    "ppo.max_tokens=8", "ppo.epochs=1", "sft.batch_size=2", "sft.max_tokens=64", "prompt.max_tokens=200",
    "device=\"cpu\"",
)  # fmt: skip
LONG = "No word of this line is about the program.\n" * 128


def work(recipe: str, precision: str, model: str, folder: Path, quick: bool) -> dict[str, Any]:
    """Train; seconds and peaks of the updates against the plan. Nothing if the device does not have the format."""
    if precision == "int8-bnb" and quick:
        return {}
    gpu = GPUS[PAPERS_GPU]
    gpu = replace(gpu, capability=HAS_INT8_UNITS if precision == "int8-bnb" else gpu.capability)
    problems = folder / "problems.jsonl"
    few = load_problems("starter:plain-train")[:PROBLEMS]
    write_problems(problems, (replace(each, statement=f"{each.statement}\n\n{LONG}") for each in few))
    steps = 2 if quick else UPDATES
    sizes = (f"sft.steps={steps}", f"binary.steps={steps}", *(QUICK if quick else ()))
    flags = {"model": model, "problems": str(problems), "base_precision": precision, "memory_gib": gpu.memory_gib}
    settings = resolve(recipe, (*SETTINGS, *sizes), flags)

    def as_there(device: str, precision: str, *, recompute: bool = False, **options: Any) -> Compute:
        here = choose_compute(device, "auto", **options)  # tries the card out
        return replace(compute_on_cuda(gpu.capability, precision, recompute=recompute), device=here.device)

    with mock.patch.object(train, "choose_compute", as_there):
        run = train.train(settings, folder / "run")
    plan = make_plan(settings, gpu)
    return {**facts(run), "planned_gib": round(max(map(allocated, plan.phases)) / GIB, 3)}


def allocated(phase: Any) -> int:
    """Bytes that torch allocates, as planned: without what CUDA and its libraries take."""
    return int(phase.memory.peak - phase.memory.always["framework"])


def facts(run: Run) -> dict[str, Any]:
    """Of the record and the metrics of a run; the first update of a phase is warming up."""
    record: dict[str, Any] = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = RowFile(run.path / "metrics.jsonl").read()
    found = {name: record[name] for name in ("base_precision", "products", "rollout_dtype")}
    for phase in dict.fromkeys(row["phase"] for row in rows):
        warm = [row["seconds"] for row in rows if row["phase"] == phase][1:]
        found[f"{phase}_updates"], found[f"{phase}_seconds"] = len(warm) + 1, round(sum(warm) / len(warm), 2)
    of_rl = [row for row in rows if row["phase"] == "binary"]
    found |= {
        "skipped_steps": sum(row["skipped_steps"] for row in rows),
        "loss_scale": rows[-1]["loss_scale"],
        "first_ratio_error": max(row["val/first_ratio_error"] for row in of_rl),
        "sampling_difference": max(row["sampling/sampling_logp_difference/max"] for row in of_rl),
    }
    peaks = [row["peak_cuda_mib"] / 1024 for row in rows if "peak_cuda_mib" in row]
    return {**found, **({"peak_gib": round(max(peaks), 3)} if peaks else {})}


if __name__ == "__main__":
    recipe, precision, model = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as name:
        found = work(recipe, precision, model, Path(name), "--quick" in sys.argv)
    sys.stdout.write(f"{json.dumps(found)}\n")
