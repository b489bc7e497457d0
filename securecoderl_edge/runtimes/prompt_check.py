"""Prompts that a model can be given."""

from __future__ import annotations

from collections.abc import Callable

from securecoderl_edge.errors import SceError, UsageError


def tokens_of(prompt: str, encode: Callable[[str], list[int]], max_tokens: int, context: int) -> list[int]:
    """The tokens of a prompt that leaves room for ``max_tokens`` more in the context.

    Raises:
        UsageError: it is empty.
        SceError: it is no Unicode text, or too long.
    """
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError:
        raise SceError("the prompt is not valid Unicode text") from None
    tokens = encode(prompt)
    if not prompt.strip() or not tokens:
        raise UsageError("the prompt is empty")
    if len(tokens) + max_tokens > context:
        raise SceError(
            f"the prompt has {len(tokens)} tokens; with {max_tokens} to generate it exceeds the model's context "
            f"of {context}: shorten it or lower --max-tokens"
        )
    return tokens
