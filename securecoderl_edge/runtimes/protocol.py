"""What every runtime offers, whatever file format it reads: batched sampling with the same meaning everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from securecoderl_edge.config import MAX_SEED, setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.extraction import Asked

# llama.cpp aborts above so many threads.
MAX_THREADS = 512
# Samples of one prompt are decoded together; more are a slip of the hand that would take all memory.
MAX_SAMPLES = 10_000
_LOWEST_TEMPERATURE = 1e-6

OnToken = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, and when a text has ended.

    The logits are divided by the temperature first; then ``top_k``, ``top_p`` and ``min_p``, in this order, leave
    tokens out, each from what the one before has left: the order of transformers.

    Attributes:
        temperature: 0 is greedy decoding.
        seed: fixes the draws of one runtime at one batch width; runtimes with other kernels, and other widths, give
            other samples of the same distribution.
        top_k: as many of the likeliest tokens are kept; 0 keeps all.
        top_p: the fewest of the likeliest tokens that make up this share of the probability are kept (nucleus
            sampling, Holtzman et al. 2020).
        min_p: tokens at least this share as likely as the likeliest one are kept.
        stop: texts that end an answer; they are no part of it.

    Raises:
        UsageError: a value that makes no sense.
    """

    temperature: float = 0.7
    max_tokens: int = 256
    seed: int = 42
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or not 0 <= self.temperature < float("inf"):
            raise UsageError("sampling needs at least one token, at a temperature of 0 or more")
        if self.top_k < 0 or not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1:
            raise UsageError("sampling needs top-k of 0 or more, top-p above 0 and at most 1, min-p from 0 to 1")
        if not all(self.stop):
            raise UsageError("an empty stop string would end every answer before it begins")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken: logits divided by so little overflow, and it would be long before."""
        return self.temperature < _LOWEST_TEMPERATURE

    @property
    def draws_from_all(self) -> bool:
        """Whether no token is left out."""
        return self.top_k == 0 and self.top_p == 1 and self.min_p == 0


@dataclass(frozen=True)
class Completion:
    """One sampled continuation.

    Attributes:
        text: decoded tokens without the end-of-sequence token, up to a stop string.
        token_ids: what was sampled, the end-of-sequence token included when it was.
        logprobs: natural-log probability of each token under the model at temperature 1.
        finish: ``stop`` when the model, a stop string or the end of the program ended the answer, ``length`` at
            ``max_tokens``.
        token_seconds: from the start of the prompt's processing to each token.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length"]
    prompt_tokens: int
    token_seconds: tuple[float, ...]


@dataclass(frozen=True)
class Usage:
    """Tokens and wall seconds that a model has taken, and the most memory that its process had.

    ``decode_seconds`` is that of decoding steps over the whole batch, so ``decode_tokens / decode_seconds`` is
    the aggregate speed that a user sees.
    """

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    decode_tokens: int = 0
    decode_seconds: float = 0.0
    peak_rss_bytes: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.prompt_seconds + other.prompt_seconds,
            self.decode_tokens + other.decode_tokens,
            self.decode_seconds + other.decode_seconds,
            max(self.peak_rss_bytes, other.peak_rss_bytes),
        )

    def __sub__(self, earlier: Usage) -> Usage:
        """What came since ``earlier``; the memory is that of the whole time."""
        return Usage(
            self.prompt_tokens - earlier.prompt_tokens,
            self.prompt_seconds - earlier.prompt_seconds,
            self.decode_tokens - earlier.decode_tokens,
            self.decode_seconds - earlier.decode_seconds,
            self.peak_rss_bytes,
        )


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
        on_token: OnToken | None = None,
        asked: Sequence[Asked] | None = None,
    ) -> list[list[Completion]]:
        """``n`` completions of each prompt, in the order of the prompts.

        Args:
            on_token: called with (prompt index, sample index, text) for each piece of text as it is decoded.
            asked: what each prompt asks for; a completion ends where the program in it does, see `extraction.is_over`.

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


@dataclass(frozen=True)
class SamplingSettings:
    """`Sampling` as flags; what they mean is said there."""

    temperature: float = setting(0.7, "Randomness of sampling; 0 is greedy.", minimum=0, metavar="X")
    top_k: int = setting(0, "Draw from the K likeliest tokens alone; 0 is all.", minimum=0, metavar="K")
    top_p: float = setting(
        1.0, "Draw from the likeliest tokens that make up this share alone.", minimum=1e-6, maximum=1, metavar="P"
    )
    min_p: float = setting(
        0.0, "Draw from tokens alone that are this likely beside the likeliest.", minimum=0, maximum=1, metavar="P"
    )
    max_tokens: int = setting(256, "Longest completion.", minimum=1, metavar="N")
    seed: int = setting(42, "Seed of the sampling.", minimum=0, maximum=MAX_SEED, metavar="N")

    def sampling(self, stop: tuple[str, ...] = ()) -> Sampling:
        """The settings, with texts that end an answer."""
        return Sampling(self.temperature, self.max_tokens, self.seed, self.top_k, self.top_p, self.min_p, stop)
