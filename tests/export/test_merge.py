"""LoRA merged into its base without building the model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from other_models import build_other
from tiny_models import build_adapter, build_model

pytest.importorskip("torch", reason="needs the train extra")

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export import merge
from securecoderl_edge.export.merge import merged_tensors, weight_files, write_merged


def merge_with_peft(base: Path, adapter: Path) -> dict[str, Any]:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(adapter))
    state: dict[str, Any] = model.merge_and_unload().state_dict()
    return state


def change_adapter(adapter: Path, out: Path, **changes: Any) -> Path:
    shutil.copytree(adapter, out)
    config = json.loads((out / "adapter_config.json").read_text())
    (out / "adapter_config.json").write_text(json.dumps({**config, **changes}))
    return out


def assert_equals_peft(base: Path, adapter: Path) -> None:
    import torch

    expected = merge_with_peft(base, adapter)
    merged = dict(merged_tensors(base, adapter))
    assert set(merged) <= set(expected)
    for name, tensor in merged.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, expected[name], atol=1e-6, rtol=1e-5)


def test_merging_equals_peft(tiny_model: Path, tiny_adapter: Path) -> None:
    assert_equals_peft(tiny_model, tiny_adapter)


def test_merging_with_rslora_equals_peft(tiny_model: Path, tmp_path: Path) -> None:
    assert_equals_peft(tiny_model, build_adapter(tmp_path / "adapter", tiny_model, use_rslora=True))


def test_without_an_adapter_the_tensors_are_those_of_the_base(tiny_model: Path) -> None:
    import torch
    from safetensors.torch import load_file

    stored = load_file(tiny_model / "model.safetensors")
    merged = dict(merged_tensors(tiny_model, None))
    assert merged.keys() == stored.keys()
    assert all(torch.equal(merged[name], stored[name]) for name in stored)


def test_a_half_precision_base_is_merged_in_float32(tiny_model: Path, tiny_adapter: Path, tmp_path: Path) -> None:
    import torch

    write_merged(tiny_model, None, tmp_path / "half", dtype="float16")
    name = "model.layers.0.self_attn.q_proj.weight"
    half = dict(merged_tensors(tmp_path / "half", tiny_adapter))[name]
    assert half.dtype == torch.float32
    assert not torch.equal(half, half.half().float())


def test_a_merged_folder_loads_without_the_adapter_and_has_the_same_logits(
    tiny_model: Path, tiny_adapter: Path, tmp_path: Path
) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write_merged(tiny_model, tiny_adapter, tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    tuned = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model), str(tiny_adapter))
    ids = AutoTokenizer.from_pretrained(tmp_path / "merged")("def add(a, b):", return_tensors="pt").input_ids
    with torch.inference_mode():
        torch.testing.assert_close(merged(ids).logits, tuned(ids).logits, atol=1e-3, rtol=0)


def test_a_base_in_several_shards_merges_like_one_file(
    tiny_model: Path, tiny_adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(merge, "_SHARD_BYTES", 100_000)
    write_merged(tiny_model, None, tmp_path / "shards")
    assert len(weight_files(tmp_path / "shards")) > 1
    whole, sharded = (dict(merged_tensors(base, tiny_adapter)) for base in (tiny_model, tmp_path / "shards"))
    assert whole.keys() == sharded.keys()
    assert all(torch.equal(whole[name], sharded[name]) for name in whole)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 4}}, "alpha_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"init_lora_weights": "pissa"}, "pissa"),
        ({"peft_type": "IA3"}, "IA3"),
    ],
)
def test_what_cannot_be_merged_is_refused_by_name(
    tiny_model: Path, tiny_adapter: Path, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    adapter = change_adapter(tiny_adapter, tmp_path / "adapter", **changes)
    with pytest.raises(UsageError, match=named):
        next(merged_tensors(tiny_model, adapter))


def test_an_adapter_of_another_base_is_refused(tiny_adapter: Path, tmp_path: Path) -> None:
    other = build_model(tmp_path / "other", intermediate_size=96)
    with pytest.raises(UsageError, match="trained on another base model"):
        next(merged_tensors(other, tiny_adapter))


def test_a_folder_without_an_adapter_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a LoRA folder"):
        next(merged_tensors(tiny_model, tmp_path))


def test_a_base_without_safetensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="safetensors"):
        next(merged_tensors(tmp_path, None))


def test_a_truncated_weights_file_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    whole = (base / "model.safetensors").read_bytes()
    (base / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SceError, match="safetensors"):
        list(merged_tensors(base, None))


def test_an_index_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    with pytest.raises(UsageError):
        weight_files(tmp_path)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings:UserWarning")  # PEFT knows of it
@pytest.mark.parametrize("name", ["ours", "GPT-2"])
def test_an_adapter_of_an_output_layer_that_is_the_embedding_is_refused(
    name: str, tiny_model: Path, tmp_path: Path
) -> None:
    base = tiny_model if name == "ours" else build_other(tmp_path / "base", name)
    adapter = build_adapter(tmp_path / "adapter", base, target_modules=["lm_head"])
    with pytest.raises(UsageError, match=r"lm_head.*shares with its embedding"):
        write_merged(base, adapter, tmp_path / "merged")


def test_an_adapter_of_an_output_layer_of_its_own_is_merged(tmp_path: Path) -> None:
    base = build_model(tmp_path / "base", tie_word_embeddings=False)
    assert_equals_peft(base, build_adapter(tmp_path / "adapter", base, target_modules=["lm_head", "q_proj"]))
