"""The bench of one or several models: which, under which settings, and what the record of it says."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.evaluate import BATCH, Evaluation, EvaluationProgress, evaluate
from securecoderl_edge.evaluation.log import EvaluationLog
from securecoderl_edge.evaluation.summary import EvaluationSummary
from securecoderl_edge.evaluation.tables import Comparison, comparison_record, summary_record
from securecoderl_edge.problems.problem import MAX_TESTS, Problem
from securecoderl_edge.problems.sources import BENCHMARKS, STARTER, benchmark_problems, open_problems
from securecoderl_edge.prompts.styles import STYLES, choose_format
from securecoderl_edge.runtimes import open_runtime
from securecoderl_edge.runtimes.protocol import MAX_SAMPLES, MAX_THREADS, SamplingSettings
from securecoderl_edge.runtimes.spec import (
    ModelSpec,
    default_comparisons,
    default_models,
    resolve_model,
    with_distinct_labels,
)
from securecoderl_edge.sandbox.levels import sandbox_setting
from securecoderl_edge.system.machine import describe_machine

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer


@dataclass(frozen=True)
class BenchSettings(SamplingSettings):
    """What the figures of a bench depend on, beside the models."""

    device: str = setting("cpu", "Where models run.", choices=("cpu",))
    problems: str = setting(
        "starter:eval",
        "Built-in set; humaneval or mbpp, if their files are here; or a file in any format that sce data import reads.",
        metavar="SET|FILE",
    )
    prompt_style: str = setting(
        "auto",
        "How problems are put to the model: as it was trained here; else chat if it was trained to chat, else code.",
        choices=("auto", *STYLES),
    )
    max_prompt_tokens: int | None = setting(
        None,
        "Longer prompts lose the end of their statement.  [default: what the context has room for]",
        minimum=1,
        metavar="N",
    )
    max_tests: int = setting(
        MAX_TESTS, "Tests of a problem, the first ones; of humaneval and mbpp always all.", minimum=1, metavar="N"
    )
    limit: int | None = setting(None, "Only the first N problems.", minimum=1, metavar="N")
    samples: int = setting(1, "Programs for each problem.", minimum=1, maximum=MAX_SAMPLES, metavar="N")
    parallel: int | None = setting(
        None,
        "Sequences decoded side by side; all samples of a problem at least. auto: 32 for files, 64 for folders, fewer "
        "where memory is short.  [default: auto]",
        minimum=1,
        metavar="N|auto",
    )
    threads: int | None = setting(
        None, "CPU threads; all cores if not given.", minimum=1, maximum=MAX_THREADS, metavar="N"
    )
    sandbox: str = sandbox_setting()


def choose_models(names: Sequence[str], is_comparing: bool = False) -> tuple[list[ModelSpec], list[tuple[int, int]]]:
    """The models to measure, and the positions of those to compare.

    Without names the models of the latest run, compared as `default_comparisons` says; with names each
    against the first, when comparing is asked for.

    Raises:
        UsageError: an unknown model, or nothing to compare with.
    """
    if not names:
        specs = default_models()
        return with_distinct_labels(specs), default_comparisons(specs)
    if is_comparing and len(names) == 1:
        raise UsageError("--compare needs at least two models")
    specs = with_distinct_labels([resolve_model(name) for name in names])
    return specs, [(0, other) for other in range(1, len(specs))] if is_comparing else []


def bench_problems(settings: BenchSettings, tell: Callable[[str], None] = lambda message: None) -> list[Problem]:
    """The problems to solve; ``starter`` alone means its evaluation split. Errors, ``tell``: as in `open_problems`."""
    source = f"{STARTER}:eval" if settings.problems == STARTER else settings.problems
    if source in BENCHMARKS:
        return benchmark_problems(source, tell)[: settings.limit]
    return open_problems(source, settings.max_tests, tell)[: settings.limit]


def measure(
    spec: ModelSpec,
    problems: Sequence[Problem],
    scorer: Scorer,
    settings: BenchSettings,
    out: Path | None = None,
    on_progress: Callable[[EvaluationProgress], None] = lambda progress: None,
    time_factor: float = 1.0,
) -> Evaluation:
    """Open one model, evaluate it, close it.

    Args:
        out: folder for the rows; what it holds of the same model under the same settings is not made again.
        time_factor: that of ``scorer``.

    Raises:
        SceError: the model cannot be opened, or see `evaluate`.
    """
    with contextlib.ExitStack() as stack:
        log = None
        if out is not None:
            # How many problems there are is not among the keys: a row knows its batch, so a limit can be raised.
            keys = {name: value for name, value in asdict(settings).items() if name != "limit"}
            keys |= {"time_factor": time_factor, "label": spec.label, "sha256": spec.content_hash()}
            log = stack.enter_context(EvaluationLog.held(out, spec.label, keys))
        runtime = open_runtime(spec, threads=settings.threads, parallel=settings.parallel, device=settings.device)
        stack.enter_context(contextlib.closing(runtime))
        format = choose_format(settings.prompt_style, spec.prompt_style or runtime.prompt_style, runtime.chat_template)
        evaluation = evaluate(
            runtime,
            problems,
            scorer,
            settings.samples,
            settings.sampling(),
            on_progress,
            label=spec.label,
            file_bytes=spec.file_bytes(),
            log=log,
            batch=max(BATCH, settings.parallel or 0),
            format=format,
            max_prompt_tokens=settings.max_prompt_tokens,
        )
    return replace(evaluation, bits_per_weight=spec.bits_per_weight(), log=log.folder if log is not None else None)


def bench_record(
    models: Sequence[tuple[ModelSpec, EvaluationSummary]],
    comparisons: Sequence[Comparison],
    settings: BenchSettings,
    time_factor: float,
    logs: Mapping[str, str],
) -> dict[str, Any]:
    """The JSON document of a bench: figures, paired differences, settings, and the machine at its end.

    Args:
        logs: by label, the folder of a model's rows below that of the document; empty where none were kept.
    """
    return {
        "models": [
            {**summary_record(summary), "kind": spec.kind, "source": spec.source, "log": logs.get(summary.label)}
            for spec, summary in models
        ],
        "comparisons": [comparison_record(comparison) for comparison in comparisons],
        "settings": asdict(settings),
        "time_factor": time_factor,
        "machine": describe_machine(),
    }
