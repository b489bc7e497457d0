"""Merging of a LoRA adapter into its base, tensor by tensor, without building the model in torch.

Supports plain LoRA on linear layers (alpha/r, and alpha/sqrt(r) for rsLoRA). Every other PEFT feature is an error that
names it, because a wrong merge would still give a model that loads.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.errors import SceError, UsageError, needs
from securecoderl_edge.models.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS, peft_config, read_lora_config
from securecoderl_edge.models.architecture import Architecture, read_architecture
from securecoderl_edge.models.files import WEIGHTS, WEIGHTS_INDEX, weight_files
from securecoderl_edge.models.gguf.folder import gguf_weights
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.other import OtherArchitecture, find_architecture
from securecoderl_edge.models.packages import hidden_bitsandbytes
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.system.files import read_json, write_atomically

if TYPE_CHECKING:
    import torch

# Files of the base that are copied next to the weights of a Hugging Face folder, if they exist.
COMPANION_FILES = (
    "generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "LICENSE",
)  # fmt: skip
_SHARD_BYTES = 1 << 30
_HEAD = "lm_head.weight"


@dataclass(frozen=True)
class LoraUpdate:
    """A low-rank update of base weights: ``weight += scale * B @ A``.

    Attributes:
        factors: A (r, in) and B (out, r) in float32, by the name of the base tensor.
    """

    scale: float
    factors: dict[str, tuple[torch.Tensor, torch.Tensor]]


def tensor_shapes(base: Path) -> dict[str, tuple[int, ...]]:
    """Read name and shape of every tensor of a model folder, in the order of `merged_tensors`.

    Raises:
        SceError: a file is damaged, or its weights are already quantized.
    """
    if (stored := gguf_weights(base)) is not None:
        return {weight.name: weight.sizes for weight in stored.weights}
    shapes = {}
    for path in weight_files(base):
        with open_tensors(path) as tensors:
            for name in _names(tensors):
                view = tensors.get_slice(name)
                if view.get_dtype() not in ("F32", "F16", "BF16", "F64"):
                    raise SceError(
                        f"{path}: {name} has type {view.get_dtype()}; export needs the unquantized base model"
                    )
                shapes[name] = tuple(view.get_shape())
    return shapes


def read_adapter(adapter: Path) -> LoraUpdate:
    """Read a PEFT LoRA folder.

    Raises:
        UsageError: the folder is not a LoRA adapter, or uses a feature that cannot be merged (named).
        SceError: a file is damaged.
    """
    import torch

    if not (adapter / ADAPTER_CONFIG).is_file() or not (adapter / ADAPTER_WEIGHTS).is_file():
        raise UsageError(f"{adapter} is not a LoRA folder: {ADAPTER_CONFIG} or {ADAPTER_WEIGHTS} is missing")
    config = read_lora_config(adapter)
    if config.get("fan_in_fan_out"):
        raise UsageError(f"{adapter}: adapters with fan_in_fan_out are not supported")
    rank, alpha = int(config["r"]), float(config["lora_alpha"])
    halves: dict[str, dict[str, torch.Tensor]] = {}
    with open_tensors(adapter / ADAPTER_WEIGHTS) as tensors:
        for key in _names(tensors):
            name, dot, half = key.removeprefix("base_model.model.").rpartition(".lora_")
            if not dot or half not in ("A.weight", "B.weight"):
                raise UsageError(f"{adapter}: cannot merge tensor {key}, not a LoRA factor of a linear layer")
            halves.setdefault(f"{name}.weight", {})[half[0]] = tensors.get_tensor(key).to(torch.float32)
    factors = {}
    for name, pair in halves.items():
        if set(pair) != {"A", "B"} or pair["A"].shape[0] != rank or pair["B"].shape[1] != rank:
            raise SceError(f"{adapter}: the LoRA factors of {name} are incomplete or not of rank {rank}")
        factors[name] = (pair["A"], pair["B"])
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return LoraUpdate(scale, factors)


def merged_tensors(base: Path, adapter: Path | None) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of ``base`` as float32, with the adapter's update added.

    Raises:
        UsageError: the adapter was trained on another base model.
        SceError: a file is damaged.
    """
    import torch

    from securecoderl_edge.models.weights import read_tensors

    update = read_adapter(adapter) if adapter else LoraUpdate(1.0, {})
    check_fit(base, adapter, update)
    for name, stored in read_tensors(base):
        tensor = stored.to(torch.float32)
        if name in update.factors:
            lower, upper = update.factors[name]
            tensor = torch.addmm(tensor, upper, lower, alpha=update.scale)
        yield name, tensor


def write_merged(
    base: Path, adapter: Path | None, out: Path, dtype: str = "float32", prompt_style: str | None = None
) -> None:
    """Write ``base`` with ``adapter`` merged in as a Hugging Face folder that needs neither of them.

    Only one shard of about 1 GiB is in memory at a time, but the whole of a model that transformers computes. An error
    leaves a part of the folder, so callers write to a temporary one.

    Args:
        dtype: ``float32`` or ``float16``.
        prompt_style: prompt style that the model was trained with; it is written to config.json.
    """
    import torch

    out.mkdir(parents=True, exist_ok=True)
    if isinstance(find_architecture(base), OtherArchitecture):
        _merge_by_transformers(base, adapter, out, dtype)
        copy_companions(base, out, prompt_style, dtype)
        return
    kind: torch.dtype = {"float32": torch.float32, "float16": torch.float16}[dtype]
    shards = _plan_shards(tensor_shapes(base), 2 if dtype == "float16" else 4)
    tensors = merged_tensors(base, adapter)
    weight_map = {}
    for number, names in enumerate(shards, 1):
        file = WEIGHTS if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        shard = {}
        for _ in names:
            name, tensor = next(tensors)
            shard[name] = _cast(name, tensor, kind)
            weight_map[name] = file
        _save(shard, out / file)
    if len(shards) > 1:
        with write_atomically(out / WEIGHTS_INDEX) as text:
            json.dump({"metadata": {}, "weight_map": weight_map}, text, indent=2)
    copy_companions(base, out, prompt_style, dtype)


