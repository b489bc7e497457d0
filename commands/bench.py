"""``sce bench``: quality, speed and memory of models on problems, in one run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from securecoderl_edge.commands.console import duration, say, track
from securecoderl_edge.errors import SceError, UsageError

if TYPE_CHECKING:
    from securecoderl_edge.evaluate import Evaluation, Progress
    from securecoderl_edge.models import ModelSpec
    from securecoderl_edge.problems import Problem
    from securecoderl_edge.scorer import Scorer


@click.command()
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option(
    "--device", type=click.Choice(["cpu"]), default="cpu", show_default=True, help="Where models run."
)
@click.option(
    "--problems",
    default="starter:eval",
    metavar="SET|FILE",
    show_default=True,
    help="Built-in set or JSONL file.",
)
@click.option(
    "--samples", type=click.IntRange(1), default=1, show_default=True, help="Programs for each problem."
)
@click.option("--temperature", type=click.FloatRange(0), default=0.7, show_default=True, help="0 is greedy.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="Longest completion, in tokens.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N problems.")
@click.option("--parallel", type=click.IntRange(1), metavar="N", help="Sequences decoded side by side.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="CPU threads.  [default: all cores]")
@click.option("--seed", type=click.IntRange(0), default=42, show_default=True, help="Seed of the sampling.")
@click.option(
    "--compare", "is_comparing", is_flag=True, help="Paired differences of each model from the first."
)
@click.option("--json", "output", flag_value="json", help="One JSON document on stdout.")
@click.option("--csv", "output", flag_value="csv", help="CSV on stdout, one line a model.")
@click.option("--markdown", "output", flag_value="markdown", help="Markdown tables on stdout.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Keep all rows here; an interrupted bench continues."
)
def bench(
    models: tuple[str, ...],
    device: str,
    problems: str,
    limit: int | None,
    is_comparing: bool,
    output: str | None,
    out: Path | None,
    **settings: Any,
) -> None:
    """Measure quality, speed and memory of models.

    MODEL is a run or one of its phases (runs/starter, starter:sft), a GGUF file, a Hugging Face folder or hub id, or
    nano. Without one: base, SFT, policy and exports of the latest run, with the paired differences that matter.

    Every figure has a 95 % interval. Programs run in the sandbox.
    """
    from securecoderl_edge.models import (
        default_comparisons,
        default_models,
        resolve_model,
        with_distinct_labels,
    )
    from securecoderl_edge.scorer import Scorer

    if is_comparing and len(models) == 1:
        raise UsageError("--compare needs at least two models")
    specs = with_distinct_labels([resolve_model(text) for text in models] if models else default_models())
    chosen = _load(problems, limit)
    pairs = [(0, other) for other in range(1, len(specs))] if models and is_comparing else []
    if not models:
        pairs = default_comparisons(specs)
    document = _describe(problems, len(chosen), device, settings)
    evaluations: dict[int, Evaluation] = {}
    failures = []
    with Scorer() as scorer:
        for index, spec in enumerate(specs):
            try:
                evaluations[index] = _measure(spec, chosen, scorer, device, settings, out)
            except SceError as error:
                # One model that cannot be opened must not cost the figures of the others.
                failures.append(error)
                say(f"sce: {spec.label}: {error}")
    if not evaluations:
        raise failures[0]
    _show(specs, evaluations, pairs, document, output, out)
    if failures:
        raise SceError(f"{len(failures)} of {len(specs)} models could not be measured")


def _load(source: str, limit: int | None) -> list[Problem]:
    from securecoderl_edge.problems import STARTER, load_problems

    return load_problems(f"{STARTER}:eval" if source == STARTER else source)[:limit]


def _describe(problems: str, count: int, device: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What the JSON document says about how it was made."""
    from securecoderl_edge.machine import cpu_count, describe_machine

    machine = describe_machine()
    load = machine["load_average"]
    if load and load[0] > 0.5 * cpu_count():
        say(f"load average is {load[0]:.1f} on {cpu_count()} cores: others use them too, speeds will be low")
    return {
        "settings": {"problems": problems, "problem_count": count, "device": device, **settings},
        "machine": machine,
    }


def _measure(
    spec: ModelSpec,
    problems: list[Problem],
    scorer: Scorer,
    device: str,
    settings: dict[str, Any],
    out: Path | None,
) -> Evaluation:
    """Run one model and say how it went."""
    from securecoderl_edge.evaluate import BATCH, evaluate
    from securecoderl_edge.evaluation_log import EvaluationLog
    from securecoderl_edge.runtimes import open_runtime
    from securecoderl_edge.runtimes.protocol import Sampling

    samples, threads, parallel = settings["samples"], settings["threads"], settings["parallel"]
    sampling = Sampling(settings["temperature"], settings["max_tokens"], settings["seed"])
    log = None
    if out is not None:
        log = EvaluationLog.open(
            out, spec.label, {"label": spec.label, "sha256": spec.content_hash(), **settings}
        )
    started, done = time.monotonic(), 0
    with track(len(problems) * samples, spec.label, lines=False) as progress:

        def report(now: Progress) -> None:
            nonlocal done
            progress.update(now.done - done, f"reward {now.reward:.2f} syntax {now.syntax_rate:.0%}")
            done = now.done

        runtime = open_runtime(spec, threads=threads, parallel=parallel, device=device)
        with contextlib.closing(runtime):
            evaluation = evaluate(
                runtime,
                problems,
                scorer,
                samples,
                sampling,
                report,
                label=spec.label,
                file_bytes=spec.file_bytes(),
                log=log,
                batch=max(BATCH, parallel or 0),
            )
    say(f"{spec.label}: {len(evaluation.rows)} programs in {duration(time.monotonic() - started)}")
    return evaluation


def _show(
    specs: Sequence[ModelSpec],
    evaluations: dict[int, Evaluation],
    pairs: Sequence[tuple[int, int]],
    document: dict[str, Any],
    output: str | None,
    out: Path | None,
) -> None:
    import json

    from securecoderl_edge.commands.tables import show_bench
    from securecoderl_edge.files import write_atomically
    from securecoderl_edge.report import bench_markdown, compare, comparison_record, summary_record, to_csv

    summaries = [evaluation.summary() for evaluation in evaluations.values()]
    comparisons = [
        compare(evaluations[first], evaluations[second])
        for first, second in pairs
        if first in evaluations and second in evaluations
    ]
    models = [
        {**summary_record(summary), "kind": specs[index].kind, "source": specs[index].source}
        for index, summary in zip(evaluations, summaries, strict=True)
    ]
    document = {
        "models": models,
        "comparisons": [comparison_record(item) for item in comparisons],
        **document,
    }
    text = json.dumps(document, indent=1, allow_nan=False)
    if out is not None:
        with write_atomically(out / "bench.json") as file:
            file.write(text + "\n")
        say(f"rows and bench.json are in {out}")
    if output == "json":
        click.echo(text)
    elif output == "csv":
        click.echo(to_csv(summaries), nl=False)
    elif output == "markdown":
        click.echo(bench_markdown(summaries, comparisons), nl=False)
    else:
        show_bench(summaries, comparisons)
