"""What fits: prompts into a context, and keys and values into the memory that is free."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from securecoderl_edge.errors import SceError, UsageError
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


def encode_prompts(
    prompts: Iterable[str], encode: Callable[[str], list[int]], max_tokens: int, context: int
) -> list[list[int]]:
    """The tokens of each prompt, all of which leave room for ``max_tokens`` more in the context.

    Raises:
        UsageError: one is empty.
        SceError: one is no Unicode text, or too long.
    """
    encoded = []
    for number, prompt in enumerate(prompts, 1):
        try:
            prompt.encode("utf-8")
        except UnicodeEncodeError:
            raise SceError(f"prompt {number} is not valid Unicode text") from None
        tokens = encode(prompt) if prompt else []
        if not tokens:
            raise UsageError(f"prompt {number} is empty; give the model at least one character")
        if len(tokens) + max_tokens > context:
            raise SceError(
                f"prompt {number} has {len(tokens)} tokens; with {max_tokens} to generate it exceeds the model's "
                f"context of {context}: shorten it or lower --max-tokens"
            )
        encoded.append(tokens)
    return encoded
