"""LoRA folders in PEFT's format, and the kinds of adapters that are supported.

Supported: plain LoRA on linear layers, scaled by alpha/r or (rslora) alpha/sqrt(r). All readers reject other kinds by
name, because a wrongly merged adapter still gives a model that loads.

In training one frozen base carries two adapters: `POLICY_ADAPTER`, which is trained, and `REFERENCE_ADAPTER`, a frozen
copy of the SFT result, the reference of the KL penalty. In simple self-distillation it is the frozen teacher.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.config import setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.packages import hidden_bitsandbytes
from securecoderl_edge.system.files import read_json

if TYPE_CHECKING:
    from torch import Tensor

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_UNSUPPORTED = (
    "alora_invocation_tokens", "alpha_pattern", "arrow_config", "kasa_config", "layer_replication", "lora_bias",
    "modules_to_save", "monteclora_config", "rank_pattern", "target_parameters", "trainable_token_indices",
    "use_bdlora", "use_dora", "use_qalora", "velora_config",
)  # fmt: skip
_FACTOR = re.compile(r"base_model\.model\.(.+)\.lora_[AB]\.weight")
_HIGHEST_RANK = 1 << 16
POLICY_ADAPTER = "default"  # the name under which peft saves an adapter at the top of its folder
REFERENCE_ADAPTER = "reference"


def read_lora_config(adapter: Path) -> dict[str, Any]:
    """The decoded adapter_config.json of a plain LoRA adapter.

    Raises:
        UsageError: it is another kind of adapter, or uses an unsupported feature (named).
        SceError: the file is missing or damaged.
    """
    config = read_json(adapter / ADAPTER_CONFIG)
    if config.get("peft_type") != "LORA":
        raise UsageError(f"{adapter}: adapter type {config.get('peft_type')} is not supported, only LORA")
    for feature in _UNSUPPORTED:
        if config.get(feature):
            raise UsageError(f"{adapter}: adapters with {feature} are not supported")
    if config.get("bias", "none") != "none":
        raise UsageError(f"{adapter}: adapters that train biases (bias = {config['bias']}) are not supported")
    # PiSSA, LoftQ and similar methods change the base weights at the start of training.
    if config.get("init_lora_weights", True) not in (True, False, "gaussian"):
        raise UsageError(
            f"{adapter}: adapters with init_lora_weights = {config['init_lora_weights']} are not supported"
        )
    try:
        rank, _ = int(config["r"]), float(config["lora_alpha"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise SceError(f"{adapter}: {ADAPTER_CONFIG}: r and lora_alpha must be numbers") from None
    if not 1 <= rank <= _HIGHEST_RANK:
        raise SceError(f"{adapter}: {ADAPTER_CONFIG}: r must be from 1 to {_HIGHEST_RANK}")
    return config


def peft_config(adapter: Path) -> Any:
    """PEFT's configuration for the weights of an adapter: its rank and scale, and the layers that the weights name.

    Of the file it takes nothing else: patterns of layers can cost hours, and other keys import modules.

    Raises:
        UsageError, SceError: as `read_lora_config`; or the weights are missing, damaged or not of a plain LoRA.
    """
    from peft import LoraConfig
    from safetensors import SafetensorError, safe_open

    config, file = read_lora_config(adapter), adapter / ADAPTER_WEIGHTS
    try:
        with safe_open(file, "pt") as weights:
            names = [_FACTOR.fullmatch(key) for key in weights.keys()]  # noqa: SIM118 -- it cannot be iterated
    except (OSError, SafetensorError) as error:
        raise SceError(f"cannot read {file} ({error})") from None
    layers = sorted({name[1] for name in names if name})
    if not layers or not all(names):
        raise SceError(f"{adapter}: not a plain LoRA adapter")
    return LoraConfig(
        r=int(config["r"]),
        lora_alpha=float(config["lora_alpha"]),
        target_modules=layers,
        use_rslora=bool(config.get("use_rslora")),
        fan_in_fan_out=bool(config.get("fan_in_fan_out")),
        inference_mode=True,
        task_type="CAUSAL_LM",
    )


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adaptation (arXiv:2106.09685) of the attention projections."""

    rank: int = setting(16, "LoRA rank.", minimum=1)
    alpha: int = setting(32, "LoRA alpha; the update is scaled by alpha / rank.", minimum=1)
    targets: tuple[str, ...] = setting(
        ("q_proj", "k_proj", "v_proj", "o_proj"), "Linear layers with a LoRA adapter; `all`: every one."
    )


