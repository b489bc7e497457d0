"""Facts about the machine and its software, and the memory use of this process; without torch."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise, takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from securecoderl_edge import __version__

CGROUP, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_PACKAGES = (
    *("numpy", "bandit", "torch", "transformers", "peft", "bitsandbytes", "tokenizers"),
    *("llama-cpp-python", "gguf", "onnx", "onnxruntime"),
)


def describe_machine() -> dict[str, Any]:
    """CPU, cores, memory, current load, system and versions, as a JSON object.

    ``load_average`` (1, 5, 15 minutes) shows if other processes used the cores, which makes a speed unreliable.
    """
    return {
        "cpu": cpu_model(),
        "cores": cpu_count(),
        "memory_bytes": memory_bytes(),
        "gpus": [name for name, _ in _listed_gpus()],
        "load_average": load_average(),
        "system": f"{platform.system()} {platform.release()}",
        "versions": versions(),
    }


def cpu_model() -> str:
    """The processor's name."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def cpu_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def cpu_flags() -> frozenset[str]:
    """Instruction-set flags as Linux names them; empty elsewhere."""
    path = Path("/proc/cpuinfo")
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def cpu_has_bf16() -> bool:
    """Whether the CPU multiplies bfloat16 natively (AVX-512 BF16 or AMX)."""
    return bool({"avx512_bf16", "amx_bf16"} & cpu_flags())


def cpu_has_matrix_units() -> bool:
    """Whether the CPU multiplies small matrices of bfloat16 in one instruction (AMX)."""
    return "amx_bf16" in cpu_flags()


def visible_gpus() -> list[str]:
    """NVIDIA GPUs that a child process may use, as CUDA_VISIBLE_DEVICES names them; without loading torch."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        # CUDA ignores what follows an entry that is no device.
        return list(takewhile(lambda name: name not in ("", "-1"), (name.strip() for name in chosen.split(","))))
    # Not by number: those of nvidia-smi and CUDA can differ. A GPU that is split into MIG devices is not used itself.
    names = [identifier for _, identifier in _listed_gpus()]
    return [name for name, following in pairwise([*names, ""]) if name[:4] == "MIG-" or following[:4] != "MIG-"]


def _listed_gpus() -> list[tuple[str, str]]:
    """Name and identifier of each NVIDIA GPU, and of each part of a GPU."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return re.findall(r"^\s*(?:GPU \d+: )?(.+?) *\(UUID: ([^)]+)\)", listed, re.MULTILINE)


def memory_bytes() -> int:
    """Physical memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_memory_bytes() -> int:
    """Memory that a new process may fill without swapping: free memory, or what the container's limit leaves.

    Half of the total on systems that do not report free memory.
    """
    path = Path("/proc/meminfo")
    if not path.is_file():
        return memory_bytes() // 2
    sizes = dict(line.split(":") for line in path.read_text(encoding="ascii").splitlines())
    free = int(sizes["MemAvailable"].split()[0]) << 10
    return max(0, min(free, *(limit - used for limit, used in _container_memory())))


def memory_limit_bytes() -> int:
    """The most memory that all processes here may ever use: all physical memory, or the container's limit."""
    return min(memory_bytes(), *(limit for limit, _ in _container_memory()))


def load_average() -> list[float]:
    """Runnable processes over the last 1, 5 and 15 minutes; empty if the system does not report them."""
    try:
        return [round(load, 2) for load in os.getloadavg()]
    except OSError:
        return []


def busy_share(seconds: float = 0.25) -> float | None:
    """The fraction of all cores in use, sampled for ``seconds``; None if the system does not report it.

    The load average also counts processes that ended minutes ago, such as our own training.
    """
    try:
        before = _core_times()
        time.sleep(seconds)
        after = _core_times()
    except (OSError, ValueError, IndexError):
        return None
    spent = [b - a for a, b in zip(before, after, strict=True)]
    idle = spent[3] + spent[4]  # waiting for a disk is no work
    return 1 - idle / sum(spent) if sum(spent) else None


def _core_times() -> list[int]:
    """Ticks of all cores since the start: user, nice, system, idle, waiting, ..."""
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    return [int(field) for field in first.split()[1:9]]


def _container_memory() -> list[tuple[int, int]]:
    """(limit, use) of the control groups that this process is in, up to the one that a container shows as its root.

    Containers, jobs of batch systems and systemd services are such groups. The page cache of files can be freed, so it
    does not count as in use.
    """
    limits = [(sys.maxsize, 0)]
    for folder, limit, used in _memory_groups():
        cached = 0
        with suppress(OSError, ValueError):
            stat = dict(line.split(maxsplit=1) for line in (folder / "memory.stat").read_text().splitlines())
            cached = int(stat.get("total_inactive_file", stat.get("inactive_file", "0")))
        with suppress(OSError, ValueError):  # not that version; "max" is no limit
            limits.append((int((folder / limit).read_text()), max(0, int((folder / used).read_text()) - cached)))
    return limits


def _memory_groups() -> list[tuple[Path, str, str]]:
    """Folders of this process's control groups, with the names of their files of limit and use; cgroup 2, then 1."""
    files = {"": ("memory.max", "memory.current"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes")}
    own = {"": "/", "memory": "/"}
    try:
        lines = OWN_CGROUPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        kind = "memory" if "memory" in controllers.split(",") else controllers
        if kind in own:
            own[kind] = path
    groups = []
    for kind, names in files.items():
        innermost = PurePosixPath(own[kind])
        groups += [(CGROUP / kind / str(each).lstrip("/"), *names) for each in (innermost, *innermost.parents)]
    return groups


def versions() -> dict[str, str]:
    """Versions of Python, this package, and those installed packages that affect results."""
    return {"python": platform.python_version(), "securecoderl-edge": __version__, **installed(_PACKAGES)}


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Versions of those packages that are installed."""
    known = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            known[package] = version(package)
    return known


def peak_rss_bytes() -> int:
    """Largest resident size of this process so far.

    From /proc if it exists: a child's getrusage begins with the peak of its parent.
    """
    with suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB
