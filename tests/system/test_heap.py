"""Free memory of glibc's heap: returned when asked, and bounded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from securecoderl_edge.system import heap

pytestmark = pytest.mark.skipif(not heap.uses_glibc_malloc(), reason="other allocators are left alone")
FREE = """
from securecoderl_edge.system import heap
from securecoderl_edge.system.heap import bound_free_memory, return_free_memory

GROWTH_BYTES = heap.GROWTH_BYTES = heap.GROWTH_BYTES // 4


def resident():
    return int(open("/proc/self/statm").read().split()[1])


def kept(size, give_back):
    blocks = [bytearray(2000) for _ in range(size // 2000)]
    top = bytearray(2000)  # what lies below it is not given back by itself
    full = resident()
    del blocks
    give_back()
    return resident() / full
"""


def kept(call: str) -> float:
    """The part of a new process's memory that stays after it freed most of it and called the function."""
    code = f"{FREE}\nprint({call})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return float(done.stdout)


def test_what_is_free_in_the_heap_is_given_back() -> None:
    assert kept("kept(40_000_000, return_free_memory)") < 0.7
    assert kept("kept(40_000_000, lambda: None)") > 0.9


def test_free_memory_is_given_back_when_memory_has_grown_by_the_bound() -> None:
    assert kept("kept(GROWTH_BYTES // 2, bound_free_memory)") > 0.9
    assert kept("kept(2 * GROWTH_BYTES, bound_free_memory)") < 0.3
    # Growth counts from the last return, whatever is in memory.
    again = "[kept(2 * GROWTH_BYTES, bound_free_memory) for _ in range(3)][-1]"
    assert kept(f"(other := bytearray(1 << 27), {again})[1]") < 0.6
    early = "kept(GROWTH_BYTES // 2, bound_free_memory)"
    assert kept(f"(other := bytearray(1 << 27), return_free_memory(), {early})[2]") > 0.9
    # It counts from the lowest point, too.
    freed = "(other := bytearray(1 << 27), return_free_memory(), other.clear(), bound_free_memory())"
    assert kept(f"({freed}, kept(2 * GROWTH_BYTES, bound_free_memory))[1]") < 0.3


def test_a_system_that_hides_its_memory_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr("builtins.open", refuse)
    heap.return_free_memory()
    heap.bound_free_memory()
