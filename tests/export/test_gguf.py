"""GGUF files that say what their source says, and those that do not and are caught."""

from __future__ import annotations

import json
import shutil
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from places import SHARED
from tiny_models import build_adapter, build_model

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from exports import export_gguf
from quick import few

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export import gguf as gguf_export
from securecoderl_edge.export import run as export_run
from securecoderl_edge.export import workbench as workbench_module
from securecoderl_edge.export.agreement import Agreement, check_bounds
from securecoderl_edge.export.gguf import write_gguf
from securecoderl_edge.export.merge import merged_tensors
from securecoderl_edge.export.onnx import write_onnx
from securecoderl_edge.export.quantize import LLAMA_CPP_TYPES
from securecoderl_edge.export.reference import write_reference
from securecoderl_edge.export.verify import PROMPTS, probe_texts
from securecoderl_edge.export.verify_worker import measure as compare_with_reference
from securecoderl_edge.export.vocabulary import read_vocabulary
from securecoderl_edge.export.workbench import Workbench
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.gguf.header import read_header

DEEPSEEK = SHARED / "deepseek-coder-tokenizer"
LINEAR_ROPE = {"rope_type": "linear", "factor": 4.0, "rope_theta": 100000.0}


def measure(
    path: Path, base: Path, adapter: Path | None, prompts: Sequence[str], texts: Sequence[str], new_tokens: int
) -> Agreement:
    """What the child processes of a verification find out, in this process."""
    asked = (base, adapter, tuple(prompts), new_tokens)
    if asked not in REFERENCES:
        REFERENCES[asked] = tempfile.TemporaryDirectory()
        write_reference(base, adapter, prompts, new_tokens, Path(REFERENCES[asked].name))
    return compare_with_reference(path, base, texts, Path(REFERENCES[asked].name))


# What sources said; no test changes a source that it has measured.
REFERENCES: dict[tuple[Path, Path | None, tuple[str, ...], int], tempfile.TemporaryDirectory[str]] = {}


@pytest.fixture(scope="module", autouse=True)
def _references_are_removed() -> Iterator[None]:
    yield
    while REFERENCES:
        REFERENCES.popitem()[1].cleanup()


def export_and_measure(base: Path, adapter: Path | None, quant: str, path: Path) -> Agreement:
    write_gguf(base, adapter, quant, path, "tiny")
    return measure(path, base, adapter, PROMPTS, probe_texts(base), 24)


@pytest.fixture(scope="module")
def linear_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untied, grouped-query attention, linear rope x4, a large theta: DeepSeek-Coder's shape but small."""
    folder = tmp_path_factory.mktemp("linear") / "model"
    return build_model(folder, num_key_value_heads=2, tie_word_embeddings=False, rope_parameters=LINEAR_ROPE)


@pytest.fixture(scope="module")
def linear_adapter(linear_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_adapter(tmp_path_factory.mktemp("linear-adapter") / "adapter", linear_model)


def test_a_tied_model_exports_to_equal_logits_and_greedy_text(tiny_model: Path, tmp_path: Path) -> None:
    agreement = export_and_measure(tiny_model, None, "f32", tmp_path / "m.gguf")
    assert agreement.max_abs_difference < 1e-3
    assert agreement.greedy_equal == agreement.prompts == 20


def test_a_tied_model_with_an_adapter_exports_to_equal_logits_and_greedy_text(
    tiny_model: Path, tiny_adapter: Path, tmp_path: Path
) -> None:
    agreement = export_and_measure(tiny_model, tiny_adapter, "f32", tmp_path / "m.gguf")
    assert agreement.max_abs_difference < 1e-3
    assert agreement.greedy_equal == 20


def test_linear_rope_grouped_queries_and_an_untied_head_export_to_equal_logits(
    linear_model: Path, linear_adapter: Path, tmp_path: Path
) -> None:
    agreement = export_and_measure(linear_model, linear_adapter, "f32", tmp_path / "m.gguf")
    check_bounds(agreement, "f32")
    assert agreement.greedy_equal == 20


@pytest.fixture(scope="module")
def llama3_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Llama 3.1's rope, with a first context so short that all three of its bands are in play; rows of 256."""
    rope = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_theta": 10000.0,
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("llama3") / "model"
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}
    return build_model(folder, rope_parameters=rope, initializer_range=0.1, **sizes)


