"""Models of many shapes, each with an adapter, as sources of ONNX folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from once import Once
from tiny_models import build_adapter, build_model

from securecoderl_edge.export import onnx as onnx_export
from securecoderl_edge.export.agreement import Agreement
from securecoderl_edge.export.merge import copy_companions, merged_tensors
from securecoderl_edge.export.onnx import write_onnx
from securecoderl_edge.export.reference import write_reference
from securecoderl_edge.export.verify import PROMPTS, probe_texts
from securecoderl_edge.export.verify_worker import measure_onnx

LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 100000.0}
LLAMA_3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64, "rope_theta": 10000.0,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "tied": {},
    "linear": {"num_key_value_heads": 2, "tie_word_embeddings": False, "rope_parameters": LINEAR},
    "llama3": {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "rope_parameters": LLAMA_3,
               "initializer_range": 0.1},
    "qwen2": {"family": "qwen2", "num_key_value_heads": 2},
    "odd rows": {"intermediate_size": 100},
    "large epsilon": {"rms_norm_eps": 0.01},
    "own head size": {"head_dim": 32, "num_key_value_heads": 2},
}  # fmt: skip


class Source:
    """A model with an adapter, and what it says; made by `Source.make`."""

    def __init__(self, folder: Path) -> None:
        self.base, self.adapter, self.reference = (folder / name for name in ("base", "adapter", "reference"))

    @classmethod
    def make(cls, folder: Path, settings: dict[str, Any]) -> None:
        """Fill ``folder``."""
        made = cls(folder)
        build_model(made.base, **settings)
        build_adapter(made.adapter, made.base)
        made.reference.mkdir()
        write_reference(made.base, made.adapter, PROMPTS, 24, made.reference)

    def write(self, folder: Path, quant: str = "f32") -> Path:
        """Export it, unverified."""
        folder.mkdir()
        write_onnx(self.base, self.adapter, quant, folder)
        copy_companions(self.base, folder, "stdin")
        return folder

    def measure(self, folder: Path) -> Agreement:
        """How well an export of it agrees with it."""
        return measure_onnx(folder, self.base, probe_texts(self.base), self.reference)


class Sources:
    """The models of `MODELS`, each made when it is first asked for."""

    def __init__(self, once: Once) -> None:
        self._once = once

    def __call__(self, name: str) -> Source:
        """The model of that name."""
        return Source(self._once(f"source-{name.replace(' ', '-')}", lambda folder: Source.make(folder, MODELS[name])))


def change_shape(**changes: Any) -> Callable[[pytest.MonkeyPatch], None]:
    import dataclasses

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        read = onnx_export.read_architecture
        monkeypatch.setattr(onnx_export, "read_architecture", lambda base: dataclasses.replace(read(base), **changes))

    return plant


def without(ending: str) -> Callable[[pytest.MonkeyPatch], None]:
    def tensors(base: Path, adapter: Path | None) -> Iterator[tuple[str, Any]]:
        for name, tensor in merged_tensors(base, adapter):
            yield name, tensor * 0 if name.endswith(ending) else tensor

    return lambda monkeypatch: monkeypatch.setattr(onnx_export, "merged_tensors", tensors)


def leave_the_adapter_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_export, "merged_tensors", lambda base, adapter: merged_tensors(base, None))
