"""A GGUF file with a LoRA adapter beside it: run as one model, or refused before llama.cpp sees it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

import gguf
import numpy as np
from once import Once
from tiny_models import build_adapter, build_model

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export.gguf import write_adapter, write_gguf
from securecoderl_edge.export.verify import PROMPTS
from securecoderl_edge.runtimes.gguf.adapter import check_adapter
from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime
from securecoderl_edge.runtimes.protocol import Completion, Sampling
from securecoderl_edge.runtimes.spec import resolve_model
from securecoderl_edge.system.files import sha256_of

GREEDY = Sampling(temperature=0.0, max_tokens=16)


@pytest.fixture(scope="module")
def made(tiny_model: Path, tiny_adapter: Path, tiny_qwen: Path, once: Once) -> Path:
    """Files of llama.cpp's: base and lora of `tiny_gguf`, and those that do not fit it."""

    def make(folder: Path) -> None:
        folder.mkdir()
        write_gguf(tiny_model, None, "f32", folder / "base.gguf", "base")
        write_gguf(tiny_qwen, None, "f32", folder / "qwen.gguf", "qwen")
        write_adapter(tiny_model, tiny_adapter, "f32", folder / "lora.gguf", "lora", "paper")
        for name, sizes in {"wide": {"intermediate_size": 192}, "deep": {"num_hidden_layers": 3}}.items():
            other = build_model(folder / name, **sizes)
            write_adapter(other, build_adapter(folder / f"{name}-lora", other), "f32", folder / f"{name}.gguf", name)

    return once("pairs", make)


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in made.glob("*.gguf"):
        shutil.copyfile(file, tmp_path / file.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def completions(model: str, prompts: list[str] = PROMPTS[:6]) -> list[list[Completion]]:
    with closing(open_runtime(resolve_model(model), RuntimeSettings("cpu", threads=1))) as runtime:
        assert runtime.name == Path(model).name
        return runtime.generate(prompts, 2, GREEDY)


def texts(rows: list[list[Completion]]) -> list[str]:
    return [completion.text for row in rows for completion in row]


def test_a_base_with_its_adapter_answers_as_the_merged_file_does(folder: Path, tiny_gguf: Path) -> None:
    merged, applied, bare = map(completions, (str(tiny_gguf), "base.gguf+lora.gguf", "base.gguf"))
    assert texts(applied) == texts(merged)
    assert texts(applied) != texts(bare)
    for left, right in zip(applied, merged, strict=True):
        assert left[0].logprobs == pytest.approx(right[0].logprobs, abs=1e-3)


def test_every_context_that_is_opened_has_the_adapter(folder: Path) -> None:
    with closing(open_runtime(resolve_model("base.gguf+lora.gguf"), RuntimeSettings("cpu", threads=1))) as runtime:
        first = texts(runtime.generate(PROMPTS[:1], 1, GREEDY))
        runtime.generate(PROMPTS[:8], 3, Sampling(max_tokens=300))  # more sequences, which are longer
        assert texts(runtime.generate(PROMPTS[:1], 1, GREEDY)) == first


def test_a_pair_is_one_model_with_the_facts_of_both_files(folder: Path) -> None:
    spec, base = resolve_model("base.gguf+lora.gguf"), resolve_model("base.gguf")
    assert (spec.label, spec.source, spec.adapter) == ("base+lora", "base.gguf", Path("lora.gguf"))
    assert spec.file_bytes() == sum(Path(name).stat().st_size for name in ("base.gguf", "lora.gguf"))
    assert spec.prompt_style == "paper"
    before = spec.content_hash()
    assert before != base.content_hash()
    Path("lora.gguf").write_bytes(Path("deep.gguf").read_bytes())
    assert spec.content_hash() != before


def test_names_with_a_plus_are_files_first(folder: Path) -> None:
    (folder / "c++").mkdir()
    shutil.copyfile("base.gguf", "c++/a+b.gguf")
    shutil.copyfile("lora.gguf", "c++/l+m.gguf")
    assert resolve_model("c++/a+b.gguf").adapter is None
    spec = resolve_model("c++/a+b.gguf+c++/l+m.gguf")
    assert (spec.source, spec.adapter) == ("c++/a+b.gguf", Path("c++/l+m.gguf"))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("lora.gguf", r"^lora\.gguf: a LoRA adapter, not a model; name its base, too: BASE\.gguf\+lora\.gguf"),
        ("lora.gguf+lora.gguf", "^lora.gguf: a LoRA adapter, not a model"),
        ("missing.gguf+lora.gguf", "^unknown model 'missing.gguf'"),
        ("base.gguf+missing.gguf", "^missing.gguf: no such adapter file"),
        ("base.gguf+lora.gguf+lora.gguf", "an adapter needs one GGUF file as its base"),
        ("nano+lora.gguf", "an adapter needs one GGUF file as its base"),
        ("+lora.gguf", "^unknown model ''"),
        ("base.gguf+.gguf", "^.gguf: no such adapter file"),
    ],
)
def test_a_pair_that_is_none_is_one_sentence(folder: Path, model: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_model(model)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("base.gguf+qwen.gguf", "^qwen.gguf: not a LoRA adapter"),
        ("qwen.gguf+lora.gguf", "^lora.gguf: an adapter of another base than qwen.gguf .architecture llama, not qwen2"),
        ("base.gguf+wide.gguf", r"^wide.gguf: an adapter of another base .*the sizes of blk\.\d\.ffn_\w+\.weight"),
        ("base.gguf+deep.gguf", r"^deep.gguf: an adapter of another base .*blk\.2\.\S+ has no counterpart"),
    ],
)
def test_an_adapter_of_another_base_is_refused_before_llama_cpp_gets_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, model: str, message: str
) -> None:
    monkeypatch.setattr("securecoderl_edge.runtimes.gguf.runtime._Child", None)
    with pytest.raises(UsageError, match=message):
        open_runtime(resolve_model(model))