def test_llama3_rope_exports_to_equal_logits(llama3_model: Path, tmp_path: Path) -> None:
    divisors = read_architecture(llama3_model).rope_divisors
    assert len(divisors) == 16
    assert 1.0 in divisors
    assert 8.0 in divisors
    assert len(set(divisors)) > 3
    agreement = export_and_measure(llama3_model, None, "f32", tmp_path / "m.gguf")
    check_bounds(agreement, "f32")
    assert agreement.greedy_equal == 20


def test_heads_of_a_size_of_their_own_export_to_equal_logits(tmp_path: Path) -> None:
    base = build_model(tmp_path / "base", head_dim=32, num_key_value_heads=2)  # 4 heads of 32 on a width of 64
    check_bounds(export_and_measure(base, build_adapter(tmp_path / "lora", base), "f32", tmp_path / "m.gguf"), "f32")


def test_what_the_tokenizer_says_is_in_the_header(tiny_model: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "eos_token_id": 7}))
    write_gguf(base, None, "f32", tmp_path / "m.gguf", "m")
    header = read_header(tmp_path / "m.gguf").values
    # The tokenizer's end and that of the config: an answer ends at either.
    assert (header["tokenizer.ggml.eos_token_id"], header["tokenizer.ggml.eot_token_id"]) == (1, 7)
    assert header["tokenizer.ggml.padding_token_id"] == 0
    assert header["tokenizer.ggml.add_space_prefix"] is False
    assert (header["tokenizer.ggml.add_bos_token"], header["tokenizer.ggml.add_eos_token"]) == (False, False)


def test_an_end_that_only_the_generation_config_names_is_in_the_header(tiny_model: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    config = json.loads((base / "config.json").read_text())
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 5]}))
    for named in (None, config["eos_token_id"]):
        (base / "config.json").write_text(json.dumps({**config, "eos_token_id": named}))
        write_gguf(base, None, "f32", tmp_path / f"{named}.gguf", "m")
        assert read_header(tmp_path / f"{named}.gguf").values["tokenizer.ggml.eot_token_id"] == 5


def test_llama3_rope_that_was_dropped_is_caught(
    llama3_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_shape(monkeypatch, rope_divisors=())
    agreement = export_and_measure(llama3_model, None, "f32", tmp_path / "m.gguf")
    with pytest.raises(SceError, match="does not agree"):
        check_bounds(agreement, "f32")


@pytest.fixture(scope="module")
def workbench(llama3_model: Path) -> Iterator[Workbench]:
    with Workbench(llama3_model, None) as shared:
        yield shared


@pytest.mark.parametrize("quant", few(LLAMA_CPP_TYPES, "q4_0", "q4_k_m"))
def test_every_type_that_llama_cpp_makes_is_verified_and_described(
    llama3_model: Path, tmp_path: Path, workbench: Workbench, quant: str
) -> None:
    out = tmp_path / f"m-{quant}.gguf"
    result = export_run.export_gguf(workbench, quant, out, force=False)
    manifest = result.manifest
    assert manifest.bytes == out.stat().st_size
    assert 3 < manifest.bits_per_weight < 9
    assert quant.split("_")[0] in {kind.split("_")[0] for kind in manifest.tensor_types}
    assert sum(manifest.tensor_types.values()) == len(read_architecture(llama3_model).tensors())


@pytest.mark.parametrize("quant", few(["f16", "q8_0"], "q8_0"))
def test_divisors_of_rope_are_no_weights_so_that_the_same_export_is_reused(
    llama3_model: Path, tmp_path: Path, quant: str
) -> None:
    first, second = (export_gguf(llama3_model, None, quant, tmp_path / "m.gguf", force=False) for _ in range(2))
    assert (first.reused, second.reused) == (False, True)


def test_rows_that_a_k_quant_cannot_take_fall_back_and_are_reported(tiny_model: Path, tmp_path: Path) -> None:
    manifest = export_gguf(tiny_model, None, "q4_k_m", tmp_path / "m.gguf", force=False).manifest
    assert "q4_k" not in manifest.tensor_types
    assert manifest.bits_per_weight > 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "m.gguf.manifest.json"]


@pytest.mark.parametrize("plant", ["permutation", "llama3"])
def test_an_error_of_the_conversion_is_caught_before_anything_is_quantized(
    llama3_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: str
) -> None:
    if plant == "permutation":
        break_permutation(monkeypatch)
    else:
        change_shape(monkeypatch, rope_divisors=())
    monkeypatch.setattr(workbench_module, "quantize", lambda *arguments: pytest.fail("it was quantized"))
    with pytest.raises(SceError, match="the f16 export does not agree"):
        export_gguf(llama3_model, None, "q4_k_m", tmp_path / "m.gguf", force=False)
    assert list(tmp_path.iterdir()) == []


def test_weights_that_f16_cannot_hold_are_quantized_from_f32(llama3_model: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    base = tmp_path / "base"
    shutil.copytree(llama3_model, base)
    weights = load_file(base / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"] *= 1e6  # up to about 400,000
    save_file(weights, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(SceError, match="exceeds the range of f16"):
        export_gguf(base, None, "f16", tmp_path / "m.gguf", force=False)
    assert export_gguf(base, None, "q6_k", tmp_path / "m.gguf", force=False).manifest.quant == "q6_k"


@pytest.mark.parametrize("quant", few(["f16", "bf16", "q8_0"], "q8_0"))
def test_smaller_types_stay_within_their_bounds(
    linear_model: Path, linear_adapter: Path, tmp_path: Path, quant: str
) -> None:
    check_bounds(export_and_measure(linear_model, linear_adapter, quant, tmp_path / "m.gguf"), quant)


def test_a_config_of_transformers_4_gives_the_same_file(linear_model: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(linear_model, old)
    config = json.loads((old / "config.json").read_text())
    del config["rope_parameters"]
    config |= {"rope_theta": 100000.0, "rope_scaling": {"type": "linear", "factor": 4.0}}
    (old / "config.json").write_text(json.dumps(config))
    assert read_architecture(old) == read_architecture(linear_model)


def break_permutation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securecoderl_edge.models.gguf.layout.permute_rotary", lambda weight, heads: weight)


def drop_rope_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    change_shape(monkeypatch, rope_factor=1.0)


def use_another_theta(monkeypatch: pytest.MonkeyPatch) -> None:
    change_shape(monkeypatch, rope_theta=10000.0)


def change_shape(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    import dataclasses

    monkeypatch.setattr(
        gguf_export, "read_architecture", lambda base: dataclasses.replace(read_architecture(base), **changes)
    )


def use_another_pre_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    monkeypatch.setattr(
        gguf_export,
        "read_vocabulary",
        lambda base, size, name: dataclasses.replace(read_vocabulary(base, size), pre="deepseek-coder"),
    )


def leave_the_adapter_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_export, "merged_tensors", lambda base, adapter: merged_tensors(base, None))


@pytest.mark.parametrize("quant", few(["f32", "q8_0"], "f32"))
@pytest.mark.parametrize(
    "plant",
    [
        break_permutation,
        drop_rope_scaling,
        use_another_theta,
        use_another_pre_tokenizer,
        leave_the_adapter_out,
    ],
)
def test_a_planted_conversion_error_is_caught(
    linear_model: Path,
    linear_adapter: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    quant: str,
) -> None:
    plant(monkeypatch)
    agreement = export_and_measure(linear_model, linear_adapter, quant, tmp_path / "m.gguf")
    with pytest.raises(SceError, match="does not agree"):
        check_bounds(agreement, quant)


def test_qwen2_exports_to_equal_logits_and_its_biases_are_missed(
    tiny_qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreement = export_and_measure(tiny_qwen, None, "f32", tmp_path / "m.gguf")
    check_bounds(agreement, "f32")
    assert agreement.greedy_equal == 20

    def without_biases(base: Path, adapter: Path | None) -> Any:
        for name, tensor in merged_tensors(base, adapter):
            yield name, tensor * 0 if name.endswith("bias") else tensor

    monkeypatch.setattr(gguf_export, "merged_tensors", without_biases)
    wrong = export_and_measure(tiny_qwen, None, "f32", tmp_path / "wrong.gguf")
    with pytest.raises(SceError):
        check_bounds(wrong, "f32")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}, "GPT2LMHeadModel"),
        ({"attention_bias": True}, "q_proj.bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}}, "yarn"),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "rope_parameters and rope_scaling contradict each other",
        ),
        ({"max_position_embeddings": 0}, "max_position_embeddings"),
        ({"num_hidden_layers": 1}, "unknown weight .*layers.1"),
        ({"quantization_config": {"bits": 4}}, "already quantized"),
        ({"hidden_size": "many"}, "size"),
        ({"num_hidden_layers": 3}, "model.layers.2"),
    ],
)
def test_a_model_that_export_does_not_know_is_refused_by_name(
    tiny_model: Path, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(UsageError, match=named):
        write_gguf(base, None, "f32", tmp_path / "m.gguf", "m")
    with pytest.raises(UsageError, match=named):
        write_onnx(base, None, "f32", tmp_path)


@pytest.mark.parametrize(
    ("part", "value", "named"),
    [
        ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}, "pre-tokenizer"),
        ("normalizer", {"type": "NFKC"}, "does not support the normalizer NFKC"),
    ],
)
def test_a_tokenizer_that_llama_cpp_would_not_follow_is_refused(
    tiny_model: Path, tmp_path: Path, part: str, value: dict[str, Any], named: str
) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    document = json.loads((base / "tokenizer.json").read_text())
    (base / "tokenizer.json").write_text(json.dumps({**document, part: value}))
    with pytest.raises(UsageError, match=named):
        read_vocabulary(base, 405)


