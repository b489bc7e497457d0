"""Weights rearranged for faster kernels: which, and that the model stays the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_models import build_model

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from securecoderl_edge.export.gguf import write_gguf
from securecoderl_edge.export.quantize import quantize
from securecoderl_edge.models.gguf.header import read_header
from securecoderl_edge.runtimes.gguf import llama, repacking
from securecoderl_edge.runtimes.gguf.repacking import repacked_weights
from securecoderl_edge.system.machine import cpu_flags

TOKENS = [5, 60, 200, 17, 90, 33]
needs_avx2 = pytest.mark.skipif("avx2" not in cpu_flags(), reason="needs a processor with AVX2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model in several types; rows come in eights, k-quants fit."""
    made = tmp_path_factory.mktemp("repacking")
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4}
    base = build_model(made / "base", tie_word_embeddings=False, initializer_range=0.1, **sizes)
    write_gguf(base, None, "f16", made / "f16.gguf", "m")
    for quant in ("q4_0", "q4_k_m", "iq4_nl", "q8_0"):
        if quant == "q8_0":
            write_gguf(base, None, quant, made / f"{quant}.gguf", "m")
        else:
            quantize(made / "f16.gguf", made / f"{quant}.gguf", quant)
    return made


def logits(path: Path) -> np.ndarray:
    """Of a batch and of one token after it."""
    model = llama.LlamaModel(path, extra_buffers=False)
    context = model.open_context(1, 256, 1, float32_cache=True)
    try:
        context.decode(TOKENS, list(range(len(TOKENS))), [0] * len(TOKENS), logits=True)
        first = context.logits(len(TOKENS)).copy()
        context.decode([7], [len(TOKENS)], [0], logits=True)
        return np.concatenate([first, context.logits(1)])
    finally:
        context.close()
        model.close()


@needs_avx2
@pytest.mark.parametrize("quant", ["q4_0", "q4_k_m", "iq4_nl"])
def test_rearranged_weights_give_the_same_logits(folder: Path, monkeypatch: pytest.MonkeyPatch, quant: str) -> None:
    path = folder / f"{quant}.gguf"
    if repacking._find_buffer_type() is None:
        pytest.skip("this build of llama.cpp has no such kernels")
    assert repacked_weights(path) is not None
    found = logits(path)
    monkeypatch.setattr(llama, "repacked_weights", lambda path: None)
    expected = logits(path)
    # Both round activations to 8 bits, in other orders.
    np.testing.assert_allclose(found, expected, atol=0.02 * float(np.abs(expected).max()))


@needs_avx2
def test_only_what_has_such_kernels_is_rearranged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repacked_weights(folder / "q8_0.gguf") is None
    assert repacked_weights(folder / "f16.gguf") is None
    assert repacked_weights(folder / "missing.gguf") is None
    types = {tensor.name: tensor.type for tensor in read_header(folder / "q4_k_m.gguf").tensors}
    suitable = repacking._suitable(folder / "q4_k_m.gguf")
    assert {types[name] for name in suitable} == {12}
    assert "token_embd.weight" not in suitable
    # 405 + 5 tokens are no multiple of eight rows.
    assert "output.weight" not in suitable
    monkeypatch.setattr(repacking, "cpu_flags", set)
    assert repacked_weights(folder / "q4_0.gguf") is None


def test_a_build_without_them_is_used_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repacking, "_find_buffer_type", lambda: None)
    assert repacked_weights(folder / "q4_0.gguf") is None
    monkeypatch.undo()
    monkeypatch.setattr(repacking, "_BUFFER", b"NONE")
    assert repacking._find_buffer_type() is None
    monkeypatch.undo()
    monkeypatch.setattr(repacking.llama_cpp, "__file__", "/nowhere/llama_cpp.py")
    assert repacking._find_buffer_type() is None
