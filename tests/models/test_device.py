"""A device is tried out before it is chosen; here on GPUs that are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models import device
from securecoderl_edge.models.device import choose_compute, choose_device, compute_on_cuda, gpu_trouble
from securecoderl_edge.system import machine

MakeGpu = Callable[..., None]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test tries the device anew, and leaves nothing behind."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpu_trouble.cache_clear()
    yield
    gpu_trouble.cache_clear()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> MakeGpu:
    """Makes torch believe in a GPU; ``error`` is what its first use raises, ``wrong`` a dtype that it miscomputes."""

    def make(
        capability: tuple[int, int] = (7, 0),
        kernels: tuple[str, ...] = ("sm_70", "sm_80"),
        error: Exception | None = None,
        wrong: torch.dtype | None = None,
        tried: list[torch.dtype] | None = None,
    ) -> None:
        def init() -> None:
            if error is not None:
                raise error

        def multiplies(dtype: torch.dtype) -> bool:
            (tried if tried is not None else []).append(dtype)
            return dtype != wrong

        monkeypatch.setattr(torch.version, "cuda", "12.6")
        monkeypatch.setattr(torch.cuda, "init", init)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: list(kernels))
        monkeypatch.setattr(device, "_multiplies", multiplies)

    return make


def test_a_gpu_that_computes_right_is_chosen_and_tried_once(gpu: MakeGpu) -> None:
    tried: list[torch.dtype] = []
    gpu(tried=tried)
    assert [choose_device(asked, pytest.fail) for asked in ("auto", "cuda", "auto")] == ["cuda"] * 3
    assert tried == [torch.float32, torch.float16]  # no bfloat16 on Volta


def test_bfloat16_is_tried_where_it_is_used(gpu: MakeGpu) -> None:
    tried: list[torch.dtype] = []
    gpu((8, 6), tried=tried)
    assert choose_device("cuda") == "cuda"
    assert tried == [torch.float32, torch.float16, torch.bfloat16]


def test_a_small_product_is_compared_with_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    to: Any = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *words: to(self, *(w for w in words if w != "cuda")))
    assert all(device._multiplies(dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16))
    matmul: Any = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor, "__matmul__", lambda a, b: matmul(a, b) + (a.dtype == torch.float16) * torch.eye(8, dtype=a.dtype)
    )
    assert [device._multiplies(dtype) for dtype in (torch.float32, torch.float16)] == [True, False]


@pytest.mark.parametrize(
    ("facts", "reason", "step"),
    [
        ({"kernels": ("sm_75", "sm_90")}, "no kernels for a GPU of compute capability 7.0", "pytorch.org/whl/cu126"),
        ({"capability": (12, 0)}, "no kernels for a GPU of compute capability 12.0", "Install a newer torch"),
        (
            {"error": RuntimeError("The NVIDIA driver on your system is too old (found version 11040). Please update")},
            "the NVIDIA driver is too old for this torch (CUDA 12.6)",
            "Update it",
        ),
        (
            {"error": RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nmore")},
            "another process uses the GPU",
            "CUDA_VISIBLE_DEVICES",
        ),
        ({"error": torch.OutOfMemoryError("CUDA out of memory. Tried")}, "no free memory", "CUDA_VISIBLE_DEVICES"),
        ({"error": RuntimeError("CUDA error: no kernel image is available")}, "no kernels", "whl/cu126"),
        ({"error": RuntimeError("CUDA error: unspecified\nlong")}, "cannot be used (CUDA error: unsp", "doctor"),
        ({"wrong": torch.float16}, "wrong products in torch.float16", "nvidia-smi"),
    ],
)  # fmt: skip
def test_a_gpu_that_cannot_be_used_is_an_error_or_the_cpu_with_one_line(
    gpu: MakeGpu, facts: dict[str, Any], reason: str, step: str
) -> None:
    gpu(**facts)
    with pytest.raises(UsageError) as error:
        choose_device("cuda")
    assert reason in str(error.value)
    assert step in str(error.value)
    assert "\n" not in str(error.value)
    lines: list[str] = []
    assert choose_device("auto", lines.append) == "cpu"
    assert len(lines) == 1
    assert reason in lines[0]


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_gpus_that_the_user_hid_are_not_missed(gpu: MakeGpu, monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    gpu()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert choose_device("auto", pytest.fail) == "cpu"
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES hides every GPU"):
        choose_device("cuda")


def test_a_machine_without_a_gpu_computes_on_the_cpu_without_a_word(gpu: MakeGpu) -> None:
    gpu(error=RuntimeError("No CUDA GPUs are available"))
    assert choose_device("auto", pytest.fail) == "cpu"
    with pytest.raises(UsageError, match="torch finds no GPU"):
        choose_device("cuda")


def test_the_cpu_is_taken_without_a_look_at_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "gpu_trouble", pytest.fail)
    assert choose_device("cpu") == "cpu"


@pytest.mark.parametrize(
    ("flag", "ratio", "expected"),
    [
        ("avx512_bf16", 0.24, torch.bfloat16),
        ("avx512_bf16", 0.5, torch.float32),
        ("avx512f", 0.24, torch.float32),
        ("amx_bf16", 0.5, torch.bfloat16),  # next to other work: two runs compute in the same format
    ],
)
def test_a_cpu_trains_in_bf16_only_if_its_products_take_far_less_time(
    flag: str, ratio: float, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cpu_flags", lambda: frozenset({flag}))
    monkeypatch.setattr(device, "_time_in_bf16", lambda *_: ratio)
    device.bf16_products_are_far_faster.cache_clear()
    try:
        assert choose_compute("cpu", "auto").products == expected
    finally:
        device.bf16_products_are_far_faster.cache_clear()


def test_measuring_bf16_leaves_the_number_of_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        assert device._time_in_bf16(4, 8, 8) > 0
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_a_torch_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(UsageError, match="was built without CUDA"):
        choose_compute("cuda", "auto")


@pytest.mark.parametrize("capability", [(6, 1), (7, 0), (7, 5), (8, 0), (9, 0)])
def test_every_gpu_computes_in_float32_if_the_base_is(capability: tuple[int, int]) -> None:
    compute = compute_on_cuda(capability, "fp32")
    assert (compute.products, compute.rollout_dtype, compute.base_precision) == (torch.float32, torch.float32, "fp32")
    assert compute.is_accelerator
    assert compute.formats().products == 4
