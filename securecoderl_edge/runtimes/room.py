"""How many sequences' keys and values there is memory for, known before it is taken."""

from __future__ import annotations

from securecoderl_edge.errors import SceError
from securecoderl_edge.system.machine import available_memory_bytes


def affordable_sequences(wanted: int, length: int, bytes_per_token: int) -> int:
    """At most ``wanted`` sequences of ``length`` tokens that half of the free memory has room for.

    The other half is for activations, logits and everybody else.

    Raises:
        SceError: there is not even room for one.
    """
    each = length * bytes_per_token
    affordable = available_memory_bytes() // 2 // each
    if affordable < 1:
        raise SceError(
            f"a context of {length} tokens needs {each >> 20} MiB of memory, which is not free here; "
            "lower --max-tokens or shorten the prompt"
        )
    return min(wanted, affordable)
