"""An evaluation on a Ray cluster: each node, or each GPU, opens the model and evaluates whole batches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.bench import (
    BenchSettings,
    bench_batches,
    opened_log,
    with_budgets,
)
from securecoderl_edge.evaluation.evaluate import Collected, Evaluation, EvaluationProgress, evaluate
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.records import problem_from_record, problem_to_record
from securecoderl_edge.runtimes import precision_of
from securecoderl_edge.runtimes.opening import opened
from securecoderl_edge.runtimes.placement import place
from securecoderl_edge.runtimes.protocol import Usage
from securecoderl_edge.runtimes.spec import ModelSpec
from securecoderl_edge.sandbox.levels import named_choice
from securecoderl_edge.scoring.metrics import Row
from securecoderl_edge.scoring.score import score_from_record
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.system.cluster import Work, run_jobs


def measure_on_cluster(
    engine: str,
    spec: ModelSpec,
    problems: Sequence[Problem],
    settings: BenchSettings,
    out: Path | None = None,
    on_progress: Callable[[EvaluationProgress], None] = lambda progress: None,
    time_factor: float = 1.0,
) -> Evaluation:
    """As `measure`, on an engine. This machine chooses device, precision, isolation and time limits for all nodes.

    Raises:
        UsageError, SceError: as `run_jobs`; or a node does not have the same model under the same path.
    """
    settings = with_budgets(settings, [])
    placement = place(spec, settings.device, settings.gpu_layers)
    precision = precision_of(spec, settings.base_precision, placement.device)
    settings = replace(settings, base_precision=precision or "auto")  # measured here, once for all nodes
    theirs = replace(settings, shard=None, device=placement.device, sandbox=named_choice(settings.sandbox))
    asked = {
        "spec": {
            "label": spec.label,
            "kind": spec.kind,
            "source": _absolute(spec.source),
            "adapter": None if spec.adapter is None else _absolute(str(spec.adapter)),
            "prompt_style": spec.prompt_style,
        },
        "sha256": spec.content_hash(),
        "settings": asdict(theirs),
        "time_factor": time_factor,
    }
    work = Work("securecoderl_edge.evaluation.cluster:BenchWorker", asked, per_gpu=placement.device != "cpu")
    chunks = bench_batches(settings, problems)
    usage, style = Usage(), ""
    with opened_log(out, spec, settings, placement, time_factor) as log:
        collected = Collected(list(chunks.values()), settings.samples, log, on_progress)
        missing = [(start, chunk) for start, chunk in chunks.items() if not collected.has_all(chunk)]
        jobs = ({"first": start, "problems": list(map(problem_to_record, chunk))} for start, chunk in missing)
        nothing = {"first": 0, "problems": []}  # a node still says how it would prompt the model
        answers = run_jobs(engine, work, jobs if missing else [nothing])
        for (result,), (_, chunk) in zip(answers, missing or [(0, ())], strict=True):
            rows, spent, style = _checked(result, chunk, settings.samples)
            collected.add(rows)
            usage += spent
            if log is not None:
                log.add_usage(spent)
        usage = log.usage() if log is not None else usage
    return Evaluation(
        spec.label,
        collected.in_order(),
        usage,
        spec.file_bytes(),
        style,
        spec.bits_per_weight(),
        log.folder if log is not None else None,
        collected.reused,
        placement.device,
    )


class BenchWorker:
    """The model of one node or GPU."""

    def __init__(self, asked: Mapping[str, Any], cores: int) -> None:
        found = asked["spec"]
        adapter = found["adapter"] and Path(found["adapter"])
        self._spec = ModelSpec(**{**found, "adapter": adapter})
        if self._spec.content_hash() != asked["sha256"]:
            raise SceError(f"{self._spec.source} is another model there (sha256). Put the same files on all nodes.")
        settings = BenchSettings(**asked["settings"])
        self._settings = settings = replace(settings, threads=settings.threads or cores)
        self._stack = contextlib.ExitStack()
        scorer = Scorer(cores, sandbox=settings.sandbox, time_factor=asked["time_factor"])
        self._scorer = self._stack.enter_context(scorer)
        model = opened(self._spec, settings, thinking=settings.thinking, parallel=settings.parallel)
        self._runtime, self._format = self._stack.enter_context(model)

    def run(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows and usage of each batch."""
        return [self._evaluated(job) for job in jobs]

    def close(self) -> None:
        """Close the model and the sandbox."""
        self._stack.close()

    def _evaluated(self, job: Mapping[str, Any]) -> dict[str, Any]:
        plan = replace(self._settings.plan(self._format), first=job["first"])
        problems = [problem_from_record(each, sys.maxsize) for each in job["problems"]]
        found = evaluate(self._runtime, problems, self._scorer, plan)
        return {"rows": list(found.rows), "usage": asdict(found.usage), "prompt_style": found.prompt_style}


def _checked(result: Any, chunk: Sequence[Problem], samples: int) -> tuple[list[Row], Usage, str]:
    """Rows, usage and prompt style of a batch.

    Raises:
        SceError: it is not a result of this batch.
    """
    try:
        scores = [score_from_record(row) for row in result["rows"]]
        if {(each.id, each.sample) for each in scores} != {(each.id, n) for each in chunk for n in range(samples)}:
            raise ValueError("rows of other problems")
        return result["rows"], Usage(**result["usage"]), str(result["prompt_style"])
    except (ValueError, TypeError, KeyError) as error:
        raise SceError(
            f"a worker's answer is not a result ({error}). Is the same sce installed on all nodes?"
        ) from None


def _absolute(source: str) -> str:
    return str(Path(source).absolute()) if Path(source).exists() else source
