"""ONNX folders: exported to equal logits, wrong ones caught, batches of any lengths, and the runtime on top."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import build_model

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("onnx", reason="needs the onnx extra")
pytest.importorskip("onnxruntime", reason="needs the onnx extra")

from exports import export_onnx
from onnx_sources import MODELS, Sources, change_shape, leave_the_adapter_out, without

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export import run as export_run
from securecoderl_edge.export.agreement import Agreement, check_bounds
from securecoderl_edge.export.onnx import BITS, write_onnx
from securecoderl_edge.export.onnx_weights import quantize_blocks
from securecoderl_edge.export.recheck import recheck
from securecoderl_edge.runtimes.manifests import manifest_path
from securecoderl_edge.runtimes.onnx.model import OnnxModel
from securecoderl_edge.system.files import sha256_of


@pytest.mark.parametrize("name", list(MODELS))
def test_logits_and_greedy_text_equal_transformers(sources: Sources, tmp_path: Path, name: str) -> None:
    source = sources(name)
    found = source.measure(source.write(tmp_path / "m"))
    check_bounds(found, "f32")
    assert found.max_abs_difference < 1e-3
    assert found.greedy_equal == found.prompts == 20


@pytest.mark.parametrize("quant", ["int8", "int4"])
@pytest.mark.parametrize("name", ["linear", "qwen2", "odd rows", "own head size"])
def test_smaller_types_stay_within_their_bounds(sources: Sources, tmp_path: Path, name: str, quant: str) -> None:
    source = sources(name)
    check_bounds(source.measure(source.write(tmp_path / "m", quant)), quant)


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("linear", change_shape(rope_factor=1.0)),
        ("linear", change_shape(rope_theta=10000.0)),
        ("llama3", change_shape(rope_divisors=())),
        ("qwen2", without("bias")),
        ("linear", leave_the_adapter_out),
    ],
)
@pytest.mark.parametrize("quant", ["f32", "int8"])
def test_a_planted_conversion_error_is_caught(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, plant: Any, quant: str
) -> None:
    source = sources(name)
    plant(monkeypatch)
    with pytest.raises(SceError, match="does not agree"):
        check_bounds(source.measure(source.write(tmp_path / "m", quant)), quant)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("columns", [32, 64, 100, 33])
def test_blocks_are_rounded_as_a_slow_loop_rounds_them(bits: int, columns: int) -> None:
    rng = np.random.default_rng(columns)
    weight = rng.normal(size=(5, columns)).astype(np.float32)
    weight[2, :32] = 0
    codes, scales = quantize_blocks(weight, bits)
    assert codes.shape == (5, -(-columns // 32), 32 * bits // 8)
    zero = 1 << (bits - 1)
    for row in range(5):
        for column in range(columns):
            block, place = divmod(column, 32)
            if bits == 8:
                code = int(codes[row, block, place])
            else:
                byte = int(codes[row, block, place // 2])
                code = byte >> 4 if place % 2 else byte & 15
            restored = (code - zero) * float(scales[row, block])
            step = abs(float(scales[row, block]))
            # The side of the zero point that is one code shorter cuts off half a step more.
            assert abs(restored - float(weight[row, column])) <= step * 1.001


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_number_furthest_from_zero_is_met_exactly(bits: int, sign: int) -> None:
    weight = np.random.default_rng(bits).uniform(-1, 1, (3, 32)).astype(np.float32)
    weight[:, 7] = 2.5 * sign
    codes, scales = quantize_blocks(weight, bits)
    code = codes[:, 0, 7] if bits == 8 else codes[:, 0, 3] >> 4
    np.testing.assert_array_equal((code.astype(np.int32) - (1 << (bits - 1))) * scales[:, 0], weight[:, 7])


def test_embedding_and_output_layer_have_eight_bits_where_the_others_have_four(
    sources: Sources, tmp_path: Path
) -> None:
    import onnx

    graph = onnx.load(sources("linear").write(tmp_path / "m", "int4") / "model.onnx", load_external_data=False).graph
    bits = {
        node.input[1]: onnx.helper.get_node_attr_value(node, "bits")
        for node in graph.node
        if node.op_type == "MatMulNBits"
    }
    assert bits.pop("head.q") == 8
    assert set(bits.values()) == {4}
    embedding = next(node for node in graph.node if node.op_type == "GatherBlockQuantized")
    assert onnx.helper.get_node_attr_value(embedding, "bits") == 8


def test_an_export_is_verified_described_and_checked_again(sources: Sources, tmp_path: Path) -> None:
    source, out = sources("linear"), tmp_path / "m-onnx-int8"
    export_onnx(source.base, source.adapter, "int8", out, force=False, prompt_style="paper")
    record = json.loads(manifest_path(out).read_text())
    assert set(record["files"]) == {path.name for path in out.iterdir()} - {"manifest.json"}
    assert (record["quant"], record["prompt_style"]) == ("int8", "paper")
    assert 8 < record["bits_per_weight"] < 10
    assert [path.name for path in tmp_path.iterdir()] == ["m-onnx-int8"]
    assert recheck(out, None, None).agreement is None
    found = recheck(out, source.base, source.adapter).agreement
    assert found is not None
    assert found.top1 > 0.75
    assert export_onnx(source.base, source.adapter, "int8", out, force=False, prompt_style="paper").reused
    with pytest.raises(UsageError, match="--force"):
        export_onnx(source.base, source.adapter, "int4", out, force=False, prompt_style="paper")
    content = bytearray((out / "model.onnx.data").read_bytes())
    content[len(content) // 2] ^= 1
    (out / "model.onnx.data").write_bytes(content)
    with pytest.raises(SceError, match=r"model\.onnx\.data has changed since its export"):
        recheck(out, None, None)
    export_onnx(source.base, source.adapter, "int8", out, force=True)
    recheck(out, None, None)
    (out / "more.txt").write_text("x")
    with pytest.raises(SceError, match=r"more\.txt"):
        recheck(out, None, None)


@pytest.mark.parametrize(
    "change",
    [
        {"quant": "int4"},
        {"portable": True},
        {"portable": []},
        {"bytes": 3},
        {"files": {}},
        {"files": {"model.onnx": "0", "model.onnx.data": "0", "../x": "0"}},
        {"files": {"model.onnx": "0", "model.onnx.data": "0", "\ud800": "0"}},
    ],
)
def test_a_manifest_that_says_something_else_is_found_out(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    monkeypatch.setattr(export_run, "verify", lambda *arguments: Agreement(1, 1, 1, 1, 0.0, 0.0, 1.0, 1))
    out = tmp_path / "m"
    export_onnx(sources("tied").base, None, "int8", out, force=False)
    recheck(out, None, None)
    path = manifest_path(out)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(SceError, match=r"m: (quant|portable|bytes) is |not (an export|the) manifest of"):
        recheck(out, None, None)


def test_a_graph_that_no_export_wrote_is_a_sentence(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    monkeypatch.setattr(export_run, "verify", lambda *arguments: Agreement(1, 1, 1, 1, 0.0, 0.0, 1.0, 1))
    out = tmp_path / "m"
    export_onnx(sources("tied").base, None, "int8", out, force=False)
    graph, path = (out / "model.onnx").read_bytes(), manifest_path(out)

    def check(change: Callable[[Any], None]) -> str:
        model = onnx.load_from_string(graph)
        change(model.graph)
        (out / "model.onnx").write_bytes(model.SerializeToString())
        record = json.loads(path.read_text())
        record["files"]["model.onnx"] = sha256_of(out / "model.onnx")
        record["bytes"] = sum((out / name).stat().st_size for name in ("model.onnx", "model.onnx.data"))
        path.write_text(json.dumps(record))
        with pytest.raises(SceError) as refused:
            recheck(out, None, None)
        return str(refused.value)

    def linear(graph: Any) -> Any:
        return next(node for node in graph.node if node.op_type == "MatMulNBits")

    def without_bits(graph: Any) -> None:
        node = linear(graph)
        kept = [each for each in node.attribute if each.name != "bits"]
        del node.attribute[:]
        node.attribute.extend(kept)

    def with_text_for_bits(graph: Any) -> None:
        without_bits(graph)
        linear(graph).attribute.append(onnx.helper.make_attribute("bits", "eight"))

    def from_elsewhere(graph: Any) -> None:
        place = next(each for each in graph.initializer[0].external_data if each.key == "location")
        place.value = "../m/model.onnx.data"

    assert "not an ONNX graph of sce export" in check(without_bits)
    assert "not an ONNX graph of sce export" in check(with_text_for_bits)
    assert "reads weights from files other than" in check(from_elsewhere)


def test_a_folder_that_is_none_of_ours_is_not_replaced(sources: Sources, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="is not an ONNX folder"):
        export_onnx(sources("tied").base, None, "int8", tmp_path / "mine", force=True)
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


def test_an_export_that_does_not_agree_leaves_nothing(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_shape(rope_theta=10000.0)(monkeypatch)
    with pytest.raises(SceError, match="does not agree with the original"):
        export_onnx(sources("linear").base, None, "f32", tmp_path / "m", force=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["model.onnx", "model.onnx.data"])
@pytest.mark.parametrize("damage", ["missing", "cut", "garbage"])
def test_damaged_files_are_a_sentence(sources: Sources, tmp_path: Path, file: str, damage: str) -> None:
    path = sources("tied").write(tmp_path / "m") / file
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "garbage" and file == "model.onnx":
        path.write_bytes(b"\x07" * 1000)
    elif damage == "garbage":
        path.write_bytes(b"")
    with pytest.raises(SceError, match="onnxruntime cannot load it"):
        OnnxModel(tmp_path / "m")


@pytest.mark.parametrize("size", [12, 24])
def test_a_model_that_onnxruntime_cannot_attend_for_is_refused(tmp_path: Path, size: int) -> None:
    base = build_model(tmp_path / "base", head_dim=size)
    with pytest.raises(UsageError, match=f"head size of {size}, only multiples of 16; use --portable"):
        write_onnx(base, None, "f32", tmp_path)
    write_onnx(base, None, "f32", tmp_path, portable=True)
    assert OnnxModel(tmp_path, 1).open_sequences(1, 4).prefill([[5, 6, 7]])[0].shape[0] == 3


def test_the_types_are_those_that_the_command_offers() -> None:
    assert list(BITS) == ["f32", "int8", "int4"]


# The runtime
