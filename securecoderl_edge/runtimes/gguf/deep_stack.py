"""Calls of native code that recurses for every character of a text, and would end the process on a usual stack."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from securecoderl_edge.errors import SceError

T = TypeVar("T")

# The usual stack of 8 MiB suffices for so many bytes of text.
_SHORT = 4096
# Measured with a run of letters and the pre-tokenizer tekken: below half of it. Pages that are not used cost nothing.
_STACK_PER_BYTE = 2048


def on_deep_stack(length: int, work: Callable[[], T]) -> T:
    """What ``work`` returns for a text of ``length`` bytes.

    llama.cpp splits texts by expressions of ``std::regex`` for some pre-tokenizers (tekken, deepseek-coder, viking).

    Raises:
        SceError: the stack cannot be had.
    """
    if length <= _SHORT:
        return work()
    before = threading.stack_size(length * _STACK_PER_BYTE & ~0xFFFF)
    try:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work).result()
    except RuntimeError:  # of starting a thread
        raise SceError(f"a text of {length} bytes needs more memory to be tokenized; shorten it") from None
    finally:
        threading.stack_size(before)