def _merge_by_transformers(base: Path, adapter: Path | None, out: Path, dtype: str) -> None:
    """Merge by PEFT, which knows layers of every kind."""
    import torch
    from peft import PeftModel

    kind: torch.dtype = getattr(torch, dtype)
    model = load_base(base)
    if adapter is not None:
        config, head = peft_config(adapter), model.get_output_embeddings()
        names = {name for name, module in model.named_modules() if module is head} & set(config.target_modules)
        if names and head.weight is model.get_input_embeddings().weight:
            raise _shared(adapter, base, *names)
        with hidden_bitsandbytes():
            model = PeftModel.from_pretrained(model, str(adapter), config=config).merge_and_unload()
    for name, tensor in model.named_parameters():
        tensor.data = _cast(name, tensor.data, kind)
    model.save_pretrained(out)


def copy_companions(base: Path, out: Path, prompt_style: str | None, dtype: str = "float32") -> None:
    """Write the files that belong to a model's weights into ``out``: config.json, tokenizer, license.

    Args:
        prompt_style: prompt style that the model was trained with; it is written to config.json.
        dtype: dtype of the written weights; it is written to config.json.
    """
    config = read_json(base / "config.json")
    config.pop("torch_dtype", None)
    with write_atomically(out / "config.json") as text:
        json.dump({**config, "dtype": dtype, **({STYLE_KEY: prompt_style} if prompt_style else {})}, text, indent=2)
    for name in COMPANION_FILES:
        if (base / name).is_file():
            shutil.copyfile(base / name, out / name)


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file for reading through torch.

    Raises:
        SceError: the file is damaged.
    """
    with needs("safetensors", "train"):
        from safetensors import SafetensorError, safe_open
    try:
        with safe_open(path, framework="pt") as tensors:
            yield tensors
    except SafetensorError as error:
        raise SceError(f"{path}: not a complete safetensors file ({error}). Download it or train again.") from None


def _names(tensors: Any) -> list[str]:
    """List the names in a safetensors handle, which is not a mapping."""
    return list(tensors.keys())


def weights_of(base: Path, shape: Architecture) -> list[str]:
    """List the names of a model's weights in the order of `merged_tensors`, without copies of other weights.

    Raises:
        UsageError: a weight is missing, has another shape, or does not belong to a model of this kind.
        SceError: see `tensor_shapes`.
    """
    shapes, expected = tensor_shapes(base), shape.tensors()
    for name, sizes in expected.items():
        if shapes.get(name) != sizes:
            raise UsageError(f"{base}: weight {name}: expected shape {sizes}, found {shapes.get(name, 'none')}")
    for name in shapes:
        is_copy = name.endswith("rotary_emb.inv_freq") or (name == _HEAD and shape.tied)
        if name not in expected and not is_copy:
            raise UsageError(f"{base}: unknown weight {name} for a {shape.family} model")
    return [name for name in shapes if name in expected]


def check_fit(base: Path, adapter: Path | None, update: LoraUpdate) -> None:
    """Check that the base has the weights that an update changes, in the same shapes.

    Raises:
        UsageError: it does not: the adapter was trained on another model; or the base shares one with its embedding.
    """
    shapes = tensor_shapes(base)
    if adapter is not None and _HEAD in update.factors and read_architecture(base).tied:
        raise _shared(adapter, base, _HEAD)
    for name, (lower, upper) in update.factors.items():
        expected = (upper.shape[0], lower.shape[1])
        if shapes.get(name) != expected:
            difference = "has no such tensor" if name not in shapes else f"has {shapes[name]}"
            raise UsageError(
                f"{adapter} was trained on another base model than {base}: it changes {name} {expected}, but the base "
                f"{difference}"
            )


def _shared(adapter: Path, base: Path, name: str) -> UsageError:
    return UsageError(
        f"{adapter}: it changes {name}, whose weights {base} shares with its embedding, so it cannot be merged. "
        "Train it without this layer"
    )


def _plan_shards(shapes: dict[str, tuple[int, ...]], element_bytes: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    used = 0
    for name, shape in shapes.items():
        size = math.prod(shape) * element_bytes
        if shards[-1] and used + size > _SHARD_BYTES:
            shards.append([])
            used = 0
        shards[-1].append(name)
        used += size
    return shards


def _cast(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    import torch

    cast = tensor.to(dtype).contiguous()
    if not bool(cast.isfinite().all()):
        hint = "" if dtype == torch.float32 else ". Export with --quant f32."
        raise SceError(f"{name} exceeds the range of {str(dtype).removeprefix('torch.')}{hint}")
    return cast


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except (OSError, SafetensorError) as error:
        raise SceError(f"cannot write {path}: {error}") from None
