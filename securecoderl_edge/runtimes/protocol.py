"""The protocol of all runtimes: batched sampling with the same meaning for every file format."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from securecoderl_edge.config import MAX_SEED, setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.runtimes.extras import NO_EXTRAS, Abilities, Extras, Prompt, TokenReport

# llama.cpp aborts with more threads.
MAX_THREADS = 512
# Samples of one prompt are decoded together; a larger number is a typing error that would take all memory.
MAX_SAMPLES = 10_000
MAX_TOKENS = 256

# Formats of the weights of models that torch computes.
BASE_PRECISIONS = ("auto", "fp32", "fp16", "bf16", "int8")

# Both are called with a prompt's index and a sample's, see `Generator.generate` and `Part`.
OnToken = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Sampling:
    """How tokens are sampled, and when a text ends.

    The logits are divided by the temperature first. Then ``top_k``, ``top_p`` and ``min_p`` drop tokens, in this order,
    each from those that the previous one left: the order of transformers.

    Attributes:
        temperature: 0 is greedy decoding, as is any below a millionth.
        seed: of the random numbers, one for each token, the same in all runtimes. Samples of one runtime at one batch
            width are reproducible; elsewhere they differ where rounding or quantization moves a probability.
        top_k: keep this many of the most likely tokens; 0 keeps all.
        top_p: keep the fewest most likely tokens that together have this probability (nucleus sampling, Holtzman et
            al. 2020).
        min_p: keep tokens with at least this fraction of the probability of the most likely one.
        stop: texts that end an answer; they are not part of it.

    Raises:
        UsageError: an invalid value.
    """

    temperature: float = 0.7
    max_tokens: int = MAX_TOKENS
    seed: int = 42
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or not 0 <= self.temperature < float("inf"):
            raise UsageError("expected max_tokens of at least 1 and a temperature of at least 0")
        if self.top_k < 0 or not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1:
            raise UsageError("expected top_k of at least 0, top_p above 0 and at most 1, min_p from 0 to 1")
        if not all(self.stop):
            raise UsageError("empty stop string: it would end every answer at its start")

    @property
    def truncate(self) -> Callable[[Any], Any] | None:
        """What excludes tokens, see `models.sampling.Sampler`; None if nothing does."""
        if self.top_k == 0 and self.top_p == 1 and self.min_p == 0:
            return None
        from securecoderl_edge.models.drawing import truncated  # loads NumPy, which no command does before it runs

        return partial(truncated, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p)


@dataclass(frozen=True)
class Completion:
    """One sampled continuation.

    Attributes:
        text: decoded tokens without the end-of-sequence token, up to a stop string.
        token_ids: the sampled tokens, including the end-of-sequence token if it was sampled.
        logprobs: natural-log probability of each token under the model at temperature 1.
        finish: ``stop`` if the model, a stop string or the end of the program ended the answer, ``length`` at
            ``max_tokens``.
        token_seconds: from the start of the prompt's processing to each token.
        reports, prompt_reports: of the sampled tokens and of the prompt, if `Extras` ask for them.
        stop: the stop string that ended it; empty if none did.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length"]
    prompt_tokens: int
    token_seconds: tuple[float, ...]
    reports: tuple[TokenReport, ...] = ()
    prompt_reports: tuple[TokenReport, ...] = ()
    stop: str = ""


@dataclass(frozen=True)
class Usage:
    """Tokens and wall seconds of a model, and the peak memory of its process.

    ``decode_seconds`` counts decoding steps over the whole batch, so ``decode_tokens / decode_seconds`` is the
    aggregate speed that a user sees.
    """

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    decode_tokens: int = 0
    decode_seconds: float = 0.0
    peak_rss_bytes: int = 0
    peak_gpu_bytes: int = 0  # torch's, on a GPU

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.prompt_seconds + other.prompt_seconds,
            self.decode_tokens + other.decode_tokens,
            self.decode_seconds + other.decode_seconds,
            max(self.peak_rss_bytes, other.peak_rss_bytes),
            max(self.peak_gpu_bytes, other.peak_gpu_bytes),
        )

    def __sub__(self, earlier: Usage) -> Usage:
        """The usage since ``earlier``; the peak memory is that of the whole time."""
        return self + Usage(
            -earlier.prompt_tokens, -earlier.prompt_seconds, -earlier.decode_tokens, -earlier.decode_seconds
        )


