"""An export replaces what it may and nothing else, whatever the names."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from export_runs import folder, names, run

from securecoderl_edge.system import files
from securecoderl_edge.system.files import remove_abandoned

__all__ = ["folder"]  # a fixture


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--quant", "f16"), "mine-f16.gguf"),
        (("--quant", "q4_k_m"), "mine-q4_k_m.gguf"),
        (("--format", "onnx"), "mine-onnx-int8"),
        (("--format", "hf"), "mine-hf"),
    ],
)
def test_a_killed_export_leaves_nothing_under_the_name_and_its_rest_goes_with_the_next(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], name: str
) -> None:
    if "onnx" in arguments:
        pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "securecoderl_edge", "export", str(base), *arguments]
    victim = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (left := list(tmp_path.glob(".*.tmp-*"))) and victim.poll() is None:
            time.sleep(0.002)
        os.killpg(victim.pid, signal.SIGKILL)
    finally:
        victim.wait()
    assert left
    assert victim.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
    assert list(tmp_path.glob(".*.tmp-*")) != []
    assert run(str(base), *arguments)[0] == 0
    assert (tmp_path / name).exists()
    assert list(tmp_path.glob(".*.tmp-*")) == []


def test_what_was_touched_lately_or_belongs_to_a_running_process_stays(tmp_path: Path) -> None:
    def leave(process: int, age: float) -> Path:
        path = tmp_path / f".a.gguf.tmp-{process}-0123abcd"
        path.write_bytes(b"x")
        os.utime(path, (time.time() - age,) * 2)
        return path

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    running, old = leave(os.getpid(), 1e6), leave(gone.pid, 1e6)
    young = leave(gone.pid + 1, 5)
    other = tmp_path / f".b.gguf.tmp-{gone.pid}-0123abcd"
    other.write_bytes(b"x")
    os.utime(other, (0, 0))
    remove_abandoned(tmp_path / "a.gguf")
    assert [path.exists() for path in (running, old, young, other)] == [True, False, True, True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--out", "mine.Modelfile"), "reserved ending of cards, manifests and Modelfiles"),
        (("--out", "mine.gguf.manifest.json"), "reserved ending of cards, manifests and Modelfiles"),
        (("--format", "hf", "--quant", "f32,f16"), "one --quant at a time"),
    ],
)
def test_an_export_never_writes_over_its_own_sidecar_files(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    code, _, err = run(*arguments)
    assert (code, words in err) == (2, True), err


def test_a_path_with_a_slash_at_its_end_is_a_folder_for_the_file(base: Path, folder: Path) -> None:
    assert run(str(base), "--quant", "f16", "--out", f"new{os.sep}")[0] == 0
    assert [path.name for path in (folder / "new").glob("*.gguf")] == [f"{base.name}-f16.gguf"]


def test_printed_lines_lead_to_the_file_whatever_it_is_called(base: Path, folder: Path) -> None:
    for name in ("a b/it's-1.0.gguf", "a b/it's-1.5.gguf"):
        code, _, err = run(str(base), "--quant", "f16", "--out", name)
        assert code == 0, err
        words = [shlex.split(line) for line in err.splitlines() if line.startswith("    ")]
        assert [name in line for line in words] == [True, False, True]
        assert f"{name}.Modelfile" in words[1]
    assert {path.name for path in (folder / "a b").glob("*.Modelfile")} == {
        "it's-1.0.gguf.Modelfile",
        "it's-1.5.gguf.Modelfile",
    }


@pytest.mark.parametrize("sidecar", ["m.gguf.card.md", "m.gguf.Modelfile"])
def test_a_sidecar_file_of_somebody_else_is_not_replaced(base: Path, folder: Path, sidecar: str) -> None:
    (folder / sidecar).write_text("mine")
    code, _, err = run(str(base), "--quant", "f32", "--out", "m.gguf")
    assert (code, f"{sidecar} exists and was not written by sce export" in err) == (2, True), err
    assert (folder / sidecar).read_text() == "mine"
    assert not (folder / "m.gguf").exists()
    assert run(str(base), "--quant", "f32", "--out", "m.gguf", "--force")[0] == 0
    assert (folder / sidecar).read_text() != "mine"
    # Its own sidecar files are written again.
    assert run(str(base), "--quant", "f32", "--out", "m.gguf")[0] == 0


def test_a_file_and_a_folder_of_one_name_have_each_its_card(base: Path, folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    for arguments in (("--out", "m.gguf"), ("--out", "m"), ("--format", "onnx", "--out", "m.onnx")):
        assert run(str(base), *arguments)[0] == 0
    titles = [path.read_text().partition("---\n\n# ")[2].splitlines()[0] for path in
              (folder / "m.gguf.card.md", folder / "m.card.md", folder / "m.onnx" / "README.md")]  # fmt: skip
    assert titles == ["m.gguf", "m", "m.onnx"]
    assert run("--verify", "m.onnx")[0] == 0  # its card is no foreign file


def test_a_name_that_cannot_be_printed_is_refused(base: Path, folder: Path) -> None:
    code, _, err = run(str(base), "--out", "a\nb.gguf")
    assert (code, "Choose another --out" in err) == (2, True), err


@pytest.mark.parametrize("kind", ["gguf", "onnx", "adapter", "hf"])
@pytest.mark.parametrize("name", ["a\nb", "", "new/..", "x" * 245])
def test_a_name_that_leads_nowhere_is_refused_before_anything_is_written(folder: Path, kind: str, name: str) -> None:
    before = names(folder)
    code, _, err = run("--format", kind, "--out", name)
    assert (code, "Choose another --out" in err, names(folder)) == (2, True, before), err


def test_force_never_replaces_the_source(base: Path, folder: Path) -> None:
    shutil.copytree(base, folder / "src")
    (folder / "src" / "notes.txt").write_text("mine")
    weights = (folder / "src" / "model.safetensors").read_bytes()
    for arguments in (
        ("--out", "src/model.safetensors"),
        ("--format", "hf", "--out", "src"),
        ("--format", "onnx", "--out", "src"),
        ("--format", "hf", "--out", "."),
    ):
        code, _, err = run("src", *arguments, "--force")
        assert (code, "Choose another --out" in err) == (2, True), err
    assert (folder / "src" / "model.safetensors").read_bytes() == weights
    assert (folder / "src" / "notes.txt").read_text() == "mine"
    assert run("src", "--quant", "f32", "--out", "src/new.gguf")[0] == 0  # a new file in that folder is fine


@pytest.mark.parametrize(("kind", "file"), [("hf", "README.md"), ("hf", "mine.txt"), ("onnx", "mine.txt")])
def test_force_never_deletes_files_that_no_export_wrote(base: Path, folder: Path, kind: str, file: str) -> None:
    assert run(str(base), "--format", kind, "--out", "out")[0] == 0
    (folder / "out" / file).write_text("mine")
    code, _, err = run(str(base), "--format", kind, "--out", "out", "--force")
    assert (code, file in err) == (2, True), err
    assert (folder / "out" / file).read_text() == "mine"


def test_force_never_replaces_a_file_of_somebody_else(base: Path, folder: Path) -> None:
    (folder / "theirs.gguf").write_bytes(b"GGUF of somebody else")
    code, _, err = run(str(base), "--quant", "f32", "--out", "theirs.gguf", "--force")
    assert (code, "has no manifest of sce export" in err) == (2, True), err
    assert (folder / "theirs.gguf").read_bytes() == b"GGUF of somebody else"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("end", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_export_that_ends_at_the_last_step_leaves_the_earlier_one_whole(
    base: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    assert run(str(base), "--quant", "f32", "--out", "m.gguf")[0] == 0
    before = {path.name: path.read_bytes() for path in folder.glob("*m.gguf*")}
    put = files._put

    def fail(temporary: Path, target: Path, replace_folder: bool) -> None:
        if target.name == "m.gguf":
            raise end
        put(temporary, target, replace_folder)

    monkeypatch.setattr(files, "_put", fail)
    assert run(str(base), "--quant", "f16", "--out", "m.gguf", "--force")[0] != 0
    assert {path.name: path.read_bytes() for path in folder.glob("*m.gguf*")} == before
    monkeypatch.undo()
    assert run("--verify", str(folder / "m.gguf"))[0] == 0


def test_a_card_in_a_folder_that_somebody_else_wrote_is_not_replaced(base: Path, folder: Path) -> None:
    assert run(str(base), "--format", "onnx", "--out", "m")[0] == 0
    assert run(str(base), "--format", "onnx", "--out", "m")[0] == 0  # ours is
    card = folder / "m" / "README.md"
    card.write_text("mine")
    assert run(str(base), "--format", "onnx", "--out", "m")[0] == 2
    (folder / "victim").write_text("mine")
    card.unlink()
    card.symlink_to(folder / "victim")
    assert run(str(base), "--format", "onnx", "--out", "m")[0] == 2
    assert (folder / "victim").read_text() == "mine"
