"""Evaluation of one or several models: settings, choice of models, the run, and its record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.conclusions import conclusions
from securecoderl_edge.evaluation.evaluate import (
    BATCH,
    Evaluation,
    EvaluationPlan,
    batches,
)
from securecoderl_edge.evaluation.protocol import BENCHMARK_TOKENS, EVALPLUS_STOPS, PROTOCOLS, asked_as
from securecoderl_edge.evaluation.shards import shard_of, shard_setting
from securecoderl_edge.evaluation.summary import EvaluationSummary
from securecoderl_edge.evaluation.tables import (
    Comparison,
    compare,
    comparison_record,
    corrected,
    summary_record,
)
from securecoderl_edge.languages.language import C
from securecoderl_edge.models.gpus import device_setting
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import MAX_TESTS
from securecoderl_edge.problems.sources import STARTER, is_benchmark, open_problems
from securecoderl_edge.prompts.extraction import DEFINITIONS, EXTRACT_MODES
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.runs import Budget
from securecoderl_edge.runtimes.adapted import resolve_adapted
from securecoderl_edge.runtimes.opening import RuntimeSettings
from securecoderl_edge.runtimes.protocol import MAX_SAMPLES, MAX_TOKENS, SamplingSettings
from securecoderl_edge.runtimes.spec import (
    ModelSpec,
    default_comparisons,
    default_models,
    resolve_model,
    with_distinct_labels,
)
from securecoderl_edge.system.machine import describe_machine


@dataclass(frozen=True)
class BenchSettings(RuntimeSettings, SamplingSettings):
    """The settings of an evaluation, without the models."""

    problems: str | None = setting(
        None,
        "Problems to solve: starter[:SPLIT], humaneval, mbpp[:SPLIT], or a file in any format of sce data import.  "
        "[default: starter:eval; starter:c-eval for models of C]",
        metavar="SET|FILE",
    )
    protocol: str = setting(
        "sce",
        "How benchmarks are asked. sce: our way; evalplus: EvalPlus' prompts with the beginning of the answer, for "
        "HumanEval(+) and MBPP(+); classic: MBPP with its three assertions.",
        choices=PROTOCOLS,
    )
    max_prompt_tokens: int | None = setting(
        None,
        "Truncate the statements of longer prompts.  [default: that of the run's training, else as many as fit into "
        "the context]",
        minimum=1,
        metavar="N",
    )
    extract: str | None = setting(
        None,
        "auto: score the program in a completion; definitions: without tests and examples next to its functions; raw: "
        "the whole text, which then does not stop at the end of a program.  [default: that of the run's training, "
        "else auto]",
        choices=EXTRACT_MODES,
    )
    max_tests: int = setting(
        MAX_TESTS, "Tests per problem, the first N; humaneval and mbpp always use all.", minimum=1, metavar="N"
    )
    limit: int | None = setting(None, "Use only the first N problems.", minimum=1, metavar="N")
    samples: int = setting(1, "Samples per problem.", minimum=1, maximum=MAX_SAMPLES, metavar="N")
    parallel: int | None = setting(
        None,
        "Sequences decoded in parallel, at least all samples of a problem. auto: 32 for files, 64 for folders, fewer "
        "if memory is short.  [default: auto]",
        minimum=1,
        metavar="N|auto",
    )
    shard: str | None = shard_setting("Evaluate only part I of N, for N machines; needs --out. Join them with --merge.")
    device: str = device_setting("cpu")

    def plan(self, format: PromptFormat) -> EvaluationPlan:
        """What is asked of a model in this prompt format."""
        return EvaluationPlan(
            self.samples,
            self.sampling(EVALPLUS_STOPS if self.protocol == "evalplus" else ()),
            format,
            self.max_prompt_tokens,
            self.extract or "auto",
            self.batch_size,
            shard_of(self.shard),
        )

    @property
    def batch_size(self) -> int:
        """Completions requested from the runtime at once."""
        return max(BATCH, self.parallel or 0)


@dataclass(frozen=True)
class Bench:
    """A finished evaluation.

    Attributes:
        done: by position in ``specs``; a model that could not be evaluated is missing.
        pairs: positions of the models to compare.
        time_factor: of the time limits of programs.
        machines: that evaluated, if it was not this one.
    """

    specs: list[ModelSpec]
    done: dict[int, Evaluation]
    pairs: list[tuple[int, int]]
    problems: list[Problem]
    settings: BenchSettings
    time_factor: float
    machines: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def summaries(self) -> list[EvaluationSummary]:
        """The results of each evaluated model."""
        return [each.summary() for each in self.done.values()]

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Paired differences, of the pairs that were evaluated."""
        pairs = [(a, b) for a, b in self.pairs if a in self.done and b in self.done]
        return corrected([compare(self.done[a], self.done[b]) for a, b in pairs])

    @cached_property
    def conclusions(self) -> list[str]:
        """What it says, in words."""
        asked = f" of {self.settings.problems}, protocol {self.settings.protocol}"
        return conclusions(self.summaries, self.comparisons, asked)

    def record(self) -> dict[str, Any]:
        """The JSON document: results, paired differences, settings, and the machine at the end.

        ``log`` of a model is the folder of its rows relative to that of the document. Of joined shards, ``machine`` is
        the first of ``machines``.
        """
        models = [
            {
                **summary_record(summary),
                "kind": self.specs[index].kind,
                "source": self.specs[index].source,
                "adapter": str(self.specs[index].adapter) if self.specs[index].adapter else None,
                "log": each.log.name if each.log else None,
            }
            for (index, each), summary in zip(self.done.items(), self.summaries, strict=True)
        ]
        return {
            "conclusions": self.conclusions,
            "models": models,
            "comparisons": [comparison_record(comparison) for comparison in self.comparisons],
            "settings": asdict(self.settings),
            "time_factor": self.time_factor,
            "machine": self.machines[0] if self.machines else describe_machine(),
            **({"machines": list(self.machines)} if self.machines else {}),
        }


