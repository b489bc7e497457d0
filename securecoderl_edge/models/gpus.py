"""The devices that a user can ask for, and facts about GPUs; without torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from securecoderl_edge.config import setting
from securecoderl_edge.models.sizes import GIB, HAS_INT8_UNITS

DEVICES = ("auto", "cpu", "cuda")
# https://github.com/pytorch/pytorch/blob/main/RELEASE.md: CUDA 12.6 wheels, the last with kernels for Volta and older,
# are built up to torch 2.14.
_OLDER_CUDA = "pip install --force-reinstall 'torch<2.15' --index-url https://download.pytorch.org/whl/cu126"


@dataclass(frozen=True)
class Gpu:
    """A GPU that a run can be planned for.

    Attributes:
        capability: compute capability.
        memory_gib: that torch can use; a little less than the name says.
        half_tflops: peak of its matrix units in 16 bits with sums in 32 bits, dense. float_tflops: peak in float32.
        gb_per_second: bandwidth of its memory.
    """

    name: str
    capability: tuple[int, int]
    memory_gib: float
    half_tflops: float
    float_tflops: float
    gb_per_second: float

    @property
    def memory_bytes(self) -> int:
        """The memory that torch can use."""
        return int(self.memory_gib * GIB)


# Speeds are those of NVIDIA's data sheets.
GPUS = {
    "v100-16": Gpu("V100 with 16 GB", (7, 0), 15.7, 125, 15.7, 900),
    "v100-32": Gpu("V100 with 32 GB", (7, 0), 31.7, 125, 15.7, 900),
    "t4-16": Gpu("T4 with 16 GB", (7, 5), 14.5, 65, 8.1, 320),
    "rtx3060-12": Gpu("RTX 3060 with 12 GB", (8, 6), 11.7, 25, 12.7, 360),
    "rtx3090-24": Gpu("RTX 3090 with 24 GB", (8, 6), 23.6, 71, 35.6, 936),
    "rtx4090-24": Gpu("RTX 4090 with 24 GB", (8, 9), 23.6, 165, 82.6, 1008),
    "a10-24": Gpu("A10 with 24 GB", (8, 6), 22.0, 125, 31.2, 600),
    "l4-24": Gpu("L4 with 24 GB", (8, 9), 21.9, 121, 30.3, 300),
    "a100-40": Gpu("A100 with 40 GB", (8, 0), 39.3, 312, 19.5, 1555),
    "a100-80": Gpu("A100 with 80 GB", (8, 0), 79.1, 312, 19.5, 2039),
    "h100-80": Gpu("H100 with 80 GB", (9, 0), 79.1, 989, 67, 3350),
    "h200-141": Gpu("H200 with 141 GB", (9, 0), 139.8, 989, 67, 4800),
}
# That of the paper.
PAPERS_GPU = "v100-16"


def device_setting(default: str = "auto") -> str:
    """The setting of `DEVICES`."""
    device: str = setting(
        default, "Device to compute on. auto: an NVIDIA GPU if a test on it succeeds, else the CPU.", choices=DEVICES
    )
    return device


def has_kernels(capability: tuple[int, int], architectures: Sequence[str]) -> bool:
    """Whether a torch can run on a GPU.

    Binaries run on later minor versions of their major version; PTX on everything later.

    Args:
        architectures: those that torch has kernels for, such as ``sm_80``, or ``compute_90``, which can be compiled for
            later ones.
    """
    for architecture in architectures:
        match = re.match(r"(sm|compute)_(\d+)(\d)", architecture)
        if match:
            built = (int(match[2]), int(match[3]))
            if built <= capability and (match[1] == "compute" or built[0] == capability[0]):
                return True
    return False


def torch_with_kernels(capability: tuple[int, int]) -> str:
    """How to get a torch for a GPU that the installed one has no kernels for."""
    return _OLDER_CUDA if capability < HAS_INT8_UNITS else "install a newer torch"
