"""Base weights from safetensors files: every format, shards, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from safetensors.torch import load_file, save_file
from tiny_models import build_model, int8_of
from torch import Tensor

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.int8 import Int8Linear
from securecoderl_edge.models.loading import load_base

Tensors = dict[str, Tensor]


@pytest.fixture
def changed(tiny_model: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the model whose tensors went through a function, in as many files as asked for."""

    def make(change: Callable[[Tensors], Tensors] = lambda tensors: tensors, files: int = 1) -> Path:
        folder = tmp_path / "model"
        shutil.copytree(tiny_model, folder)
        tensors = change(load_file(folder / "model.safetensors"))
        if files == 1:
            save_file(tensors, folder / "model.safetensors")
            return folder
        (folder / "model.safetensors").unlink()
        names = [f"part-{number}.safetensors" for number in range(files)]
        places = {name: names[number % files] for number, name in enumerate(tensors)}
        for file in names:
            save_file({name: tensors[name] for name, place in places.items() if place == file}, folder / file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        return folder

    return make


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(torch.tensor([[5, 6, 7, 8]])).logits
    return found


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_is_the_one_that_hugging_face_loads(tmp_path: Path, family: str, tied: bool) -> None:
    from transformers import AutoModelForCausalLM

    folder = build_model(tmp_path / "model", family, tie_word_embeddings=tied)
    ours, theirs = load_base(folder), AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(logits(ours), logits(theirs.eval()))
    assert (ours.lm_head.weight is ours.model.embed_tokens.weight) == tied
    assert not any(parameter.requires_grad for parameter in ours.parameters())


def test_shards_change_nothing(tiny_model: Path, changed: Callable[..., Path]) -> None:
    assert torch.equal(logits(load_base(changed(files=3))), logits(load_base(tiny_model)))


def test_int8_covers_every_linear_layer_but_the_output_and_keeps_biases(tiny_qwen: Path) -> None:
    model = load_base(tiny_qwen, "int8")
    linears = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    assert {name for name, module in linears.items() if not isinstance(module, Int8Linear)} == {"lm_head"}
    plain = load_base(tiny_qwen)
    for name, module in linears.items():
        if isinstance(module, Int8Linear):
            exact = plain.get_submodule(name)
            half_a_step = exact.weight.abs().amax(1, keepdim=True) / 127 / 2
            assert bool(((module.expanded(torch.float32) - exact.weight).abs() <= half_a_step * 1.001).all())
            assert (module.bias is None) == (exact.bias is None)
            assert module.bias is None or torch.equal(module.bias, exact.bias)


@pytest.mark.parametrize(("precision", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_half_precision_is_that_of_every_weight(tiny_model: Path, precision: str, dtype: torch.dtype) -> None:
    assert {parameter.dtype for parameter in load_base(tiny_model, precision).parameters()} == {dtype}


def test_what_int8_leaves_has_the_format_asked_for(tiny_model: Path) -> None:
    model = load_base(tiny_model, "int8", products=torch.float16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.int8, torch.float16}


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without(NORM), f"{NORM} is missing"),
        (lambda tensors: {**tensors, NORM: torch.ones(63)}, f"{NORM}: expected the shape .* found"),
        (lambda tensors: {**tensors, NORM: torch.ones(64, dtype=torch.int8)}, "original, unquantized weights"),
        (lambda tensors: {**tensors, "model.adapter.weight": torch.ones(2)}, "model.adapter.weight"),
    ],
)
def test_weights_that_are_not_the_model_s_are_named(
    changed: Callable[..., Path], change: Callable[[Tensors], Tensors], words: str
) -> None:
    with pytest.raises(SceError, match=words):
        load_base(changed(change))


def test_tables_that_older_versions_saved_are_passed_over(tiny_model: Path, changed: Callable[..., Path]) -> None:
    def add(tensors: Tensors) -> Tensors:
        return {**tensors, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}

    assert torch.equal(logits(load_base(changed(add))), logits(load_base(tiny_model)))


def test_a_cut_file_and_a_missing_shard_are_named(changed: Callable[..., Path]) -> None:
    folder = changed(files=2)
    shard = folder / "part-1.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(SceError, match=r"part-1\.safetensors is damaged"):
        load_base(folder)
    shard.unlink()
    with pytest.raises(SceError, match=r"part-1\.safetensors is missing"):
        load_base(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(SceError, match="no weight_map"):
        load_base(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quantization_config": {"load_in_8bit": True}}, "already quantized"),
        ({"architectures": ["NoModel"], "model_type": "none"}, "NoModel is not .* transformers cannot load it"),
        ({"num_attention_heads": 0}, "num_attention_heads = 0"),
        ({"hidden_size": float("inf")}, "hidden_size = inf"),
        ({"rope_parameters": {"rope_type": "foo"}}, "rope type foo is not supported"),
    ],
)
def test_a_model_that_cannot_be_a_base_is_refused_before_its_weights_are_read(
    changed: Callable[..., Path], change: dict[str, Any], words: str
) -> None:
    folder = changed()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    (folder / "model.safetensors").unlink()
    with pytest.raises(SceError, match=words):
        load_base(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1.0, 1e-2, 1e-4, 1e-5])
def test_int8_keeps_rows_of_small_weights_in_every_format(dtype: torch.dtype, size: float) -> None:
    weight = torch.randn(200, 64, generator=torch.Generator().manual_seed(1)) * size
    linear = torch.nn.Linear(64, 200, bias=False)
    linear.weight.data = weight
    expanded = int8_of(linear).expanded(dtype).float()
    step = weight.abs().amax(1, keepdim=True) / 127
    # Half a step of the rounding, and what the format itself rounds.
    rounding = weight.abs() * torch.finfo(dtype).eps + torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    assert bool(((expanded - weight).abs() <= 0.51 * step + rounding).all())


def test_tensors_are_read_one_at_a_time(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gc
    import weakref

    from securecoderl_edge.models import weights

    seen: list[weakref.ref[Tensor]] = []
    real = weights.read_tensors

    def watched(folder: Path) -> Any:
        for name, tensor in real(folder):
            gc.collect()
            assert sum(each() is not None for each in seen) <= 1, "an earlier tensor is still held"
            seen.append(weakref.ref(tensor))
            yield name, tensor
            del tensor

    monkeypatch.setattr(weights, "read_tensors", watched)
    gc.collect()
    gc.freeze()  # what other tests have left takes long to look through, and we do it for each tensor
    try:
        load_base(tiny_model, "int8")
    finally:
        gc.unfreeze()
    assert len(seen) > 10
