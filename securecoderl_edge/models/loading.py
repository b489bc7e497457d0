"""The base model, the LoRA adapters on it, and the value head.

One frozen base carries two adapters: `POLICY`, which is trained, and `REFERENCE`, a frozen copy of what supervised
training left, which the KL penalty is measured against.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.adapters import ADAPTER_WEIGHTS
from securecoderl_edge.architecture import read_architecture
from securecoderl_edge.config import setting
from securecoderl_edge.errors import SceError, UsageError, needs
from securecoderl_edge.special_tokens import needs_start
from securecoderl_edge.system.hub import download_model, is_hub_id
from securecoderl_edge.weight_files import MODEL_FILES

if TYPE_CHECKING:
    import torch
    from torch import Tensor

NANO = "nano"
POLICY = "default"  # the name under which peft saves an adapter at the top of its folder
REFERENCE = "reference"


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adaptation (arXiv:2106.09685) of the attention projections."""

    rank: int = setting(16, "Rank of the update of each weight.", minimum=1)
    alpha: int = setting(32, "Scale of the update: alpha / rank.", minimum=1)
    targets: tuple[str, ...] = setting(("q_proj", "k_proj", "v_proj", "o_proj"), "Linear layers that get an adapter.")


def require_torch() -> None:
    """Import what training and Hugging Face models need.

    Raises:
        MissingExtra: a package of the ``train`` extra is not installed.
        SceError: one is installed, but broken.
    """
    # Read when torch loads: threads that wait are to sleep soon, since sandboxed programs need the same cores.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # oneDNN keeps its compiled products by shape, a thousand of them by default. Batches have ever other shapes: these
    # would be half a gigabyte that is hardly ever used again.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    _import_bitsandbytes()
    for package in ("torch", "transformers", "peft", "safetensors"):
        with needs(package, "train"):
            __import__(package)
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def _import_bitsandbytes() -> None:
    """Import it, if it is there, before peft does, which tells nobody how.

    It would fetch a kernel for 4-bit products from the hub, where the package that can do so is installed, and warn
    where it is not. Nothing here computes in 4 bits, and nothing is fetched that nobody has named.
    """
    # It also warns at every product whose inputs are not float16.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    if importlib.util.find_spec("bitsandbytes") is None or "bitsandbytes" in sys.modules:
        return
    before = sys.modules.get("kernels")
    sys.modules["kernels"] = None  # type: ignore[assignment]  # to be imported is then an ImportError
    try:
        __import__("bitsandbytes")
    except Exception:  # a build that does not load here; `int8-bnb` and the 8-bit optimizers will say so
        pass
    finally:
        if before is None:
            del sys.modules["kernels"]
        else:
            sys.modules["kernels"] = before


def base_folder(name: str, *, download: bool = True) -> Path:
    """The local folder of a base model: ``nano``, a folder, or a hub id (downloaded only here, when named).

    Args:
        download: otherwise a hub id must have been downloaded before.

    Raises:
        UsageError: no such folder, it holds no model, or a hub id is not on this disk.
        SceError: a hub id that cannot be had.
    """
    if name == NANO:
        return Path(__file__).parent / "problems" / "starter" / "nano"
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"{folder} holds no model (no config.json)")
        return folder
    if not is_hub_id(name):
        raise UsageError(f"no model {name!r}: it is neither {NANO!r}, nor a folder, nor a hub id (owner/name)")
    return download_model(name, MODEL_FILES, download)


def lasting_name(name: str) -> str:
    """What finds the base model ``name`` again from any working folder: a folder's whole path, else ``name``."""
    return str(Path(name).resolve()) if name != NANO and Path(name).is_dir() else name


