"""Checks of what fits: prompts into the context, the KV cache into free memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.system.machine import available_memory_bytes


def affordable_sequences(
    wanted: int, length: int, bytes_per_token: int, more_bytes: int = 0, free: int | None = None
) -> int:
    """The number of sequences of ``length`` tokens that fit into half of the free memory, at most ``wanted``.

    The other half is for activations, logits and other programs.

    Args:
        more_bytes: what each sequence takes at any length.
        free: bytes that are free on the device; by default those of the CPU.

    Raises:
        SceError: not even one fits.
    """
    each = length * bytes_per_token + more_bytes
    affordable = (available_memory_bytes() if free is None else free) // 2 // max(1, each)
    if affordable < 1:
        raise SceError(
            f"not enough free memory: a context of {length} tokens needs {each >> 20} MiB; "
            "lower --max-tokens or shorten the prompt"
        )
    return min(wanted, affordable)


def encode_prompts(
    prompts: Iterable[str | Sequence[int]], encode: Callable[[str], list[int]], max_tokens: int, context: int
) -> list[list[int]]:
    """The tokens of each prompt, a text or tokens, all of which leave room for ``max_tokens`` more in the context.

    Raises:
        UsageError: one is empty.
        SceError: one is not Unicode text, or too long.
    """
    encoded = []
    for number, prompt in enumerate(prompts, 1):
        if isinstance(prompt, str):
            try:
                prompt.encode("utf-8")
            except UnicodeEncodeError:
                raise SceError(f"prompt {number} is not valid Unicode text") from None
            tokens = encode(prompt) if prompt else []
        else:
            tokens = list(prompt)
        if not tokens:
            raise UsageError(f"prompt {number} is empty; give the model at least one character")
        if len(tokens) + max_tokens > context:
            raise SceError(
                f"prompt {number} is too long: {len(tokens)} tokens and {max_tokens} to generate exceed the context "
                f"of {context}; shorten it or lower --max-tokens"
            )
        encoded.append(tokens)
    return encoded
