"""The child process of `GgufRuntime`: holds the model, answers requests on standard input until that closes.

Requests: ``open`` (path, adapter, threads, parallel, reuses_prefixes, gpu_layers), ``count`` (prompt), ``encode``
(text), ``decode`` (tokens), ``grammar`` (text), ``controls``, ``generate`` (prompts, tasks with their seeds, sampling,
facts, stream); ``batch`` (rows, length), then any number of ``add`` (tasks), ``step`` and ``drop`` (keys), see
`protocol.DecodingBatch`.
Answers: ``ready`` with facts about the file, ``count``, ``text``, ``names``, ``token``, ``completion`` with the usage
since the last one, ``done``, ``batch`` with its rows, ``step`` with the progress of tasks, ``error`` with a message.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.runtimes.extras import Extras
from securecoderl_edge.runtimes.gguf.batching import PROMPT_TOKENS, BatchDecoder, GgufTask
from securecoderl_edge.runtimes.gguf.llama import LlamaContext, LlamaModel, free_gpu_bytes, max_sequences
from securecoderl_edge.runtimes.protocol import DecodingProgress, Sampling, Usage
from securecoderl_edge.runtimes.room import affordable_sequences, encode_prompts
from securecoderl_edge.system import processes
from securecoderl_edge.system.machine import peak_rss_bytes
from securecoderl_edge.system.processes import read_message, write_message

# llama.cpp rounds contexts up to a multiple of this.
_CONTEXT_STEP = 256


class GgufWorker:
    """One loaded model, and the context that the last request needed."""

    def __init__(
        self,
        answers: IO[bytes],
        path: Path,
        adapter: str | None,
        threads: int,
        parallel: int,
        reuses_prefixes: bool,
        gpu_layers: int,
    ) -> None:
        self._answers = answers
        self._model = LlamaModel(path, gpu_layers=gpu_layers)
        self._adapter = self._model.load_adapter(Path(adapter)) if adapter else None
        self._threads = threads
        self._limit = self._model.context_length
        self._parallel = parallel
        self._reuses_prefixes = reuses_prefixes
        self._context: LlamaContext | None = None
        self._context_length = 0
        self._wanted = 0  # sequences; the context has fewer where memory is short
        self._batch: BatchDecoder | None = None

    def describe(self) -> dict[str, Any]:
        """The message for the parent once the model is loaded."""
        return {
            "type": "ready",
            "context": self._limit,
            "prompt_style": self._model.metadata(STYLE_KEY),
            "chat_template": self._model.chat_template(),
            "tokens": self._model.special_tokens(),
            "vocabulary": self._model.vocabulary_size,
            "infill": (infill := self._model.infill_tokens()) and asdict(infill),
        }

    def count(self, request: dict[str, Any]) -> None:
        """Serve a ``count`` request."""
        self._send({"type": "count", "tokens": len(self._model.tokenize(request["prompt"]))})

    def encode(self, request: dict[str, Any]) -> None:
        """Serve an ``encode`` request."""
        self._send({"type": "count", "tokens": self._model.tokenize(request["text"], is_plain=True)})

    def decode(self, request: dict[str, Any]) -> None:
        """Serve a ``decode`` request, of tokens that the vocabulary has."""
        text = b"".join(self._model.piece(token, names=True) for token in request["tokens"])
        self._send({"type": "text", "text": text.decode("utf-8", "replace")})

    def controls(self, _: dict[str, Any]) -> None:
        """Serve a ``controls`` request."""
        self._send({"type": "names", "names": self._model.controls()})

    def read_grammar(self, request: dict[str, Any]) -> None:
        """Serve a ``grammar`` request.

        Raises:
            SceError: llama.cpp cannot read it.
        """
        self._model.open_grammar(request["text"])
        self._send({"type": "text", "text": request["text"]})

    def generate(self, request: dict[str, Any]) -> None:
        """Serve a ``generate`` request.

        Raises:
            SceError: a prompt is empty or too long, or memory is insufficient.
        """
        sampling = _sampling(request["sampling"])
        prompts = encode_prompts(request["prompts"], self._model.tokenize, sampling.max_tokens, self._limit)
        facts = request["facts"] or [None] * len(prompts)
        tasks = [
            GgufTask(tuple(key), prompts[key[0]], sampling, seed, _facts(facts[key[0]]))
            for key, seed in request["tasks"]
        ]
        longest = max(len(task.prompt) for task in tasks) + sampling.max_tokens
        decoder = BatchDecoder(self._model, self._fit_context(len(tasks), longest), self._reuses_prefixes)
        told = Usage()
        for progress in decoder.run(tasks):
            prompt, sample = progress.key
            message = {"prompt": prompt, "sample": sample}
            if progress.text and request["stream"]:
                self._send({"type": "token", **message, "text": progress.text})
            if progress.completion is not None:
                spent = decoder.spent - told + Usage(peak_rss_bytes=peak_rss_bytes())
                told = decoder.spent
                message |= {"completion": asdict(progress.completion), "spent": asdict(spent)}
                self._send({"type": "completion", **message})
        self._send({"type": "done"})

    def open_batch(self, request: dict[str, Any]) -> None:
        """Serve a ``batch`` request.

        Raises:
            SceError: memory is insufficient.
        """
        context = self._fit_context(min(request["rows"], max_sequences()), request["length"])
        for row in range(context.sequences):
            context.clear(row)  # after a failure it may hold more than it knows
        self._batch = BatchDecoder(self._model, context, portion=PROMPT_TOKENS)
        self._send({"type": "batch", "rows": context.sequences})

    def use_batch(self, request: dict[str, Any]) -> None:
        """Serve an ``add``, ``step`` or ``drop`` request; `open_batch` comes first.

        Raises:
            SceError: a prompt is not valid text or too long, or llama.cpp failed.
        """
        assert self._batch is not None
        progress: list[DecodingProgress] = []
        if request["type"] == "add":
            self._batch.add([self._task(record) for record in request["tasks"]])
        elif request["type"] == "drop":
            self._batch.drop(set(request["keys"]))
        else:
            progress = self._batch.step()
        self._send({"type": "step", "progress": [asdict(each) for each in progress]})

    def _task(self, record: dict[str, Any]) -> GgufTask:
        sampling = _sampling(record["sampling"])
        (prompt,) = encode_prompts([record["prompt"]], self._model.tokenize, sampling.max_tokens, self._context_length)
        seed = (sampling.seed, 0, record["sample"])
        return GgufTask(record["key"], prompt, sampling, seed, _facts(record["facts"]), Extras(**record["extras"]))

    def _fit_context(self, tasks: int, length: int) -> LlamaContext:
        """A context with ``length`` tokens per sequence, and as many sequences as are useful and fit into memory."""
        length = -(-length // _CONTEXT_STEP) * _CONTEXT_STEP
        wanted = min(self._parallel, tasks, max_sequences())
        if self._context and self._wanted >= wanted and self._context_length >= length:
            return self._context
        if self._context:
            wanted = max(wanted, self._wanted)
            self._context.close()
            self._context = None
        sequences = affordable_sequences(
            wanted,
            length,
            self._model.cache_size.per_token,
            self._model.cache_size.per_sequence,
            free_gpu_bytes() if self._model.is_on_gpu else None,
        )
        self._context = self._model.open_context(sequences, length, self._threads, self._model.is_float32)
        if self._adapter is not None:
            self._context.use_adapter(self._adapter)
        self._context_length, self._wanted = length, wanted
        return self._context

    def _send(self, message: dict[str, Any]) -> None:
        write_message(self._answers, message)


def _sampling(record: dict[str, Any]) -> Sampling:
    return Sampling(**{**record, "stop": tuple(record["stop"])})


def _facts(record: dict[str, Any] | None) -> PromptFacts | None:
    return None if record is None else PromptFacts(**{**record, "echoes": tuple(record["echoes"])})


def main() -> None:
    """Serve requests until the parent closes our standard input or dies."""
    answers = processes.answers()
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    worker: GgufWorker | None = None
    while True:
        request = requests.get()
        try:
            if request["type"] == "open":
                settings = {name: value for name, value in request.items() if name not in ("type", "path")}
                worker = GgufWorker(answers, Path(request["path"]), **settings)
                write_message(answers, worker.describe())
            elif worker is not None:
                serve = {
                    "count": worker.count,
                    "encode": worker.encode,
                    "decode": worker.decode,
                    "controls": worker.controls,
                    "grammar": worker.read_grammar,
                    "generate": worker.generate,
                    "batch": worker.open_batch,
                }
                serve.get(request["type"], worker.use_batch)(request)
        except SceError as error:
            write_message(answers, {"type": "error", "message": str(error), "is_usage": isinstance(error, UsageError)})
        except BrokenPipeError:
            os._exit(0)


def _receive(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Queue requests; exit at once, even during generation, when the parent has closed our standard input."""
    while (message := read_message(sys.stdin.buffer)) is not None:
        requests.put(message)
    os._exit(0)


if __name__ == "__main__":
    main()
