"""Open a model and evaluate it: on this machine, or on a Ray cluster, where each node or GPU does whole batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.bench import BenchSettings, bench_batches, with_budgets
from securecoderl_edge.evaluation.evaluate import Collected, Evaluation, EvaluationProgress, OnText, evaluate
from securecoderl_edge.evaluation.log import EvaluationLog
from securecoderl_edge.problems.groups import groups_by_id
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import problem_from_record, problem_to_record
from securecoderl_edge.runtimes.opening import opened, precision_of
from securecoderl_edge.runtimes.placement import Placement, choose_placement
from securecoderl_edge.runtimes.protocol import Usage
from securecoderl_edge.runtimes.spec import ModelSpec
from securecoderl_edge.sandbox.levels import named_choice
from securecoderl_edge.scoring.metrics import Row
from securecoderl_edge.scoring.score import score_from_record
from securecoderl_edge.system.cluster import LOCAL, Run, Work, is_ray, map_on_cluster

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer

_Batch = tuple[int, Sequence[Problem]]  # with the position of its first problem


def measure(
    spec: ModelSpec,
    problems: Sequence[Problem],
    scorer: Scorer,
    settings: BenchSettings,
    out: Path | None = None,
    on_progress: Callable[[EvaluationProgress], None] = lambda progress: None,
    time_factor: float = 1.0,
    engine: str = LOCAL,
    on_text: OnText = lambda pieces, most: None,
) -> Evaluation:
    """Open one model, evaluate it, close it.

    Args:
        out: folder for the rows; existing rows of the same model with the same settings are reused.
        time_factor: that of ``scorer``.
        engine: see `is_ray`. On a cluster, each node or GPU opens the model, and has a scorer of its own.
        on_text: see `OnText`; not called on a cluster.

    Raises:
        SceError: the model cannot be opened, or see `evaluate`.
        UsageError, SceError: on a cluster, as `map_on_cluster`; or a node has another model under the same path.
    """
    settings = with_budgets(settings, [])
    placement = choose_placement(spec, settings.device, settings.gpu_layers)
    with opened_log(out, spec, settings, placement, time_factor) as log:
        if is_ray(engine):
            there = replace(settings, device=placement.device)
            evaluation = _evaluate_on_cluster(engine, spec, problems, there, time_factor, log, on_progress)
        else:
            model = opened(spec, settings, thinking=settings.thinking, parallel=settings.parallel)
            with model as (runtime, format):
                evaluation = evaluate(runtime, problems, scorer, settings.plan(format), log, on_progress, on_text)
    return replace(
        evaluation,
        label=spec.label,
        file_bytes=spec.file_bytes(),
        bits_per_weight=spec.bits_per_weight(),
        log=log.folder if log is not None else None,
        device=placement.device,
        groups=groups_by_id(problems),
    )


def opened_log(
    out: Path | None, spec: ModelSpec, settings: BenchSettings, placement: Placement, time_factor: float
) -> AbstractContextManager[EvaluationLog | None]:
    """The log of a model's rows under ``out``; None without a folder."""
    if out is None:
        return nullcontext()
    # The number of problems is not among the keys: a row knows its batch, so a limit can be raised, and shards can be
    # joined.
    keys = {name: value for name, value in asdict(settings).items() if name not in ("limit", "shard")}
    keys |= {"time_factor": time_factor, "label": spec.label, "sha256": spec.content_hash()}
    keys |= {"base_precision": precision_of(spec, settings.base_precision, placement.device), **asdict(placement)}
    return EvaluationLog.held(out, spec.label, keys)


def _evaluate_on_cluster(
    engine: str,
    spec: ModelSpec,
    problems: Sequence[Problem],
    settings: BenchSettings,
    time_factor: float,
    log: EvaluationLog | None,
    on_progress: Callable[[EvaluationProgress], None],
) -> Evaluation:
    """As `evaluate`. This machine chooses precision, isolation and time limits for all nodes.

    Args:
        settings: with budgets, and the device of this machine.
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
    from securecoderl_edge.scoring.scorer import Scorer

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
