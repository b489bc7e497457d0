"""Models of many shapes, each with an adapter, as sources of ONNX folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from once import Once
from tiny_families import build_family
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
_FEW_PROMPTS = (PROMPTS[0], "a", PROMPTS[-1])


class Source:
    """A model with an adapter, and what it says; made by `Source.make`."""

    def __init__(self, folder: Path) -> None:
        self.base, self.adapter, self.reference = (folder / name for name in ("base", "adapter", "reference"))

    @classmethod
    def make(cls, folder: Path, build: Callable[[Path], object], prompts: Sequence[str] = PROMPTS) -> None:
        """Fill ``folder`` with the model that ``build`` writes, and what goes with it."""
        made = cls(folder)
        build(made.base)
        build_adapter(made.adapter, made.base)
        made.reference.mkdir()
        write_reference(made.base, made.adapter, prompts, 24, made.reference)

    def write(self, folder: Path, quant: str = "f32", portable: bool = False) -> Path:
        """Export it, unverified."""
        folder.mkdir()
        write_onnx(self.base, self.adapter, quant, folder, portable)
        copy_companions(self.base, folder, "stdin")
        return folder

    def measure(self, folder: Path) -> Agreement:
        """How well an export of it agrees with it."""
        return measure_onnx(folder, self.base, probe_texts(self.base), self.reference)


class Sources:
    """The models of `MODELS` and of `tiny_families`, each made when it is first asked for."""

    def __init__(self, once: Once) -> None:
        self._once = once

    def __call__(self, name: str) -> Source:
        """The model of that name."""
        return self._source(name.replace(" ", "-"), lambda folder: build_model(folder, **MODELS[name]), PROMPTS)

    def family(self, name: str) -> Source:
        """The model of that name in `tiny_families`; with ``-wide`` at its end its heads are those of Gemma 3."""
        family = name.removesuffix("-wide")
        changes = {} if name == family else {"head_dim": 256}
        return self._source(f"of-{name}", lambda folder: build_family(folder, family, **changes), _FEW_PROMPTS)

    def _source(self, name: str, build: Callable[[Path], object], prompts: Sequence[str]) -> Source:
        return Source(self._once(f"source-{name}", lambda folder: Source.make(folder, build, prompts)))

    def exported(self, name: str, quant: str, portable: bool) -> Path:
        """An export of the family of that name; read only."""
        source, kind = self.family(name), "portable" if portable else "onnx"
        return self._once(f"{kind}-{name}-{quant}", lambda folder: source.write(folder, quant, portable))


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
