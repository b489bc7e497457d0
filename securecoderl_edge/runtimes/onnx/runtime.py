"""An exported ONNX folder in onnxruntime: batches of sequences, a prompt computed once for all of its samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.prompts.chat import read_chat_template
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.prompts.styles import STYLE_KEY, STYLES
from securecoderl_edge.prompts.thoughts import thought_tokens
from securecoderl_edge.runtimes.extras import TEXT_ONLY
from securecoderl_edge.runtimes.onnx.batch import OnnxBatch
from securecoderl_edge.runtimes.onnx.model import Floats, OnnxModel, OnnxSequences
from securecoderl_edge.runtimes.protocol import (
    WHOLE_REQUEST,
    Completion,
    DecodingTask,
    OnToken,
    Part,
    Sampling,
    Usage,
)
from securecoderl_edge.runtimes.room import affordable_sequences, encode_prompts
from securecoderl_edge.runtimes.text_writer import PartialCompletion, TextWriter, TokenText, end_of_program, open_writer
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

    abilities = TEXT_ONLY

    def __init__(self, folder: Path, threads: int | None = None, parallel: int = 32, device: str = "cpu") -> None:
        self.name = folder.name
        self._tokenizer = read_tokenizer(folder)
        config = read_json(folder / "config.json")
        self.context = _context_in(config, folder)
        style = config.get(STYLE_KEY)
        self.prompt_style = style if style in STYLES else None
        self.chat_template = read_chat_template(folder)
        self._tags = thought_tokens(self._tokenizer.id_of, self._tokenizer.decode)
        self._model = OnnxModel(folder, threads or 0, device)
        self._parallel = max(1, parallel)
        self._spent = Usage()

    def controls(self) -> tuple[str, ...]:
        """See `protocol.Runtime`."""
        return self._tokenizer.controls()

    def count_tokens(self, prompt: str) -> int:
        """See `protocol.Runtime.count_tokens`."""
        return len(self._tokenizer.encode_prompt(prompt))

    def generate(
        self,
        prompts: Sequence[str],
        n: int,
        sampling: Sampling,
        on_token: OnToken | None = None,
        facts: Sequence[PromptFacts | None] | None = None,
        part: Part = WHOLE_REQUEST,
    ) -> list[list[Completion]]:
        """See `protocol.Runtime.generate`."""
        encoded = encode_prompts(prompts, self._tokenizer.encode_prompt, sampling.max_tokens, self.context)
        samples = part.keys(len(prompts), n)
        grouped: list[list[Completion]] = [[] for _ in encoded]
        prompt = max(map(len, encoded), default=1)
        width = affordable_sequences(self._parallel, prompt + sampling.max_tokens, self._model.cache_bytes_per_token)
        # The graph computes the logits at every token of a prompt, 4 bytes each, and they are copied once.
        width = min(width, n * affordable_sequences(self._parallel, prompt, 8 * self._model.vocabulary_size))
        for start in range(0, len(samples), width):
            group = {
                key: self._begin(part.seed_of(key, sampling), sampling, open_writer(sampling, key, on_token, facts))
                for key in samples[start : start + width]
            }
            self._generate_group(encoded, group, sampling, part)
            for key, partial in group.items():
                grouped[key[0]].append(partial.completion(len(encoded[key[0]])))
        return grouped

    def open_batch(self, rows: int, length: int) -> OnnxBatch:
        """See `protocol.Runtime.open_batch`."""
        # As in `generate`: the logits at every token of one prompt.
        affordable_sequences(1, length, 8 * self._model.vocabulary_size)
        rows = affordable_sequences(rows, length, self._model.cache_bytes_per_token)

        def begin(task: DecodingTask, show: Callable[[str], None]) -> PartialCompletion:
            writer = TextWriter(task.sampling.stop, show, end_of_program(task.facts))
            return self._begin((task.sampling.seed, 0, task.sample), task.sampling, writer)

        def encode(task: DecodingTask) -> list[int]:
            return encode_prompts([task.prompt], self._tokenizer.encode_prompt, task.sampling.max_tokens, length)[0]

        return OnnxBatch(self._model, rows, encode, begin)

    def usage(self) -> Usage:
        """Totals since opening; the memory is that of the whole process."""
        return self._spent + Usage(peak_rss_bytes=peak_rss_bytes())

    def close(self) -> None:
        """Free the model."""
        del self._model

    def _begin(self, seed: tuple[int, int, int], sampling: Sampling, writer: TextWriter) -> PartialCompletion:
        pieces = TokenText(self._tokenizer.decode, self._tags)
        return PartialCompletion(sampling, self._tokenizer.ends.__contains__, pieces, writer, seed)

    def _generate_group(
        self,
        encoded: list[list[int]],
        group: dict[tuple[int, int], PartialCompletion],
        sampling: Sampling,
        part: Part,
    ) -> None:
        def ended(key: tuple[int, int]) -> None:
            part.done(key, group[key].completion(len(encoded[key[0]])))

        started = time.monotonic()
        for partial in group.values():
            partial.started = started
        prompts = list(dict.fromkeys(prompt for prompt, _ in group))
        longest = max(len(encoded[prompt]) for prompt in prompts)
        once = self._model.open_sequences(len(prompts), longest)
        last = [logits[-1] for logits in once.prefill([encoded[prompt] for prompt in prompts])]
        first = time.monotonic() - started
        self._spent += Usage(sum(len(encoded[prompt]) for prompt in prompts), first)
        rows = [prompts.index(prompt) for prompt, _ in group]
        sequences = once.choose(rows, longest + sampling.max_tokens)
        self._decode(sequences, np.stack([last[row] for row in rows]), list(group.items()), sampling, ended)
        tokens = sum(len(partial.tokens) for partial in group.values())
        self._spent += Usage(decode_tokens=tokens, decode_seconds=time.monotonic() - started - first)

    def _decode(
        self,
        sequences: OnnxSequences,
        logits: Floats,
        partials: list[tuple[tuple[int, int], PartialCompletion]],
        sampling: Sampling,
        ended: Callable[[tuple[int, int]], None],
    ) -> None:
        for _ in range(sampling.max_tokens):
            for (key, partial), row in zip(partials, logits, strict=True):
                if not partial.is_done:
                    partial.add(*partial.draw(row))
                    if partial.is_done:
                        ended(key)
            going = [row for row, (_, partial) in enumerate(partials) if not partial.is_done]
            if not going:
                return
            if 2 * len(going) <= len(partials):
                # Before that, finished rows are computed as well: dropping them copies the whole KV cache.
                sequences, partials = sequences.choose(going), [partials[row] for row in going]
            logits = sequences.step([partial.tokens[-1] for _, partial in partials])


def _context_in(config: dict[str, Any], folder: Path) -> int:
    context = config.get("max_position_embeddings", 2048)
    if not isinstance(context, int) or context < 1:
        raise SceError(f"{folder / 'config.json'}: max_position_embeddings = {context!r} is not a number of tokens")
    return context
