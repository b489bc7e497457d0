"""An exported ONNX folder in onnxruntime: batches of sequences, a prompt computed once for all of its samples."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.prompts.chat import read_chat_template
from securecoderl_edge.prompts.extraction import Asked
from securecoderl_edge.prompts.styles import STYLE_KEY, STYLES
from securecoderl_edge.prompts.thoughts import thought_tokens
from securecoderl_edge.runtimes.onnx.model import Floats, OnnxBatch, OnnxModel
from securecoderl_edge.runtimes.protocol import Completion, OnToken, Sampling, Usage
from securecoderl_edge.runtimes.room import affordable_sequences, encode_prompts
from securecoderl_edge.runtimes.text_writer import TextWriter, TokenText, open_writer
from securecoderl_edge.runtimes.truncation import truncated
from securecoderl_edge.system.files import read_json
from securecoderl_edge.system.machine import peak_rss_bytes


class OnnxRuntime:
    """Implements `protocol.Runtime`.

    Args:
        folder: holds the graph, its weights, the tokenizer and config.json, as ``sce export --format onnx`` writes it.
        threads: CPU threads; by default onnxruntime decides.
        parallel: sequences decoded at a time.
        device: see `OnnxModel`.

    Raises:
        SceError: a file is missing or damaged.
        MissingExtra: onnxruntime or tokenizers is not installed.
    """

    def __init__(self, folder: Path, threads: int | None = None, parallel: int = 32, device: str = "cpu") -> None:
        self.name = folder.name
        self._tokenizer = read_tokenizer(folder)
        config = read_json(folder / "config.json")
        self._context = _context_in(config, folder)
        self._style = config.get(STYLE_KEY)
        self._chat = read_chat_template(folder)
        self._tags = thought_tokens(self._tokenizer.id_of, self._tokenizer.decode)
        self._model = OnnxModel(folder, threads or 0, device)
        self._parallel = max(1, parallel)
        self._spent = Usage()

    @property
    def context(self) -> int:
        """See `protocol.Runtime.context`."""
        return self._context

    @property
    def prompt_style(self) -> str | None:
        """See `protocol.Runtime.prompt_style`."""
        return self._style if self._style in STYLES else None

    @property
    def chat_template(self) -> Any:
        """See `protocol.Runtime.chat_template`."""
        return self._chat

    def count_tokens(self, prompt: str) -> int:
        """See `protocol.Runtime.count_tokens`."""
        return len(self._encode(prompt))

    def generate(
        self,
        prompts: Sequence[str],
        n: int,
        sampling: Sampling,
        on_token: OnToken | None = None,
        asked: Sequence[Asked] | None = None,
    ) -> list[list[Completion]]:
        """See `protocol.Runtime.generate`."""
        encoded = encode_prompts(prompts, self._encode, sampling.max_tokens, self._context)
        samples = [(prompt, sample) for prompt in range(len(prompts)) for sample in range(n)]
        done: dict[tuple[int, int], Completion] = {}
        prompt = max(map(len, encoded), default=1)
        width = affordable_sequences(self._parallel, prompt + sampling.max_tokens, self._model.cache_bytes_per_token)
        # The graph computes the logits at every token of a prompt, 4 bytes each, and they are copied once.
        width = min(width, n * affordable_sequences(self._parallel, prompt, 8 * self._model.vocabulary_size))
        for start in range(0, len(samples), width):
            group = samples[start : start + width]
            writers = [
                _Writer(
                    key,
                    sampling,
                    TokenText(self._tokenizer.decode, self._tags),
                    self._tokenizer.ends,
                    open_writer(sampling, key, on_token, asked),
                )
                for key in group
            ]
            self._generate_group(encoded, writers, sampling)
            done |= {writer.key: writer.completion(len(encoded[writer.key[0]])) for writer in writers}
        return [[done[prompt, sample] for sample in range(n)] for prompt in range(len(prompts))]

    def usage(self) -> Usage:
        """Totals since opening; the memory is that of the whole process."""
        return self._spent + Usage(peak_rss_bytes=peak_rss_bytes())

    def close(self) -> None:
        """Free the model."""
        del self._model

    def _encode(self, prompt: str) -> list[int]:
        return self._tokenizer.encode_prompt(prompt)

    def _generate_group(self, encoded: list[list[int]], writers: list[_Writer], sampling: Sampling) -> None:
        started = time.monotonic()
        for writer in writers:
            writer.started = started
        prompts = list(dict.fromkeys(writer.key[0] for writer in writers))
        longest = max(len(encoded[prompt]) for prompt in prompts)
        once = self._model.open_batch(len(prompts), longest)
        last = [logits[-1] for logits in once.prefill([encoded[prompt] for prompt in prompts])]
        first = time.monotonic() - started
        self._spent += Usage(sum(len(encoded[prompt]) for prompt in prompts), first)
        places = {prompt: place for place, prompt in enumerate(prompts)}
        rows = [places[writer.key[0]] for writer in writers]
        batch = once.choose(rows, longest + sampling.max_tokens)
        self._decode(batch, np.stack([last[row] for row in rows]), writers, sampling)
        tokens = sum(len(writer.tokens) for writer in writers)
        self._spent += Usage(decode_tokens=tokens, decode_seconds=time.monotonic() - started - first)

    def _decode(self, batch: OnnxBatch, logits: Floats, writers: list[_Writer], sampling: Sampling) -> None:
        rows = list(writers)
        for _ in range(sampling.max_tokens):
            for writer, row in zip(rows, logits, strict=True):
                if not writer.is_done:
                    writer.draw(row)
            going = [place for place, writer in enumerate(rows) if not writer.is_done]
            if not going:
                return
            if 2 * len(going) <= len(rows):
                # Before that, finished rows are computed as well: dropping them copies the whole KV cache.
                batch, rows = batch.choose(going), [rows[place] for place in going]
            logits = batch.step([writer.tokens[-1] for writer in rows])


class _Writer:
    """One sample in progress: its tokens, their probabilities, and its own random generator."""

    def __init__(
        self, key: tuple[int, int], sampling: Sampling, pieces: TokenText, ends: frozenset[int], text: TextWriter
    ) -> None:
        self.key, self._sampling, self._ends, self._text = key, sampling, ends, text
        # A sample does not depend on the rest of the batch.
        self._random = np.random.default_rng((sampling.seed, *key))
        self._pieces = pieces
        self.tokens: list[int] = []
        self._logprobs: list[float] = []
        self._finish: Literal["stop", "length"] = "length"
        self.started = 0.0
        self._times: list[float] = []
        self.is_done = False

    def draw(self, logits: Floats) -> None:
        """Add the next token."""
        scores = logits.astype(np.float64)
        scores -= scores.max()
        if self._sampling.is_greedy:
            token = int(scores.argmax())
        else:
            allowed = truncated(scores / self._sampling.temperature, self._sampling)
            cumulated = np.exp(allowed).cumsum()
            token = int(np.searchsorted(cumulated, self._random.random() * cumulated[-1], side="right"))
            token = min(token, len(scores) - 1)
        self.tokens.append(token)
        self._times.append(time.monotonic())
        self._logprobs.append(float(scores[token] - np.log(np.exp(scores).sum())))
        is_end = token in self._ends
        if is_end or self._text.add(self._pieces.add(token)):
            self._finish = "stop"
        self.is_done = self._finish == "stop" or len(self.tokens) == self._sampling.max_tokens
        if self.is_done:
            self._text.add(self._pieces.end())
            self._text.end()

    def completion(self, prompt_tokens: int) -> Completion:
        """The finished sample."""
        return Completion(
            self._text.text,
            tuple(self.tokens),
            tuple(self._logprobs),
            self._finish,
            prompt_tokens,
            tuple(time - self.started for time in self._times),
        )


def _context_in(config: dict[str, Any], folder: Path) -> int:
    found = config.get("max_position_embeddings", 2048)
    if not isinstance(found, int) or found < 1:
        raise SceError(f"{folder / 'config.json'}: max_position_embeddings = {found!r} is not a number of tokens")
    return found
