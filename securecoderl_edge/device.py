"""Which device and number formats a run uses, decided in one place and said in environment.json."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from securecoderl_edge.errors import UsageError
from securecoderl_edge.machine import cpu_flags


@dataclass(frozen=True)
class Compute:
    """Device, format of the frozen base, format of the matrix products (None: that of the weights), and of sampling."""

    device: str
    base_precision: str
    autocast_dtype: torch.dtype | None
    rollout_dtype: torch.dtype = torch.float32

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which forward passes run."""
        if self.autocast_dtype is None:
            return nullcontext()
        return torch.autocast(self.device, self.autocast_dtype)


def choose_compute(device: str, base_precision: str) -> Compute:
    """Resolve ``auto``: CUDA if there is one; bf16 products where they are faster, else fp32.

    On a CPU bf16 always reads half the memory, which is what sampling waits for. Learning gains by it only with matrix
    units (AMX): without them an update of the built-in model took 3.8 s instead of 2.9 s.

    Raises:
        UsageError: CUDA was asked for and there is none.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: this torch sees no CUDA device; use --device cpu or auto")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if base_precision == "auto":
        base_precision = "int8" if device == "cuda" else "fp32"
    if device == "cuda":
        # Volta has no bf16; float16 keeps small gradients with the help of a GradScaler.
        half = torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16
        return Compute(device, base_precision, half, half)
    learning = torch.bfloat16 if cpu_has_bf16() and cpu_has_matrix_units() else None
    return Compute(device, base_precision, learning, torch.bfloat16 if cpu_has_bf16() else torch.float32)


def cpu_has_bf16() -> bool:
    """Whether the processor multiplies bfloat16 natively (AVX-512 BF16 or AMX)."""
    return bool({"avx512_bf16", "amx_bf16"} & cpu_flags())


def cpu_has_matrix_units() -> bool:
    """Whether it multiplies small matrices of bfloat16 in one instruction (AMX)."""
    return "amx_bf16" in cpu_flags()
