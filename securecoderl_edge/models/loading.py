"""Loading the frozen base model in a given precision onto a device."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.errors import SceError, first_line, needs
from securecoderl_edge.models.other import OtherArchitecture, find_architecture, load_other

if TYPE_CHECKING:
    import torch


def require_torch() -> None:
    """Import the packages that training and Hugging Face models need.

    Raises:
        MissingExtra: a package of the ``train`` extra is not installed.
        SceError: one is installed, but broken.
    """
    # Read when torch loads: waiting threads must sleep soon, since sandboxed programs need the same cores.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # oneDNN caches a compiled kernel per shape, a thousand by default. Batches rarely repeat a shape, so the cache
    # would hold half a gigabyte that is almost never used again.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    _import_bitsandbytes()
    for package in ("torch", "transformers", "peft", "safetensors"):
        with needs(package, "train"):
            __import__(package)
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def _import_bitsandbytes() -> None:
    """Import bitsandbytes, if it is installed, before peft does.

    Otherwise it downloads a 4-bit kernel from the hub if the package ``kernels`` is installed, and warns if not.
    Nothing here computes in 4 bits, and `sce` downloads only models and data that the user names.
    """
    # It also warns at every product whose inputs are not float16.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    if importlib.util.find_spec("bitsandbytes") is None or "bitsandbytes" in sys.modules:
        return
    before = sys.modules.get("kernels")
    sys.modules["kernels"] = None  # type: ignore[assignment]  # importing it then raises ImportError
    try:
        __import__("bitsandbytes")
    except Exception:  # a build that does not load here; `int8-bnb` and the 8-bit optimizers report it
        pass
    finally:
        if before is None:
            del sys.modules["kernels"]
        else:
            sys.modules["kernels"] = before


def load_base(
    folder: Path, precision: str = "fp32", device: str = "cpu", other_dtype: torch.dtype | None = None
) -> Any:
    """The frozen base model in ``fp32``, ``fp16``, ``bf16``, weight-only ``int8``, or ``int8-bnb`` (LLM.int8).

    It is of a class of transformers; `transformer` and `decoder` compute it if its family is known.

    Args:
        other_dtype: with int8, the dtype of embedding, output and norms. float32 by default.

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
        model = _load_with_bitsandbytes(folder, device, other_dtype or torch.float16)
    else:
        dtypes = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        dtype = dtypes.get(precision, other_dtype or torch.float32)
        try:
            model = load_model(folder, dtype, device, int8=precision == "int8")
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

    with needs("bitsandbytes", "train"):
        import bitsandbytes  # noqa: F401
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    settings = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=["lm_head"])
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, quantization_config=settings, device_map={"": device}, local_files_only=True,
            use_safetensors=True, attn_implementation="sdpa",
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise SceError(f"cannot load the weights of {folder}: {first_line(error)}") from None
