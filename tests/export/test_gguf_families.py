"""GGUF files of every family: llama.cpp computes what transformers does, or the export is refused with the reason."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from once import Once
from quick import few
from tiny_families import FAMILIES, VARIED, WINDOW, build_family
from tiny_models import build_adapter

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

import torch
from safetensors.torch import load_file

from securecoderl_edge.errors import UsageError
from securecoderl_edge.export.agreement import Agreement
from securecoderl_edge.export.gguf import write_adapter, write_gguf
from securecoderl_edge.export.llama_cpp import require_expressible
from securecoderl_edge.export.reference import write_reference
from securecoderl_edge.export.verify import PROMPTS
from securecoderl_edge.export.verify_worker import measure
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.families import GELU
from securecoderl_edge.models.gguf import layout as gguf_layout
from securecoderl_edge.models.gguf.folder import folder_of_gguf
from securecoderl_edge.models.gguf.header import read_header
from securecoderl_edge.models.weights import read_tensors

# What llama.cpp does not compute, and why.
REFUSED = {"qwen3-biases": "biases outside of q, k and v"}
# It has no windows here: the context ends where they do.
CAPPED = ("mistral", "qwen2-window")
EXPORTED = [name for name in FAMILIES if name not in REFUSED]


@pytest.fixture(params=EXPORTED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def family(name: str, once: Once) -> Path:
    return once(f"gguf-family-{name}", lambda folder: build_family(folder, name))


def limit(base: Path) -> float:
    """Of a difference of logits: an input between two entries of the table of GELU may be rounded either way."""
    return 3e-3 if read_architecture(base).kind.activation == GELU else 1e-3


def reference_of(base: Path, adapter: Path | None, folder: Path) -> Path:
    """Outputs of transformers: of prompts longer than a window, unless the context ends there."""
    folder.mkdir()
    shape = read_architecture(base)
    is_capped = any(shape.windows) and not shape.kind.windows_in_gguf
    prompts = [PROMPTS[9][:12], PROMPTS[11]] if is_capped else PROMPTS[1:6]
    write_reference(base, adapter, prompts, 8, folder)
    return folder


@pytest.fixture(autouse=True)
def gelu_as_in_llama_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp takes GELU from a table in f16. With the same rounding in transformers nothing else may differ."""
    from transformers.activations import GELUTanh

    forward = GELUTanh.forward
    monkeypatch.setattr(GELUTanh, "forward", lambda self, x: forward(self, x.half().float()).half().float())


def compared(path: Path, base: Path, reference: Path, adapter: Path | None = None) -> Agreement:
    return measure(path, base, [], reference, adapter)


@pytest.mark.parametrize("name", few(EXPORTED, *VARIED, "qwen2", "mistral"))
def test_the_file_of_a_family_computes_what_transformers_does(name: str, family: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(family, None, "f32", path, "m")
    found = compared(path, family, reference_of(family, None, tmp_path / "reference"))
    assert found.max_abs_difference < limit(family)
    assert found.mean_kl < 1e-7
    assert found.greedy_equal == found.prompts
    header = read_header(path).values
    context = header[f"{header['general.architecture']}.context_length"]
    assert context == (WINDOW if name in CAPPED else 1024)


@pytest.mark.parametrize("name", few(EXPORTED, *VARIED))
def test_an_adapter_of_a_family_is_applied_as_peft_does(family: Path, tmp_path: Path) -> None:
    adapter = build_adapter(tmp_path / "lora", family, target_modules=["q_proj", "k_proj", "o_proj", *_mlp(family)])
    write_gguf(family, None, "f32", tmp_path / "m.gguf", "m")
    write_adapter(family, adapter, "f32", tmp_path / "lora.gguf", "m")
    reference = reference_of(family, adapter, tmp_path / "reference")
    found = compared(tmp_path / "m.gguf", family, reference, tmp_path / "lora.gguf")
    assert found.max_abs_difference < 2e-3
    assert compared(tmp_path / "m.gguf", family, reference).max_abs_difference > 0.05


def _mlp(base: Path) -> list[str]:
    return [name.rpartition(".")[2] for name in read_architecture(base).kind.mlp]


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("granite", {"residual_scale": 1.0}),
    ("granite", {"embedding_scale": 1.0}),
    ("granite", {"logit_scale": 1.0}),
    ("granite4", {"attention_scale": 24**-0.5}),
    ("granite4-nope", {"rotated": (True,) * 5}),
    ("gemma3", {"windows": (WINDOW,) * 6}),
    ("gemma3", {"windows": (None, None, WINDOW, None, None, WINDOW)}),
    ("gemma3", {"local_rope_theta": 1e6}),
    ("gemma3", {"attention_scale": 32**-0.5}),
]