def choose_models(
    names: Sequence[str], is_comparing: bool = False, adapter: str | None = None
) -> tuple[list[ModelSpec], list[tuple[int, int]]]:
    """The models to evaluate, and the positions of those to compare.

    Without names: the models of the latest run, with `default_comparisons`. With names: each one against the first, if
    ``is_comparing``. With an adapter (see `resolve_adapted`): one model, which is compared with itself without it.

    Raises:
        UsageError: an unknown model, nothing to compare with, or several models for an adapter.
    """
    if adapter is not None:
        if len(names) > 1:
            raise UsageError("--adapter needs one MODEL. Of several, name each pair: BASE.gguf+LORA.gguf")
        if is_comparing and not names:
            raise UsageError("--compare needs the MODEL without the adapter. Name it")
        adapted = resolve_adapted(next(iter(names), None), adapter)
        return ([resolve_model(names[0]), adapted], [(0, 1)]) if is_comparing else ([adapted], [])
    if not names:
        specs = default_models()
        return with_distinct_labels(specs), default_comparisons(specs)
    if is_comparing and len(names) == 1:
        raise UsageError("--compare needs at least two models; give another MODEL")
    specs = with_distinct_labels([resolve_model(name) for name in names])
    return specs, [(0, other) for other in range(1, len(specs))] if is_comparing else []


def bench_problems(settings: BenchSettings, tell: Callable[[str], None] = lambda message: None) -> list[Problem]:
    """The problems to solve; ``starter`` alone means its evaluation split. Errors, ``tell``: as in `open_problems`."""
    source = f"{STARTER}:eval" if settings.problems in (None, STARTER) else settings.problems
    max_tests = sys.maxsize if is_benchmark(source) else settings.max_tests
    return asked_as(open_problems(source, max_tests, tell)[: settings.limit], settings.protocol)


