"""An evaluation on a Ray cluster: each node, or each GPU, opens the model and evaluates whole batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.bench import BenchSettings, bench_batches
from securecoderl_edge.evaluation.evaluate import Collected, Evaluation, EvaluationProgress, evaluate
from securecoderl_edge.evaluation.log import EvaluationLog
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import problem_from_record, problem_to_record
from securecoderl_edge.runtimes.opening import opened, precision_of
from securecoderl_edge.runtimes.protocol import Usage
from securecoderl_edge.runtimes.spec import ModelSpec
from securecoderl_edge.sandbox.levels import named_choice
from securecoderl_edge.scoring.metrics import Row
from securecoderl_edge.scoring.score import score_from_record
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.system.cluster import Run, Work, map_on_cluster

_Batch = tuple[int, Sequence[Problem]]  # with the position of its first problem


def evaluate_on_cluster(
    engine: str,
    spec: ModelSpec,
    problems: Sequence[Problem],
    settings: BenchSettings,
    time_factor: float,
    log: EvaluationLog | None,
    on_progress: Callable[[EvaluationProgress], None],
) -> Evaluation:
    """As `evaluate`, on an engine. This machine chooses precision, isolation and time limits for all nodes.

    Args:
        settings: with budgets, and the device of this machine.

    Raises:
        UsageError, SceError: as `map_on_cluster`; or a node does not have the same model under the same path.
    """
    precision = precision_of(spec, settings.base_precision, settings.device)
    theirs = replace(settings, base_precision=precision or "auto", shard=None, sandbox=named_choice(settings.sandbox))
    model = {name: getattr(spec, name) for name in ("label", "kind", "source", "adapter", "prompt_style")}
    paths = {name: _absolute(str(model[name])) for name in ("source", "adapter") if model[name] is not None}
    node: dict[str, Any] = {"spec": model | paths, "sha256": spec.content_hash()}
    node |= {"settings": asdict(theirs), "time_factor": time_factor}

    def checked(batch: _Batch, answer: Any) -> tuple[list[Row], Usage, str]:
        scores = [score_from_record(row) for row in answer["rows"]]
        wanted = {(problem.id, sample) for problem in batch[1] for sample in range(settings.samples)}
        if {(each.id, each.sample) for each in scores} != wanted:
            raise ValueError("rows of other problems")
        return answer["rows"], Usage(**answer["usage"]), str(answer["prompt_style"])

    work = Work(model_of_node, node, _job, checked, per_gpu=settings.device != "cpu")
    batches = bench_batches(settings, problems)
    collected = Collected(list(batches.values()), settings.samples, log, on_progress)
    missing = [each for each in batches.items() if not collected.has_all(each[1])]
    usage, style = Usage(), ""
    # Without problems, a node still says how it would prompt the model.
    for ((rows, spent, used),) in map_on_cluster(engine, work, missing or [(0, ())]):
        if rows:
            collected.add(rows)
        usage, style = usage + spent, used
        if log is not None:
            log.add_usage(spent)
    usage = log.usage() if log is not None else usage
    return Evaluation(spec.label, collected.in_order(), usage, prompt_style=style, reused=collected.reused)


@contextmanager
def model_of_node(node: dict[str, Any], cores: int) -> Iterator[Run]:
    """What a node or GPU runs, see `Work.opened`.

    Raises:
        SceError: the model is not that of the machine that asks, or cannot be opened.
    """
    adapter = node["spec"]["adapter"]
    spec = ModelSpec(**node["spec"] | {"adapter": adapter and Path(adapter)})
    if spec.content_hash() != node["sha256"]:
        raise SceError(f"{spec.source} is another model there (sha256). Put the same files on all nodes.")
    settings = BenchSettings(**node["settings"])
    settings = replace(settings, threads=settings.threads or cores)
    with (
        Scorer(cores, sandbox=settings.sandbox, time_factor=node["time_factor"]) as scorer,
        opened(spec, settings, thinking=settings.thinking, parallel=settings.parallel) as (runtime, format),
    ):

        def evaluated(job: dict[str, Any]) -> dict[str, Any]:
            problems = [problem_from_record(each, sys.maxsize) for each in job["problems"]]
            evaluation = evaluate(runtime, problems, scorer, replace(settings.plan(format), first=job["first"]))
            usage = asdict(evaluation.usage)
            return {"rows": list(evaluation.rows), "usage": usage, "prompt_style": evaluation.prompt_style}

        yield lambda jobs: list(map(evaluated, jobs))


def _job(batch: _Batch) -> dict[str, Any]:
    return {"first": batch[0], "problems": list(map(problem_to_record, batch[1]))}


def _absolute(source: str) -> str:
    return str(Path(source).absolute()) if Path(source).exists() else source
