"""Where the original model of an export is computed, on a machine without a GPU and on pretended ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_runs import run_sce

pytest.importorskip("torch", reason="needs the train extra")

import torch

from securecoderl_edge.errors import SceError
from securecoderl_edge.export import reference, verify
from securecoderl_edge.export.reference import write_reference_where_it_fits
from securecoderl_edge.export.workbench import Workbench
from securecoderl_edge.models import device as devices
from securecoderl_edge.system.processes import Answers


@pytest.fixture
def too_small_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU without room for the model; the list gets the devices that are tried."""
    tried: list[str] = []

    def write(base: Path, adapter: Path | None, prompts: Sequence[str], tokens: int, folder: Path, device: str) -> None:
        tried.append(device)
        if device != "cpu":
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(devices, "gpu_trouble", lambda: None)
    monkeypatch.setattr(reference, "write_reference", write)
    return tried


def test_a_gpu_without_room_for_the_original_is_passed_over_with_one_line(
    too_small_gpu: list[str], tmp_path: Path
) -> None:
    (line,) = write_reference_where_it_fits(tmp_path, None, [], 1, tmp_path, "auto")
    assert too_small_gpu == ["cuda", "cpu"]
    assert "computed on the CPU" in line


def test_a_gpu_that_was_asked_for_is_not_replaced_by_the_cpu(too_small_gpu: list[str], tmp_path: Path) -> None:
    with pytest.raises(SceError, match="does not fit into the free memory of the GPU; use --device cpu"):
        write_reference_where_it_fits(tmp_path, None, [], 1, tmp_path, "cuda")
    assert too_small_gpu == ["cuda"]


@pytest.mark.parametrize("asked", ["auto", "cpu", "cuda"])
def test_the_child_is_asked_for_the_device_and_its_lines_are_logged(
    asked: str, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[dict[str, Any]] = []
    told: list[str] = []

    def answer(module: str, request: dict[str, Any], **_: str) -> Answers:
        requests.append(request)
        return Answers([{"notes": ["computing on the CPU"]}], "")

    monkeypatch.setattr(verify, "ask", answer)
    # The session's references would hide the request.
    monkeypatch.setattr("securecoderl_edge.export.workbench.reference_of", verify.reference_of)
    with Workbench(tiny_model, None, log=told.append, device=asked) as workbench:
        workbench.reference()
    assert [request["device"] for request in requests] == [asked]
    assert told == ["computing on the CPU"]


def test_a_missing_gpu_is_an_error_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.version, "cuda", None)
    devices.gpu_trouble.cache_clear()
    code, _, err = run_sce("export", str(tiny_model), "--device", "cuda")
    devices.gpu_trouble.cache_clear()
    assert (code, err.count("\n"), "--device cuda: this torch" in err) == (2, 1, True), err
    assert list(tmp_path.iterdir()) == []


def test_a_device_for_a_folder_that_nothing_is_compared_with_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run_sce("export", str(tiny_model), "--format", "hf", "--device", "cpu")
    assert (code, "--device has no effect with --format hf" in err) == (2, True), err


@pytest.mark.usefixtures("known_references")
def test_a_manifest_is_checked_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs the gguf extra")
    monkeypatch.chdir(tmp_path)
    assert run_sce("export", str(tiny_model), "--quant", "f32", "--out", "m.gguf")[0] == 0
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", "securecoderl_edge", "export", "--verify", "m.gguf"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "matches its manifest" in done.stderr) == (0, True), done.stderr
