"""Random GGUF models in shapes that `sce export` does not write, with a tokenizer of single bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

VOCABULARY, WIDTH, INNER, LAYERS = 260, 64, 128, 4
Shapes = dict[str, tuple[int, ...]]


def write_shape(path: Path, name: str) -> Path:
    """Write the model that `SHAPES` describes."""
    architecture, values, shapes = SHAPES[name]
    writer, random = gguf.GGUFWriter(path, architecture), np.random.default_rng(5)
    common = {"block_count": LAYERS, "context_length": 1024, "embedding_length": WIDTH, "feed_forward_length": INNER}
    common |= {"attention.head_count": 4, "attention.layer_norm_rms_epsilon": 1e-5}
    for key, value in (common | values).items():
        add: dict[type, Callable[..., Any]] = {
            int: writer.add_uint32,
            float: writer.add_float32,
            list: writer.add_array,
        }
        add[type(value)](f"{architecture}.{key}", value)
    writer.add_file_type(0)
    _add_tokenizer(writer)
    for tensor, shape in shapes.items():
        spread = 1.0 if len(shape) == 1 else 0.3
        values_of = random.normal(1.0 if "norm" in tensor else 0.0, spread, shape).astype(np.float32)
        writer.add_tensor(tensor, -np.abs(values_of) if tensor.endswith("ssm_a") else values_of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: Any) -> None:
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<end>", *letters, *(f"<{number}>" for number in range(VOCABULARY - 1 - len(letters)))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, *[1] * (VOCABULARY - 1)])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)


def _attention(layer: int, kv_heads: int, head: int, norms: bool = False) -> Shapes:
    at = f"blk.{layer}.attn"
    found: Shapes = {
        f"{at}_q.weight": (4 * head, WIDTH),
        f"{at}_k.weight": (kv_heads * head, WIDTH),
        f"{at}_v.weight": (kv_heads * head, WIDTH),
        f"{at}_output.weight": (WIDTH, 4 * head),
    }
    return found | ({f"{at}_q_norm.weight": (head,), f"{at}_k_norm.weight": (head,)} if norms else {})


def _mlp(layer: int) -> Shapes:
    at = f"blk.{layer}.ffn"
    return {
        f"{at}_norm.weight": (WIDTH,),
        f"{at}_gate.weight": (INNER, WIDTH),
        f"{at}_up.weight": (INNER, WIDTH),
        f"{at}_down.weight": (WIDTH, INNER),
    }


def _convolution(layer: int) -> Shapes:
    at = f"blk.{layer}.shortconv"
    return {
        f"{at}.conv.weight": (WIDTH, 3),
        f"{at}.in_proj.weight": (3 * WIDTH, WIDTH),
        f"{at}.out_proj.weight": (WIDTH, WIDTH),
    }


def _mamba(layer: int) -> Shapes:
    at, inner, state, rank = f"blk.{layer}.ssm", 2 * WIDTH, 8, 4
    return {
        f"{at}_in.weight": (2 * inner, WIDTH),
        f"{at}_conv1d.weight": (inner, 4),
        f"{at}_conv1d.bias": (inner,),
        f"{at}_x.weight": (rank + 2 * state, inner),
        f"{at}_dt.weight": (inner, rank),
        f"{at}_dt.bias": (inner,),
        f"{at}_a": (inner, state),
        f"{at}_d": (inner,),
        f"{at}_out.weight": (WIDTH, inner),
    }


def _model(layer_of: Callable[[int], Shapes], norm: str = "output_norm") -> Shapes:
    found: Shapes = {"token_embd.weight": (VOCABULARY, WIDTH), f"{norm}.weight": (WIDTH,)}
    for layer in range(LAYERS):
        found |= {f"blk.{layer}.attn_norm.weight": (WIDTH,)} | layer_of(layer)
    return found


_HYBRID = [0, 2, 0, 2]
_HEAD = 40  # not WIDTH / 4
_POST_NORMS = ("post_attention_norm", "post_ffw_norm")

# By name: architecture, metadata, tensors.
SHAPES: dict[str, tuple[str, dict[str, Any], Shapes]] = {
    "llama": ("llama", {"attention.head_count_kv": 2}, _model(lambda i: _attention(i, 2, 16) | _mlp(i))),
    "qwen3": (
        "qwen3",
        {"attention.head_count_kv": 2, "attention.key_length": _HEAD, "attention.value_length": _HEAD},
        _model(lambda i: _attention(i, 2, _HEAD, norms=True) | _mlp(i)),
    ),
    "gemma3": (
        "gemma3",
        {
            "attention.head_count_kv": 1,
            "attention.key_length": _HEAD,
            "attention.value_length": _HEAD,
            "attention.sliding_window": 16,
        },
        _model(
            lambda i: (
                _attention(i, 1, _HEAD, norms=True)
                | _mlp(i)
                | {f"blk.{i}.{norm}.weight": (WIDTH,) for norm in _POST_NORMS}
            )
        ),
    ),
    "lfm2": (
        "lfm2",
        {"attention.head_count_kv": _HYBRID, "shortconv.l_cache": 3},
        _model(
            lambda i: (_attention(i, 2, 16, norms=True) if _HYBRID[i] else _convolution(i)) | _mlp(i), "token_embd_norm"
        ),
    ),
    "mamba": (
        "mamba",
        {
            "attention.head_count": 0,
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 2 * WIDTH,
            "ssm.state_size": 8,
            "ssm.time_step_rank": 4,
        },
        _model(_mamba),
    ),
}
