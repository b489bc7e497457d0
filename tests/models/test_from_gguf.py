"""GGUF files as base models: weights, architecture and tokens as in llama.cpp, and no folder of damaged files."""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gguf_files import lora, rewritten
from tiny_models import build_model

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("gguf", reason="needs the gguf extra")

import gguf
import numpy as np
import torch
from quick import few
from safetensors.torch import load_file

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export.gguf import write_gguf
from securecoderl_edge.export.manifest import hash_sources
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.families import FAMILIES, Family
from securecoderl_edge.models.files import base_folder, sha256_of_folder
from securecoderl_edge.models.gguf import folder as gguf_folder
from securecoderl_edge.models.gguf.config import config_of
from securecoderl_edge.models.gguf.dequantize import dequantize
from securecoderl_edge.models.gguf.folder import folder_of_gguf, gguf_source, gguf_weights
from securecoderl_edge.models.gguf.header import read_header
from securecoderl_edge.models.gguf.layout import arranged, restored, tensor_names
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.tokenizer import read_tokenizer, special_tokens
from securecoderl_edge.models.weights import read_tensors

LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64, "rope_theta": 10000.0,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 100000.0}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {},
    "linear, untied, grouped": {
        "num_key_value_heads": 2, "tie_word_embeddings": False, "rope_parameters": LINEAR, "rms_norm_eps": 1e-5
    },
    "llama3": {"rope_parameters": LLAMA3},
    "head size": {"head_dim": 32, "num_key_value_heads": 2},
    "qwen2": {"family": "qwen2", "num_key_value_heads": 2},
}  # fmt: skip
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of a user of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "securecoderl-edge" / "gguf"


@pytest.fixture
def float_file(tiny_model: Path, tmp_path: Path) -> Path:
    write_gguf(tiny_model, None, "f32", tmp_path / "m.gguf", "tiny")
    return tmp_path / "m.gguf"


def written(path: Path, kind: str) -> dict[str, torch.Tensor]:
    """What the gguf package makes of a file, with the rows of q and k put back one by one."""
    found = {}
    shape = read_architecture(folder_of_gguf(path))
    for tensor in gguf.GGUFReader(path).tensors:
        values = torch.from_numpy(np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type)))
        heads = {"attn_q": shape.heads, "attn_k": shape.key_value_heads}.get(tensor.name.split(".")[-2], 0)
        if heads and shape.family == "llama":
            half = shape.head_size // 2
            order = [
                head * shape.head_size + 2 * (row % half) + row // half
                for head in range(heads)
                for row in range(shape.head_size)
            ]
            values = values[order]
        found[tensor.name] = values.to({"F16": torch.float16, "BF16": torch.bfloat16}.get(kind, torch.float32))
        if values.ndim == 1:
            found[tensor.name] = values
    return found


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_each_weight_is_what_gguf_dequantizes_bit_for_bit(float_file: Path, tmp_path: Path, kind: str) -> None:
    path = rewritten(float_file, tmp_path / "q.gguf", kind)
    folder = folder_of_gguf(path)
    names = {name: target for name, [(target, _)] in tensor_names(read_architecture(folder)).items()}
    stored, expected = dict(read_tensors(folder)), written(path, kind)
    assert {names[name] for name in stored} == {*expected}
    for name, tensor in stored.items():
        assert tensor.dtype == expected[names[name]].dtype
        assert torch.equal(tensor, expected[names[name]]), name
    source = gguf_source(folder)
    assert source is not None
    assert source["tensor_types"] == ({"f32": 20} if kind == "F32" else {"f32": 5, kind.lower(): 15})


@pytest.mark.parametrize("quant", few(["q4_k_m", "q5_k_m", "q6_k", "q3_k_m", "iq4_xs"], "q4_k_m", "iq4_xs"))
def test_k_quants_that_llama_cpp_makes_are_dequantized_bit_for_bit(tmp_path: Path, quant: str) -> None:
    from securecoderl_edge.export.quantize import quantize

    base = build_model(tmp_path / "base", initializer_range=0.1, **WIDE)
    write_gguf(base, None, "f32", tmp_path / "m.gguf", "m")
    path = tmp_path / "q.gguf"
    quantize(tmp_path / "m.gguf", path, quant)
    folder = folder_of_gguf(path)
    stored, expected = dict(read_tensors(folder)), written(path, "F32")
    for name, [(target, _)] in tensor_names(read_architecture(folder)).items():
        assert torch.equal(stored[name], expected[target]), name