def check_targets(lora: LoraSettings, layers: Iterable[str]) -> None:
    """Check that a model has all the layers that get an adapter.

    Args:
        layers: the last names of its linear layers.

    Raises:
        UsageError: it does not; the message lists those it has.
    """
    unknown = sorted(set(lora.targets) - set(layers))
    if unknown or not lora.targets:
        raise UsageError(
            f"lora.targets: this model has no linear layer {', '.join(unknown) or 'of that name'}. Choose from "
            f"{', '.join(sorted(layers))}: --set 'lora.targets=[\"NAME\"]'"
        )


def add_adapters(base: Any, lora: LoraSettings, seed: int) -> Any:
    """Wrap ``base`` with a trainable policy adapter and a frozen reference adapter, both without effect yet.

    LoRA's first factor is sampled after seeding, so equal seeds give equal adapters; its second factor is zero.

    Raises:
        SceError: a target layer that the model does not have.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    # GPT-2 keeps some weights transposed.
    chosen = (module for name, module in base.named_modules() if name.rpartition(".")[2] in lora.targets)
    transposed = any(type(module).__name__ == "Conv1D" for module in chosen)
    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules=list(lora.targets),
        task_type="CAUSAL_LM", fan_in_fan_out=transposed,
    )  # fmt: skip
    torch.manual_seed(seed)
    try:
        with hidden_bitsandbytes():
            model = get_peft_model(base, config, adapter_name=POLICY_ADAPTER, autocast_adapter_dtype=True)
            model.add_adapter(REFERENCE_ADAPTER, config)
    except ValueError as error:
        raise SceError(f"lora.targets does not match this model: {error}") from None
    copy_adapter(model, POLICY_ADAPTER, REFERENCE_ADAPTER)
    return model.eval()


def adapter_parameters(model: Any, name: str = POLICY_ADAPTER) -> dict[str, Tensor]:
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
            # set_adapter would also flip requires_grad, which must not change.
            layer._active_adapter = [REFERENCE_ADAPTER]
        yield
    finally:
        for layer in layers:
            layer._active_adapter = [POLICY_ADAPTER]


def save_adapter(model: Any, folder: Path, base_name: str) -> None:
    """Write the policy adapter in PEFT's format (safetensors and JSON), usable alone with ``PeftModel``."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    # "auto" would ask the hub for the base model's configuration; embeddings are never trained here.
    tensors = get_peft_model_state_dict(model, adapter_name=POLICY_ADAPTER, save_embedding_layers=False)
    save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, folder / ADAPTER_WEIGHTS)
    config = model.peft_config[POLICY_ADAPTER]
    config.base_model_name_or_path, config.inference_mode = base_name, True
    config.save_pretrained(folder)


def load_adapter(model: Any, folder: Path, name: str = POLICY_ADAPTER) -> None:
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
        raise SceError(f"cannot read {file} ({error})") from None
    wanted = adapter_parameters(model, name)
    named = {key.replace(f".{name}.", "."): value for key, value in wanted.items()}
    if stored.keys() != named.keys() or any(stored[key].shape != named[key].shape for key in named):
        raise SceError(f"{folder}: the adapter does not match the base model or the [lora] settings")
    with torch.no_grad():
        for key, value in named.items():
            value.copy_(stored[key])