def load_tokenizer(folder: Path) -> Any:
    """The fast tokenizer of a model folder, with a padding token.

    Raises:
        SceError: the folder has no tokenizer, a damaged one, or one without an end-of-sequence token.
    """
    require_torch()
    from transformers import AutoTokenizer

    if not (folder / "tokenizer.json").is_file():
        raise SceError(f"{folder}: no tokenizer.json; download it from where the weights are from")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the tokenizers library raises plain exceptions for a damaged file
        raise SceError(f"cannot load the tokenizer of {folder}: {_first_line(error)}") from None
    if tokenizer.eos_token_id is None:
        raise SceError(f"{folder}: the tokenizer names no end-of-sequence token")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def encode_prompt(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a prompt, with the start token that the tokenizer adds unless the text begins with it."""
    return list(tokenizer(text, add_special_tokens=needs_start(text, tokenizer.bos_token))["input_ids"])


def load_base(
    folder: Path, precision: str = "fp32", device: str = "cpu", other_dtype: torch.dtype | None = None
) -> Any:
    """The frozen base model in ``fp32``, ``fp16``, ``bf16``, weight-only ``int8``, or ``int8-bnb`` (LLM.int8).

    Args:
        other_dtype: with int8, the format of what stays as it is: embedding, output, norms. float32 by default.

    Raises:
        SceError: not a supported architecture, already quantised, or no readable safetensors weights.
    """
    require_torch()
    import torch
    from transformers import GenerationConfig

    from securecoderl_edge.weights import load_model

    read_architecture(folder)
    if precision == "int8-bnb":
        model = _load_with_bitsandbytes(folder, device, other_dtype or torch.float16)
    else:
        dtypes = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        dtype = dtypes.get(precision, other_dtype or torch.float32)
        try:
            model = load_model(folder, dtype, device, int8=precision == "int8")
        except (OSError, ValueError, RuntimeError, TypeError, KeyError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise SceError(f"cannot load the weights of {folder}: {_first_line(error)}") from None
    # What a model's folder says of sampling (a penalty, a filter) would make `generate` draw from another distribution.
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
        raise SceError(f"cannot load the weights of {folder}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def add_adapters(base: Any, lora: LoraSettings, seed: int) -> Any:
    """Wrap ``base`` with a trainable policy adapter and a frozen reference adapter, both doing nothing yet.

    LoRA's first factor is drawn after seeding, so equal seeds give equal adapters; its second factor is zero.

    Raises:
        SceError: a target layer that the model does not have.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules=list(lora.targets), task_type="CAUSAL_LM"
    )
    torch.manual_seed(seed)
    try:
        model = get_peft_model(base, config, adapter_name=POLICY, autocast_adapter_dtype=True)
    except ValueError as error:
        raise SceError(f"LoRA does not fit this model: {error}") from None
    model.add_adapter(REFERENCE, config)
    copy_adapter(model, POLICY, REFERENCE)
    return model.eval()


def adapter_parameters(model: Any, name: str = POLICY) -> dict[str, Tensor]:
    """The parameters of one adapter by their full names in the model."""
    return {key: value for key, value in model.named_parameters() if f".{name}." in key}


def copy_adapter(model: Any, source: str, target: str) -> None:
    """Overwrite one adapter with another and freeze the target."""
    import torch

    targets = adapter_parameters(model, target)
    with torch.no_grad():
        for key, value in adapter_parameters(model, source).items():
            twin = targets[key.replace(f".{source}.", f".{target}.")]
            twin.copy_(value)
            twin.requires_grad_(False)


@contextmanager
def reference_active(model: Any) -> Iterator[None]:
    """Compute with the reference adapter inside the block, with the policy again afterwards."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    try:
        for layer in layers:
            layer._active_adapter = [REFERENCE]  # set_adapter would also flip requires_grad, which must not change
        yield
    finally:
        for layer in layers:
            layer._active_adapter = [POLICY]


def save_adapter(model: Any, folder: Path, base_name: str) -> None:
    """Write the policy adapter in PEFT's format (safetensors and JSON), usable alone with ``PeftModel``."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    # "auto" would ask the hub for the base model's configuration; embeddings are never trained here.
    tensors = get_peft_model_state_dict(model, adapter_name=POLICY, save_embedding_layers=False)
    save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, folder / ADAPTER_WEIGHTS)
    config = model.peft_config[POLICY]
    config.base_model_name_or_path, config.inference_mode = base_name, True
    config.save_pretrained(folder)


def load_adapter(model: Any, folder: Path, name: str = POLICY) -> None:
    """Overwrite the adapter ``name`` with one that `save_adapter` wrote.

    Raises:
        SceError: the file is missing or unreadable, or its tensors do not fit this model's adapter.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = folder / ADAPTER_WEIGHTS
    try:
        stored = load_file(file)
    except (OSError, SafetensorError) as error:
        raise SceError(f"{file}: cannot be read ({error})") from None
    wanted = adapter_parameters(model, name)
    named = {key.replace(f".{name}.", "."): value for key, value in wanted.items()}
    if stored.keys() != named.keys() or any(stored[key].shape != named[key].shape for key in named):
        raise SceError(f"{folder}: the adapter does not belong to this base model or these LoRA settings")
    with torch.no_grad():
        for key, value in named.items():
            value.copy_(stored[key])


def output_weight(model: Any) -> Tensor:
    """(V, H) the frozen output projection."""
    weight: Tensor = model.get_output_embeddings().weight
    return weight


def make_value_head(hidden_size: int, seed: int) -> torch.nn.Module:
    """A small MLP from a hidden state to the expected return, starting at 0 everywhere.

    It reads detached hidden states: on small models a shared trunk lets the value loss damage the policy.
    """
    import torch
    from torch import nn

    torch.manual_seed(seed)
    last = nn.Linear(256, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(hidden_size, 256), nn.Tanh(), last)