@pytest.mark.parametrize("shape", SHAPES.values(), ids=[*SHAPES])
def test_a_model_comes_back_from_its_float_file_as_it_was(tmp_path: Path, shape: dict[str, Any]) -> None:
    base = build_model(tmp_path / "base", **shape)
    write_gguf(base, None, "f32", tmp_path / "m.gguf", "m")
    folder = base_folder(str(tmp_path / "m.gguf"))
    assert read_architecture(folder) == read_architecture(base)
    before, after = load_file(base / "model.safetensors"), dict(read_tensors(folder))
    assert {*before} == {*after}
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert special_tokens(folder) == special_tokens(base)
    text = (Path(__file__)).read_text()
    assert read_tokenizer(folder).encode_prompt(text) == read_tokenizer(base).encode_prompt(text)


def test_rows_are_restored_to_where_they_were_arranged_from(tiny_model: Path) -> None:
    shape = read_architecture(tiny_model)
    for name, sizes in shape.tensors().items():
        weight = torch.randn(sizes)
        assert torch.equal(restored(name, arranged(name, weight, shape), shape), weight)
    weight = torch.randn(shape.query_size, shape.hidden)
    assert not torch.equal(arranged("q_proj.weight", weight, shape), weight)


def test_the_folder_and_llama_cpp_agree_on_the_quantized_file(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs the gguf extra")
    from securecoderl_edge.export.reference import write_reference
    from securecoderl_edge.export.verify import PROMPTS, probe_texts
    from securecoderl_edge.export.verify_worker import measure

    base = build_model(tmp_path / "base", initializer_range=0.1, **WIDE)
    write_gguf(base, None, "f32", tmp_path / "m.gguf", "m")
    for kind in ("Q8_0", "Q4_1"):
        path = rewritten(tmp_path / "m.gguf", tmp_path / f"{kind}.gguf", kind)
        folder, reference = folder_of_gguf(path), tmp_path / kind
        reference.mkdir()
        write_reference(folder, None, PROMPTS[:8], 8, reference)
        found = measure(path, folder, probe_texts(folder), reference)
        assert found.tokenised_equal == found.texts
        assert found.mean_kl < 0.01  # llama.cpp rounds activations, too
        # A float file written from the folder has no such rounding.
        write_gguf(folder, None, "f32", tmp_path / "again.gguf", "m")
        exact = measure(tmp_path / "again.gguf", folder, [], reference)
        assert exact.max_abs_difference < 1e-3
        # The float model that was quantized is another one.
        other = measure(tmp_path / "m.gguf", folder, [], reference)
        assert other.mean_kl > 5 * exact.mean_kl


def test_a_folder_is_made_once_and_again_when_it_is_gone(
    float_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of_gguf(float_file)
    assert folder.parent == cache
    digest = sha256_of_folder(folder)
    with monkeypatch.context() as patch:
        patch.setattr(gguf_folder, "_convert", lambda *arguments: pytest.fail("it was converted again"))
        assert folder_of_gguf(float_file) == folder
        copy = float_file.with_name("copy.gguf")
        shutil.copyfile(float_file, copy)
        assert folder_of_gguf(copy) == folder  # its content decides, not its name
    shutil.rmtree(cache)
    assert sha256_of_folder(folder_of_gguf(float_file)) == digest
    (folder / "model.safetensors.sha256").unlink()  # as earlier versions wrote it, with all weights
    (folder / "model.safetensors").write_bytes(b"large")
    assert sha256_of_folder(folder_of_gguf(float_file)) == digest
    assert not (folder / "model.safetensors").exists()
    monkeypatch.setattr(gguf_folder, "_VERSION", 0)
    assert sha256_of_folder(folder_of_gguf(float_file)) != digest


def test_a_folder_reads_the_file_that_was_named_last_if_the_other_is_gone(float_file: Path, tmp_path: Path) -> None:
    folder = folder_of_gguf(float_file)
    before = dict(read_tensors(folder))
    moved = float_file.rename(tmp_path / "moved.gguf")
    with pytest.raises(SceError, match=r"m\.gguf: the GGUF file of this model is missing"):
        list(read_tensors(folder))
    assert folder_of_gguf(moved) == folder
    after = dict(read_tensors(folder))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_llm_int8_is_refused_with_the_way_out(float_file: Path) -> None:
    """bitsandbytes loads through transformers, which cannot read the folder."""
    with pytest.raises(SceError, match=r"sce export FILE\.gguf --format hf"):
        load_base(folder_of_gguf(float_file), "int8-bnb")


def test_another_file_at_the_place_of_the_original_is_refused(float_file: Path, tmp_path: Path) -> None:
    folder = folder_of_gguf(float_file)
    rewritten(float_file, tmp_path / "x.gguf", general__name="another").replace(float_file)
    with pytest.raises(SceError, match="was changed"):
        list(read_tensors(folder))


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0"])
def test_a_folder_is_identified_as_by_earlier_versions_which_wrote_its_weights(
    float_file: Path, tmp_path: Path, kind: str
) -> None:
    """Their runs are resumed, and their manifests hold."""
    folder = folder_of_gguf(rewritten(float_file, tmp_path / "q.gguf", kind))
    types = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    index: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in read_tensors(folder):
        content = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        place = [len(data), len(data) + len(content)]
        index[name] = {"dtype": types[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        data += content
    text = json.dumps(index).encode()
    text += b" " * (-len(text) % 8)
    earlier = tmp_path / "earlier"
    shutil.copytree(folder, earlier, ignore=shutil.ignore_patterns("model.*"))
    (earlier / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    assert len(load_file(earlier / "model.safetensors")) == 20
    assert sha256_of_folder(earlier) == sha256_of_folder(folder)
    assert hash_sources(earlier, None) == hash_sources(folder, None)


@pytest.mark.parametrize("kind", [each for each in gguf.GGMLQuantizationType if each.name not in ("Q8_1", "Q8_K")])
def test_the_functions_of_ggml_give_the_bits_of_gguf(kind: gguf.GGMLQuantizationType) -> None:
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    stored = np.random.default_rng(1).integers(0, 256, (7, 5 * block_bytes), dtype=np.uint8)
    try:
        with np.errstate(all="ignore"):  # random scales overflow
            expected = gguf.quants.dequantize(stored, kind)
            found = dequantize(stored, kind)
    except NotImplementedError:
        pytest.skip("gguf has no function")
    assert found.shape == expected.shape
    assert np.array_equal(found, expected, equal_nan=True)


def test_without_llama_cpp_the_numbers_are_those_of_gguf(float_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = sha256_of_folder(folder_of_gguf(float_file))
    monkeypatch.setattr("securecoderl_edge.models.gguf.dequantize._function", lambda name: None)
    shutil.rmtree(folder_of_gguf(float_file))
    assert sha256_of_folder(folder_of_gguf(float_file)) == digest


def test_processes_that_convert_at_once_all_get_the_whole_folder(float_file: Path, cache: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        digests = pool.map(_digest, [float_file] * 2)
    assert len({*digests}) == 1
    assert [path.name for path in cache.iterdir()] == [folder_of_gguf(float_file).name]


def test_a_whole_folder_is_never_replaced(float_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert = gguf_folder._convert

    def convert_too_late(path: Path, folder: Path, digest: str) -> None:
        convert(path, folder, digest)
        shutil.copytree(folder, cache / digest)
        (cache / digest / "of-another-process").touch()

    monkeypatch.setattr(gguf_folder, "_convert", convert_too_late)
    folder = folder_of_gguf(float_file)
    assert (folder / "of-another-process").is_file()
    assert [*cache.iterdir()] == [folder]


def _digest(path: Path) -> str:
    return sha256_of_folder(folder_of_gguf(path))


def test_a_conversion_holds_one_tensor_at_a_time(tmp_path: Path) -> None:
    base = build_model(tmp_path / "base", num_hidden_layers=12, **WIDE)
    write_gguf(base, None, "q8_0", tmp_path / "m.gguf", "m")
    tracemalloc.start()
    try:
        folder = folder_of_gguf(tmp_path / "m.gguf")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    stored = gguf_weights(folder)
    assert stored is not None
    assert peak < sum(weight.bytes for weight in stored.weights) / 4
    assert sum(path.stat().st_size for path in folder.iterdir() if not path.is_symlink()) < 50_000


def retyped(path: Path, kind: int) -> Path:
    """Give the last tensor another type."""
    content = bytearray(path.read_bytes())
    tensor = read_header(path).tensors[-1]
    place = content.index(tensor.name.encode() + struct.pack("<I", len(tensor.sizes)))
    struct.pack_into("<I", content, place + len(tensor.name) + 4 + 8 * len(tensor.sizes), kind)
    path.write_bytes(content)
    return path


def cut(path: Path, count: int) -> Path:
    path.write_bytes(path.read_bytes()[:-count])
    return path


def with_nan(path: Path) -> Path:
    content = bytearray(path.read_bytes())
    struct.pack_into("<f", content, read_header(path).tensors[0].start, float("nan"))
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda path: cut(path, 100), "ends before the end of tensor"),
        (lambda path: cut(path, path.stat().st_size - 200), "not a GGUF file, or damaged"),
        (lambda path: path.write_bytes(b"no model"), "not a GGUF file"),
        (lambda path: retyped(path, 77), "unknown type 77"),
        (lambda path: retyped(path, 9), "unknown type 9"),  # Q8_1 is never in files
        (lambda path: retyped(path, 12), "damaged at tensor"),  # a K-quant of rows that are too short
        (with_nan, "has NaN or Inf"),
        (lambda path: {"general__architecture": "mamba"}, "architecture 'mamba' is not supported"),
        (lambda path: {"general__type": "mmproj"}, "not a model but of type 'mmproj'"),
        (lambda path: {"split__count": 3}, "one of 3 parts"),
        (lambda path: {"tokenizer__ggml__pre": "elvish"}, "unknown pre-tokenizer 'elvish'"),
        (lambda path: {"tokenizer__ggml__pre": None}, "unknown pre-tokenizer None"),
        (lambda path: {"tokenizer__ggml__model": "t5"}, "tokenizer of the kind 't5'"),
        (lambda path: {"tokenizer__ggml__tokens": ["a", "b"]}, "2 tokens, but 405 embeddings"),
        (lambda path: {"tokenizer__ggml__tokens": ["a"] * 405}, "names a token twice"),
        (lambda path: {"tokenizer__ggml__merges": ["unknown parts"]}, "tokenizer is damaged"),
        (lambda path: {"tokenizer__ggml__merges": ["one"]}, "merges is damaged"),
        (lambda path: {"tokenizer__ggml__eos_token_id": None}, "no start or end token"),
        (lambda path: {"llama__block_count": 2**31}, "fewer tensors than layers"),
        (lambda path: {"llama__block_count": 1}, r"unknown tensor blk\.1"),
        (lambda path: {"llama__feed_forward_length": 32}, "expected shape"),
        (lambda path: {"llama__embedding_length": None}, "hidden_size"),
        (lambda path: {"llama__rope__scaling__type": "yarn"}, "RoPE scaling 'yarn'"),
        (lambda path: {"llama__rope__dimension_count": 8}, "rope.dimension_count = 8"),
        (lambda path: {"llama__attention__sliding_window": 8}, "attention.sliding_window is not supported"),
        (lambda path: {"llama__rope__freq_base": float("nan")}, "freq_base is nan"),
        (lambda path: {"llama__attention__head_count_kv": 99}, "num_key_value_heads = 99"),
        (lambda path: {"llama__context_length": 2**31}, "max_position_embeddings"),
        (lambda path: {"tokenizer__ggml__tokens": ["a" * 2000, *map(str, range(404))]}, "list of tokens is damaged"),
        (lora, "not a model but of type 'adapter'"),
    ],
)
def test_a_file_that_is_no_base_is_one_sentence_and_leaves_nothing(
    float_file: Path, cache: Path, damage: Callable[[Path], Any], named: str
) -> None:
    changes = damage(float_file)
    path = rewritten(float_file, float_file.with_name("x.gguf"), **changes) if isinstance(changes, dict) else float_file
    with pytest.raises(SceError, match=named) as caught:
        folder_of_gguf(path)
    assert str(path) in str(caught.value)
    assert not cache.exists() or [*cache.iterdir()] == []


@pytest.mark.parametrize("value", ["two", float("nan"), [2]])
def test_metadata_of_a_wrong_type_are_damage(float_file: Path, value: Any) -> None:
    header = read_header(float_file, with_lists=True)
    for key in ("block_count", "context_length", "feed_forward_length"):
        with pytest.raises(UsageError):
            config_of(replace(header, values={**header.values, f"llama.{key}": value}), [], float_file)


def test_random_damage_is_converted_or_refused(float_file: Path, cache: Path) -> None:
    whole, rng = float_file.read_bytes(), random.Random(5)
    path, refused = float_file.with_name("x.gguf"), 0
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(rng.choice((1, 4, 30))):
            content[rng.randrange(14_000)] = rng.randrange(256)
        path.write_bytes(content)
        try:
            folder_of_gguf(path)
        except SceError:
            refused += 1
    assert refused > 10
    assert all((folder / "config.json").is_file() for folder in cache.iterdir())


def test_a_cache_that_cannot_be_written_is_named_with_the_way_out(
    float_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SceError, match=r"cannot write .*Set XDG_CACHE_HOME"):
        folder_of_gguf(float_file)


def sentencepiece() -> tuple[list[str], list[int], list[float]]:
    """A small vocabulary as SentencePiece writes it: bytes, then pieces in the order of their merges."""
    pieces = [
        "▁▁",
        "▁▁▁▁",
        "re",
        "ret",
        "urn",
        "return",
        "▁return",
        "▁x",
        "in",
        "▁in",
        "aa",
        "aaa",
        "▁d",
        "▁de",
        "▁def",
    ]
    letters = sorted(
        {letter for piece in pieces for letter in piece} | set("urn(x):\"'%{}#,0123456789[].+-*>=_abfisty\n\t")
    )
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *letters]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(pieces) + len(letters))]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(pieces))] + [-1000.0] * len(letters)
    return tokens, types, scores


