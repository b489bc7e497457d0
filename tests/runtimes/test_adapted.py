"""A model with the adapter that `--adapter` names: found, put on its base, and refused on another one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf", reason="needs the gguf extra")

from cli_runs import run_sce
from gguf_files import lora

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from securecoderl_edge.models.catalog import ORIGINS
from securecoderl_edge.models.files import POLICY_ADAPTERS, sha256_of_folder
from securecoderl_edge.models.stored import mark_as_published, stored_path
from securecoderl_edge.runs import Run
from securecoderl_edge.runtimes.adapted import resolve_adapted
from securecoderl_edge.runtimes.bases import check_base, note_on_base, trained_on
from securecoderl_edge.runtimes.opening import RuntimeSettings, check_runtime
from securecoderl_edge.runtimes.spec import resolve_model
from securecoderl_edge.system.files import sha256_of

CODER = "qwen-0.5b-coder"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with a GGUF file, an adapter for such files and one in PEFT's format."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    make_gguf("base.gguf")
    lora(Path("lora.gguf"), securecoderl_edge__prompt_style="paper")
    make_folder(Path("peft"))


def make_gguf(path: str | Path, content: bytes = b"") -> Path:
    """A model without tensors."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16) + content)
    return Path(path)


def make_folder(folder: Path, base: str = "nano") -> None:
    folder.mkdir(parents=True)
    (folder / ADAPTER_WEIGHTS).write_bytes(b"weights")
    (folder / ADAPTER_CONFIG).write_text(json.dumps({"base_model_name_or_path": base}))


def make_folder_model(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"name": folder.name}))


def make_run(name: str = "mine", **record: Any) -> Run:
    """A finished run of two phases, on ``nano`` by default."""
    run = Run(Path("runs") / name)
    for number, phase in enumerate(("sft", "binary"), 1):
        make_folder(run.path / "phases" / f"{number}-{phase}" / "adapter")
    make_folder(run.policy)
    (run.path / "environment.json").write_text(json.dumps({"base_model": "nano", **record}))
    return run


def describe(file: str, sources: dict[str, str]) -> None:
    Path(f"{file}.manifest.json").write_text(json.dumps({"sha256": sha256_of(Path(file)), "sources": sources}))


@pytest.mark.parametrize("words", [("generate", "x"), ("bench",), ("serve",), ("serve", "--reward")])
def test_each_command_reads_it_before_anything_else(words: tuple[str, ...]) -> None:
    if "serve" in words:
        pytest.importorskip("uvicorn", reason="needs the serve extra")
    code, out, told = run_sce(*words, "--adapter", "lorra.gguf")
    assert (code, out) == (2, "")
    assert "--adapter lorra.gguf: no such run, file or folder. Did you mean lora.gguf?" in " ".join(told.split())


@pytest.mark.parametrize(
    ("model", "adapter", "message"),
    [
        ("base.gguf", "text", "^--adapter text: not a GGUF file with a LoRA adapter"),
        ("base.gguf", "base.gguf", "^--adapter base.gguf: not a GGUF file with a LoRA adapter"),
        ("base.gguf", "cut.gguf", "^--adapter cut.gguf: not a GGUF file with a LoRA adapter"),
        ("base.gguf", "empty", "^--adapter empty: not a folder of an adapter .adapter_model.safetensors is missing"),
        ("base.gguf", "onnx", "^--adapter onnx: not a folder of an adapter"),
        ("base.gguf", "lorra.gguf", r"^--adapter lorra.gguf: no such run, file or folder\. Did you mean lora.gguf\?$"),
        ("base.gguf", "mone", r"^--adapter mone: no such run, file or folder\. Did you mean mine\?$"),
        ("base.gguf", "far/away/x", "^--adapter far/away/x: no such run, file or folder. Write one with: sce export"),
        ("base.gguf", "", "^--adapter : no such run"),
        ("base.gguf", "owner/name", "^--adapter owner/name: no such run"),
        ("base.gguf", "nano", "^--adapter nano: no such run"),
        ("base.gguf", "x" * 5000, "no such run"),
        ("base.gguf", "mine:rft", "unknown phase 'rft'; choose from sft, binary"),
        ("base.gguf", "mine:base", "unknown phase 'base'"),
        ("base.gguf", "mine", "^--adapter mine: a GGUF file needs it as a file. Write it: sce export mine --format ad"),
        ("base.gguf", "peft", "^--adapter peft: a GGUF file needs it as a file. Write one, and name it: sce export pe"),
        ("nano", "lora.gguf", "^lora.gguf needs a GGUF file as its base, and nano is not one"),
        ("nano", CODER, f"{CODER}.gguf needs a GGUF file as its base, and nano is not one"),
        ("onnx", "lora.gguf", "^onnx: an ONNX model takes no adapter"),
        ("onnx", "peft", "^onnx: an ONNX model takes no adapter"),
        ("mine", "peft", r"^mine has an adapter already, runs/mine/policy\. Give its base, or leave out --adapter"),
        ("base.gguf+lora.gguf", "lora.gguf", r"^base\+lora has an adapter already, lora.gguf\."),
        (CODER, "lora.gguf", f"^{CODER} has an adapter already, "),
        (CODER, CODER, f"^{CODER} has an adapter already, "),
        ("lora.gguf", "lora.gguf", "^lora.gguf: a LoRA adapter, not a model"),
        ("gone.gguf", "lora.gguf", "^unknown model 'gone.gguf'"),
    ],
)
def test_an_adapter_that_is_none_or_has_no_place_is_a_sentence(model: str, adapter: str, message: str) -> None:
    Path("text").write_text("text")
    Path("cut.gguf").write_bytes(Path("lora.gguf").read_bytes()[:40])
    for name in ("empty", "onnx"):
        Path(name).mkdir()
    Path("onnx/model.onnx").touch()
    make_run()
    os.truncate(make_gguf(stored_path("qwen-0.5b")), ORIGINS["qwen-0.5b"].bytes)
    mark_as_published(stored_path("qwen-0.5b"), ORIGINS["qwen-0.5b"])
    with pytest.raises(UsageError, match=message):
        resolve_adapted(model, adapter)


