"""Files that are no models, or damaged ones: one sentence and an exit code, whichever command meets them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from quick import few

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")
pytest.importorskip("onnxruntime", reason="needs the onnx extra")

from securecoderl_edge.errors import SceError
from securecoderl_edge.export import gguf as gguf_export
from securecoderl_edge.export.gguf import write_gguf
from securecoderl_edge.export.merge import copy_companions
from securecoderl_edge.export.onnx import write_onnx
from securecoderl_edge.runtimes.onnx.names import CACHE_KEY
from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.runtimes.spec import resolve_model

pytestmark = pytest.mark.usefixtures("known_references")

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def gguf_file(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    write_gguf(tiny_model, None, "q8_0", path, "m")
    return path


@pytest.fixture(scope="module")
def onnx_folder(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    write_onnx(tiny_model, None, "int8", folder)
    copy_companions(tiny_model, folder, None)
    return folder


def refusal(path: Path) -> str:
    """What is said when the model is opened and asked for a token."""
    with pytest.raises(SceError) as refused:
        use(path)
    text = str(refused.value)
    assert "\n" not in text
    return text


def use(path: Path) -> None:
    with contextlib.closing(open_runtime(resolve_model(str(path)), RuntimeSettings("cpu", threads=1))) as runtime:
        runtime.generate(["def f():"], 1, Sampling(0.0, 4))


def overwrite(start: int, content: bytes) -> Damage:
    def damage(path: Path) -> None:
        whole = bytearray(path.read_bytes())
        whole[start : start + len(content)] = content
        path.write_bytes(whole)

    return damage


def cut(share: float) -> Damage:
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_bytes(b""), "not a GGUF file"),
        (lambda path: path.write_bytes(b"x" * 3000), "not a GGUF file"),
        (cut(0.001), "not a GGUF file, or damaged"),
        (cut(0.5), "the file is cut or damaged: download it again"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "corrupted or incomplete"),
        (overwrite(4, b"\x01\0\0\0"), "version 1 of the format"),
        (overwrite(4, b"\x63\0\0\0"), "version 99 of the format"),
        (overwrite(8, b"\xff" * 8), "tensors and"),
        (overwrite(16, b"\xff" * 8), "values in"),
    ],
)
def test_a_damaged_gguf_file_is_a_sentence(gguf_file: Path, tmp_path: Path, damage: Damage, words: str) -> None:
    path = tmp_path / "m.gguf"
    shutil.copyfile(gguf_file, path)
    damage(path)
    assert words in refusal(path)


def test_a_gguf_file_of_another_kind_is_a_sentence_with_the_reason(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = gguf_export.gguf_package().GGUFWriter
    for name, method, value, words in (
        ("arch", None, None, "this llama.cpp does not know zlama: take another file"),
        ("pre", "add_tokenizer_pre", "of-the-future", "this llama.cpp does not know of-the-future"),
    ):
        with monkeypatch.context() as patched:
            if method:
                original = getattr(writer, method)
                patched.setattr(writer, method, lambda self, _, original=original, value=value: original(self, value))
            write_gguf(tiny_model, None, "f32", tmp_path / f"{name}.gguf", "m")
        if not method:
            content = (tmp_path / f"{name}.gguf").read_bytes()
            length = b"\x05\0\0\0\0\0\0\0"
            (tmp_path / f"{name}.gguf").write_bytes(content.replace(length + b"llama", length + b"zlama", 1))
        assert words in refusal(tmp_path / f"{name}.gguf")


def change_graph(change: Callable[[Any], None]) -> Damage:
    def damage(folder: Path) -> None:
        import onnx

        model = onnx.load(folder / "model.onnx", load_external_data=False)
        change(model)
        (folder / "model.onnx").write_bytes(model.SerializeToString())

    return damage


def lead_out(model: Any) -> None:
    for weight in model.graph.initializer:
        for entry in weight.external_data:
            if entry.key == "location":
                entry.value = "../../secret"


def rename_domain(model: Any) -> None:
    for node in model.graph.node:
        if node.domain:
            node.domain = "com.nobody"
    model.opset_import.add(domain="com.nobody", version=1)


def replaced(old: bytes, new: bytes) -> Damage:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        assert old in content
        assert len(old) == len(new)
        path.write_bytes(content.replace(old, new))

    return damage


def file_in(name: str, change: Damage) -> Damage:
    return lambda folder: change(folder / name)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (file_in("model.onnx", lambda path: path.write_bytes(b"")), "onnxruntime cannot load it"),
        (file_in("model.onnx", lambda path: path.write_bytes(b"\x07" * 999)), "onnxruntime cannot load it"),
        (file_in("model.onnx", cut(0.5)), "onnxruntime cannot load it"),
        (file_in("model.onnx.data", cut(0.5)), "onnxruntime cannot load it"),
        (file_in("model.onnx.data", Path.unlink), "onnxruntime cannot load it"),
        (change_graph(lambda model: setattr(model, "ir_version", 99)), "onnxruntime cannot load it"),
        (change_graph(lambda model: setattr(model.opset_import[0], "version", 99)), "onnxruntime cannot load it"),
        (change_graph(lead_out), "onnxruntime cannot load it"),
        (change_graph(rename_domain), "onnxruntime cannot load it"),
        (change_graph(lambda model: model.graph.ClearField("input")), "onnxruntime cannot load it"),
        (file_in("tokenizer.json", lambda path: path.write_text("{}")), "tokenizer.json"),
        (file_in("model.onnx", replaced(b"attention_mask", b"attention_\xe3\xffsk")), "onnxruntime cannot load it"),
        (file_in("model.onnx", replaced(CACHE_KEY.encode(), CACHE_KEY.encode()[:-1] + b"\xe3")), "cannot load it"),
        (file_in("tokenizer.json", Path.unlink), "tokenizer.json"),
        (file_in("config.json", lambda path: path.write_text("[")), "config.json"),
        (file_in("config.json", lambda path: path.write_text('{"max_position_embeddings": "x"}')), "config.json"),
    ],
)
def test_a_damaged_onnx_folder_is_a_sentence(onnx_folder: Path, tmp_path: Path, damage: Damage, words: str) -> None:
    folder = tmp_path / "m"
    shutil.copytree(onnx_folder, folder)
    damage(folder)
    assert words in refusal(folder)


# Processes


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "securecoderl_edge", "generate", *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A test run that was started in the background hands down an ignored Ctrl-C.
    pipes["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("kind", ["gguf", "onnx"])
def test_two_processes_may_run_one_file(gguf_file: Path, onnx_folder: Path, kind: str) -> None:
    model = str(gguf_file if kind == "gguf" else onnx_folder)
    arguments = ("x = 1", "--model", model, "--max-tokens", "8", "--threads", "1", "--raw", "--prompt-style", "stdin")
    both = [start(*arguments), start(*arguments)]
    found = [process.communicate(timeout=120) for process in both]
    assert found[0][0] == found[1][0] != ""
    assert [process.returncode for process in both] == [1, 1]  # random text does not pass


@pytest.mark.parametrize("kind", few(["gguf", "onnx"], "gguf"))
def test_ctrl_c_in_mid_stream_is_a_word_and_leaves_no_process(gguf_file: Path, onnx_folder: Path, kind: str) -> None:
    model = str(gguf_file if kind == "gguf" else onnx_folder)
    arguments = ("x = 1", "--model", model, "--max-tokens", "900", "-n", "2000", "--threads", "1")
    process = start(*arguments, "--prompt-style", "stdin")
    try:
        busy = wait_for_work(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert len(err.strip().splitlines()) <= 2
    assert "Traceback" not in err
    for child in busy:
        for _ in range(200):
            if not Path(f"/proc/{child}").exists() or "State:\tZ" in Path(f"/proc/{child}/status").read_text():
                break
            time.sleep(0.05)
        else:
            pytest.fail(f"process {child} outlived its parent")


def wait_for_work(parent: int) -> list[int]:
    """The children of a process, once it and they have used some seconds of CPU time."""
    for _ in range(600):
        found = [parent, *children_of(parent)]
        if sum(map(cpu_seconds, found)) > 5:
            return found[1:]
        time.sleep(0.1)
    raise AssertionError("it never began to work")


def children_of(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
