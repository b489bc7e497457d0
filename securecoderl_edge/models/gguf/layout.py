"""Weights in GGUF files: their names, the order of their rows and their values, which differ from Hugging Face's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from securecoderl_edge.errors import needs
from securecoderl_edge.models.architecture import Architecture

if TYPE_CHECKING:
    import numpy as np
    import torch

Weight = TypeVar("Weight", "torch.Tensor", "np.ndarray[Any, Any]")


def gguf_package() -> Any:
    """Import the gguf package.

    Raises:
        MissingExtra: it is not installed.
    """
    with needs("gguf", "gguf"):
        import gguf
    return gguf


def tensor_names(shape: Architecture) -> dict[str, list[tuple[str, slice]]]:
    """Map the Hugging Face name of every weight to its GGUF names, each with its rows of the weight."""
    gguf = gguf_package()
    translate = gguf.get_tensor_name_map(gguf.MODEL_ARCH[shape.family.upper()], shape.layers)
    return {
        name: [
            (str(translate.get_name(part, try_suffixes=(".weight", ".bias"))), rows)
            for part, rows in shape.split_names(name)
        ]
        for name in shape.tensors()
    }


def arranged(name: str, weight: Weight, shape: Architecture) -> Weight:
    """Return a weight, or the LoRA factor with the same rows, as llama.cpp expects it."""
    if name.endswith("norm.weight"):
        weight = weight + shape.kind.norm_offset if shape.kind.norm_offset else weight
        return weight * _query_factor(shape) if name.endswith("q_norm.weight") else weight
    heads = _rotated_heads(name, shape)
    return permute_rotary(weight, heads) if heads else weight


def restored(name: str, weight: Weight, shape: Architecture) -> Weight:
    """The inverse of `arranged`, but for `_query_factor`, which is then in the weight."""
    if name.endswith("norm.weight"):
        return weight - shape.kind.norm_offset if shape.kind.norm_offset else weight
    heads = _rotated_heads(name, shape)
    if not heads:
        return weight
    pairs = weight.shape[0] // heads // 2
    return weight.reshape(heads, pairs, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def permute_rotary(weight: Weight, heads: int) -> Weight:
    """Reorder the rows of a q or k projection from Hugging Face's half-split RoPE to llama.cpp's.

    Args:
        weight: (heads * head_size, hidden), or a bias (heads * head_size).
        heads: query heads for q, key-value heads for k.
    """
    pairs = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, pairs, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def gguf_context(shape: Architecture) -> int:
    """The context of a GGUF file: where llama.cpp applies no window, a context of its length makes it the same."""
    windows = () if shape.kind.windows_in_gguf else shape.windows
    return min([shape.context, *(window for window in windows if window is not None)])


def llama_cpp_attention_scale(shape: Architecture) -> float:
    """The factor of the attention scores that llama.cpp computes with where the header names none."""
    # By the number of layers it recognizes Gemma 3 27B, whose factor is another one.
    is_gemma_27b = shape.family == "gemma3" and shape.layers == 62
    return float((shape.hidden // shape.heads if is_gemma_27b else shape.head_size) ** -0.5)


def _query_factor(shape: Architecture) -> float:
    """The factor that norms of queries take for llama.cpp, which has its own factor of the scores for Gemma 3."""
    return shape.attention_scale / llama_cpp_attention_scale(shape) if shape.family == "gemma3" else 1.0


def _rotated_heads(name: str, shape: Architecture) -> int:
    """Number of heads in the rows of a weight whose rows change places, else 0."""
    if not shape.kind.permutes_rotary:
        return 0
    if name.endswith(("q_proj.weight", "q_proj.bias")):
        return shape.heads
    return shape.key_value_heads if name.endswith(("k_proj.weight", "k_proj.bias")) else 0
