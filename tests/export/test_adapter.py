"""A LoRA adapter as a GGUF file, applied by llama.cpp to float and quantized bases."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_models import build_adapter, build_model

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from exports import export_adapter
from quick import few

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export.agreement import Agreement, check_bounds
from securecoderl_edge.export.gguf import write_adapter, write_gguf
from securecoderl_edge.export.manifest import check_content
from securecoderl_edge.export.quantize import quantize
from securecoderl_edge.export.reference import write_reference
from securecoderl_edge.export.verify import PROMPTS
from securecoderl_edge.export.verify_worker import measure
from securecoderl_edge.runtimes.manifests import manifest_path

SIZES = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grouped queries and rows that k-quants can take."""
    return build_model(tmp_path_factory.mktemp("base") / "base", initializer_range=0.1, **SIZES)


@pytest.fixture(scope="module", params=few([False, True], True), ids=["plain", "rslora"])
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    return build_adapter(tmp_path_factory.mktemp("adapter") / "adapter", base, use_rslora=request.param)


@pytest.fixture(scope="module")
def reference(base: Path, adapter: Path) -> Iterator[Path]:
    """What base and adapter say, by PEFT."""
    with tempfile.TemporaryDirectory() as folder:
        write_reference(base, adapter, PROMPTS, 16, Path(folder))
        yield Path(folder)


def agreement(path: Path, base: Path, reference: Path, lora: Path | None = None) -> Agreement:
    return measure(path, base, [], reference, lora)


def test_on_a_float_base_it_says_what_peft_says(base: Path, adapter: Path, reference: Path, tmp_path: Path) -> None:
    write_gguf(base, None, "f32", tmp_path / "base.gguf", "base")
    summary = write_adapter(base, adapter, "f32", tmp_path / "lora.gguf", "lora")
    assert (summary.rank, summary.tensors) == (8, 2 * 7 * 2)
    found = agreement(tmp_path / "base.gguf", base, reference, tmp_path / "lora.gguf")
    assert found.max_abs_difference < 1e-3
    assert found.greedy_equal == found.prompts
    without = agreement(tmp_path / "base.gguf", base, reference)
    assert without.max_abs_difference > 0.1


@pytest.mark.parametrize("kind", few(["q8_0", "q4_k_m"], "q4_k_m"))
def test_on_a_quantized_base_its_error_is_that_of_the_merged_file(
    base: Path, adapter: Path, reference: Path, tmp_path: Path, kind: str
) -> None:
    write_adapter(base, adapter, "f16", tmp_path / "lora.gguf", "lora")
    for name, merged in (("base", None), ("merged", adapter)):
        if kind == "q8_0":
            write_gguf(base, merged, kind, tmp_path / f"{name}.gguf", name)
        else:
            write_gguf(base, merged, "f32", tmp_path / f"{name}-f32.gguf", name)
            quantize(tmp_path / f"{name}-f32.gguf", tmp_path / f"{name}.gguf", kind)
    applied = agreement(tmp_path / "base.gguf", base, reference, tmp_path / "lora.gguf")
    merged_file = agreement(tmp_path / "merged.gguf", base, reference)
    check_bounds(applied, kind)
    assert applied.mean_kl < 1.5 * merged_file.mean_kl + 1e-4


def test_an_exported_adapter_is_verified_described_and_small(base: Path, adapter: Path, tmp_path: Path) -> None:
    out = tmp_path / "lora.gguf"
    result = export_adapter(base, adapter, "f16", out, force=False, prompt_style="paper")
    record = json.loads(manifest_path(out).read_text())
    assert (record["rank"], record["prompt_style"], record["bytes"]) == (8, "paper", out.stat().st_size)
    assert result.manifest.agreement.top1 > 0.95
    assert {path.name for path in tmp_path.iterdir()} == {"lora.gguf", "lora.gguf.manifest.json"}
    assert out.stat().st_size < (base / "model.safetensors").stat().st_size / 4
    assert export_adapter(base, adapter, "f16", out, force=False, prompt_style="paper").reused
    with pytest.raises(UsageError, match="--force"):
        export_adapter(base, adapter, "f32", out, force=False, prompt_style="paper")
    record["quant"] = "f32"
    manifest_path(out).write_text(json.dumps(record))
    with pytest.raises(SceError, match="quant is f16, but "):
        check_content(out)


def test_a_missing_permutation_is_caught(
    base: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("securecoderl_edge.models.gguf.layout.permute_rotary", lambda weight, heads: weight)
    with pytest.raises(SceError, match="does not agree with the original"):
        export_adapter(base, adapter, "f32", tmp_path / "lora.gguf", force=False)
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_of_another_base_is_refused_by_name(base: Path, tiny_adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trained on another base model"):
        write_adapter(base, tiny_adapter, "f16", tmp_path / "lora.gguf", "lora")


def test_what_is_no_adapter_file_is_a_sentence(base: Path, reference: Path, tmp_path: Path) -> None:
    write_gguf(base, None, "f32", tmp_path / "base.gguf", "base")
    (tmp_path / "junk.gguf").write_bytes(b"GGUF" + b"\0" * 100)
    for lora in (tmp_path / "junk.gguf", tmp_path / "missing.gguf", tmp_path / "base.gguf"):
        with pytest.raises(SceError, match=r"llama\.cpp cannot apply this adapter to the model"):
            agreement(tmp_path / "base.gguf", base, reference, lora)


def test_factors_that_the_type_cannot_hold_are_refused(base: Path, adapter: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    large = tmp_path / "adapter"
    shutil.copytree(adapter, large)
    factors = load_file(large / "adapter_model.safetensors")
    save_file({name: tensor * 1e6 for name, tensor in factors.items()}, large / "adapter_model.safetensors")
    with pytest.raises(UsageError, match=r"exceed the range of f16\. Use f32"):
        write_adapter(base, large, "f16", tmp_path / "lora.gguf", "lora")
    write_adapter(base, large, "f32", tmp_path / "lora.gguf", "lora")


@pytest.mark.parametrize("change", [{"r": "x"}, {"lora_alpha": None}, {"r": float("inf")}])
def test_a_configuration_without_rank_or_alpha_is_a_sentence(
    base: Path, adapter: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    damaged = tmp_path / "adapter"
    shutil.copytree(adapter, damaged)
    path = damaged / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(SceError, match="r and lora_alpha must be numbers"):
        write_adapter(base, damaged, "f16", tmp_path / "lora.gguf", "lora")


def test_heads_of_a_size_of_their_own_are_adapted_too(tmp_path: Path) -> None:
    own = build_model(tmp_path / "base", head_dim=32, num_key_value_heads=2)
    export_adapter(own, build_adapter(tmp_path / "adapter", own), "f32", tmp_path / "lora.gguf", force=False)