@pytest.mark.parametrize(("name", "wrong"), WRONG)
def test_a_fact_that_is_written_wrongly_shows(
    name: str, wrong: dict[str, Any], family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = dataclasses.replace(read_architecture(family), **wrong)
    monkeypatch.setattr("securecoderl_edge.export.gguf.read_architecture", lambda base: changed)
    write_gguf(family, None, "f32", tmp_path / "m.gguf", "m")
    found = compared(tmp_path / "m.gguf", family, reference_of(family, None, tmp_path / "reference"))
    assert found.max_abs_difference > 0.01


@pytest.mark.parametrize("name", ["gemma3"])
def test_norms_without_their_offset_show(family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securecoderl_edge.export.gguf.arranged", lambda name, weight, shape: weight)
    write_gguf(family, None, "f32", tmp_path / "m.gguf", "m")
    assert compared(tmp_path / "m.gguf", family, reference_of(family, None, tmp_path / "r")).max_abs_difference > 0.1


@pytest.mark.parametrize("name", REFUSED)
def test_what_llama_cpp_does_not_compute_is_refused_by_name(name: str, once: Once, tmp_path: Path) -> None:
    base = once(f"gguf-family-{name}", lambda folder: build_family(folder, name))
    with pytest.raises(UsageError, match=f"does not support {REFUSED[name]}"):
        write_gguf(base, None, "f32", tmp_path / "m.gguf", "m")
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize(
    ("name", "facts", "named"),
    [
        ("smollm3", {"rotated": (True,) * 5}, "layers without RoPE"),
        ("qwen2", {"rope_type": "llama3", "rope_divisors": (1.0, 8.0)}, "llama3 RoPE"),
        ("olmo2", {"tied": True}, "output layer"),
        ("llama", {"attention_scale": 1.0}, "attention scores"),
        ("llama", {"residual_scale": 0.5}, "factors"),
        ("gemma3", {"windows": (8, 8, None, 16, 16, None)}, "several sizes"),
        ("gemma3", {"windows": (None,) * 6}, "local RoPE"),
        ("llama", {"rope_type": "yarn"}, "yarn"),
    ],
)
def test_a_fact_that_llama_cpp_has_fixed_is_refused_by_name(
    name: str, facts: dict[str, Any], named: str, family: Path
) -> None:
    shape = read_architecture(family)
    require_expressible(family, shape)
    with pytest.raises(UsageError, match=named):
        require_expressible(family, dataclasses.replace(shape, **facts))


@pytest.mark.parametrize("name", few(EXPORTED, *VARIED))
def test_a_file_of_a_family_comes_back_as_a_base(
    name: str, family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "m.gguf"
    write_gguf(family, None, "f32", path, "m")
    if name == "granite4-nope":
        with pytest.raises(UsageError, match="without RoPE"):
            folder_of_gguf(path)
        return
    folder = folder_of_gguf(path)
    reference = reference_of(folder, None, tmp_path / "reference")  # transformers reads the folder
    assert compared(path, folder, reference).max_abs_difference < limit(family)
    again = tmp_path / "again.gguf"
    write_gguf(folder, None, "f32", again, "m")
    assert compared(again, folder, reference).max_abs_difference < limit(family)
    config = json.loads((folder / "config.json").read_text())
    shape = read_architecture(family)
    assert config["tie_word_embeddings"] == shape.tied
    if shape.kind == read_architecture(folder).kind and not shape.kind.norm_offset:  # a sum loses digits
        before, after = load_file(family / "model.safetensors"), dict(read_tensors(folder))
        assert all(torch.equal(before[each], after[each]) for each in before)


def test_tensors_of_a_file_all_have_names_of_their_own(family: Path) -> None:
    targets = [target for parts in gguf_layout.tensor_names(read_architecture(family)).values() for target, _ in parts]
    assert len({*targets}) == len(targets)
    assert "None" not in targets
