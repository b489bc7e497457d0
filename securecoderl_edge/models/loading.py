"""Loading the frozen base model in a given precision onto a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.errors import SceError, first_line
from securecoderl_edge.models.gguf.folder import LINK
from securecoderl_edge.models.other import OtherArchitecture, find_architecture, load_other
from securecoderl_edge.models.packages import require_bitsandbytes, require_torch

if TYPE_CHECKING:
    import torch


def load_base(folder: Path, precision: str = "fp32", device: str = "cpu", products: torch.dtype | None = None) -> Any:
    """The frozen base model in ``fp32``, ``fp16``, ``bf16``, weight-only ``int8``, or ``int8-bnb`` (LLM.int8).

    It is of a class of transformers; `transformer` and `decoder` compute it if its family is known.

    Args:
        products: the dtype that the model computes in, float32 by default. With int8, embedding, output and norms have
            it; with fp32, linear layers do if it is bfloat16, since products would round their weights anyway.

    Raises:
        SceError: transformers cannot load it, it is already quantized, or it has no readable safetensors weights.
    """
    require_torch()
    import torch
    from transformers import GenerationConfig

    from securecoderl_edge.models.weights import load_model

    if isinstance(find_architecture(folder), OtherArchitecture):
        model = load_other(folder, precision, device)
    elif precision == "int8-bnb":
        if (folder / LINK).is_symlink():
            raise SceError("int8-bnb needs safetensors weights. Write them: sce export FILE.gguf --format hf")
        model = _load_with_bitsandbytes(folder, device, products or torch.float16)
    else:
        dtypes = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        dtype = dtypes.get(precision, products or torch.float32)
        # bfloat16 has the range of float32.
        linears = products if precision == "fp32" and products == torch.bfloat16 else None
        try:
            model = load_model(folder, dtype, device, linears=linears, int8=precision == "int8")
        except (OSError, ValueError, RuntimeError, TypeError, KeyError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise SceError(f"cannot load the weights of {folder}: {first_line(error)}") from None
    # Sampling settings of the model's folder (a penalty, a filter) would make `generate` sample another distribution.
    model.generation_config = GenerationConfig()
    model.requires_grad_(False)
    return model.eval()


def _load_with_bitsandbytes(folder: Path, device: str, dtype: torch.dtype) -> Any:
    """LLM.int8 (arXiv:2208.07339), outliers in ``dtype``; its products differ between train and eval mode."""
    import torch

    require_bitsandbytes()
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    settings = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=["lm_head"])
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, quantization_config=settings, device_map={"": device}, local_files_only=True,
            use_safetensors=True, trust_remote_code=False, attn_implementation="sdpa",
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise SceError(f"cannot load the weights of {folder}: {first_line(error)}") from None
