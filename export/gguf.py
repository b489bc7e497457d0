"""GGUF files of the families that are computed natively, or of a LoRA adapter, written with the `gguf` package."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export.llama_cpp import require_expressible
from securecoderl_edge.export.merge import check_fit, merged_tensors, read_adapter, weights_of
from securecoderl_edge.export.vocabulary import Vocabulary, read_vocabulary
from securecoderl_edge.models.adapters import read_lora_config
from securecoderl_edge.models.architecture import Architecture, read_architecture
from securecoderl_edge.models.gguf.header import BASE_KEY, ROPE_DIVISORS
from securecoderl_edge.models.gguf.layout import arranged, gguf_context, gguf_package, tensor_names
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.text import NORMALIZER_KEY

if TYPE_CHECKING:
    import numpy as np
    import torch

OWN_TYPES = ("f32", "f16", "bf16", "q8_0")

# Elements of a q8_0 block: a row that is not a multiple of it stays f16.
_Q8_0_BLOCK = 32


class OutOfRangeError(SceError):
    """A weight exceeds the range of the type to be written."""


@dataclass(frozen=True)
class GgufSummary:
    """Summary of a written file.

    Attributes:
        tensor_types: number of tensors of each type; tensors whose rows do not fit a type stay f16.
        bits_per_weight: bits of tensor data per parameter.
        normalizer: Unicode normal form of the tokenizer, named as in manifests; `sce` applies it, llama.cpp does not.
    """

    tensor_types: dict[str, int]
    parameters: int
    bits_per_weight: float
    tokenizer_pre: str
    tokenizer_fingerprint: str
    normalizer: str | None = None


def write_gguf(
    base: Path,
    adapter: Path | None,
    quant: str,
    path: Path,
    name: str,
    prompt_style: str | None = None,
    pre_tokenizer: str | None = None,
    on_tensor: Callable[[int, int], None] = lambda done, total: None,
) -> GgufSummary:
    """Write ``base`` with ``adapter`` merged in to ``path``; callers pass a temporary path and rename it.

    Args:
        quant: one of `OWN_TYPES`.
        name: the model's name in the file's header.
        prompt_style: prompt style that the model was trained with; it is written to the header.
        pre_tokenizer: see `read_vocabulary`.
        on_tensor: called with the number of tensors that are written, and that of all.

    Raises:
        UsageError: architecture, tokenizer or adapter that export does not support (named).
        SceError: a source file is missing or damaged.
    """
    import numpy as np

    gguf = gguf_package()
    shape = read_architecture(base)
    require_expressible(base, shape)
    vocabulary = read_vocabulary(base, shape.vocabulary, pre_tokenizer)
    named = tensor_names(shape)
    parts = {name: named[name] for name in weights_of(base, shape)}
    writer = gguf.GGUFWriter(path, shape.family)
    try:
        _add_header(writer, shape, quant, name)
        _add_vocabulary(writer, vocabulary)
        if prompt_style is not None:
            writer.add_string(STYLE_KEY, prompt_style)
        types, data_bytes = _add_tensor_infos(writer, shape, parts, quant)
        divisors = np.array(shape.rope_divisors, dtype=np.float32)
        if divisors.size:
            writer.add_tensor_info(ROPE_DIVISORS, divisors.shape, divisors.dtype, divisors.nbytes)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for done, (source, tensor) in enumerate(merged_tensors(base, adapter)):
            on_tensor(done, len(parts))
            for target, rows in parts.get(source, []):
                writer.write_tensor_data(_encode(target, arranged(source, tensor[rows], shape), types[target]))
        if divisors.size:
            writer.write_tensor_data(divisors)
    finally:
        writer.close()
    parameters = shape.parameters()
    return GgufSummary(
        tensor_types=dict(sorted(Counter(types.values()).items())),
        parameters=parameters,
        bits_per_weight=round(8 * data_bytes / parameters, 3),
        tokenizer_pre=vocabulary.pre,
        tokenizer_fingerprint=vocabulary.fingerprint,
        normalizer=vocabulary.normalizer,
    )


def _add_header(writer: Any, shape: Architecture, quant: str, name: str) -> None:
    gguf = gguf_package()
    kinds = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0"}
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType[kinds[quant]])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(shape.layers)
    windows = [window for window in shape.windows if window is not None]
    writer.add_context_length(gguf_context(shape))
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_value_heads)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_rope_freq_base(shape.rope_theta)
    if shape.head_size * shape.heads != shape.hidden:
        writer.add_key_length(shape.head_size)
        writer.add_value_length(shape.head_size)
    if shape.rope_factor != 1.0:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(shape.rope_factor)
    if shape.family == "granite":
        writer.add_attention_scale(shape.attention_scale)
        writer.add_embedding_scale(shape.embedding_scale)
        writer.add_residual_scale(shape.residual_scale)
        writer.add_logit_scale(1 / shape.logit_scale)
        writer.add_rope_scaling_finetuned(shape.rotated[0])  # llama.cpp reads from it whether layers are rotated
    if shape.kind.windows_in_gguf and windows:
        writer.add_sliding_window(windows[0])
        writer.add_sliding_window_pattern([window is not None for window in shape.windows])
        writer.add_rope_freq_base_swa(shape.local_rope_theta or shape.rope_theta)


def _add_vocabulary(writer: Any, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    if vocabulary.model == "gpt2":
        writer.add_token_merges(vocabulary.merges)
    else:
        writer.add_token_scores(vocabulary.scores)
    if vocabulary.normalizer is not None:
        writer.add_string(NORMALIZER_KEY, vocabulary.normalizer)
    for index, add in (
        (vocabulary.bos, writer.add_bos_token_id),
        (vocabulary.eos, writer.add_eos_token_id),
        (vocabulary.eot, writer.add_eot_token_id),
        (vocabulary.pad, writer.add_pad_token_id),
        (vocabulary.unknown, writer.add_unk_token_id),
    ):
        if index is not None:
            add(index)
    writer.add_add_bos_token(vocabulary.adds_bos)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(vocabulary.adds_space)
    if vocabulary.chat_template:
        writer.add_chat_template(vocabulary.chat_template)


def _add_tensor_infos(
    writer: Any, shape: Architecture, parts: dict[str, list[tuple[str, slice]]], quant: str
) -> tuple[dict[str, str], int]:
    """Add the header entry of every tensor; return the type of each and the bytes of all."""
    import numpy as np

    gguf = gguf_package()
    sizes = shape.tensors()
    types, total = {}, 0
    for source, target, rows in ((name, *part) for name, each in parts.items() for part in each):
        size = (len(range(*rows.indices(sizes[source][0]))), *sizes[source][1:])
        kind = _tensor_type(size, quant)
        number = gguf.GGMLQuantizationType[kind.upper()]
        block, block_bytes = gguf.GGML_QUANT_SIZES[number]
        nbytes = math.prod(size) // block * block_bytes
        writer.add_tensor_info(target, size, np.dtype(np.float32), nbytes, raw_dtype=number)
        types[target] = kind
        total += nbytes
    return types, total


def _tensor_type(sizes: tuple[int, ...], quant: str) -> str:
    """Choose a type that llama.cpp supports: vectors stay f32, rows that are not whole blocks stay f16."""
    if len(sizes) == 1:
        return "f32"
    if quant == "q8_0" and sizes[-1] % _Q8_0_BLOCK:
        return "f16"
    return quant


def _encode(name: str, tensor: torch.Tensor, kind: str) -> np.ndarray[Any, Any]:
    import numpy as np

    gguf = gguf_package()
    values = tensor.contiguous().numpy()
    if not np.isfinite(values).all():
        raise SceError(f"weight {name} has NaN or Inf: the model or its adapter is damaged")
    if kind not in ("f32", "bf16") and np.abs(values).max(initial=0.0) > np.finfo(np.float16).max:
        raise OutOfRangeError(f"weight {name} exceeds the range of {kind}. Export with --quant f32.")
    encoded: np.ndarray[Any, Any] = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind.upper()])
    return encoded


@dataclass(frozen=True)
class AdapterSummary:
    """Summary of a written file: ``tensors`` LoRA factors of ``rank``, with ``parameters`` numbers in all."""

    rank: int
    tensors: int
    parameters: int


def write_adapter(
    base: Path,
    adapter: Path,
    quant: str,
    path: Path,
    name: str,
    prompt_style: str | None = None,
    base_sha256: str | None = None,
) -> AdapterSummary:
    """Write the factors of ``adapter``, which belongs to ``base``; callers pass a temporary path and rename it.

    llama.cpp scales an update by alpha / rank. The written alpha is chosen so that rank-stabilized LoRA is right, too.

    Args:
        quant: ``f16`` or ``f32``.
        name: the adapter's name in the file's header.
        prompt_style: prompt style that the policy was trained with; it is written to the header.
        base_sha256: of the GGUF file that ``base`` was converted from, likewise.

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
        if base_sha256 is not None:
            writer.add_string(BASE_KEY, base_sha256)
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
