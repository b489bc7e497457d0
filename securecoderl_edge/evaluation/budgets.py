"""Budgets of an evaluation: those that the models were trained with, unless a flag says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from securecoderl_edge.errors import UsageError
from securecoderl_edge.runs import Budget
from securecoderl_edge.runtimes.protocol import MAX_TOKENS
from securecoderl_edge.runtimes.spec import ModelSpec

if TYPE_CHECKING:
    from securecoderl_edge.evaluation.bench import BenchSettings


def with_budgets(
    settings: BenchSettings, specs: Sequence[ModelSpec], tell: Callable[[str], None] = lambda line: None
) -> BenchSettings:
    """The settings with one budget for all models: as given, else as their runs trained, else the defaults.

    Of runs that differ, the largest lengths count.

    Args:
        tell: called with one line if a run decides.

    Raises:
        UsageError: the runs differ in their extraction.
        SceError: the settings of a run are damaged.
    """
    trained = {str(run.path): run.budget for spec in specs if (run := spec.run()) is not None}
    budget = _joined(list(trained.values()), settings.extract)
    found = Budget(
        settings.max_tokens or budget.max_tokens,
        settings.max_prompt_tokens or budget.max_prompt_tokens,
        settings.extract or budget.extract,
    )
    taken = [
        f"--{name.replace('_', '-')} {value}"
        for name, value in vars(found).items()
        if value not in (None, "auto") and getattr(settings, name) is None
    ]
    if taken:
        tell(f"as {', '.join(trained)} was trained: {', '.join(taken)}")
    return replace(
        settings,
        max_tokens=found.max_tokens or MAX_TOKENS,
        max_prompt_tokens=found.max_prompt_tokens,
        extract=found.extract or "auto",
    )


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
