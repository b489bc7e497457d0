"""ONNX in standard operators: the same model in two runtimes, however rows are padded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("onnx", reason="needs the onnx extra")
pytest.importorskip("onnxruntime", reason="needs the onnx extra")

from onnx_sources import MODELS, Source, Sources, change_shape, leave_the_adapter_out, without
from tiny_families import WINDOW

from securecoderl_edge.cli import sce
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export import onnx as onnx_export
from securecoderl_edge.export.agreement import check_bounds
from securecoderl_edge.export.merge import merged_tensors
from securecoderl_edge.export.run import recheck
from securecoderl_edge.runtimes.onnx.model import OnnxModel, joined
from securecoderl_edge.runtimes.onnx.names import MODEL
from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.runtimes.spec import resolve_model

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [12], [20, 21, 22]]
LONGER = [list(range(5, 5 + 2 * WINDOW)), [12], list(range(20, 20 + WINDOW))]


def write(source: Source, folder: Path, quant: str = "f32") -> Path:
    return source.write(folder, quant, portable=True)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("quant", ["f32", "f16"])
def test_logits_agree_with_transformers(sources: Sources, tmp_path: Path, name: str, quant: str) -> None:
    source = sources(name)
    check_bounds(source.measure(write(source, tmp_path / "m", quant)), quant)


@pytest.mark.parametrize("name", ["linear", "olmo2", "gemma3"])
@pytest.mark.parametrize("quant", ["f32", "f16"])
def test_a_graph_is_valid_and_has_standard_operators_alone(
    sources: Sources, tmp_path: Path, name: str, quant: str
) -> None:
    import onnx

    source = sources(name) if name in MODELS else sources.family(name)
    path = write(source, tmp_path / "m", quant) / MODEL
    onnx.checker.check_model(str(path), full_check=True)
    graph = onnx.load(path, load_external_data=False)
    assert {node.domain for node in graph.graph.node} == {""}
    assert [(each.domain, each.version) for each in graph.opset_import] == [("", 23)]


def test_in_float16_norms_and_softmax_are_float32(sources: Sources, tmp_path: Path) -> None:
    import onnx

    graph = onnx.load(write(sources("qwen2"), tmp_path / "m", "f16") / MODEL, load_external_data=False).graph
    settings = {"RMSNormalization": "stash_type", "Attention": "softmax_precision"}
    found = [
        onnx.helper.get_node_attr_value(node, settings[node.op_type]) for node in graph.node if node.op_type in settings
    ]
    assert len(found) == 2 * 3 + 1
    assert set(found) == {onnx.TensorProto.FLOAT}


@pytest.mark.parametrize(
    ("name", "prompts"), [("linear", PROMPTS), ("qwen2", PROMPTS), ("mistral", LONGER), ("gemma3", LONGER)]
)
def test_another_runtime_finds_the_same_logits_with_padding_on_either_side(
    sources: Sources, tmp_path: Path, name: str, prompts: list[list[int]]
) -> None:
    from onnx.reference import ReferenceEvaluator

    source = sources(name) if name in MODELS else sources.family(name)
    folder = write(source, tmp_path / "m")
    model = OnnxModel(folder, 1)
    evaluator = ReferenceEvaluator(str(folder / MODEL))
    names = [each.name for each in evaluator.proto_.graph.output]
    width = max(map(len, prompts))
    for side in ("left", "right"):
        tokens = np.zeros((len(prompts), width), np.int64)
        mask = np.zeros_like(tokens)
        for row, prompt in enumerate(prompts):
            places = slice(width - len(prompt), None) if side == "left" else slice(0, len(prompt))
            tokens[row, places], mask[row, places] = prompt, 1
        feeds = dict(zip(model._past, model.empty_cache(len(prompts)), strict=True))
        found = dict(
            zip(names, evaluator.run(None, {"input_ids": tokens, "attention_mask": mask, **feeds}), strict=True)
        )
        # One more token, on what was kept of the others.
        past = {name.replace("present", "past_key_values"): value for name, value in found.items() if name != "logits"}
        after = evaluator.run(
            ["logits"],
            {
                "input_ids": np.full((len(prompts), 1), 30, np.int64),
                "attention_mask": np.concatenate([mask, np.ones((len(prompts), 1), np.int64)], 1),
                **past,
            },
        )[0]
        for row, prompt in enumerate(prompts):
            expected = model.open_sequences(1, 60).prefill([[*prompt, 30]])[0]
            logits = found["logits"][row][mask[row] == 1]
            np.testing.assert_allclose(logits, expected[:-1], atol=2e-4)
            np.testing.assert_allclose(after[row, -1], expected[-1], atol=2e-4)


@pytest.mark.parametrize("quant", ["f32", "f16"])
def test_rows_of_a_batch_are_those_of_single_runs(sources: Sources, tmp_path: Path, quant: str) -> None:
    model = OnnxModel(write(sources("linear"), tmp_path / "m", quant), 1)
    tolerance = 1e-4 if quant == "f32" else 0.05
    batch = model.open_sequences(len(PROMPTS), 12)
    together = batch.prefill(PROMPTS)
    chosen = batch.choose([2, 0, 0])
    steps = [batch.step([30, 31, 32]), batch.step([33, 34, 35])]
    again = chosen.step([40, 41, 42])
    for row, prompt in enumerate(PROMPTS):
        alone = model.open_sequences(1, 12)
        np.testing.assert_allclose(together[row], alone.prefill([prompt])[0], atol=tolerance)
        for number, step in enumerate(steps):
            np.testing.assert_allclose(step[row], alone.step([30 + row + 3 * number])[0], atol=tolerance)
    for place, (row, token) in enumerate([(2, 40), (0, 41), (0, 42)]):
        alone = model.open_sequences(1, 12)
        alone.prefill([PROMPTS[row]])
        np.testing.assert_allclose(again[place], alone.step([token])[0], atol=tolerance)


@pytest.mark.parametrize("name", ["linear", "gemma3"])
@pytest.mark.parametrize("is_portable", [True, False])
def test_rows_of_several_batches_join_one_again_and_again(
    sources: Sources, tmp_path: Path, name: str, is_portable: bool
) -> None:
    source = sources(name) if name in MODELS else sources.family(name)
    model = OnnxModel(source.write(tmp_path / "m", "f32", portable=is_portable), 1)
    alone = [model.open_sequences(1, 120) for _ in LONGER]
    texts = [list(prompt) for prompt in LONGER]
    first, second = model.open_sequences(2, 120), model.open_sequences(1, 80)
    first.prefill(LONGER[:2])
    second.prefill(LONGER[2:])
    for single, prompt in zip(alone, LONGER, strict=True):
        single.prefill([prompt])
    places, owners = [(first, 1), (second, 0), (first, 0)], [1, 2, 0]
    for turn in range(12):
        batch = joined(model, places, 120)
        assert batch.lengths.tolist() == [len(texts[owner]) for owner in owners]
        tokens = [30 + turn + owner for owner in owners]
        steps = [batch.step(tokens), batch.step([token + 1 for token in tokens])]
        for row, owner in enumerate(owners):
            for number, step in enumerate(steps):
                texts[owner].append(tokens[row] + number)
                np.testing.assert_allclose(step[row], alone[owner].step([tokens[row] + number])[0], atol=2e-4)
        places = [(batch, row) for row in (2, 0, 1)]
        owners = [owners[row] for row in (2, 0, 1)]


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("linear", change_shape(rope_factor=1.0)),
        ("llama3", change_shape(rope_divisors=())),
        ("qwen2", without("bias")),
        ("linear", leave_the_adapter_out),
    ],
)
def test_a_planted_conversion_error_is_caught(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, plant: Any
) -> None:
    source = sources(name)
    plant(monkeypatch)
    with pytest.raises(SceError, match="does not agree"):
        check_bounds(source.measure(write(source, tmp_path / "m")), "f32")


def test_weights_beyond_float16_are_refused(sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def enlarged(base: Path, adapter: Path | None) -> Any:
        for name, tensor in merged_tensors(base, adapter):
            yield name, tensor * 1e7 if name.endswith("down_proj.weight") else tensor

    monkeypatch.setattr(onnx_export, "merged_tensors", enlarged)
    with pytest.raises(SceError, match=r"down_proj.* exceeds the range of float16"):
        write(sources("linear"), tmp_path / "m", "f16")


def test_the_command_writes_verifies_and_checks_again(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = sources("qwen2")
    result = CliRunner().invoke(sce, ["export", str(source.base), "--format", "onnx", "--portable"])
    assert result.exit_code == 0, result.output
    folder = tmp_path / f"{source.base.name}-onnx-portable-f32"
    assert "standard ONNX, opset 23" in (folder / "README.md").read_text()
    found = recheck(folder, source.base, None)
    assert found.agreement is not None
    assert dataclasses.astuple(found.agreement)[1] > 0
    asked = ["Add two numbers.", "def f(x):"]
    answers = []
    for model in (str(folder), str(source.base)):
        runtime = open_runtime(resolve_model(model), RuntimeSettings("cpu", threads=1))
        answers.append([each[0].text for each in runtime.generate(asked, 1, Sampling(0.0, 16))])
        runtime.close()
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--format", "onnx", "--portable", "--quant", "int8"),
            "--portable does not support --quant int8; choose from f32, f16",
        ),
        (("--portable",), "--portable needs --format onnx"),
        (("--format", "onnx", "--quant", "f16"), "does not support --quant f16; choose from f32, int8, int4"),
    ],
)
def test_a_type_that_there_is_not_is_refused(arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(sce, ["export", "nano", *arguments])
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)
