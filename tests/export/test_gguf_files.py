"""A GGUF file gets its name when it is verified, replaces what it may, and is recognised again."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from exports import export_gguf

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export import run as export_run
from securecoderl_edge.export import verify
from securecoderl_edge.export.agreement import Agreement
from securecoderl_edge.export.run import export_merged
from securecoderl_edge.export.verify import reference_of
from securecoderl_edge.runtimes.manifests import manifest_path
from securecoderl_edge.system.files import sha256_of

GOOD = Agreement(23, 23, 20, 1000, 1e-5, 1e-9, 1.0, 20)


def test_an_export_is_verified_described_and_recognised(tiny_model: Path, tiny_adapter: Path, tmp_path: Path) -> None:
    out = tmp_path / "exports" / "tiny-q8_0.gguf"
    first = export_gguf(tiny_model, tiny_adapter, "q8_0", out, force=False)
    record = json.loads(manifest_path(out).read_text())
    assert record["sha256"] == sha256_of(out)
    assert record["bytes"] == out.stat().st_size
    assert record["tensor_types"] == {"f32": 5, "q8_0": 15}
    assert record["agreement"]["tokenised_equal"] == record["agreement"]["texts"]
    assert sorted(path.name for path in out.parent.iterdir()) == [out.name, manifest_path(out).name]
    assert not first.reused
    assert export_gguf(tiny_model, tiny_adapter, "q8_0", out, force=False).reused


def test_a_file_that_fails_its_verification_is_not_left_under_its_name(
    tiny_model: Path, tiny_adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("securecoderl_edge.models.gguf.layout.permute_rotary", lambda weight, heads: weight)
    with pytest.raises(SceError, match="top-1 agreement is"):
        export_gguf(tiny_model, tiny_adapter, "f32", tmp_path / "m.gguf", force=False)
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_replaced_only_by_force(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_run, "verify", lambda *arguments: GOOD)
    out = tmp_path / "m.gguf"
    export_gguf(tiny_model, None, "f16", out, force=False)
    before = out.read_bytes()
    with pytest.raises(UsageError, match="--force"):
        export_gguf(tiny_model, None, "f32", out, force=False)
    assert out.read_bytes() == before
    assert not export_gguf(tiny_model, None, "f32", out, force=True).reused
    assert out.stat().st_size > 1.5 * len(before)
    out.write_text("an export that something has damaged: its manifest is still there")
    assert not export_gguf(tiny_model, None, "f32", out, force=True).reused


@pytest.mark.parametrize("content", [b"mine", b"GGUF of somebody else"])
def test_a_file_that_is_no_export_is_not_replaced_even_by_force(
    tiny_model: Path, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "mine.gguf").write_bytes(content)
    with pytest.raises(UsageError, match="has no manifest of sce export"):
        export_gguf(tiny_model, None, "f32", tmp_path / "mine.gguf", force=True)
    assert (tmp_path / "mine.gguf").read_bytes() == content


def test_a_damaged_export_is_not_taken_for_the_same(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_run, "verify", lambda *arguments: GOOD)
    out = tmp_path / "m.gguf"
    export_gguf(tiny_model, None, "f32", out, force=False)
    damaged = bytearray(out.read_bytes())
    damaged[-100] ^= 1
    out.write_bytes(damaged)
    with pytest.raises(UsageError, match="is another export"):
        export_gguf(tiny_model, None, "f32", out, force=False)


def test_a_merged_folder_is_written_whole_and_replaced_only_by_force(
    tiny_model: Path, tiny_adapter: Path, tmp_path: Path
) -> None:
    out = tmp_path / "merged"
    export_merged(tiny_model, tiny_adapter, "float32", out, force=False)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in out.iterdir()}
    with pytest.raises(UsageError, match="--force"):
        export_merged(tiny_model, tiny_adapter, "float32", out, force=False)
    export_merged(tiny_model, tiny_adapter, "float16", out, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tiny_model: Path, tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(SceError, match=r"cannot write .*m\.gguf"):
            export_gguf(tiny_model, None, "f32", tmp_path / "m.gguf", force=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_or_device_is_no_target_and_force_is_not_offered(
    force: bool, tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"not a regular file\. Choose another --out"):
        export_gguf(tiny_model, None, "f32", tmp_path, force=force)
    assert not list(tmp_path.iterdir())


def test_what_the_source_said_is_not_left_behind_by_exports_that_were_killed(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / ".sce-reference.tmp-999999999-0a1b2c3d"
    left.mkdir()
    (left / "logits.npy").write_bytes(b"x" * 100)
    for path in (left / "logits.npy", left):
        os.utime(path, (0, 0))
    monkeypatch.setattr(verify, "_ask_child", lambda module, request: {"notes": []})
    with reference_of(tiny_model, None) as folder:
        assert folder.parent == tmp_path
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []
