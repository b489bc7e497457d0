"""The child process of `GgufRuntime`: holds the model, answers requests on standard input until that closes.

Requests: ``open`` (path, adapter, threads, context, parallel, reuses_prefixes, gpu_layers), ``count`` (prompt),
``generate`` (prompts, tasks, sampling, asked, stream).
Answers: ``ready`` with facts about the file, ``count``, ``token``, ``completion``, ``done`` with the usage, and
``error`` with a message.
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
from securecoderl_edge.prompts.extraction import Asked
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.runtimes.gguf.batching import BatchDecoder, Task
from securecoderl_edge.runtimes.gguf.llama import LlamaContext, LlamaModel, free_gpu_bytes, max_sequences
from securecoderl_edge.runtimes.protocol import Completion, Sampling, Usage
from securecoderl_edge.runtimes.room import affordable_sequences, encode_prompts
from securecoderl_edge.system import processes
from securecoderl_edge.system.machine import peak_rss_bytes
from securecoderl_edge.system.processes import read_message, write_message

# llama.cpp rounds contexts up to a multiple of this.
_CONTEXT_STEP = 256


class Worker:
    """One loaded model, and the context that the last request needed."""

    def __init__(
        self,
        answers: IO[bytes],
        path: Path,
        adapter: str | None,
        threads: int,
        context: int | None,
        parallel: int,
        reuses_prefixes: bool,
        gpu_layers: int,
    ) -> None:
        self._answers = answers
        self._model = LlamaModel(path, gpu_layers=gpu_layers)
        self._adapter = self._model.load_adapter(Path(adapter)) if adapter else None
        self._threads = threads
        self._limit = min(context or self._model.context_length, self._model.context_length)
        self._parallel = parallel
        self._reuses_prefixes = reuses_prefixes
        self._context: LlamaContext | None = None
        self._context_length = 0

    def describe(self) -> dict[str, Any]:
        """The message for the parent once the model is loaded."""
        return {
            "type": "ready",
            "context": self._limit,
            "vocabulary": self._model.vocabulary_size,
            "prompt_style": self._model.metadata(STYLE_KEY),
            "chat_template": self._model.chat_template(),
            "tokens": self._model.special_tokens(),
        }

    def count(self, request: dict[str, Any]) -> None:
        """Serve a ``count`` request."""
        self._send({"type": "count", "tokens": len(self._model.tokenize(request["prompt"]))})

    def generate(self, request: dict[str, Any]) -> None:
        """Serve a ``generate`` request.

        Raises:
            SceError: a prompt is empty or too long, or memory is insufficient.
        """
        settings = request["sampling"]
        sampling = Sampling(**{**settings, "stop": tuple(settings["stop"])})
        prompts = encode_prompts(request["prompts"], self._model.tokenize, sampling.max_tokens, self._limit)
        tasks = [Task(prompt, sample, prompts[prompt]) for prompt, sample in request["tasks"]]
        longest = max(len(task.prompt) for task in tasks) + sampling.max_tokens
        context = self._fit_context(len(tasks), longest)
        decoder = BatchDecoder(
            self._model,
            context,
            sampling,
            self._report_completion,
            self._report_token if request["stream"] else None,
            _asked(request["asked"]),
            self._reuses_prefixes,
        )
        decoder.run(tasks)
        self._report_done(decoder.spent)

    def _fit_context(self, tasks: int, length: int) -> LlamaContext:
        """A context with ``length`` tokens per sequence, and as many sequences as are useful and fit into memory."""
        length = -(-length // _CONTEXT_STEP) * _CONTEXT_STEP
        wanted = min(self._parallel, tasks, max_sequences())
        if self._context and self._context.sequences >= wanted and self._context_length >= length:
            return self._context
        if self._context:
            wanted = max(wanted, self._context.sequences)
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
        self._context_length = length
        return self._context

    def _report_token(self, task: Task, text: str) -> None:
        self._send({"type": "token", "prompt": task.prompt_index, "sample": task.sample_index, "text": text})

    def _report_completion(self, task: Task, completion: Completion) -> None:
        message = {"type": "completion", "prompt": task.prompt_index, "sample": task.sample_index}
        self._send({**message, "completion": asdict(completion)})

    def _report_done(self, spent: Usage) -> None:
        self._send({"type": "done", "spent": asdict(spent + Usage(peak_rss_bytes=peak_rss_bytes()))})

    def _send(self, message: dict[str, Any]) -> None:
        write_message(self._answers, message)


def _asked(records: list[dict[str, Any]] | None) -> list[Asked] | None:
    if records is None:
        return None
    return [Asked(**{**record, "echoes": tuple(record["echoes"])}) for record in records]


def main() -> None:
    """Serve requests until the parent closes our standard input or dies."""
    answers = processes.answers()
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    worker: Worker | None = None
    while True:
        request = requests.get()
        try:
            if request["type"] == "open":
                settings = {name: value for name, value in request.items() if name not in ("type", "path")}
                worker = Worker(answers, Path(request["path"]), **settings)
                write_message(answers, worker.describe())
            elif worker is not None and request["type"] == "count":
                worker.count(request)
            elif worker is not None:
                worker.generate(request)
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
