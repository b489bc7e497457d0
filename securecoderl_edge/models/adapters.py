"""LoRA folders in PEFT's format, and which of PEFT's many kinds are understood here.

Plain LoRA on linear layers, scaled by alpha/r or (rslora) alpha/sqrt(r). Every reader, the one that computes and the
one that exports, refuses the rest by name: merged wrongly it would still give a model that loads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from securecoderl_edge.errors import UsageError
from securecoderl_edge.system.files import read_json

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

_UNSUPPORTED = (
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "fan_in_fan_out",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "modules_to_save",
    "monteclora_config",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "velora_config",
)


def read_lora_config(adapter: Path) -> dict[str, Any]:
    """The decoded adapter_config.json of a plain LoRA adapter.

    Raises:
        UsageError: it is another kind of adapter, or uses a feature that is not computed here (named).
        SceError: the file is missing or damaged.
    """
    config = read_json(adapter / ADAPTER_CONFIG)
    if config.get("peft_type") != "LORA":
        raise UsageError(f"{adapter}: adapters of type {config.get('peft_type')} cannot be merged, only LORA")
    for feature in _UNSUPPORTED:
        if config.get(feature):
            raise UsageError(f"{adapter}: the adapter uses {feature}, which cannot be merged here")
    if config.get("bias", "none") != "none":
        raise UsageError(f"{adapter}: the adapter trains biases (bias = {config['bias']}), which cannot be merged here")
    # PiSSA, LoftQ and their kin change the base weights at the start of training.
    if config.get("init_lora_weights", True) not in (True, False, "gaussian"):
        raise UsageError(
            f"{adapter}: the adapter was initialised with {config['init_lora_weights']}, which cannot be merged here"
        )
    return config
