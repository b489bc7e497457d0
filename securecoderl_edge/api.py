"""The Python API: six functions that do the work of the commands.

Each function imports its dependencies when it is called, so that importing this module is cheap. Models have the same
names as on the command line: ``nano``, ``nano-c``, ``qwen-0.5b-coder`` (see ``sce models``), a run or one of its phases
(``runs/starter``, ``starter:sft``), a GGUF file, an ONNX or Hugging Face folder, or a Hugging Face repo id. Generated
programs run in the sandbox only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
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
    security: str = "both",
    analyzers: str = "auto",
    sandbox: str = "auto",
    workers: int | None = None,
) -> list[Score]:
    """Run programs on the tests of their problems, scan them, and compute R (paper, Eq. 1-2 and Table 1).

    Args:
        programs: (problem, text of a program) pairs. The text is scored unchanged; no code is extracted from it.
        credit_rule: how many tests must run (print) to reach a reward level: ``any``, ``all``, ``fraction`` or
            ``published``.
        severity: scale of the penalty for a finding: ``bandit`` or ``cwe``.
        security: R_sec of problems with security tests: ``both`` (tests and Bandit), ``tests`` or ``bandit``.
        analyzers: of programs in C: ``auto`` (those that are installed) or ``off``.
        workers: programs that run at the same time; by default one per core.

    Returns:
        one `Score` per pair, in order. ``reward`` is R, from 0 to 1. Unparsable output gets 0 in ``reward`` and 0.4 in
        ``reward_paper``. ``verdicts`` has one word per test; ``seconds`` is CPU time.

    Raises:
        ValueError: an unknown rule, scale or isolation level.
        SceError: this system cannot isolate programs.
    """
    from securecoderl_edge.scoring.scorer import Scorer, Submission

    with Scorer(workers, None, credit_rule, severity, sandbox, security=security, analyzers=analyzers) as scorer:
        return scorer.score_all(Submission(problem, program) for problem, program in programs)


def train(
    recipe: str | None = None,
    out: str | Path | None = None,
    *,
    settings: Sequence[str] = (),
    resume: bool = True,
    log: Callable[[dict[str, Any]], None] = lambda row: None,
    **overrides: Any,
) -> Run:
    """Train a policy, or resume the run in ``out``; finished updates are not repeated.

    Args:
        recipe: name of a built-in recipe, or a TOML file; by default the one that fits the model.
        out: the run's folder; by default ``runs/RECIPE``, or ``runs/MODEL`` without ``recipe``.
        settings: ``KEY=VALUE`` as for ``--set``, such as ``ppo.epochs=2``.
        resume: False deletes the run in ``out`` and starts again.
        log: called with each row of ``metrics.jsonl``.
        overrides: top-level settings by name, such as ``model``, ``problems``, ``phases`` (a tuple) and ``seed``.

    Returns:
        the `Run`. ``policy`` is the folder of the final adapter; ``outcomes()`` has the selected checkpoint of each
        phase and the reason.

    Raises:
        UsageError: an invalid setting, or ``out`` is not a folder of this run.
        SceError: unusable model or problems, no memory, no disk space, NaN or Inf.
        MissingExtra: the ``train`` extra is not installed.
    """
    from securecoderl_edge.models.packages import require_torch

    require_torch()
    from securecoderl_edge.runs import default_folder
    from securecoderl_edge.training.recipe import choose_recipe, resolve
    from securecoderl_edge.training.train import train as run_training

    given = (settings,) if isinstance(settings, str) else tuple(settings)
    choice = choose_recipe(recipe, given, overrides, download=True)
    folder = default_folder(choice.run_name) if out is None else Path(out)
    return run_training(resolve(choice.name, given, overrides, download=True), folder, resume=resume, log=log)


def export(
    model: str | None = None,
    kind: str = "gguf",
    quant: str | None = None,
    *,
    out: str | Path | None = None,
    force: bool = False,
    device: str = "auto",
) -> ExportResult:
    """Export a policy or a base model to a file for a CPU, verified in llama.cpp or onnxruntime.

    Args:
        model: a run or a Hugging Face folder; by default the latest run.
        kind: ``gguf``, ``onnx``, ``portable`` (ONNX in standard operators) or ``adapter``.
        quant: type of the weights; by default q8_0, int8, f32 and f16 for these kinds, in the same order.
        out: path to write; by default in the exports of the run, or in the current folder.
        force: replace an existing file or folder.
        device: of the original model, which the file is compared with: ``auto``, ``cpu`` or ``cuda``.

    Returns:
        ``path``; ``manifest`` with hashes, tensor types and ``agreement`` (largest difference of logits, mean KL in
        nats per token, top-1); ``reused``, which is true if the same export already existed.

    Raises:
        UsageError: an unknown type, an unsupported model, or ``out`` exists.
        SceError: the file does not agree with the original; it is deleted.
        MissingExtra: a package is not installed.
    """
    from securecoderl_edge.errors import UsageError
    from securecoderl_edge.export.dispatch import (
        DEFAULTS,
        check_format,
        check_type,
        export_as,
        find_source,
        target_of,
    )
    from securecoderl_edge.export.workbench import Workbench
    from securecoderl_edge.models.files import gguf_file
    from securecoderl_edge.runtimes.placement import check_childs_device

    if kind not in DEFAULTS or kind == "hf":
        raise UsageError(f"unknown kind {kind!r}; choose from gguf, onnx, portable, adapter")
    spec, chosen = find_source(model), quant or DEFAULTS[kind]
    check_type(kind, chosen)
    check_childs_device(device)
    target = target_of(spec, kind, chosen, out)
    base, gguf_base = spec.folder(), gguf_file(spec.source)
    check_format(spec, base, kind)
    with Workbench(base, spec.adapter, spec.prompt_style, gguf_base=gguf_base, device=device) as workbench:
        return export_as(workbench, kind, chosen, target, force)


def bench(
    models: str | Sequence[str],
    problems: str | None = None,
    *,
    samples: int = 1,
    limit: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    **settings: Any,
) -> list[EvaluationSummary]:
    """Evaluate quality, speed and memory of models on problems.

    Args:
        models: names of models, or one.
        problems: a built-in set, ``humaneval``, ``mbpp``, or a file in any format that ``sce data import`` reads; by
            default ``starter:eval``, for models of C ``starter:c-eval``.
        samples: completions per problem.
        limit: use only the first problems, this many.
        device: ``auto``, ``cpu`` or ``cuda``.
        out: a folder for the rows; an interrupted evaluation resumes from it.
        settings: further fields of `BenchSettings`, such as ``temperature``, ``seed``, ``threads``.

    Returns:
        one summary per model. ``metrics`` are 95 % intervals (``value``, ``low``, ``high``; rates as fractions); speeds
        are in tokens per second, times in seconds, sizes in bytes.

    Raises:
        UsageError: an unknown model, problem set or setting.
        SceError: a model cannot be run.
    """
    from securecoderl_edge.evaluation.bench import BenchSettings, bench_problems, choose_models, with_budgets
    from securecoderl_edge.evaluation.measure import measure
    from securecoderl_edge.runtimes.opening import check_runtime
    from securecoderl_edge.sandbox.calibration import time_factor
    from securecoderl_edge.scoring.scorer import Scorer

    optional = {"problems": problems, "limit": limit}
    given = {name: value for name, value in optional.items() if value is not None}
    asked = build(BenchSettings, {"samples": samples, "device": device, **given, **settings}, "bench")
    specs, _ = choose_models([models] if isinstance(models, str) else models)
    check_runtime(specs, asked)
    asked = with_budgets(asked, specs)
    chosen, folder = bench_problems(asked), None if out is None else Path(out)
    factor = time_factor(folder)
    with Scorer(sandbox=asked.sandbox, time_factor=factor) as scorer:
        return [measure(spec, chosen, scorer, asked, folder, time_factor=factor).summary() for spec in specs]


def generate(
    prompt: str,
    model: str | None = None,
    *,
    n: int = 1,
    language: str | None = None,
    tests: Sequence[tuple[str, str]] = (),
    assertions: Sequence[str] = (),
    hide_tests: bool = False,
    threads: int | None = None,
    sandbox: str = "auto",
    device: str = "auto",
    gpu_layers: int | None = None,
    **sampling: Any,
) -> Answer:
    """Generate programs for a prompt, test them and scan them.

    Args:
        model: by default the newest export of the latest run, else its policy, else the built-in one for the language.
        n: programs to sample; the best one comes first.
        language: of the programs: ``python`` or ``c``; by default that of the model.
        tests: (input, expected output) pairs; by default the examples in the prompt, if it has any.
        assertions: tests of a function, such as ``is_prime(7)`` or ``f(2) == 4``.
        hide_tests: do not show the tests to the model.
        device: ``auto``, ``cpu`` or ``cuda``.
        gpu_layers: layers of a GGUF file that the GPU computes; all by default.
        sampling: ``temperature``, ``max_tokens``, ``seed``, ``top_k``, ``top_p``, ``min_p``, ``thinking``.

    Returns:
        an `Answer`. ``best.score.program`` is the program. ``best.is_accepted`` is true if it parses (in C: compiles),
        has no medium or high finding, and passes all tests; ``verdict()`` is the same in words.

    Raises:
        UsageError: an unknown model, language or setting.
        SceError: the prompt is too long, the model cannot be run, or the language cannot be compiled or isolated here.
    """
    from securecoderl_edge.errors import UsageError
    from securecoderl_edge.generation.answering import Answerer
    from securecoderl_edge.generation.inputs import GivenTests, parse_assertion, prompt_problem
    from securecoderl_edge.languages.language import LANGUAGE_NAMES
    from securecoderl_edge.runtimes.opening import RuntimeSettings, check_runtime, opened
    from securecoderl_edge.runtimes.protocol import SamplingSettings
    from securecoderl_edge.runtimes.spec import resolve_model
    from securecoderl_edge.scoring.scorer import Scorer

    if language not in (None, *LANGUAGE_NAMES):
        raise UsageError(f"unknown language {language!r}; choose from {', '.join(LANGUAGE_NAMES)}")
    spec, settings = resolve_model(model, language), build(SamplingSettings, sampling, "generate")
    given = GivenTests(tuple(Test(*pair) for pair in tests), tuple(map(parse_assertion, assertions)))
    problem = prompt_problem(prompt, language or spec.language(), given)
    how = RuntimeSettings(device=device, gpu_layers=gpu_layers, threads=threads, sandbox=sandbox)
    check_runtime([spec], how)
    settings = replace(settings, max_tokens=settings.max_tokens or spec.max_tokens())
    with Scorer(sandbox=sandbox) as scorer, opened(spec, how, thinking=settings.thinking) as (runtime, format):
        format = replace(format, shows_tests=not hide_tests)
        return Answerer(runtime, scorer, n, settings.sampling(), format).answer([problem])[0]
