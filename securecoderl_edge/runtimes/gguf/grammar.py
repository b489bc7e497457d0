"""A grammar in llama.cpp's GBNF that the tokens of one completion follow."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llama_cpp
import numpy as np

from securecoderl_edge.errors import SceError
from securecoderl_edge.runtimes.extras import Extras

# llama.cpp's llama_token_data.
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Grammar:
    """What a grammar permits next.

    Args:
        vocabulary: llama.cpp's. size: number of its tokens.
        rule: with which texts begin.

    Raises:
        SceError: llama.cpp cannot read the grammar.
    """

    def __init__(self, vocabulary: Any, size: int, text: str, rule: str) -> None:
        self._sampler = llama_cpp.llama_sampler_init_grammar(vocabulary, text.encode(), rule.encode())
        if not self._sampler:
            raise SceError("llama.cpp cannot read the grammar")
        self._size = size

    def allows(self, token: int) -> bool:
        """Whether a token may come next."""
        return bool(self._apply(np.array([token]))[0])

    def allowed(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each token (V,) may come next."""
        return self._apply(np.arange(self._size))

    def accept(self, token: int) -> None:
        """Take a token that is allowed; llama.cpp would end the process for another."""
        llama_cpp.llama_sampler_accept(self._sampler, token)

    def _apply(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        candidates = np.zeros(len(tokens), _CANDIDATE)
        candidates["id"] = tokens
        array = llama_cpp.llama_token_data_array()
        array.data = candidates.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
        array.size, array.selected, array.sorted = len(candidates), -1, False
        llama_cpp.llama_sampler_apply(self._sampler, ctypes.byref(array))
        found: np.ndarray[Any, np.dtype[np.bool_]] = np.isfinite(candidates["logit"])
        return found

    def __del__(self) -> None:
        if getattr(self, "_sampler", None):
            llama_cpp.llama_sampler_free(self._sampler)


class Constraint:
    """The grammar of a completion, which may hold from its start or from a later place on, see `Extras`.

    Args:
        extras: with a grammar.
        open_grammar: opens it at a rule.
        encode: the tokens of a text.
    """

    def __init__(
        self, extras: Extras, open_grammar: Callable[[str], Grammar], encode: Callable[[str], list[int]]
    ) -> None:
        self._open, self._encode = open_grammar, encode
        self._after, self._within = extras.grammar_after, extras.grammar_within
        self._grammar = open_grammar("root") if extras.is_bound else None
        # What the text has followed so far; it does not hold yet.
        self._whole = open_grammar("whole") if self._within else None

    def forbids(self, token: int) -> bool:
        """Whether a token must not come next."""
        return self._grammar is not None and not self._grammar.allows(token)

    def allowed(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each token (V,) may come next; only after `forbids` was true."""
        assert self._grammar is not None
        return self._grammar.allowed()

    def reads(self, named: bytes) -> bool:
        """Whether the name of a control token is text: to the grammar it is, and so is a sign that it holds from."""
        return self._grammar is not None or named in self._after.encode()

    def add(self, token: int, text: str) -> None:
        """Take the next token, which makes the completion ``text``."""
        if self._grammar is not None:
            self._grammar.accept(token)
            return
        if self._whole is not None and self._whole.allows(token):
            self._whole.accept(token)
            if self._within in text:
                self._grammar = self._whole
                return
        else:
            self._whole = None
        if self._after and self._after in text:
            self._begin(text.partition(self._after)[2])

    def _begin(self, rest: str) -> None:
        """Let the grammar hold; ``rest`` has come with the last token of the text before it, perhaps with spaces."""
        self._grammar, self._after = self._open("root"), ""
        for token in self._encode(rest.lstrip()):
            if not self._grammar.allows(token):
                self._grammar = None  # the model has begun something else, and nothing can take that back
                return
            self._grammar.accept(token)