def test_a_run_that_has_not_finished_says_how_to_resume_it() -> None:
    shutil.rmtree(make_run().policy)
    with pytest.raises(UsageError, match="runs/mine: training has not finished; resume it with"):
        resolve_adapted("base.gguf", "mine")


def test_a_file_on_a_gguf_file_is_the_pair_of_both() -> None:
    assert resolve_adapted("base.gguf", "lora.gguf") == resolve_model("base.gguf+lora.gguf")
    assert resolve_adapted("base.gguf", None) == resolve_model("base.gguf")


def test_a_run_brings_its_newest_export_to_a_gguf_file_and_a_phase_its_own() -> None:
    run = make_run()
    for age, name in ((0, "mine-lora-f16"), (100, "mine-lora-f32"), (0, "mine-sft-lora-f16")):
        file = run.exports / f"{name}.gguf"
        file.parent.mkdir(exist_ok=True)
        os.utime(lora(file), (1_000_000 - age, 1_000_000 - age))
    make_gguf(run.exports / "mine-q8_0.gguf")  # a whole model
    adapters = [resolve_adapted("base.gguf", name).adapter for name in ("mine", "mine:policy", "runs/mine/policy")]
    assert adapters == [run.exports / "mine-lora-f16.gguf"] * 3
    assert resolve_adapted("base.gguf", "mine:sft").adapter == run.exports / "mine-sft-lora-f16.gguf"
    with pytest.raises(UsageError, match="sce export mine:binary --format adapter"):
        resolve_adapted("base.gguf", "mine:binary")


def test_an_adapter_of_a_run_is_computed_on_its_base_in_torch() -> None:
    run = make_run()
    spec = resolve_adapted("nano", "mine:sft")
    assert (spec.label, spec.kind, spec.source) == ("nano+mine:sft", "hf", "nano")
    assert spec.adapter == run.path / "phases/1-sft/adapter"
    assert (spec.run(), spec.prompt_style) == (run, "stdin")
    assert resolve_adapted("nano", "peft").adapter == Path("peft")


def test_the_base_of_a_run_is_known_by_its_sum_under_any_name() -> None:
    for name in ("one", "two"):
        make_folder_model(Path(name))
    shutil.copytree("one", "copy")
    make_run(base_model="/elsewhere/one", base_sha256=sha256_of_folder(Path("one")))
    assert [resolve_adapted(name, "mine").source for name in ("one", "copy")] == ["one", "copy"]
    with pytest.raises(UsageError, match=r"^runs/mine/policy: an adapter of /elsewhere/one, not of two"):
        resolve_adapted("two", "mine")


def test_weights_that_were_replaced_are_another_base() -> None:
    make_folder_model(Path("one"))
    make_run(base_model=str(Path("one").resolve()), base_sha256="1" * 64)
    with pytest.raises(UsageError, match="not of one as it is now"):
        resolve_adapted("one", "mine")


def test_a_run_without_a_record_of_its_base_is_noted_on_another_one() -> None:
    make_folder_model(Path("one"))
    make_run(base_model="/elsewhere/two")
    assert note_on_base(resolve_adapted("one", "mine")) is not None


def test_without_a_model_the_base_is_the_one_that_the_adapter_names() -> None:
    make_run()
    assert resolve_adapted(None, "mine") == resolve_model("mine")
    assert resolve_adapted(None, "peft") == resolve_model("peft")
    with pytest.raises(UsageError, match=r"^lora.gguf needs a GGUF file as its base, and nano is not one"):
        resolve_adapted(None, "lora.gguf")
    lora(Path("known.gguf"), securecoderl_edge__base_sha256=ORIGINS["qwen-0.5b"].sha256)
    for adapter in ("known.gguf", CODER):
        with pytest.raises(SceError, match=r"^qwen-0.5b is not on this machine yet; get it with: sce models pull"):
            resolve_adapted(None, adapter)
    os.truncate(make_gguf(stored_path("qwen-0.5b")), ORIGINS["qwen-0.5b"].bytes)
    mark_as_published(stored_path("qwen-0.5b"), ORIGINS["qwen-0.5b"])
    assert resolve_adapted(None, "known.gguf").source == str(stored_path("qwen-0.5b"))
    assert resolve_adapted(None, CODER).adapter == POLICY_ADAPTERS[CODER]


