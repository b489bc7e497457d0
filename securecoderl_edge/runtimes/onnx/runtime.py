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
from securecoderl_edge.runtimes.onnx.batch import OpenOnnxBatch, Writer
from securecoderl_edge.runtimes.onnx.model import Floats, OnnxBatch, OnnxModel
from securecoderl_edge.runtimes.protocol import Completion, OnToken, Sampling, Task, Usage
from securecoderl_edge.runtimes.room import affordable_sequences, encode_prompts
from securecoderl_edge.runtimes.text_writer import TextWriter, TokenText, end_of_program, open_writer
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
        self.context = _context_in(config, folder)
        style = config.get(STYLE_KEY)
        self.prompt_style = style if style in STYLES else None
        self.chat_template = read_chat_template(folder)
        self._tags = thought_tokens(self._tokenizer.id_of, self._tokenizer.decode)
        self._model = OnnxModel(folder, threads or 0, device)
        self._parallel = max(1, parallel)
        self._spent = Usage()

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
    ) -> list[list[Completion]]:
        """See `protocol.Runtime.generate`."""
        encoded = encode_prompts(prompts, self._tokenizer.encode_prompt, sampling.max_tokens, self.context)
        samples = [(prompt, sample) for prompt in range(len(prompts)) for sample in range(n)]
        done: dict[tuple[int, int], Completion] = {}
        prompt = max(map(len, encoded), default=1)
        width = affordable_sequences(self._parallel, prompt + sampling.max_tokens, self._model.cache_bytes_per_token)
        # The graph computes the logits at every token of a prompt, 4 bytes each, and they are copied once.
        width = min(width, n * affordable_sequences(self._parallel, prompt, 8 * self._model.vocabulary_size))
        for start in range(0, len(samples), width):
            group = samples[start : start + width]
            writers = [self._writer(key, sampling, open_writer(sampling, key, on_token, facts)) for key in group]
            self._generate_group(encoded, writers, sampling)
            done |= {writer.key: writer.completion(len(encoded[writer.key[0]])) for writer in writers}
        return [[done[prompt, sample] for sample in range(n)] for prompt in range(len(prompts))]

    def open_batch(self, rows: int, length: int) -> OpenOnnxBatch:
        """See `protocol.Runtime.open_batch`."""
        # As in `generate`: the logits at every token of one prompt.
        affordable_sequences(1, length, 8 * self._model.vocabulary_size)
        rows = affordable_sequences(rows, length, self._model.cache_bytes_per_token)

        def write(task: Task, show: Callable[[str], None]) -> Writer:
            text = TextWriter(task.sampling.stop, show, end_of_program(task.facts))
            return self._writer((0, task.sample), task.sampling, text)

        def encode(task: Task) -> list[int]:
            return encode_prompts([task.prompt], self._tokenizer.encode_prompt, task.sampling.max_tokens, length)[0]

        return OpenOnnxBatch(self._model, rows, encode, write)

    def usage(self) -> Usage:
        """Totals since opening; the memory is that of the whole process."""
        return self._spent + Usage(peak_rss_bytes=peak_rss_bytes())

    def close(self) -> None:
        """Free the model."""
        del self._model

    def _writer(self, key: tuple[int, int], sampling: Sampling, text: TextWriter) -> Writer:
        return Writer(key, sampling, self._tokenizer.ends, TokenText(self._tokenizer.decode, self._tags), text)

    def _generate_group(self, encoded: list[list[int]], writers: list[Writer], sampling: Sampling) -> None:
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

    def _decode(self, batch: OnnxBatch, logits: Floats, writers: list[Writer], sampling: Sampling) -> None:
        for _ in range(sampling.max_tokens):
            for writer, row in zip(writers, logits, strict=True):
                if not writer.is_done:
                    writer.draw(row)
            going = [place for place, writer in enumerate(writers) if not writer.is_done]
            if not going:
                return
            if 2 * len(going) <= len(writers):
                # Before that, finished rows are computed as well: dropping them copies the whole KV cache.
                batch, writers = batch.choose(going), [writers[place] for place in going]
            logits = batch.step([writer.tokens[-1] for writer in writers])


def _context_in(config: dict[str, Any], folder: Path) -> int:
    found = config.get("max_position_embeddings", 2048)
    if not isinstance(found, int) or found < 1:
        raise SceError(f"{folder / 'config.json'}: max_position_embeddings = {found!r} is not a number of tokens")
    return found