@pytest.mark.parametrize("adds_space", [True, False])
def test_sentencepiece_scores_become_merges_that_join_as_in_llama_cpp(
    float_file: Path, tmp_path: Path, adds_space: bool
) -> None:
    pytest.importorskip("llama_cpp", reason="needs the gguf extra")
    from securecoderl_edge.runtimes.gguf.llama import LlamaModel

    tokens, types, scores = sentencepiece()
    left = range(len(tokens), 405)
    padded = (
        [*tokens, *(f"[PAD{index}]" for index in left)],
        [*types, *(5 for _ in left)],
        [*scores, *(0.0 for _ in left)],
    )
    path = rewritten(
        float_file, tmp_path / "x.gguf", tokenizer__ggml__model="llama", tokenizer__ggml__pre="default",
        tokenizer__ggml__tokens=padded[0], tokenizer__ggml__token_type=padded[1], tokenizer__ggml__scores=padded[2],
        tokenizer__ggml__merges=None,
        tokenizer__ggml__bos_token_id=1, tokenizer__ggml__eos_token_id=2, tokenizer__ggml__padding_token_id=None,
        tokenizer__ggml__add_bos_token=None, tokenizer__ggml__add_space_prefix=adds_space,
    )  # fmt: skip
    tokenizer, model = read_tokenizer(folder_of_gguf(path)), LlamaModel(path)
    texts = ["def f(x):\n    return x", "aaaa é 世", " in  in return", "a</s>aa", "\ta\n\n", Path(__file__).read_text()]
    try:
        for text in texts:
            assert tokenizer.encode_prompt(text) == model.tokenize(text), text
    finally:
        model.close()