def bench_batches(settings: BenchSettings, problems: Sequence[Problem]) -> dict[int, Sequence[Problem]]:
    """The problems of the settings' shard, by the position of the first one of a batch.

    Raises:
        UsageError: a wrong shard, or more shards than batches.
    """
    return batches(problems, settings.samples, settings.batch_size, shard_of(settings.shard))


def with_budgets(
    settings: BenchSettings, specs: Sequence[ModelSpec], tell: Callable[[str], None] = lambda line: None
) -> BenchSettings:
    """The settings with one budget for all models: as given, else as their runs trained, else the defaults.

    Of runs that differ, the largest lengths count. Without problems, those of the models' language.

    Args:
        tell: called with one line if a run decides, or if a model is for another language.

    Raises:
        UsageError: the runs differ in their extraction.
        SceError: the settings of a run are damaged.
    """
    if settings.protocol == "evalplus":
        settings = _as_evalplus(settings)
    trained = {str(run.path): run.budget for spec in specs if (run := spec.run()) is not None}
    budget = _joined(list(trained.values()), settings.extract)
    joined = Budget(
        settings.max_tokens or budget.max_tokens,
        settings.max_prompt_tokens or budget.max_prompt_tokens,
        settings.extract or budget.extract,
    )
    taken = {
        name: value
        for name, value in vars(joined).items()
        if value not in (None, "auto") and getattr(settings, name) is None
    }
    problems = settings.problems or default_problems(specs, tell)
    tokens = BENCHMARK_TOKENS if is_benchmark(problems) else MAX_TOKENS
    if taken:
        runs, words = ", ".join(trained), [f"--{name.replace('_', '-')} {value}" for name, value in taken.items()]
        differ = any(getattr(each, name) != value for each in trained.values() for name, value in taken.items())
        why = f"one budget for all, the largest of {runs}" if differ else f"as in the training of {runs}"
        tell(f"{why}: {', '.join(words)}")
    return replace(
        settings,
        problems=problems,
        max_tokens=joined.max_tokens or tokens,
        max_prompt_tokens=joined.max_prompt_tokens,
        extract=joined.extract or "auto",
    )


def _as_evalplus(settings: BenchSettings) -> BenchSettings:
    """What is not given as EvalPlus has it, however a model was trained."""
    if settings.prompt_style not in ("auto", "evalplus"):
        raise UsageError("--protocol evalplus decides the prompt. Leave out --prompt-style.")
    return replace(
        settings,
        prompt_style="evalplus",
        max_tokens=settings.max_tokens or BENCHMARK_TOKENS,
        extract=settings.extract or DEFINITIONS,
    )


def default_problems(specs: Sequence[ModelSpec], tell: Callable[[str], None] = lambda line: None) -> str:
    """The built-in problems to evaluate models on: in C if all of them are for C.

    Args:
        tell: called with one line if some, but not all, are.
    """
    of_c = [spec.label for spec in specs if spec.language() == C.name]
    if of_c and len(of_c) == len(specs):
        return f"{STARTER}:c-eval"
    if of_c:
        tell(f"{', '.join(of_c)}: for C, but the problems are in Python; for C use --problems {STARTER}:c-eval")
    return f"{STARTER}:eval"


def _joined(budgets: Sequence[Budget], extract: str | None) -> Budget:
    """The largest lengths; a run without a limit of prompts has the largest."""
    ways = {each.extract or "auto" for each in budgets}
    if len(ways) > 1 and extract is None:
        raise UsageError("the runs of these models extract programs differently; choose with --extract auto or raw")
    prompts = [each.max_prompt_tokens for each in budgets]
    return Budget(
        max((each.max_tokens for each in budgets if each.max_tokens), default=None),
        None if None in prompts else max((each for each in prompts if each), default=None),
        next(iter(ways), None),
    )
