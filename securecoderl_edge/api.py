"""The Python interface: what the commands do, as six functions.

What a function needs is imported when it is called, so this module costs nothing to import. Models are named as on
the command line: ``nano``, a run or one of its phases (``runs/starter``, ``starter:sft``), a GGUF file, an ONNX or a
Hugging Face folder, a hub id. Programs of models run in the sandbox and nowhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.config import build
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.sources import load_problems

if TYPE_CHECKING:
    from securecoderl_edge.evaluation.summary import EvaluationSummary
    from securecoderl_edge.export.run import ExportResult
    from securecoderl_edge.generation.answers import Answer
    from securecoderl_edge.runs import Run
    from securecoderl_edge.scoring.score import Score

__all__ = ["bench", "export", "generate", "load_problems", "score", "train"]


def score(
    programs: Iterable[tuple[Problem, str]],
    *,
    credit_rule: str = "any",
    severity: str = "bandit",
    sandbox: str = "auto",
    workers: int | None = None,
) -> list[Score]:
    """Run programs on the tests of their problems, scan them, and compute R (paper, Eq. 1-2 and Table 1).

    Args:
        programs: (problem, Python text) pairs. The text is scored as it is: nothing is taken out of it.
        credit_rule: tests that must be clean and print for a step: ``any``, ``all``, ``fraction`` or ``published``.
        severity: what a finding costs: ``bandit`` or ``cwe``.
        workers: programs that run side by side; one a core by default.

    Returns:
        one `Score` a pair, in order. ``reward`` is R, from 0 to 1, with 0 for text that does not parse, to which
        ``reward_paper`` gives 0.4; ``verdicts`` has a word for each test; ``seconds`` is processor time.

    Raises:
        ValueError: an unknown rule, scale or level.
        SceError: this system cannot isolate programs.
    """
    from securecoderl_edge.scoring.scorer import Scorer

    with Scorer(workers, None, credit_rule, severity, sandbox) as scorer:
        return scorer.score_all([(problem, program, 0) for problem, program in programs])


def train(
    recipe: str = "starter",
    out: str | Path | None = None,
    *,
    settings: Sequence[str] = (),
    resume: bool = True,
    log: Callable[[dict[str, Any]], None] = lambda row: None,
    **given: Any,
) -> Run:
    """Train a policy, or go on with the run in ``out``; what is done is not done again.

    Args:
        recipe: a built-in one or a TOML file.
        out: the run's folder, ``runs/RECIPE`` by default.
        settings: ``KEY=VALUE`` as for ``--set``, such as ``ppo.epochs=2``.
        log: called with each row of ``metrics.jsonl``.
        given: top-level settings by name, such as ``model``, ``problems``, ``phases`` (a tuple) and ``published``.

    Returns:
        the `Run`: ``policy`` is the folder of the final adapter, ``outcomes()`` says what each phase kept and why.

    Raises:
        UsageError: an impossible setting, or ``out`` is something else than this run.
        SceError: unusable model or problems, no memory, no disk space, a number that is not finite.
        MissingExtra: the ``train`` extra is not installed.
    """
    from securecoderl_edge.models.loading import require_torch

    require_torch()
    from securecoderl_edge.runs import default_folder
    from securecoderl_edge.training.settings import resolve
    from securecoderl_edge.training.train import train as run_training

    folder = default_folder(recipe) if out is None else Path(out)
    return run_training(resolve(recipe, tuple(settings), given), folder, resume=resume, log=log)


def export(
    model: str | None = None,
    kind: str = "gguf",
    quant: str | None = None,
    *,
    out: str | Path | None = None,
    force: bool = False,
) -> ExportResult:
    """Write a policy or a base model as a file for a CPU, verified in the runtime that will be used.

    Args:
        model: a run or a Hugging Face folder; the latest run by default.
        kind: ``gguf``, ``onnx``, ``portable`` (ONNX in standard operators) or ``adapter``.
        quant: type of the weights; by default q8_0, int8, f32, f16 in that order.
        out: where; by default among the exports of the run, or in the current folder.
        force: replace what is there.

    Returns:
        ``path``; ``manifest`` with hashes, tensor types and ``agreement`` (largest difference of logits, mean KL in
        nats, top-1); ``reused`` if this export was there already.

    Raises:
        UsageError: an unknown type, a model that is not supported, or ``out`` exists.
        SceError: the file does not agree with its source; nothing is left.
        MissingExtra: a package is not installed.
    """
    from securecoderl_edge.errors import UsageError
    from securecoderl_edge.export.dispatch import DEFAULTS, check_type, export_as, find_source, target_of
    from securecoderl_edge.export.workbench import Workbench
    from securecoderl_edge.models.files import base_folder

    if kind not in DEFAULTS or kind == "hf":
        raise UsageError(f"no kind of file {kind!r}; there are gguf, onnx, portable and adapter")
    spec, chosen = find_source(model), quant or DEFAULTS[kind]
    check_type(kind, chosen)
    target = target_of(spec, kind, chosen, out)
    with Workbench(base_folder(spec.source), spec.adapter, spec.prompt_style) as workbench:
        return export_as(workbench, kind, chosen, target, force)


def bench(
    models: Sequence[str],
    problems: str = "starter:eval",
    *,
    samples: int = 1,
    limit: int | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> list[EvaluationSummary]:
    """Measure quality, speed and memory of models on problems.

    Args:
        problems: a built-in set, ``humaneval``, ``mbpp``, or a file in any format that is imported.
        samples: programs for each problem. limit: only so many problems.
        out: a folder for the rows; an interrupted bench goes on there.
        settings: further fields of `BenchSettings`, such as ``temperature``, ``seed``, ``threads``.

    Returns:
        a summary for each model: ``metrics`` are intervals (``value``, ``low``, ``high``; rates as fractions), speeds
        in tokens a second, times in seconds, sizes in bytes.

    Raises:
        UsageError: an unknown model, set of problems or setting.
        SceError: a model cannot be run.
    """
    from securecoderl_edge.evaluation.bench import BenchSettings, bench_problems, choose_models, measure
    from securecoderl_edge.sandbox.calibration import time_factor
    from securecoderl_edge.scoring.scorer import Scorer

    values = {"problems": problems, "samples": samples, **settings} | ({} if limit is None else {"limit": limit})
    asked = build(BenchSettings, values, "bench")
    specs, _ = choose_models(models)
    chosen, folder = bench_problems(asked), None if out is None else Path(out)
    factor = time_factor(folder)
    with Scorer(sandbox=asked.sandbox, time_factor=factor) as scorer:
        return [measure(spec, chosen, scorer, asked, folder, time_factor=factor).summary() for spec in specs]


def generate(
    prompt: str,
    model: str | None = None,
    *,
    n: int = 1,
    tests: Sequence[tuple[str, str]] = (),
    threads: int | None = None,
    sandbox: str = "auto",
    **sampling: Any,
) -> Answer:
    """Write programs for a prompt, and check them.

    Args:
        model: by default the newest export of the latest run, else its policy, else nano.
        n: how many to sample; the best comes first.
        tests: (input, expected output) pairs; by default the examples in the prompt, if it has some.
        sampling: ``temperature``, ``max_tokens``, ``seed``, ``top_k``, ``top_p``, ``min_p``.

    Returns:
        an `Answer`: ``best.score.program`` is the text; ``best.is_accepted`` says whether it parses, has no findings
        and passes, ``verdict()`` the same in words.

    Raises:
        UsageError: an unknown model or setting.
        SceError: the prompt is too long, or the model cannot be run.
    """
    from securecoderl_edge.generation.answers import answer
    from securecoderl_edge.generation.requests import example_tests
    from securecoderl_edge.prompts.styles import choose_format
    from securecoderl_edge.runtimes import open_runtime
    from securecoderl_edge.runtimes.protocol import SamplingSettings
    from securecoderl_edge.runtimes.spec import resolve_model
    from securecoderl_edge.scoring.scorer import Scorer

    given = tuple(Test(*pair) for pair in tests) or tuple(example_tests(prompt))
    spec, drawn = resolve_model(model), build(SamplingSettings, sampling, "generate").sampling()
    with Scorer(sandbox=sandbox) as scorer, contextlib.closing(open_runtime(spec, threads=threads)) as runtime:
        format = choose_format("auto", spec.prompt_style or runtime.prompt_style, runtime.chat_template)
        return answer(runtime, scorer, [Problem("prompt", prompt, tests=given)], n, drawn, format=format)[0]
