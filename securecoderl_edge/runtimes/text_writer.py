"""The text of one sample as its tokens arrive: shown in whole characters, ended at a stop string."""

from __future__ import annotations

import codecs
import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from securecoderl_edge.models.drawing import draw, logprobs_of
from securecoderl_edge.prompts.extraction import PromptFacts, is_over
from securecoderl_edge.runtimes.extras import NO_EXTRAS, TokenReport
from securecoderl_edge.runtimes.protocol import Completion, DecodingProgress, DecodingTask, OnToken, Sampling

_DECODED_AGAIN = 8  # tokens, at least


class TextWriter:
    """Collects text and passes it on, except for an end that may be the beginning of a stop string.

    Args:
        stops: texts that end the sample; it is cut before the first that appears.
        show: called with each piece of text that is certain.
        is_over: called with the text at each new line; True ends the sample.
    """

    def __init__(
        self,
        stops: Sequence[str] = (),
        show: Callable[[str], None] | None = None,
        is_over: Callable[[str], bool] | None = None,
    ) -> None:
        self._stops, self._show, self._is_over = tuple(stops), show, is_over
        self._longest, self._firsts = max(map(len, stops), default=0), {stop[:1] for stop in stops}
        self._shown = 0
        self.text = self.stop = ""
        self.is_stopped = False

    def add(self, piece: str) -> bool:
        """Add text; returns whether the sample has ended."""
        if self.is_stopped or not piece:
            return self.is_stopped
        start = max(0, len(self.text) - self._longest + 1)
        self.text += piece
        ends = [(end, stop) for stop in self._stops if (end := self.text.find(stop, start)) >= 0]
        if ends:
            end, self.stop = min(ends)
            self.text, self.is_stopped = self.text[:end], True
        elif self._is_over is not None and "\n" in piece:
            self.is_stopped = self._is_over(self.text)
        self._pass_on(len(self.text) if self.is_stopped else len(self.text) - self._uncertain())
        return self.is_stopped

    def end(self) -> str:
        """Pass on the rest; returns the whole text."""
        self._pass_on(len(self.text))
        return self.text

    def _uncertain(self) -> int:
        """Number of characters at the end that may begin a stop string."""
        places = range(max(0, len(self.text) - self._longest + 1), len(self.text))
        # A client may send many long stop strings: few places have the first character of one.
        tails = (self.text[place:] for place in places if self.text[place] in self._firsts)
        return next((len(tail) for tail in tails if any(stop.startswith(tail) for stop in self._stops)), 0)

    def _pass_on(self, end: int) -> None:
        if self._show is not None and end > self._shown:
            self._show(self.text[self._shown : end])
        self._shown = max(self._shown, end)


def end_of_program(facts: PromptFacts | None) -> Callable[[str], bool] | None:
    """``is_over`` for `TextWriter`: whether a text contains the whole program; None without ``facts``."""
    return None if facts is None else lambda text: is_over(text, facts)


def open_writer(
    sampling: Sampling, key: tuple[int, int], on_token: OnToken | None, facts: Sequence[PromptFacts | None] | None
) -> TextWriter:
    """The writer of one sample, identified by the indices of its prompt and of the sample."""
    show = functools.partial(on_token, *key) if on_token else None
    return TextWriter(sampling.stop, show, end_of_program(facts[key[0]] if facts else None))


class TokenText:
    """Incremental decoding, for tokenizers that decode only whole lists of tokens.

    A token may hold part of a character; it is held back until the character is complete. Of the tokens before, the
    last ones are decoded again, from one after which all characters were complete.

    Args:
        decode: decodes a list of token ids, without special tokens.
        shown: texts of special tokens to be shown nevertheless, by their ids.
    """

    def __init__(self, decode: Callable[[list[int]], str], shown: Mapping[int, str]) -> None:
        self._decode, self._shown = decode, shown
        self._ids: list[int] = []
        self._length = self._complete = 0  # of their text; of those before, the number with complete characters

    def add(self, token: int) -> str:
        """The text that ``token`` adds."""
        if token in self._shown:
            before = self.end()
            self._ids, self._length, self._complete = [], 0, 0
            return before + self._shown[token]
        self._ids.append(token)
        text = self._decode(self._ids)
        if text.endswith("\ufffd"):
            return ""
        new = self._grow(text)
        if len(self._ids) >= self._complete + _DECODED_AGAIN:
            self._forget()
        return new

    def _forget(self) -> None:
        """Keep the last tokens alone, unless nothing is before the next one then, whose leading space could be lost."""
        text = self._decode(self._ids[self._complete :])
        if text:
            self._ids, self._length = self._ids[self._complete :], len(text)
        self._complete = len(self._ids)

    def end(self) -> str:
        """The remaining text, which may be an incomplete character."""
        return self._grow(self._decode(self._ids)) if self._ids else ""

    def _grow(self, text: str) -> str:
        new, self._length = text[self._length :], max(self._length, len(text))
        return new


