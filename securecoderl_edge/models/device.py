"""Choice of the device and dtypes of a run; environment.json records it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn import functional

from securecoderl_edge.errors import UsageError, first_line
from securecoderl_edge.models.gpus import has_kernels, torch_with_kernels
from securecoderl_edge.models.sizes import HAS_BF16, Formats, Precision, precision_on_cpu, precision_on_cuda
from securecoderl_edge.system.machine import cpu_has_bf16, cpu_has_matrix_units

_ELSEWHERE = "Wait for it, choose another GPU with CUDA_VISIBLE_DEVICES, or use --device cpu"
# Of measurements of bfloat16: repetitions, sequences that are decoded together, and the ratio that counts.
_TRIALS, _ROWS, _CLEARLY = 9, 16, 0.85
# The same for the products of an update: their rows, inputs and outputs. Where updates gained, a product took a quarter
# of the time. Converting to and from bfloat16 costs time too, so a small gain would be none.
_PRODUCT, _FAR = (512, 1024, 1024), 0.4


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

    def precision(self) -> Precision:
        """The names of the dtypes."""
        names = (str(dtype).removeprefix("torch.") for dtype in (self.products, self.rollout_dtype))
        return Precision(self.device, self.base_precision, *names)

    def formats(self) -> Formats:
        """The sizes of the dtypes."""
        return self.precision().formats()

    def autocast(self) -> AbstractContextManager[Any]:
        """The context for a forward pass of Hugging Face's."""
        if self.products == torch.float32:
            return nullcontext()
        return torch.autocast(self.device, self.products)


def choose_device(device: str, tell: Callable[[str], None] = lambda line: None) -> str:
    """``cpu`` or ``cuda``: resolve ``auto``. A GPU is tried out before it is chosen, once per process.

    Args:
        tell: called with one line if ``auto`` passes over a GPU that cannot be used.

    Raises:
        UsageError: the requested GPU is missing or cannot be used.
    """
    if device == "cpu":
        return "cpu"
    trouble = gpu_trouble()
    if trouble is None:
        return "cuda"
    if device == "cuda":
        raise UsageError(f"--device cuda: {trouble.reason}. {trouble.step}")
    if trouble.is_unexpected:
        tell(f"computing on the CPU: {trouble.reason}. {trouble.step}")
    return "cpu"


@dataclass(frozen=True)
class GpuTrouble:
    """Why no GPU can be used, and what to do.

    Attributes:
        is_unexpected: there is a GPU, or there was meant to be one.
    """

    reason: str
    step: str
    is_unexpected: bool = True


@cache
def gpu_trouble() -> GpuTrouble | None:
    """Try out the GPU: a small product in each dtype, compared with the CPU's; None if all are right."""
    if torch.version.cuda is None:
        return GpuTrouble(
            f"this torch ({torch.__version__}) was built without CUDA",
            "See docs/guides/gpu.md for one with CUDA, or use --device cpu",
            is_unexpected=False,
        )
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return GpuTrouble("CUDA_VISIBLE_DEVICES hides every GPU", "Unset it, or use --device cpu", is_unexpected=False)
    try:
        torch.cuda.init()
        capability = torch.cuda.get_device_capability()
        known = torch.cuda.get_arch_list()
        if not has_kernels(capability, known):
            return _no_kernels(capability)
        halves = (torch.float16, torch.bfloat16) if capability >= HAS_BF16 else (torch.float16,)
        wrong = [str(dtype) for dtype in (torch.float32, *halves) if not _multiplies(dtype)]
    except (RuntimeError, AssertionError) as error:
        return _as_trouble(error)
    if wrong:
        return GpuTrouble(
            f"the GPU computes wrong products in {', '.join(wrong)}", "Check it with nvidia-smi, or use --device cpu"
        )
    return None


def _multiplies(dtype: torch.dtype) -> bool:
    """Whether the GPU multiplies right in this dtype, and expands int8 weights to it."""
    # Small whole numbers: every dtype has the exact result.
    numbers = torch.arange(64, dtype=torch.float32).view(8, 8) % 7 - 3
    codes = numbers.to("cuda", torch.int8)
    product = (codes.to(dtype) @ numbers.to("cuda", dtype)).float().cpu()
    return torch.equal(product, numbers @ numbers)


def _no_kernels(capability: tuple[int, int]) -> GpuTrouble:
    number, build = "{}.{}".format(*capability), f"CUDA {torch.version.cuda}"
    step = torch_with_kernels(capability)
    return GpuTrouble(
        f"this torch ({build}) has no kernels for a GPU of compute capability {number}", step[:1].upper() + step[1:]
    )


