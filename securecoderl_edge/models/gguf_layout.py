"""Weights in GGUF files: their names, and the order of their rows, which differs from Hugging Face's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from securecoderl_edge.errors import needs
from securecoderl_edge.models.architecture import Architecture

if TYPE_CHECKING:
    import numpy as np
    import torch

Weight = TypeVar("Weight", "torch.Tensor", "np.ndarray[Any, Any]")

# llama.cpp reads the divisors of llama3 RoPE from a tensor of this name.
ROPE_DIVISORS = "rope_freqs.weight"


def gguf_package() -> Any:
    """Import the gguf package.

    Raises:
        MissingExtra: it is not installed.
    """
    with needs("gguf", "gguf"):
        import gguf
    return gguf


def tensor_names(shape: Architecture) -> dict[str, str]:
    """Map the Hugging Face name of every weight to its GGUF name."""
    gguf = gguf_package()
    translate = gguf.get_tensor_name_map(gguf.MODEL_ARCH[shape.family.upper()], shape.layers)
    return {name: str(translate.get_name(name, try_suffixes=(".weight", ".bias"))) for name in shape.tensors()}


def arranged(name: str, weight: Weight, shape: Architecture) -> Weight:
    """Return a weight, or the LoRA factor with the same rows, in llama.cpp's order of rows."""
    heads = _rotated_heads(name, shape)
    return permute_rotary(weight, heads) if heads else weight


def restored(name: str, weight: Weight, shape: Architecture) -> Weight:
    """The inverse of `arranged`: rows in Hugging Face's order."""
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


def _rotated_heads(name: str, shape: Architecture) -> int:
    """Number of heads in the rows of a weight whose rows change places, else 0."""
    if not shape.gguf_permutes_rotary:
        return 0
    if name.endswith(("q_proj.weight", "q_proj.bias")):
        return shape.heads
    return shape.key_value_heads if name.endswith(("k_proj.weight", "k_proj.bias")) else 0