class BytesText:
    """As `TokenText`, for tokens that are bytes of UTF-8 text.

    Args:
        piece: the bytes of a token.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece, self._decoder = piece, codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """The text that ``token`` adds."""
        return self._decoder.decode(self._piece(token))

    def end(self) -> str:
        """The remaining text, which is an incomplete character."""
        return self._decoder.decode(b"", final=True)


class PartialCompletion:
    """A completion in progress: its tokens, and the text that they make.

    Args:
        is_end: whether a token ends an answer.
        pieces, writer: of this completion alone.
        seed: of its random numbers, for `draw`.
    """

    def __init__(
        self,
        sampling: Sampling,
        is_end: Callable[[int], bool],
        pieces: TokenText | BytesText,
        writer: TextWriter,
        seed: Sequence[int] = (),
    ) -> None:
        self._sampling, self._is_end, self._pieces, self._text = sampling, is_end, pieces, writer
        # Its own, so that it does not depend on the rest of the batch.
        self._random = np.random.default_rng(seed)
        self.extras = NO_EXTRAS
        self.tokens: list[int] = []
        self._counts: Counter[int] = Counter()
        self.reports: list[TokenReport] = []
        self.prompt_reports: list[TokenReport] = []
        self._logprobs: list[float] = []
        self._finish: Literal["stop", "length"] = "length"
        self.started = 0.0
        self._times: list[float] = []
        self.is_done = False

    @property
    def text(self) -> str:
        """What has been written so far."""
        return self._text.text

    def draw(self, logits: np.ndarray[Any, Any], allowed: np.ndarray[Any, Any] | None = None) -> tuple[int, float]:
        """A token from the logits (V,) of the next one, and its log-probability; for `add`.

        Args:
            allowed: whether each token (V,) may be sampled; one may.
        """
        scores, penalties = logits, self.penalties()
        if penalties is not None:
            scores = logits.copy()
            scores[penalties[0]] -= penalties[1]
        if allowed is not None:
            scores = np.where(allowed, scores, -np.inf)
        token, logprob = draw(scores, self._sampling.temperature, self._random, self._sampling.truncate)
        return token, logprob if scores is logits else logprobs_of(logits, [token])[0]

    def penalties(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
        """The tokens that the completion has, and by how much their logits are to be lower; None without penalties."""
        frequency, presence = self.extras.frequency_penalty, self.extras.presence_penalty
        if not (frequency or presence) or not self._counts:
            return None
        counts = np.fromiter(self._counts.values(), np.float32)
        return np.fromiter(self._counts, np.int64), frequency * counts + np.float32(presence)

    def add(self, token: int, logprob: float = 0.0) -> None:
        """Add the next token; callers that know its log-probability only later put it into the completion."""
        self.tokens.append(token)
        self._counts[token] += 1
        self._times.append(time.monotonic())
        self._logprobs.append(logprob)
        if self._is_end(token) or self._text.add(self._pieces.add(token)):
            self._finish = "stop"
        self.is_done = self._finish == "stop" or len(self.tokens) == self._sampling.max_tokens
        if self.is_done:
            self._text.add(self._pieces.end())
            self._text.end()

    def completion(self, prompt_tokens: int) -> Completion:
        """The finished completion."""
        return Completion(
            self._text.text,
            tuple(self.tokens),
            tuple(self._logprobs),
            self._finish,
            prompt_tokens,
            tuple(time - self.started for time in self._times),
            tuple(self.reports),
            tuple(self.prompt_reports),
            self._text.stop,
        )


# Begins the completion of a task, which shows its text to the function.
Begin = Callable[[DecodingTask, Callable[[str], None]], PartialCompletion]


class BatchRow:
    """A task in a `protocol.DecodingBatch`, its completion, and the text that has become certain since the last step.

    Args:
        started: when the processing of its prompt began, see `Completion`.
    """

    def __init__(self, task: DecodingTask, prompt_tokens: int, begin: Begin, started: float) -> None:
        self.task, self.prompt_tokens = task, prompt_tokens
        self._news: list[str] = []
        self.partial = begin(task, self._news.append)
        self.partial.extras = task.extras
        self.partial.started = started

    def progress(self) -> list[DecodingProgress]:
        """The news of a step, if there are any."""
        done = self.partial.completion(self.prompt_tokens) if self.partial.is_done else None
        text = "".join(self._news)
        self._news.clear()
        return [DecodingProgress(self.task.key, text, done)] if text or done else []
