"""The paper's Table 2: models as they come, without training, on the problems that a study measures on."""

from __future__ import annotations

import math
from pathlib import Path

from securecoderl_edge.architecture import read_architecture
from securecoderl_edge.errors import SceError
from securecoderl_edge.gguf_header import read_header
from securecoderl_edge.model import base_folder
from securecoderl_edge.models import ModelSpec


def count_parameters(spec: ModelSpec) -> int | None:
    """Weights of a model, an adapter's aside; None where nothing on this disk says how many."""
    try:
        if spec.kind == "gguf":
            return sum(math.prod(tensor.sizes) for tensor in read_header(Path(spec.source)).tensors)
        return read_architecture(base_folder(spec.source, download=False)).parameters()
    except SceError:
        return None
