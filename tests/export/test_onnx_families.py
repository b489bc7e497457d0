"""ONNX graphs of every family, in onnxruntime's operators and in standard ones: equal logits, steps, greedy text."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("onnx", reason="needs the onnx extra")
pytest.importorskip("onnxruntime", reason="needs the onnx extra")

from exports import export_onnx
from onnx_sources import Sources, change_shape
from quick import few
from tiny_families import FAMILIES, VARIED, WINDOW

from securecoderl_edge.errors import SceError
from securecoderl_edge.export import onnx as onnx_export
from securecoderl_edge.export.agreement import check_bounds
from securecoderl_edge.export.onnx import BITS, PORTABLE_TYPES
from securecoderl_edge.export.reference import read_reference
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.families import SILU
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.runtimes.onnx.model import OnnxModel
from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.runtimes.spec import resolve_model

EVERY_TYPE = [*((quant, False) for quant in BITS), *((quant, True) for quant in PORTABLE_TYPES)]
families = pytest.mark.parametrize("name", few(FAMILIES, *VARIED))
either_graph = pytest.mark.parametrize("portable", [False, True], ids=["onnx", "portable"])


@either_graph
@families
def test_logits_and_greedy_text_equal_transformers(sources: Sources, name: str, portable: bool) -> None:
    found = sources.family(name).measure(sources.exported(name, "f32", portable))
    check_bounds(found, "f32")
    assert found.max_abs_difference < 1e-3
    assert found.greedy_equal == found.prompts == 3


@either_graph
@families
def test_steps_give_what_whole_texts_give(sources: Sources, name: str, portable: bool) -> None:
    """Some prompts, and what follows others, are longer than a window; rows change place half-way."""
    model = OnnxModel(sources.exported(name, "f32", portable), 1)
    rng = np.random.default_rng(3)
    texts = [rng.integers(2, 400, size).tolist() for size in (4 * WINDOW, 2 * WINDOW + 3, 3 * WINDOW - 1)]
    steps = 2 * WINDOW
    batch = model.open_sequences(3, 4 * WINDOW)
    found = [[logits] for logits in batch.prefill([text[:-steps] for text in texts])]
    for step in range(steps):
        if step == WINDOW:
            batch, texts, found = batch.choose([2, 0, 1]), [texts[row] for row in (2, 0, 1)], [*found[2:], *found[:2]]
        logits = batch.step([text[step - steps] for text in texts])
        for row, one in zip(found, logits, strict=True):
            row.append(one[None])
    for text, row in zip(texts, found, strict=True):
        whole = model.open_sequences(1, len(text)).prefill([text])[0]
        np.testing.assert_allclose(np.concatenate(row), whole, atol=2e-4)


@either_graph
@families
def test_the_runtime_writes_the_greedy_text_of_transformers(sources: Sources, name: str, portable: bool) -> None:
    source = sources.family(name)
    decode = read_tokenizer(source.base).backend.decode
    runtime = open_runtime(
        resolve_model(str(sources.exported(name, "f32", portable))), RuntimeSettings("cpu", threads=1)
    )
    traces = list(read_reference(source.reference))
    prompts = [decode(trace.tokens[: trace.prompt_length], skip_special_tokens=False) for trace in traces]
    answers = runtime.generate(prompts, 1, Sampling(0.0, 24))
    for trace, (answer,) in zip(traces, answers, strict=True):
        assert answer.prompt_tokens == trace.prompt_length
        own = list(answer.token_ids)
        assert own
        assert trace.tokens[trace.prompt_length :][: len(own)] == own
        assert len(own) == 24 or answer.finish == "stop"


@pytest.mark.parametrize(("quant", "portable"), EVERY_TYPE[1:3] + EVERY_TYPE[4:])
@families
def test_smaller_types_stay_within_their_bounds(
    sources: Sources, tmp_path: Path, name: str, quant: str, portable: bool
) -> None:
    source = sources.family(name)
    check_bounds(source.measure(source.write(tmp_path / "m", quant, portable)), quant)


@pytest.mark.parametrize(
    ("quant", "portable"),
    [
        pytest.param(*each, marks=[pytest.mark.slow] * (each not in (("int4", False), ("f32", True))))
        for each in EVERY_TYPE
    ],
)
def test_heads_of_256_numbers_as_gemma_has_agree(sources: Sources, tmp_path: Path, quant: str, portable: bool) -> None:
    source = sources.family("gemma3-wide")
    check_bounds(source.measure(source.write(tmp_path / "m", quant, portable)), quant)


def of_kind(**changes: Any) -> Any:
    """Plants a change of what the family computes."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        read = onnx_export.read_architecture

        def changed(base: Path) -> Any:
            shape = read(base)
            return dataclasses.replace(shape, kind=dataclasses.replace(shape.kind, **changes))

        monkeypatch.setattr(onnx_export, "read_architecture", changed)

    return plant


WRONG: dict[str, tuple[str, Any]] = {
    "a window that is one token too long": ("mistral", change_shape(windows=(WINDOW + 1,) * 5)),
    "a window that is one token too short": ("mistral", change_shape(windows=(WINDOW - 1,) * 5)),
    "rotary embedding in all layers": ("smollm3", change_shape(rotated=(True,) * 5)),
    "one base of rotary embeddings": ("gemma3", change_shape(local_rope_theta=None)),
    "no offset of norms": ("gemma3", of_kind(norm_offset=0.0)),
    "another activation": ("gemma3", of_kind(activation=SILU)),
    "the usual factor of the scores": ("gemma3", change_shape(attention_scale=32**-0.5)),
    "no factor of the embedding": ("granite", change_shape(embedding_scale=1.0)),
    "no factor of the residual stream": ("granite4", change_shape(residual_scale=1.0)),
    "no factor of the logits": ("granite", change_shape(logit_scale=1.0)),
    "norms of projections as norms of nothing": ("olmo2", of_kind(query_key_norm="")),
}


@either_graph
@pytest.mark.parametrize("fact", WRONG)
def test_a_fact_that_is_left_out_is_caught(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fact: str, portable: bool
) -> None:
    name, plant = WRONG[fact]
    source = sources.family(name)
    plant(monkeypatch)
    with pytest.raises(SceError, match=r"does not agree|unknown weight"):
        check_bounds(source.measure(source.write(tmp_path / "m", "f32", portable)), "f32")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_an_export_passes_its_verification(sources: Sources, tmp_path: Path, name: str) -> None:
    source, out = sources.family(name), tmp_path / "m"
    export_onnx(source.base, source.adapter, "int8", out)
    assert (out / "manifest.json").is_file()


def test_a_model_without_rotary_embedding_has_no_table_of_one(sources: Sources) -> None:
    import onnx

    def tables(name: str) -> set[str]:
        path = sources.exported(name, "f32", portable=False) / "model.onnx"
        names = {each.name for each in onnx.load(path, load_external_data=False).graph.initializer}
        return {name for name in names if name.startswith(("cosines", "sines"))}

    assert tables("granite4-nope") == set()
    assert tables("smollm3") == {"cosines", "sines"}
    assert tables("gemma3") == {"cosines", "sines", "cosines.local", "sines.local"}
    assert read_architecture(sources.family("granite4-nope").base).rotated == (False,) * 5