def test_the_base_of_an_adapter_is_in_its_header_or_in_the_record_of_its_run() -> None:
    digest = sha256_of(Path("base.gguf"))
    assert trained_on(Path("lora.gguf")) is None
    assert trained_on(lora(Path("named.gguf"), securecoderl_edge__base_sha256=digest)) == digest
    run = make_run(base_model=str(Path("base.gguf").resolve()), base_gguf_sha256=digest)
    shutil.copytree("peft", run.exports)
    assert trained_on(lora(run.exports / "x.gguf")) == digest
    # A folder that was once made from the file can have been trained further.
    assert trained_on(lora(make_run("folder", base_model="merged", base_gguf_sha256=digest).policy / "x.gguf")) is None
    (run.path / "environment.json").write_text("{")
    assert trained_on(run.exports / "x.gguf") is None


def test_another_base_is_refused_and_both_are_named() -> None:
    digest, other = sha256_of(Path("base.gguf")), make_gguf("other.gguf", b"x")
    check_base(Path("base.gguf"), lora(Path("named.gguf"), securecoderl_edge__base_sha256=digest))
    message = rf"^named.gguf: an adapter of another file \(SHA-256 {digest[:16]}\), not of other.gguf \(SHA-256 "
    with pytest.raises(UsageError, match=f"{message}{sha256_of(other)[:16]}"):
        check_base(other, Path("named.gguf"))
    with pytest.raises(UsageError, match=r"an adapter of qwen-0.5b \(.* not of base.gguf .* sce models pull qwen-0.5b"):
        check_base(Path("base.gguf"), POLICY_ADAPTERS[CODER])
    check_base(other, Path("lora.gguf"))  # of an unknown base
    with pytest.raises(SceError, match=r"gone.gguf: No such file"):
        check_base(Path("gone.gguf"), Path("named.gguf"))


def test_the_same_weights_in_another_type_are_the_same_base() -> None:
    lora(Path("named.gguf"), securecoderl_edge__base_sha256=sha256_of(Path("base.gguf")))
    again = make_gguf("again.gguf", b"x")
    describe("named.gguf", {"base/model.safetensors": "1"})
    describe("again.gguf", {"base/model.safetensors": "1"})
    check_base(again, Path("named.gguf"))
    describe("again.gguf", {"base/model.safetensors": "2"})
    with pytest.raises(UsageError, match=r"an adapter of another base than again.gguf \(by their manifests\)"):
        check_base(again, Path("named.gguf"))
    # The base of the training may itself be an export, of weights that the adapter's manifest does not know.
    describe("base.gguf", {"base/model.safetensors": "0", "adapter/adapter_model.safetensors": "0"})
    check_base(Path("base.gguf"), Path("named.gguf"))
    describe("again.gguf", {"base/model.safetensors": "1", "adapter/adapter_model.safetensors": "0"})
    for adapter in ("named.gguf", "lora.gguf"):
        with pytest.raises(UsageError, match=r"again.gguf: an adapter is merged into this file"):
            check_base(again, Path(adapter))


def told(model: str, adapter: str) -> list[str]:
    lines: list[str] = []
    check_runtime([resolve_adapted(model, adapter)], RuntimeSettings("cpu"), lines.append)
    return lines


def test_a_line_reports_that_a_base_is_unknown() -> None:
    unknown = "its base is unknown; only architecture and sizes are compared"
    assert told("base.gguf", "lora.gguf") == [f"lora.gguf: {unknown}"]
    lora(Path("named.gguf"), securecoderl_edge__base_sha256="1" * 64)
    assert told("base.gguf", "named.gguf") == []
    for name in ("lora.gguf", "base.gguf"):
        describe(name, {"base/model.safetensors": "1"})
    assert told("base.gguf", "lora.gguf") == []
    make_run()
    assert [told("nano", name) for name in ("mine", "mine:sft", "peft")] == [[]] * 3
    make_folder(Path("foreign"), base="owner/name")
    make_folder(Path("lost"), base="gone/far/away")
    assert [told("nano", name) for name in ("foreign", "lost")] == [
        [f"{name}: {unknown}"] for name in ("foreign", "lost")
    ]
    assert note_on_base(resolve_model("nano")) is None


def test_the_sum_of_a_file_that_changes_is_computed_again() -> None:
    lora(Path("named.gguf"), securecoderl_edge__base_sha256=sha256_of(Path("base.gguf")))
    check_base(Path("base.gguf"), Path("named.gguf"))
    make_gguf("base.gguf", b"more")
    with pytest.raises(UsageError, match=hashlib.sha256(Path("base.gguf").read_bytes()).hexdigest()[:16]):
        check_base(Path("base.gguf"), Path("named.gguf"))