@dataclass(frozen=True)
class DecodingTask:
    """One sample that a `DecodingBatch` is to decode.

    Attributes:
        key: tells it from the other tasks of the batch.
        sample: its number among the samples of its request. With the seed it determines the random numbers, so a task
            does not depend on the others: the tokens are those of `Generator.generate` for this prompt alone, up to
            rounding, which differs between batches of different shapes.
        facts: see `Generator.generate`.
    """

    key: int
    prompt: Prompt
    sampling: Sampling
    sample: int = 0
    facts: PromptFacts | None = None
    extras: Extras = NO_EXTRAS


@dataclass(frozen=True)
class DecodingProgress:
    """News of one task after a step: the text that became certain, and the completion if it has ended."""

    key: Any
    text: str
    completion: Completion | None = None


@dataclass(frozen=True)
class Part:
    """Which samples of a request are computed, with which random numbers, and who is told when one ends.

    Attributes:
        seeds: of each prompt, the seed and the number that with a sample's number determine its random numbers. By
            default the seed of the `Sampling` and the prompt's index.
        skip: samples (prompt index, sample index) that are not computed.
        on_done: called with (prompt index, sample index, completion) when a sample ends, while others are decoded.
    """

    seeds: Sequence[tuple[int, int]] | None = None
    skip: Collection[tuple[int, int]] = frozenset()
    on_done: Callable[[int, int, Completion], None] | None = None

    def keys(self, prompts: int, n: int) -> list[tuple[int, int]]:
        """The samples to compute, by prompt, then by sample."""
        every = ((prompt, sample) for prompt in range(prompts) for sample in range(n))
        return [key for key in every if key not in self.skip]

    def seed_of(self, key: tuple[int, int], sampling: Sampling) -> tuple[int, int, int]:
        """The seed of one sample's random numbers."""
        prompt, sample = key
        return (*((sampling.seed, prompt) if self.seeds is None else self.seeds[prompt]), sample)

    def done(self, key: tuple[int, int], completion: Completion) -> None:
        """Tell that a sample has ended."""
        if self.on_done is not None:
            self.on_done(*key, completion)


WHOLE_REQUEST = Part()


class DecodingBatch(Protocol):
    """Samples that are decoded together; tasks join and leave between steps. One thread at a time may use it."""

    rows: int
    """Tasks that fit at the same time."""

    def add(self, tasks: Sequence[DecodingTask]) -> None:
        """Add at most as many tasks as rows are free; prompt and ``max_tokens`` of each fit the batch's length.

        Raises:
            SceError: a prompt cannot be encoded; then none is added.
        """
        ...

    def step(self) -> list[DecodingProgress]:
        """Decode one token of every task; an ended task leaves.

        Raises:
            SceError: the model failed; the batch cannot be used any more.
        """
        ...

    def drop(self, keys: Collection[int]) -> None:
        """Free the rows of tasks before their end; unknown keys are ignored."""
        ...

    def close(self) -> None:
        """Free the KV cache."""
        ...


