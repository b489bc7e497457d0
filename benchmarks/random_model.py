"""Random weights of DeepSeek-Coder-1.3B's exact shape: for memory, speed and parity, where the model cannot be had."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

MODEL = "deepseek-ai/deepseek-coder-1.3b-instruct"
SHARD_BYTES = 1 << 30


def make_model(
    folder: Path, tokenizer: Path | None, layers: int | None, changes: Mapping[str, int] | None = None
) -> None:
    """Random float16 weights of the model's shape, in shards of a GiB, with a tokenizer; ``changes`` to its config."""
    import torch
    from safetensors.torch import save_file

    from securecoderl_edge.models.architecture import architecture_of
    from securecoderl_edge.models.files import NANO, base_folder
    from securecoderl_edge.training.base import known_shapes

    config = {**known_shapes()[MODEL], **(changes or {})}
    if layers:
        config["num_hidden_layers"] = layers
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile((tokenizer or base_folder(NANO)) / name, folder / name)
    generator = torch.Generator().manual_seed(1)
    shards: list[dict[str, torch.Tensor]] = [{}]
    places: dict[str, str] = {}
    for name, shape in architecture_of(config, MODEL).tensors().items():
        if sum(tensor.nbytes for tensor in shards[-1].values()) > SHARD_BYTES:
            save_file(shards[-1], folder / f"model-{len(shards):05d}.safetensors")
            shards.append({})
        is_norm = len(shape) == 1
        tensor = torch.ones(shape) if is_norm else torch.randn(shape, generator=generator) * 0.02
        shards[-1][name] = tensor.half()
        places[name] = f"model-{len(shards):05d}.safetensors"
        for number in range(len(shards) - 1):
            shards[number] = {}
    save_file(shards[-1], folder / f"model-{len(shards):05d}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (folder / "config.json").write_text(json.dumps(config))
