"""The text of one sample as its tokens come: shown in whole characters, ended at a stop string."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from securecoderl_edge.prompts.extraction import Asked, is_over
from securecoderl_edge.runtimes.protocol import OnToken, Sampling


class TextWriter:
    """Collects text and passes it on, but for what may turn out to be the beginning of a stop string.

    Args:
        stops: texts that end the sample; the first to appear, and all that follows it, are no part of it.
        show: told each piece of text that is certain.
        is_over: asked at each new line whether the text so far is all that is wanted; it stays as it is then.
    """

    def __init__(
        self,
        stops: Sequence[str] = (),
        show: Callable[[str], None] | None = None,
        is_over: Callable[[str], bool] | None = None,
    ) -> None:
        self._stops, self._show, self._is_over = tuple(stops), show, is_over
        self._longest = max(map(len, stops), default=0)
        self._shown = 0
        self.text = ""
        self.is_stopped = False

    def add(self, piece: str) -> bool:
        """Add text; whether it has ended."""
        if self.is_stopped or not piece:
            return self.is_stopped
        start = max(0, len(self.text) - self._longest + 1)
        self.text += piece
        found = [place for stop in self._stops if (place := self.text.find(stop, start)) >= 0]
        if found:
            self.text, self.is_stopped = self.text[: min(found)], True
        elif self._is_over is not None and "\n" in piece:
            self.is_stopped = self._is_over(self.text)
        self._pass_on(len(self.text) if self.is_stopped else len(self.text) - self._uncertain())
        return self.is_stopped

    def end(self) -> str:
        """Pass on the rest; the whole text."""
        self._pass_on(len(self.text))
        return self.text

    def _uncertain(self) -> int:
        """Characters at the end that a stop string begins with."""
        longest = min(self._longest - 1, len(self.text))
        tails = (length for length in range(longest, 0, -1) if self._is_beginning(self.text[-length:]))
        return next(tails, 0)

    def _is_beginning(self, tail: str) -> bool:
        return any(stop.startswith(tail) for stop in self._stops)

    def _pass_on(self, end: int) -> None:
        if self._show is not None and end > self._shown:
            self._show(self.text[self._shown : end])
        self._shown = max(self._shown, end)


def end_of_program(asked: Sequence[Asked] | None, prompt: int) -> Callable[[str], bool] | None:
    """Whether a text has all of its program, for `TextWriter`; None where nothing is known of what is asked."""
    return None if asked is None else lambda text: is_over(text, asked[prompt])


def open_writer(
    sampling: Sampling, key: tuple[int, int], on_token: OnToken | None, asked: Sequence[Asked] | None
) -> TextWriter:
    """The writer of one sample, named by the indices of its prompt and of itself."""
    show = functools.partial(on_token, *key) if on_token else None
    return TextWriter(sampling.stop, show, end_of_program(asked, key[0]))


class TokenText:
    """The growth of a text with its tokens, for tokenizers that decode whole lists of them.

    A token may hold part of a character; such a part is kept until the rest of it has come.

    Args:
        decode: of a list of token ids, special ones left out.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._length = 0

    def add(self, token: int) -> str:
        """The text that is new with ``token``."""
        self._ids.append(token)
        text = self._decode(self._ids)
        return "" if text.endswith("\ufffd") else self._grow(text)

    def end(self) -> str:
        """What is left, half a character maybe."""
        return self._grow(self._decode(self._ids)) if self._ids else ""

    def _grow(self, text: str) -> str:
        new, self._length = text[self._length :], max(self._length, len(text))
        return new
