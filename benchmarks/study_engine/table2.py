"""The paper's Table 2: untrained models, evaluated on the problems of a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from securecoderl_edge.config import setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.evaluation.bench import Bench, BenchSettings, bench_problems, with_budgets
from securecoderl_edge.evaluation.tables import ABSENT, Table, quality_table
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.models.gguf.header import read_header
from securecoderl_edge.models.gpus import device_setting
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.runs import RUNS
from securecoderl_edge.runtimes.spec import ModelSpec
from securecoderl_edge.training.recipe import load_recipe
from study_engine.table3 import PRESETS

_QUICK_PROBLEMS = 20


@dataclass(frozen=True)
class Table2Settings:
    """The settings of ``sce reproduce table2``."""

    recipe: str = setting("starter", "Recipe whose evaluation problems are used.", metavar="NAME")
    problems: tuple[str, ...] = setting((), "Built-in sets or files to use instead, comma-separated.")
    samples: int = setting(2, "Completions per problem.", minimum=1)
    limit: int | None = setting(None, "Use only the first N problems of each set.", minimum=1, metavar="N")
    device: str = device_setting()
    quick: bool = setting(False, "Use 20 problems per set and one completion per problem.")
    out: str | None = setting(None, "Folder for rows and results.  [default: runs/table2]", metavar="DIR")

    @property
    def folder(self) -> Path:
        """Everything is written below it."""
        return Path(self.out) if self.out else RUNS / "table2"

    @property
    def size(self) -> tuple[int, int | None]:
        """Completions per problem, and the maximum number of problems of a set."""
        return (1, _QUICK_PROBLEMS) if self.quick else (self.samples, self.limit)

    def sets(self) -> list[str]:
        """The problem sets.

        Raises:
            UsageError: a recipe without any.
        """
        if self.problems:
            return list(dict.fromkeys(self.problems))
        if self.recipe not in PRESETS:
            load_recipe(self.recipe)  # raises an error if it is not a recipe
            raise UsageError(f"--recipe {self.recipe} needs --problems; without it, choose from {', '.join(PRESETS)}")
        return [each.eval for each in PRESETS[self.recipe].splits]


@dataclass(frozen=True)
class Table2:
    """The finished evaluations, one for each set of problems."""

    settings: Table2Settings
    benches: list[Bench]

    @property
    def missing(self) -> int:
        """Models that could not be evaluated on some set."""
        return max(len(each.specs) - len(each.done) for each in self.benches)

    @cached_property
    def _parameters(self) -> list[list[int | None]]:
        return [[count_parameters(bench.specs[index]) for index in bench.done] for bench in self.benches]

    def record(self) -> dict[str, Any]:
        """The JSON document."""
        documents = {str(bench.settings.problems): bench.record() for bench in self.benches}
        for document, counts in zip(documents.values(), self._parameters, strict=True):
            for model, count in zip(document["models"], counts, strict=True):
                model["parameters"] = count
        samples, limit = self.settings.size
        return {"study": "table2", "samples": samples, "limit": limit, "sets": documents}

    def tables(self, lines: int = 1) -> Iterator[tuple[str, Table]]:
        """A table with its title for each set; ``lines`` as in `quality_table`."""
        for bench, counts in zip(self.benches, self._parameters, strict=True):
            table = with_parameters(quality_table(bench.summaries, lines=lines), counts)
            yield f"{len(bench.problems)} problems of {bench.settings.problems}:", table


def plan_table2(
    settings: Table2Settings, specs: Sequence[ModelSpec], tell: Callable[[str], None] = lambda line: None
) -> list[tuple[BenchSettings, list[Problem]]]:
    """How to evaluate the models on each set, and its problems.

    Args:
        tell: as in `with_budgets` and `bench_problems`, also for errors.
    """
    samples, limit = settings.size
    every = [
        with_budgets(BenchSettings(problems=each, samples=samples, limit=limit, device=settings.device), specs, tell)
        for each in settings.sets()
    ]
    return [(each, bench_problems(each, tell)) for each in every]


def count_parameters(spec: ModelSpec) -> int | None:
    """Number of parameters of a model, without an adapter; None if no file on this disk tells."""
    try:
        if spec.kind == "gguf":
            return sum(math.prod(tensor.sizes) for tensor in read_header(Path(spec.source)).weights)
        return read_architecture(base_folder(spec.source, download=False)).parameters()
    except SceError:
        return None


def with_parameters(table: Table, counts: Sequence[int | None]) -> Table:
    """The table with a column of parameters, in millions, after the model's name."""
    cells = (ABSENT if count is None else f"{count / 1e6:,.1f} M" for count in counts)
    rows = tuple((row[0], cell, *row[1:]) for row, cell in zip(table.rows, cells, strict=True))
    return Table((table.columns[0], "parameters", *table.columns[1:]), rows)
