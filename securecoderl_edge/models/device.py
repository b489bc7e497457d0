"""Choice of the device and dtypes of a run; environment.json records it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn import functional

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.sizes import HAS_BF16, HAS_INT8_UNITS, Formats
from securecoderl_edge.system.machine import cpu_flags

V100 = (7, 0)
# Of the measurement of bfloat16: repetitions, sequences that are decoded together, and the ratio that counts.
_TRIALS, _ROWS, _CLEARLY = 9, 16, 0.85


@dataclass(frozen=True)
class Compute:
    """Device and dtypes of a run.

    Attributes:
        base_precision: dtype of the frozen base; ``int8`` is `int8.Int8Linear`, ``int8-bnb`` LLM.int8 of bitsandbytes.
        products: compute dtype of training. In float16 the loss is scaled, so that small gradients survive.
        rollout_dtype: compute dtype of sampling.
        recompute: layers are computed again in the backward pass, to save memory.
    """

    device: str
    base_precision: str
    products: torch.dtype
    rollout_dtype: torch.dtype = torch.float32
    recompute: bool = False

    @property
    def is_accelerator(self) -> bool:
        """Whether it computes on another device than the CPU."""
        return self.device != "cpu"

    def formats(self) -> Formats:
        """The sizes of the dtypes."""
        names = (str(dtype).removeprefix("torch.") for dtype in (self.products, self.rollout_dtype))
        return Formats.of(self.device, self.base_precision, *names)

    def autocast(self) -> AbstractContextManager[Any]:
        """The context for a forward pass of Hugging Face's."""
        if self.products == torch.float32:
            return nullcontext()
        return torch.autocast(self.device, self.products)


def choose_device(asked: str, tell: Callable[[str], None] = lambda line: None) -> str:
    """``cpu`` or ``cuda``: resolve ``auto``.

    Args:
        tell: called with one line if ``auto`` passes over a GPU that cannot be used.

    Raises:
        UsageError: the requested device is missing.
    """
    if asked == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch finds no CUDA device; use --device cpu or auto, or see: sce doctor")
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return asked


def choose_compute(
    device: str, base_precision: str, *, recompute: bool = False, tell: Callable[[str], None] = lambda line: None
) -> Compute:
    """Resolve ``auto``: CUDA if available, with an int8 base; else the CPU in float32. Use the fastest compute dtype.

    Args:
        tell: see `choose_device`.

    Raises:
        UsageError: the requested device is missing, or the GPU does not support the precision.
    """
    if choose_device(device, tell) == "cuda":
        return compute_on_cuda(torch.cuda.get_device_capability(), base_precision, recompute=recompute)
    return compute_on_cpu(base_precision, recompute=recompute)


def compute_on_cuda(capability: tuple[int, int], base_precision: str, *, recompute: bool = False) -> Compute:
    """Dtypes for a GPU of a compute capability; Volta (7.0) has no bfloat16 and no int8 units.

    Raises:
        UsageError: the GPU does not support ``base_precision``.
    """
    number = "{}.{}".format(*capability)
    if base_precision == "int8-bnb" and capability < HAS_INT8_UNITS:
        raise UsageError(
            f"int8-bnb (LLM.int8 of bitsandbytes) needs compute capability 7.5, this GPU has {number}; "
            "use --base-precision int8"
        )
    if base_precision == "bf16" and capability < HAS_BF16:
        raise UsageError(f"bf16 needs compute capability 8.0, this GPU has {number}; use --base-precision fp16 or int8")
    half = torch.bfloat16 if capability >= HAS_BF16 else torch.float16
    # A float16 base may have been chosen for its range, so compute in float16 too.
    products = torch.float16 if base_precision == "fp16" else half
    return Compute("cuda", "int8" if base_precision == "auto" else base_precision, products, products, recompute)


def compute_on_cpu(base_precision: str, *, recompute: bool = False) -> Compute:
    """Dtypes for this CPU.

    bf16 reads half the memory, which limits the speed of sampling on a CPU. Updates are faster in bf16 only with matrix
    units (AMX): without them an update of the built-in model took 3.8 s instead of 2.9 s. fp16 is slower than both.

    Raises:
        UsageError: for ``int8-bnb``, which gives other results on a CPU than on a GPU.
    """
    if base_precision == "int8-bnb":
        raise UsageError("int8-bnb needs a CUDA GPU; on a CPU use --base-precision int8")
    products = torch.bfloat16 if cpu_has_bf16() and cpu_has_matrix_units() else torch.float32
    sampling = torch.bfloat16 if cpu_has_bf16() else torch.float32
    return Compute("cpu", "fp32" if base_precision == "auto" else base_precision, products, sampling, recompute)


@cache
def bf16_is_faster(hidden: int, intermediate: int) -> bool:
    """Whether this CPU decodes clearly faster in bfloat16: measured on one layer of a model of these sizes.

    CPUs without native bfloat16 are not measured; they emulate it. The result holds for the process.
    """
    if not cpu_has_bf16():
        return False
    layers = {dtype: torch.ones(2 * intermediate, hidden, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)}
    seconds: dict[torch.dtype, list[float]] = {dtype: [] for dtype in layers}
    for _ in range(_TRIALS):
        for dtype, weight in layers.items():  # in turn, so that other work on the machine slows both
            inputs = torch.ones(_ROWS, hidden, dtype=dtype)
            started = time.perf_counter()
            functional.linear(inputs, weight)
            seconds[dtype].append(time.perf_counter() - started)
    # The best of each: the first calls set up their kernels.
    return min(seconds[torch.bfloat16]) < _CLEARLY * min(seconds[torch.float32])


def cpu_has_bf16() -> bool:
    """Whether the CPU multiplies bfloat16 natively (AVX-512 BF16 or AMX)."""
    return bool({"avx512_bf16", "amx_bf16"} & cpu_flags())


def cpu_has_matrix_units() -> bool:
    """Whether the CPU multiplies small matrices of bfloat16 in one instruction (AMX)."""
    return "amx_bf16" in cpu_flags()
