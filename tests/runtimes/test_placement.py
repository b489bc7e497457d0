"""Where models are computed, on a machine without a GPU and on pretended ones."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models import device
from securecoderl_edge.models.device import compute_on_cuda
from securecoderl_edge.models.files import NANO, base_folder
from securecoderl_edge.models.other import find_architecture
from securecoderl_edge.runtimes.hf import choose_precision
from securecoderl_edge.runtimes.placement import ALL_LAYERS, Placement, check_device, choose_placement
from securecoderl_edge.runtimes.room import affordable_sequences
from securecoderl_edge.runtimes.spec import ModelSpec

GGUF, ONNX, TORCH = ModelSpec("g", "gguf", "g.gguf"), ModelSpec("o", "onnx", "o"), ModelSpec(NANO, "hf", NANO)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    pytest.importorskip("llama_cpp")
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("securecoderl_edge.runtimes.placement.can_offload", lambda: False)
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("spec", "fix"), [(GGUF, "GGML_CUDA"), (ONNX, "onnxruntime-gpu"), (TORCH, "--device cuda: this torch")], ids=str
)
def test_a_missing_gpu_is_refused_with_the_fix_and_auto_takes_the_cpu(spec: ModelSpec, fix: str) -> None:
    with pytest.raises(UsageError, match=fix):
        check_device([spec], "cuda")
    assert choose_placement(spec, "auto") == Placement("cpu", 0)


@pytest.mark.usefixtures("no_gpu")
def test_layers_that_no_gpu_can_take_are_refused_with_auto_too() -> None:
    with pytest.raises(UsageError, match="GGML_CUDA"):
        choose_placement(GGUF, "auto", 4)


@pytest.mark.parametrize(("specs", "where"), [([GGUF], "cpu"), ([ONNX, TORCH], "auto")])
def test_gpu_layers_without_effect_are_refused(specs: list[ModelSpec], where: str) -> None:
    with pytest.raises(UsageError, match="--gpu-layers is for GGUF files on a GPU"):
        check_device(specs, where, 3)


def test_a_build_for_gpus_takes_all_layers_or_as_many_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_cpp")
    monkeypatch.setattr("securecoderl_edge.runtimes.placement.can_offload", lambda: True)
    assert [choose_placement(GGUF, "auto", layers) for layers in (None, 5, 0)] == [
        Placement("cuda", ALL_LAYERS), Placement("cuda", 5), Placement()
    ]  # fmt: skip
    assert choose_placement(GGUF, "cpu") == Placement()


@pytest.mark.parametrize(
    ("libraries", "is_asked"),
    [
        (["libggml-base.so", "libggml-cpu.so", "libggml-cpu-haswell.so.0", "libggml-blas.so", "libggml.so"], False),
        (["libggml-base.so", "libggml-cpu.so", "libggml-cuda.so"], True),
        (["ggml-base.dll", "ggml-hip.dll"], True),
        (["libllama.so"], True),  # a static build: its name tells nothing
    ],
)
def test_llama_cpp_is_asked_for_a_gpu_only_if_its_build_may_have_a_use_for_one(
    libraries: list[str], is_asked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    from securecoderl_edge.runtimes.placement import can_offload

    for library in libraries:
        (tmp_path / library).touch()
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: True)
    assert can_offload() == is_asked


def test_a_gguf_file_on_a_build_for_cpus_is_placed_without_importing_llama_cpp() -> None:
    pytest.importorskip("llama_cpp")
    from securecoderl_edge.runtimes.placement import can_offload

    if can_offload():
        pytest.skip("this llama.cpp is for GPUs")
    code = (
        "import sys; from securecoderl_edge.runtimes.placement import choose_placement; "
        "from securecoderl_edge.runtimes.spec import ModelSpec; "
        "choose_placement(ModelSpec('g', 'gguf', 'g.gguf'), 'auto'); print('llama_cpp' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert run.stdout == "False\n"


@pytest.mark.parametrize(("layers", "is_on_gpu"), [(0, False), (-1, True), (3, True)])
def test_without_layers_on_a_gpu_llama_cpp_gets_no_device_at_all(
    layers: int, is_on_gpu: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    from securecoderl_edge.runtimes.gguf import llama

    seen: list[Any] = []
    monkeypatch.setattr(llama_cpp, "llama_model_load_from_file", lambda _, given: seen.append(given))
    monkeypatch.setattr(llama, "repacked_weights", lambda _: None)
    with pytest.raises(SceError, match="cannot load"):
        llama.LlamaModel(tmp_path / "m.gguf", gpu_layers=layers)
    assert seen[0].n_gpu_layers == layers
    assert (seen[0].devices is None) == is_on_gpu  # NULL: all devices; else our empty list


def test_weights_for_kernels_of_the_cpu_do_not_keep_layers_from_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    from securecoderl_edge.runtimes.gguf import llama

    repacked: list[Path] = []
    monkeypatch.setattr(llama_cpp, "llama_model_load_from_file", lambda _, given: None)
    monkeypatch.setattr(llama, "repacked_weights", repacked.append)
    for layers in (-1, 3, 0):
        with pytest.raises(SceError, match="cannot load"):
            llama.LlamaModel(tmp_path / f"{layers}.gguf", extra_buffers=False, gpu_layers=layers)
    assert repacked == [tmp_path / "0.gguf"]


@pytest.mark.parametrize("layers", [0, 3, ALL_LAYERS])
def test_the_child_process_of_a_gguf_file_gets_its_layers(
    layers: int, monkeypatch: pytest.MonkeyPatch, tiny_gguf: Path
) -> None:
    pytest.importorskip("llama_cpp")
    from securecoderl_edge.runtimes import placement
    from securecoderl_edge.runtimes.gguf import llama_worker, runtime
    from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime

    sent: list[dict[str, Any]] = []
    loaded: list[int] = []
    monkeypatch.setattr(placement, "can_offload", lambda: True)
    monkeypatch.setattr(runtime, "_Child", sent.append)
    settings = RuntimeSettings("auto", gpu_layers=None if layers < 0 else layers)
    open_runtime(ModelSpec("g", "gguf", str(tiny_gguf)), settings)
    sent_settings = {name: value for name, value in sent[0].items() if name not in ("type", "path")}

    class Model:
        context_length = 64

        def __init__(self, path: Path, gpu_layers: int) -> None:
            loaded.append(gpu_layers)

    monkeypatch.setattr(llama_worker, "LlamaModel", Model)
    llama_worker.GgufWorker(io.BytesIO(), tiny_gguf, **sent_settings)
    assert loaded == [layers]


@pytest.mark.parametrize(
    ("where", "expected"),
    [("cpu", ["CPUExecutionProvider"]), ("cuda", ["CUDAExecutionProvider", "CPUExecutionProvider"])],
)
def test_onnxruntime_gets_the_provider_of_the_device_and_no_other_gpu(
    where: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    def session(path: Path, options: object, providers: list[str]) -> Any:
        asked.append(providers)
        raise RuntimeError("no file")

    onnxruntime = pytest.importorskip("onnxruntime")
    from securecoderl_edge.runtimes.onnx.model import OnnxModel

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    with pytest.raises(SceError, match="no file"):
        OnnxModel(tmp_path, device=where)
    assert asked == [expected]


def test_a_session_that_fell_back_to_the_cpu_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from securecoderl_edge.runtimes.onnx.model import OnnxModel

    fallen = SimpleNamespace(
        get_providers=lambda: ["CPUExecutionProvider"],
        get_inputs=list,
        get_modelmeta=lambda: SimpleNamespace(custom_metadata_map={}),
    )
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: fallen)
    with pytest.raises(SceError, match="cannot use the GPU; check its CUDA libraries, or use --device cpu"):
        OnnxModel(tmp_path, device="cuda")


@pytest.mark.parametrize("loads", [True, False])
def test_a_build_of_onnxruntime_with_cuda_is_tried_out_before_it_is_chosen(
    loads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from securecoderl_edge.runtimes import placement

    real, on_cpu = onnxruntime.InferenceSession, ["CPUExecutionProvider"]
    found = ["CUDAExecutionProvider", *on_cpu] if loads else on_cpu

    def session(graph: bytes, options: object, providers: list[str]) -> Any:
        assert providers == ["CUDAExecutionProvider", *on_cpu]
        real(graph, options, providers=on_cpu)  # a graph that can be read
        return SimpleNamespace(get_providers=lambda: found)

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CUDAExecutionProvider", *on_cpu])
    placement._onnxruntime_loads_cuda.cache_clear()
    try:
        assert choose_placement(ONNX, "auto") == Placement("cuda" if loads else "cpu")
        if not loads:
            with pytest.raises(UsageError, match="cannot load CUDA"):
                choose_placement(ONNX, "cuda")
    finally:
        placement._onnxruntime_loads_cuda.cache_clear()


def test_auto_says_in_one_line_why_it_passes_over_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "gpu_trouble", lambda: device.GpuTrouble("the GPU is in use", "Wait for it"))
    told: list[str] = []
    check_device([TORCH, TORCH], "auto", tell=told.append)
    check_device([GGUF, ONNX], "auto", tell=told.append)  # torch does not compute them
    assert told == ["computing on the CPU: the GPU is in use. Wait for it"]


def test_free_memory_of_a_device_is_read_from_ggml() -> None:
    pytest.importorskip("llama_cpp")
    from securecoderl_edge.runtimes.gguf.llama import free_gpu_bytes

    assert free_gpu_bytes(0)  # the CPU, which every build has
    assert affordable_sequences(64, 10, 5, 0, 1000) == 10


@pytest.mark.parametrize(("capability", "expected"), [((7, 0), "fp16"), ((8, 0), "bf16")])
def test_auto_is_the_half_precision_of_the_gpu(
    capability: tuple[int, int], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "choose_compute", lambda _, asked: compute_on_cuda(capability, asked))
    shape = find_architecture(base_folder(NANO))
    assert choose_precision("auto", shape, "cuda") == expected
    assert [choose_precision(each, shape, "cuda") for each in ("fp32", "fp16", "int8")] == ["fp32", "fp16", "int8"]
    with pytest.raises(UsageError, match="fp16 is for GPUs"):
        choose_precision("fp16", shape)
