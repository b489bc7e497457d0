"""``sce reproduce``: the paper's tables, with several seeds and intervals; one resumable command per table.

The study engine behind it is not in the wheel: it stands in ``benchmarks/study_engine/`` of a clone.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from securecoderl_edge.errors import SceError
from securecoderl_edge.system.cluster import Run

_BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
_IS_CLONE = (_BENCHMARKS / "study_engine").is_dir()
if _IS_CLONE:
    sys.path.append(str(_BENCHMARKS))


class _Tables(click.Group):
    """A group that refuses to do anything, also to show its help, outside of a clone."""

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        if not settings.get("resilient_parsing"):  # as while a shell completes words
            _require_clone()
        return super().make_context(*args, **settings)


@click.group(cls=_Tables)
def reproduce() -> None:
    """Reproduce the paper's tables, with several seeds and 95 % intervals.

    Existing results are reused, so rerun the same command to resume.
    """


if _IS_CLONE:
    from study_engine.table2_command import table2
    from study_engine.table3_command import table3

    for _command in (table2, table3):
        reproduce.add_command(_command)


def trainer_of_node(node: dict[str, Any], cores: int) -> AbstractContextManager[Run]:
    """That of `study_engine.cluster_seeds`, under a name that a node of a cluster can import.

    Raises:
        SceError: see there; or the node has no clone.
    """
    _require_clone()
    from study_engine import cluster_seeds

    return cluster_seeds.trainer_of_node(node, cores)


def _require_clone() -> None:
    if not _IS_CLONE:
        raise SceError("reproduce needs a clone of the repository: install sce from one with pip install -e .")
