"""The paper's Table 2: untrained models, evaluated on the problems of a study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.tables import ABSENT, Table
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.models.gguf.header import read_header
from securecoderl_edge.runtimes.spec import ModelSpec


def count_parameters(spec: ModelSpec) -> int | None:
    """Number of parameters of a model, without an adapter; None if no file on this disk tells."""
    try:
        if spec.kind == "gguf":
            return sum(math.prod(tensor.sizes) for tensor in read_header(Path(spec.source)).weights)
        return read_architecture(base_folder(spec.source, download=False)).parameters()
    except SceError:
        return None


def with_parameters(table: Table, sizes: Sequence[int | None]) -> Table:
    """The table with a column of parameters, in millions, after the model's name."""
    cells = (ABSENT if size is None else f"{size / 1e6:,.1f} M" for size in sizes)
    rows = tuple((row[0], cell, *row[1:]) for row, cell in zip(table.rows, cells, strict=True))
    return Table((table.columns[0], "parameters", *table.columns[1:]), rows)
