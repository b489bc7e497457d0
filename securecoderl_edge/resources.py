"""What this process uses of the machine."""

from __future__ import annotations

import ctypes
import resource
import sys

_M_MMAP_THRESHOLD = -3  # of <malloc.h>
_LARGE_BLOCK_BYTES = 4 << 20


def peak_rss_bytes() -> int:
    """Largest resident size of this process so far.

    From /proc where there is one: a child's getrusage begins with the peak of the parent that started it.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB


def return_large_blocks() -> None:
    """Have glibc give freed blocks of 4 MiB and more back to the system at once; other C libraries are left alone.

    Batches of ever different lengths otherwise leave holes in the heap, and training grows to twice its size.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


def return_free_memory() -> None:
    """Have glibc give back what is free anywhere in its heap, in milliseconds; other C libraries are left alone."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