def test_a_missing_tokenizer_is_named(tiny_model: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    (base / "tokenizer.json").unlink()
    with pytest.raises(SceError, match=r"no tokenizer\.json"):
        write_gguf(base, None, "f32", tmp_path / "m.gguf", "m")


def test_rows_that_do_not_fill_blocks_fall_back_to_f16_and_are_reported(tmp_path: Path) -> None:
    base = build_model(tmp_path / "base", intermediate_size=100)
    told: list[tuple[int, int]] = []
    summary = write_gguf(base, None, "q8_0", tmp_path / "m.gguf", "m", on_tensor=lambda *now: told.append(now))
    assert [done for done, _ in told] == list(range(told[0][1])), "each tensor is counted"
    assert summary.tensor_types == {"f16": 2, "f32": 5, "q8_0": 13}
    check_bounds(measure(tmp_path / "m.gguf", base, None, PROMPTS, [], 4), "q8_0")


def test_deepseek_coders_tokenizer_is_recognised_and_tokenises_equally(tmp_path: Path) -> None:
    if not DEEPSEEK.is_dir():
        pytest.skip("needs ../shared/data/deepseek-coder-tokenizer")
    base = tmp_path / "base"
    small = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    build_model(base, vocab_size=32256, num_hidden_layers=1, **small)
    for path in DEEPSEEK.iterdir():
        if path.name != "small-model-config.json":
            shutil.copyfile(path, base / path.name)
    summary = write_gguf(base, None, "f32", tmp_path / "m.gguf", "m")
    assert summary.tokenizer_pre == "deepseek-coder"
    texts = [text for text in probe_texts(base) if len(text) > 0]
    agreement = measure(tmp_path / "m.gguf", base, None, PROMPTS[:1], texts, 1)
    assert agreement.tokenised_equal == len(texts)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not DEEPSEEK.is_dir(), reason="needs ../shared/data/deepseek-coder-tokenizer")
def test_deepseek_coders_tokenizer_reads_python_s_own_library_equally(tmp_path: Path) -> None:
    from securecoderl_edge.models.tokenizer import read_tokenizer
    from securecoderl_edge.runtimes.gguf.llama import LlamaModel

    small = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    base = build_model(tmp_path / "base", vocab_size=32256, num_hidden_layers=1, **small)
    shutil.copyfile(DEEPSEEK / "tokenizer.json", base / "tokenizer.json")
    write_gguf(base, None, "f32", tmp_path / "m.gguf", "m")
    library = Path(sysconfig.get_paths()["stdlib"])
    # Of its tests, as large again, those that are about text.
    paths = [path for path in library.rglob("*.py") if not {"site-packages", "test", "tests"} & set(path.parts)]
    paths += library.glob("test/test_*unicode*.py")
    tokenizer, model = read_tokenizer(base), LlamaModel(tmp_path / "m.gguf")
    try:
        texts = {path: path.read_bytes().decode("utf-8", "replace") for path in paths}
        different = [path.name for path, text in texts.items() if model.tokenize(text) != tokenizer.encode_prompt(text)]
    finally:
        model.close()
    assert len(texts) > 300
    assert different == []