def _as_trouble(error: Exception) -> GpuTrouble:
    """What an error of CUDA at the first use means."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError) or "out of memory" in text:
        return GpuTrouble("the GPU has no free memory: another process uses it", _ELSEWHERE)
    if "busy or unavailable" in text:
        return GpuTrouble("another process uses the GPU, and does not share it", _ELSEWHERE)
    if "no kernel image" in text:
        return _no_kernels(torch.cuda.get_device_capability())
    if "driver" in text and "too old" in text:
        build = f"CUDA {torch.version.cuda}"
        return GpuTrouble(
            f"the NVIDIA driver is too old for this torch ({build})", "Update it, or see docs/guides/gpu.md"
        )
    if "no NVIDIA driver" in text or "No CUDA GPUs" in text or "no CUDA-capable device" in text:
        return GpuTrouble("torch finds no GPU", "Use --device cpu or auto, or see: sce doctor", is_unexpected=False)
    return GpuTrouble(f"the GPU cannot be used ({first_line(error)})", "See: sce doctor")


def choose_compute(
    device: str, base_precision: str, *, recompute: bool = False, tell: Callable[[str], None] = lambda line: None
) -> Compute:
    """Resolve ``auto``: CUDA if available, with an int8 base; else the CPU in float32. Use the fastest compute dtype.

    For CUDA this turns off cuDNN's attention, for the whole process.

    Args:
        tell: see `choose_device`.

    Raises:
        UsageError: the requested device is missing, or the GPU does not support the precision.
    """
    if choose_device(device, tell) == "cuda":
        # Its attention is compiled for each shape, which takes seconds, and nearly every batch has another shape.
        torch.backends.cuda.enable_cudnn_sdp(False)
        return compute_on_cuda(torch.cuda.get_device_capability(), base_precision, recompute=recompute)
    return compute_on_cpu(base_precision, recompute=recompute)


def compute_on_cuda(capability: tuple[int, int], base_precision: str, *, recompute: bool = False) -> Compute:
    """Dtypes for a GPU of a compute capability, see `precision_on_cuda`."""
    return _computing(precision_on_cuda(capability, base_precision), recompute)


def _computing(names: Precision, recompute: bool) -> Compute:
    products, rollout = (getattr(torch, name) for name in (names.products, names.rollout))
    return Compute(names.device, names.base, products, rollout, recompute)


def compute_on_cpu(base_precision: str, *, recompute: bool = False) -> Compute:
    """Dtypes for this CPU.

    bf16 reads half the memory, which limits the speed of sampling on a CPU. Updates are faster in bf16 only if products
    are far faster: a processor without such units took 3.8 s instead of 2.9 s for an update of the built-in model, and
    an AMD EPYC of family 26 37 s instead of 70 s for one of SmolLM2-135M. fp16 is slower than both.

    Raises:
        UsageError: for ``int8-bnb``, see `precision_on_cpu`.
    """
    names = precision_on_cpu(base_precision, bf16_products_are_far_faster(), cpu_has_bf16())
    return _computing(names, recompute)


@cache
def bf16_is_faster(hidden: int, intermediate: int) -> bool:
    """Whether this CPU decodes clearly faster in bfloat16: measured on one layer of a model of these sizes.

    CPUs without native bfloat16 are not measured; they emulate it. The result holds for the process.
    """
    return cpu_has_bf16() and _time_in_bf16(_ROWS, hidden, 2 * intermediate) < _CLEARLY


@cache
def bf16_products_are_far_faster() -> bool:
    """Whether this CPU multiplies large matrices far faster in bfloat16; measured if it has no matrix units.

    With them a product took 0.18 of the time on an idle core, but sometimes more than 0.4 next to other work: two runs
    with one seed then differed.
    """
    return cpu_has_bf16() and (cpu_has_matrix_units() or _time_in_bf16(*_PRODUCT) < _FAR)


def _time_in_bf16(rows: int, inputs: int, outputs: int) -> float:
    """The CPU time of a linear layer in bfloat16, on one thread, divided by its time in float32."""
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    layers = {
        dtype: (torch.ones(rows, inputs, dtype=dtype), torch.ones(outputs, inputs, dtype=dtype)) for dtype in seconds
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the answer must not depend on their number
    for _ in range(_TRIALS):
        for dtype, (values, weight) in layers.items():  # in turn, so that other work on the machine slows both
            started = time.thread_time()
            functional.linear(values, weight)
            seconds[dtype].append(time.thread_time() - started)
    torch.set_num_threads(threads)
    # The best of each: the first calls set up their kernels.
    return min(seconds[torch.bfloat16]) / min(seconds[torch.float32])