def test_all_ends_that_llama_cpp_stops_at_are_in_the_config(tiny_model: Path, tmp_path: Path, float_file: Path) -> None:
    header = read_header(float_file, with_lists=True)
    tokens, types = (list(header.lists[f"tokenizer.ggml.{name}"]) for name in ("tokens", "token_type"))
    tokens[400], types[400] = "<|im_end|>", 3
    path = rewritten(
        float_file, tmp_path / "x.gguf", tokenizer__ggml__tokens=tokens, tokenizer__ggml__token_type=types,
        tokenizer__ggml__eot_token_id=401, tokenizer__ggml__bos_token_id=399, tokenizer__ggml__add_bos_token=True,
        tokenizer__chat_template="{{ messages }}",
    )  # fmt: skip
    folder = folder_of_gguf(path)
    for name in ("config.json", "generation_config.json"):
        assert json.loads((folder / name).read_text())["eos_token_id"] == [1, 400, 401]
    assert (folder / "chat_template.jinja").read_text() == "{{ messages }}"
    assert read_tokenizer(folder).encode_prompt("a")[0] == 399


def test_a_row_of_families_is_enough_for_a_file_without_keys_of_its_own(
    float_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, "NewForCausalLM", Family("new"))
    header = read_header(float_file)
    values = {key.replace("llama.", "new.", 1): value for key, value in header.values.items()}
    config = config_of(replace(header, values=values | {"general.architecture": "new"}), [], float_file)
    assert (config["architectures"], config["model_type"]) == (["NewForCausalLM"], "new")


def test_an_unknown_name_lists_what_a_base_can_be() -> None:
    with pytest.raises(UsageError, match="a GGUF file, a folder"):
        base_folder("missing.gguf")
