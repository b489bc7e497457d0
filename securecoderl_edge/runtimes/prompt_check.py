"""Prompts that a model can be given."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from securecoderl_edge.errors import SceError, UsageError


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