class Generator(Protocol):
    """Completes prompts: a `Runtime`, or one request's part of a model that others use as well."""

    @property
    def context(self) -> int:
        """Maximum number of tokens of a prompt and its completion together."""
        ...

    def generate(
        self,
        prompts: Sequence[str],
        n: int,
        sampling: Sampling,
        on_token: OnToken | None = None,
        facts: Sequence[PromptFacts | None] | None = None,
    ) -> list[list[Completion]]:
        """``n`` completions of each prompt, in the order of the prompts.

        Args:
            on_token: called with (prompt index, sample index, text) for each piece of text as it is decoded.
            facts: of the function or program that each prompt requests; a completion ends with the program in it, see
                `extraction.is_over`.

        Raises:
            SceError: a prompt is empty or does not fit the context with ``max_tokens``.
        """
        ...

    def count_tokens(self, prompt: str) -> int:
        """Tokens of a prompt, start token included."""
        ...


class Runtime(Generator, Protocol):
    """A loaded model that completes prompts."""

    name: str

    def generate(
        self,
        prompts: Sequence[str],
        n: int,
        sampling: Sampling,
        on_token: OnToken | None = None,
        facts: Sequence[PromptFacts | None] | None = None,
        part: Part = WHOLE_REQUEST,
    ) -> list[list[Completion]]:
        """As `Generator.generate`, of a part of the samples; those that ``part`` skips are missing in the result."""
        ...

    @property
    def prompt_style(self) -> str | None:
        """The prompt style that `sce` trained the model with, from its files; None if they do not name one."""
        ...

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The chat template of the model, if it has one."""
        ...

    @property
    def abilities(self) -> Abilities:
        """What it can do beyond texts."""
        ...

    def controls(self) -> tuple[str, ...]:
        """The names of its special tokens, which are commands to the model unless a `text.SEAM` is within them."""
        ...

    def open_batch(self, rows: int, length: int) -> DecodingBatch:
        """A `DecodingBatch` of up to ``rows`` tasks of up to ``length`` tokens each; fewer rows if memory is short.

        Raises:
            SceError: the model cannot decode this way, or memory is insufficient for one row.
        """
        ...

    def usage(self) -> Usage:
        """Totals since opening, without those of batches; also while `generate` runs, up to the last ended sample."""
        ...

    def close(self) -> None:
        """Free the model; the runtime cannot be used afterwards."""
        ...


class TokenRuntime(Runtime, Protocol):
    """A runtime whose tokens its users handle."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text in which no special token is recognized, without a start token."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones by their names."""
        ...

    def knows_grammar(self, grammar: str) -> bool:
        """Whether it can follow a grammar."""
        ...


@dataclass(frozen=True)
class SamplingSettings:
    """`Sampling` as flags, see its docstring; and ``thinking``, see `ChatTemplate.thinks`."""

    temperature: float = setting(0.7, "Sampling temperature; 0: greedy decoding.", minimum=0, metavar="X")
    top_k: int = setting(0, "Top-k: sample from the K most likely tokens; 0: from all.", minimum=0, metavar="K")
    top_p: float = setting(
        1.0,
        "Top-p: sample from the most likely tokens with a total probability of P.",
        minimum=1e-6,
        maximum=1,
        metavar="P",
    )
    min_p: float = setting(
        0.0,
        "Min-p: drop tokens below P times the probability of the most likely one.",
        minimum=0,
        maximum=1,
        metavar="P",
    )
    max_tokens: int | None = setting(
        None,
        "Maximum number of tokens per completion.  [default: that of the run's training, else 256; 768 for benchmarks]",
        minimum=1,
        metavar="N",
    )
    seed: int = setting(42, "Random seed of sampling.", minimum=0, maximum=MAX_SEED, metavar="N")
    thinking: bool = setting(False, "Let models that can think do so before they answer; raise --max-tokens, too.")

    def sampling(self, stop: tuple[str, ...] = ()) -> Sampling:
        """The settings as `Sampling`, with stop strings."""
        return Sampling(
            self.temperature, self.max_tokens or MAX_TOKENS, self.seed, self.top_k, self.top_p, self.min_p, stop
        )


def batch_seed(seed: int, start: int) -> int:
    """The seed of the batch that begins at problem ``start``; neighboring seeds and batches are unrelated."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{start}".encode()).digest()[:4], "big") >> 1
