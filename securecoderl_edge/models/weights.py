"""A base model's weights from its files, tensor by tensor: no wider copy of the model ever exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from securecoderl_edge.errors import SceError, first_line
from securecoderl_edge.models.files import weight_files
from securecoderl_edge.models.gguf.folder import gguf_weights
from securecoderl_edge.models.int8 import Int8Linear, with_int8_linears

# Tables that older versions of transformers saved and newer ones compute.
_COMPUTED = re.compile(r"rotary_emb\.inv_freq$")


def load_model(
    folder: Path, dtype: torch.dtype, device: str, *, linears: torch.dtype | None = None, int8: bool = False
) -> Any:
    """The model of ``folder`` on ``device``, in ``dtype``; all linear layers but the output in ``linears`` or int8.

    Peak memory is the finished model and one tensor of the files.

    Raises:
        SceError: transformers cannot use config.json; or a tensor is missing, damaged, unexpected, of another shape,
            or has values outside of ``dtype``.
    """
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        with init_empty_weights(include_buffers=False):
            # The attention implementation that accepts our masks unchanged.
            model = AutoModelForCausalLM.from_config(
                config, attn_implementation="sdpa", dtype=torch.float32, trust_remote_code=False
            )
    except Exception as error:  # each kind of wrong value has an exception of its own
        raise SceError(f"{folder / 'config.json'}: transformers cannot use it ({first_line(error)})") from None
    if int8:
        with_int8_linears(model)
    tied = bool(config.tie_word_embeddings)
    for name, tensor in read_tensors(folder):
        if _COMPUTED.search(name) or (tied and name == "lm_head.weight"):
            continue
        _put(model, name, tensor.to(device), dtype, linears or dtype, folder)
    if tied:
        model.tie_weights()
    missing = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if missing:
        raise SceError(f"{folder}: the weights do not match config.json ({missing[0]} is missing)")
    return model.to(device)  # its computed tables


def read_tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Name and content of every tensor of a model folder, one at a time.

    Raises:
        SceError: a file is missing or damaged.
    """
    if (stored := gguf_weights(folder)) is not None:
        for weight, numbers in stored.read():
            tensor = torch.from_numpy(numbers)
            del numbers
            yield weight.name, tensor.view(torch.bfloat16) if weight.dtype == "BF16" else tensor
            del tensor
        return
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                names = list(file.keys())
            for name in names:
                # Opened anew each time: pages that were read stay in memory until the mapping is closed.
                with safe_open(path, framework="pt") as file:
                    yield name, file.get_tensor(name)
        except SafetensorError as error:
            raise SceError(
                f"cannot load the weights of {folder}: {path.name} is damaged ({error}); download it again"
            ) from None


def _put(model: nn.Module, name: str, tensor: Tensor, dtype: torch.dtype, linears: torch.dtype, folder: Path) -> None:
    """Make ``tensor`` the parameter ``name`` of the model."""
    owner, _, last = name.rpartition(".")
    try:
        module = model.get_submodule(owner)
        expected = dict(module.named_parameters(recurse=False))[last]
    except (AttributeError, KeyError):
        raise SceError(f"{folder}: unexpected tensor {name} for this architecture") from None
    shape = tuple(expected.shape)
    if tuple(tensor.shape) != shape:
        raise SceError(f"{folder}: {name}: expected the shape {shape} (config.json), found {tuple(tensor.shape)}")
    if not tensor.is_floating_point():
        raise SceError(f"{folder}: {name} is {tensor.dtype}; give a folder with the original, unquantized weights")
    if isinstance(module, Int8Linear) and last == "weight":
        module.quantize(tensor)
        return
    if type(module) is nn.Linear and owner != "lm_head":
        dtype = linears
    cast = tensor.to(dtype, copy=True)
    if dtype == torch.float16 and not bool(cast.isfinite().all()):
        raise SceError(f"{folder}: {name} has values outside the float16 range; use --base-precision fp32 or int8")
    module.register_parameter(last, nn.Parameter(cast, requires_grad=False))
