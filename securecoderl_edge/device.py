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
    """Device, format of the frozen base, and format of the matrix products (None: that of the weights)."""

    device: str
    base_precision: str
    autocast_dtype: torch.dtype | None

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which forward passes run."""
        if self.autocast_dtype is None:
            return nullcontext()
        return torch.autocast(self.device, self.autocast_dtype)

    @property
    def rollout_dtype(self) -> torch.dtype:
        """Format of the merged copy that samples."""
        return self.autocast_dtype or torch.float32


def choose_compute(device: str, base_precision: str) -> Compute:
    """Resolve ``auto``: CUDA if there is one; bf16 products where the hardware multiplies them, else fp32.

    Raises:
        UsageError: CUDA was asked for and there is none.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: this torch sees no CUDA device; use --device cpu or auto")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    bf16 = torch.cuda.get_device_capability() >= (8, 0) if device == "cuda" else cpu_has_bf16()
    if base_precision == "auto":
        base_precision = "int8" if device == "cuda" else "fp32"
    return Compute(device, base_precision, torch.bfloat16 if bf16 else None)


def cpu_has_bf16() -> bool:
    """Whether the processor multiplies bfloat16 natively (AVX-512 BF16 or AMX)."""
    return bool({"avx512_bf16", "amx_bf16"} & cpu_flags())
