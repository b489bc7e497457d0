"""What every runtime offers, whatever file format it reads: batched sampling with the same meaning everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from securecoderl_edge.chat import ChatTemplate

# What every runtime can take: llama.cpp aborts above so many threads, torch above so large a seed.
MAX_THREADS = 512
MAX_SEED = 2**32 - 1
# Samples of one prompt are decoded together; more are a slip of the hand that would take all memory.
MAX_SAMPLES = 10_000


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: temperature alone, from the model's whole distribution.

    ``temperature`` 0 is greedy decoding. ``seed`` fixes the draws of one runtime at one batch width; runtimes with
    other kernels, and other widths, give other samples of the same distribution.
    """

    temperature: float = 0.7
    max_tokens: int = 256
    seed: int = 42


@dataclass(frozen=True)
class Completion:
    """One sampled continuation.

    Attributes:
        text: decoded tokens without the end-of-sequence token.
        token_ids: what was sampled, the end-of-sequence token included when it was.
        logprobs: natural-log probability of each token under the model at temperature 1.
        finish: ``stop`` when the model ended its answer, ``length`` at ``max_tokens``.
        first_token_seconds: from the start of the prompt's processing to the first token.
        seconds: from the start of the prompt's processing to the last token.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length"]
    prompt_tokens: int
    first_token_seconds: float
    seconds: float


@dataclass(frozen=True)
class Usage:
    """What a runtime has spent since it was opened.

    ``decode_seconds`` is wall time of decoding steps over the whole batch, so ``decode_tokens / decode_seconds`` is
    the aggregate speed that a user sees.
    """

    prompt_tokens: int
    prompt_seconds: float
    decode_tokens: int
    decode_seconds: float
    peak_rss_bytes: int


class Runtime(Protocol):
    """A loaded model that completes prompts."""

    name: str

    @property
    def context(self) -> int:
        """Most tokens that a prompt and its completion may have together."""
        ...

    @property
    def prompt_style(self) -> str | None:
        """The style of prompts that the model was trained with here, as its files say; None if they do not."""
        ...

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The model's own, if it has one."""
        ...

    def generate(
        self,
        prompts: Sequence[str],
        n: int,
        sampling: Sampling,
        on_token: Callable[[int, int, str], None] | None = None,
    ) -> list[list[Completion]]:
        """``n`` completions of each prompt, in the order of the prompts.

        ``on_token(prompt_index, sample_index, text)`` is called with each piece of text as it is decoded.

        Raises:
            SceError: a prompt is empty or does not fit the context with ``max_tokens``.
        """
        ...

    def count_tokens(self, prompt: str) -> int:
        """Tokens of a prompt, start token included."""
        ...

    def usage(self) -> Usage:
        """Totals since opening."""
        ...

    def close(self) -> None:
        """Free the model; the runtime cannot be used afterwards."""
        ...
