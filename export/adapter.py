"""GGUF files that hold only a LoRA adapter, for ``--lora`` of llama.cpp: a few megabytes next to the base."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.export.llama_cpp import require_expressible
from securecoderl_edge.export.merge import check_fit, read_adapter
from securecoderl_edge.models.adapters import read_lora_config
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.gguf.layout import arranged, gguf_package, tensor_names
from securecoderl_edge.prompts.styles import STYLE_KEY


@dataclass(frozen=True)
class AdapterSummary:
    """Summary of a written file: ``tensors`` LoRA factors of ``rank``, with ``parameters`` numbers in all."""

    rank: int
    tensors: int
    parameters: int


def write_adapter(
    base: Path, adapter: Path, quant: str, path: Path, name: str, prompt_style: str | None = None
) -> AdapterSummary:
    """Write the factors of ``adapter``, which belongs to ``base``; callers pass a temporary path and rename it.

    llama.cpp scales an update by alpha / rank. The written alpha is chosen so that rank-stabilized LoRA is right, too.

    Args:
        quant: ``f16`` or ``f32``.
        name: the adapter's name in the file's header.
        prompt_style: prompt style that the policy was trained with; it is written to the header.

    Raises:
        UsageError: not a LoRA adapter, not one of this base, or a kind that llama.cpp does not apply (named).
        SceError: a file is damaged.
    """
    import numpy as np

    gguf = gguf_package()
    shape = read_architecture(base)
    require_expressible(base, shape)
    update = read_adapter(adapter)
    check_fit(base, adapter, update)
    rank, names = int(read_lora_config(adapter)["r"]), tensor_names(shape)
    kind = {"f16": np.float16, "f32": np.float32}[quant]
    writer = gguf.GGUFWriter(path, shape.family)
    count = parameters = 0
    try:
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_name(name)
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", update.scale * rank)
        if prompt_style is not None:
            writer.add_string(STYLE_KEY, prompt_style)
        for weight, (lower, upper) in sorted(update.factors.items()):
            halves = [
                (f"{target}.lora_{half}", factor)
                for target, rows in names[weight]
                for half, factor in (("a", lower), ("b", arranged(weight, upper[rows], shape)))
            ]
            for target, factor in halves:
                with np.errstate(over="ignore"):  # checked below
                    values = factor.contiguous().numpy().astype(kind)
                if not np.isfinite(values).all():
                    raise UsageError(f"{adapter}: the LoRA factors of {weight} exceed the range of {quant}. Use f32.")
                writer.add_tensor(target, values)
                count += 1
                parameters += math.prod(values.shape)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    return AdapterSummary(rank, count, parameters)