def write_lora(path: Path, factors: dict[str, tuple[int, ...]], values: Callable[[Any], None] = lambda w: None) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string("adapter.type", "lora")
    values(writer)
    for name, shape in factors.items():
        writer.add_tensor(name, np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


QUERY = "blk.0.attn_q.weight"
GOOD = {f"{QUERY}.lora_a": (4, 64), f"{QUERY}.lora_b": (64, 4)}


def with_alpha(writer: Any) -> None:
    writer.add_float32("adapter.lora.alpha", 8.0)


@pytest.mark.parametrize(
    ("factors", "values", "message"),
    [
        (GOOD, with_alpha, None),
        ({}, with_alpha, "it has no tensors"),
        ({f"{QUERY}.lora_a": (4, 64)}, with_alpha, "no counterpart"),
        ({f"{QUERY}.lora_a": (4, 64), f"{QUERY}.lora_b": (64, 5)}, with_alpha, "sizes of"),
        ({f"{QUERY}.lora_a": (4, 32), f"{QUERY}.lora_b": (64, 4)}, with_alpha, "sizes of"),
        ({f"{QUERY}.lora_a": (4, 64), f"{QUERY}.lora_b": (2, 64, 4)}, with_alpha, "sizes of"),
        (GOOD | {"blk.0.attn_norm.weight": (64,)}, with_alpha, "no counterpart"),
        ({"token_embd.weight.lora_a": (4, 405), "token_embd.weight.lora_b": (64, 4)}, with_alpha, "does not apply"),
        (GOOD, lambda writer: writer.add_string("adapter.lora.alpha", "8"), "does not apply"),
        (GOOD, lambda writer: None, "does not apply"),
        (
            GOOD,
            lambda writer: (with_alpha(writer), writer.add_array("adapter.alora.invocation_tokens", [1, 2])),
            "does not apply",
        ),
    ],
)
def test_the_factors_of_an_adapter_are_checked_against_the_base(
    made: Path, tmp_path: Path, factors: dict[str, tuple[int, ...]], values: Callable[[Any], None], message: str | None
) -> None:
    lora = write_lora(tmp_path / "lora.gguf", factors, values)
    if message is None:
        check_adapter(made / "base.gguf", lora)
        return
    with pytest.raises(UsageError, match=message):
        check_adapter(made / "base.gguf", lora)


def test_a_damaged_adapter_is_an_error_of_one_sentence(folder: Path) -> None:
    whole = Path("lora.gguf").read_bytes()
    Path("lora.gguf").write_bytes(whole[:300])
    with pytest.raises(SceError, match=r"lora\.gguf: not a GGUF file, or damaged"):
        open_runtime(resolve_model("base.gguf+lora.gguf"))
    Path("lora.gguf").write_bytes(whole[:-100])
    with pytest.raises(SceError, match=r"lora\.gguf: llama.cpp cannot apply this adapter .*corrupted or incomplete"):
        open_runtime(resolve_model("base.gguf+lora.gguf"))


def describe(file: str, sources: dict[str, str]) -> None:
    manifest = {"sha256": sha256_of(Path(file)), "sources": sources}
    Path(f"{file}.manifest.json").write_text(json.dumps(manifest))


def test_the_base_is_the_one_of_the_adapter_s_manifest(folder: Path) -> None:
    model = resolve_model("base.gguf+lora.gguf")
    describe(
        "lora.gguf", {"base/model.safetensors": "1", "base/tokenizer.json": "2", "adapter/adapter_config.json": "3"}
    )
    open_runtime(model).close()  # a base without a manifest may come from anywhere
    describe("base.gguf", {"base/model.safetensors": "1", "base/tokenizer.json": "9"})
    open_runtime(model).close()
    describe("base.gguf", {"base/model.safetensors": "4"})
    with pytest.raises(UsageError, match=r"^lora\.gguf: an adapter of another base than base\.gguf .by their"):
        open_runtime(model)
    describe("base.gguf", {"base/model.safetensors": "1", "adapter/adapter_config.json": "3"})
    with pytest.raises(UsageError, match=r"^base\.gguf: an adapter is merged into this file"):
        open_runtime(model)


def test_an_adapter_of_another_file_of_the_same_sizes_is_refused(
    folder: Path, tiny_model: Path, tiny_adapter: Path
) -> None:
    digest = sha256_of(Path("base.gguf"))
    write_adapter(tiny_model, tiny_adapter, "f32", Path("lora.gguf"), "lora", base_sha256=digest)
    open_runtime(resolve_model("base.gguf+lora.gguf")).close()
    content = bytearray(Path("base.gguf").read_bytes())
    content[-1] ^= 1
    Path("base.gguf").write_bytes(content)
    with pytest.raises(UsageError, match=r"^lora\.gguf: an adapter of another file \(SHA-256 .*, not of base\.gguf"):
        open_runtime(resolve_model("base.gguf+lora.gguf"))


def test_an_adapter_that_has_changed_since_its_export_is_refused(folder: Path) -> None:
    describe("lora.gguf", {"base/model.safetensors": "1"})
    content = bytearray(Path("lora.gguf").read_bytes())
    content[-1] ^= 1
    Path("lora.gguf").write_bytes(content)
    with pytest.raises(SceError, match=r"lora\.gguf has changed since its export"):
        open_runtime(resolve_model("base.gguf+lora.gguf"))
