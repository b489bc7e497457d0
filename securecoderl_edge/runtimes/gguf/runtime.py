"""GGUF files through llama.cpp in a child process: after a crash there is one retry, then an exception here."""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from securecoderl_edge.errors import MissingExtra, SceError, UsageError
from securecoderl_edge.models.gguf.header import read_header
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.prompts.styles import STYLES
from securecoderl_edge.runtimes.extras import Abilities, InfillTokens, TokenReport
from securecoderl_edge.runtimes.gguf.adapter import check_adapter
from securecoderl_edge.runtimes.protocol import (
    WHOLE_REQUEST,
    Completion,
    DecodingProgress,
    DecodingTask,
    OnToken,
    Part,
    Sampling,
    Usage,
)
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.system.processes import (
    child_environment,
    describe_end,
    module_command,
    read_message,
    write_message,
)

Key = tuple[int, int]  # (prompt index, sample index)


class GgufRuntime:
    """A GGUF file as a `Runtime`.

    Args:
        adapter: a GGUF file with a LoRA adapter, applied to ``path`` without merging it.
        threads: CPU threads; by default all that this process may use.
        parallel: maximum number of samples decoded together; fewer if memory is short.
        reuses_prefixes: reuse the KV cache for the common prefix of a prompt and an earlier one. Its samples may then
            differ from those of a fresh start, by rounding.
        gpu_layers: see `LlamaModel`.

    Raises:
        UsageError: no such file, or the adapter belongs to another base.
        SceError: the file is not a GGUF file, or llama.cpp cannot load it.
        MissingExtra: llama-cpp-python is not installed.
    """

    def __init__(
        self,
        path: Path,
        threads: int | None = None,
        parallel: int = 32,
        reuses_prefixes: bool = False,
        adapter: Path | None = None,
        gpu_layers: int = 0,
    ) -> None:
        for file in (path, adapter):
            if file is not None and not file.is_file():
                raise UsageError(f"{file}: no such file; write one with: sce export")
        if adapter is None:
            read_header(path)  # a damaged header is an error here, not in llama.cpp
        else:
            check_adapter(path, adapter)
        if importlib.util.find_spec("llama_cpp") is None:
            raise MissingExtra("llama_cpp", "gguf", "(builds from source, needs a C++ compiler)")
        self.name = f"{path.name}+{adapter.name}" if adapter else path.name
        self._settings = {
            "type": "open",
            "path": str(path.resolve()),
            "adapter": str(adapter.resolve()) if adapter else None,
            "threads": threads or cpu_count(),
            "parallel": max(1, parallel),
            "reuses_prefixes": reuses_prefixes,
            "gpu_layers": gpu_layers,
        }
        self._spent = Usage()
        self._child = _Child(self._settings)

    @property
    def context(self) -> int:
        """Maximum number of tokens of a prompt and its completion together."""
        return int(self._child.description["context"])

    @property
    def prompt_style(self) -> str | None:
        """See `protocol.Runtime`; export writes it into the file."""
        style = self._child.description["prompt_style"]
        return style if style in STYLES else None

    @property
    def chat_template(self) -> ChatTemplate | None:
        """See `protocol.Runtime`."""
        model = self._child.description
        return ChatTemplate(model["chat_template"], model["tokens"], self.name) if model["chat_template"] else None

    def count_tokens(self, prompt: str) -> int:
        """See `protocol.Runtime.count_tokens`. A child that crashes here is not replaced."""
        return int(self._ask({"type": "count", "prompt": prompt})["tokens"])

    @property
    def abilities(self) -> Abilities:
        """See `protocol.Runtime`."""
        infill = self._child.description["infill"]
        tokens = infill and InfillTokens(**{**infill, "start": tuple(infill["start"])})
        return Abilities(int(self._child.description["vocabulary"]), tokens)

    def controls(self) -> tuple[str, ...]:
        """See `protocol.Runtime`."""
        return tuple(self._ask({"type": "controls"})["names"])

    def encode(self, text: str) -> list[int]:
        """See `protocol.TokenRuntime`."""
        return list(self._ask({"type": "encode", "text": text})["tokens"])

    def decode(self, tokens: Sequence[int]) -> str:
        """See `protocol.TokenRuntime`."""
        return str(self._ask({"type": "decode", "tokens": list(tokens)})["text"])

    def knows_grammar(self, grammar: str) -> bool:
        """See `protocol.TokenRuntime`."""
        try:
            self._ask({"type": "grammar", "text": grammar})
        except SceError:
            if self._child.has_ended:
                raise
            return False
        return True

    @property
    def process_id(self) -> int:
        """Process id of the child that holds the model."""
        return self._child.process_id

    def generate(
        self,
        prompts: Sequence[str],
        n: int,
        sampling: Sampling,
        on_token: OnToken | None = None,
        facts: Sequence[PromptFacts | None] | None = None,
        part: Part = WHOLE_REQUEST,
    ) -> list[list[Completion]]:
        """See `Runtime.generate`. A child that crashes is replaced once, and its unfinished samples are repeated."""
        finished: dict[Key, Completion] = {}
        streamed = _Streamed(on_token)
        keys = part.keys(len(prompts), n)
        for is_retry in (False, True):
            missing = [key for key in keys if key not in finished]
            if not missing:
                break
            try:
                self._serve(prompts, missing, sampling, facts, part, finished, streamed)
            except _ChildDied as death:
                if is_retry:
                    raise SceError(f"{self.name}: {death}, twice; check the build with: sce doctor") from None
                streamed.begin_again()
                self._child.kill()
                self._child = _Child(self._settings)
            except _Refused as refused:
                raise refused.error from None  # the child has answered; it is ready for the next request
            except BaseException:
                # Interrupted, for example by the caller's ``on_token``: the rest of this answer would be taken for the
                # next one.
                self._child.kill()
                self._child = _Child(self._settings, wait=False)
                raise
        grouped: list[list[Completion]] = [[] for _ in prompts]
        for key in keys:
            grouped[key[0]].append(finished[key])
        return grouped

    def open_batch(self, rows: int, length: int) -> GgufBatch:
        """See `Runtime.open_batch`. A child that has crashed is replaced."""
        if self._child.has_ended:
            self._child.kill()
            self._child = _Child(self._settings)
        return GgufBatch(self._ask, rows, length)

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """The child's answer to a message that has one.

        Raises:
            SceError: the child refuses, or crashes.
        """
        try:
            self._child.send(message)
            answer = self._child.receive()
        except _ChildDied as death:
            raise SceError(f"{self.name}: {death}") from None
        if answer["type"] == "error":
            raise _error_in(answer)
        return answer

    def usage(self) -> Usage:
        """See `Runtime.usage`; samples lost in a crash of the child are not counted."""
        return self._spent

    def close(self) -> None:
        """End the child process."""
        self._child.kill()

    def _serve(
        self,
        prompts: Sequence[str],
        keys: list[Key],
        sampling: Sampling,
        facts: Sequence[PromptFacts | None] | None,
        part: Part,
        finished: dict[Key, Completion],
        streamed: _Streamed,
    ) -> None:
        request = {
            "type": "generate",
            "prompts": list(prompts),
            "tasks": [(key, part.seed_of(key, sampling)) for key in keys],
            "sampling": asdict(sampling),
            "facts": [each and asdict(each) for each in facts] if facts is not None else None,
            "stream": streamed.on_token is not None,
        }
        self._child.send(request)
        while (answer := self._child.receive())["type"] != "done":
            if answer["type"] == "error":
                raise _Refused(_error_in(answer))
            key = (int(answer["prompt"]), int(answer["sample"]))
            if answer["type"] == "token":
                streamed.add(key, answer["text"])
            else:
                finished[key] = completion = _decode_completion(answer["completion"])
                self._spent += Usage(**answer["spent"])
                part.done(key, completion)


class GgufBatch:
    """Implements `protocol.DecodingBatch`: a batch in the child process; each call is one question to it.

    Args:
        ask: sends a message to the child and returns its answer.
    """

    def __init__(self, ask: Callable[[dict[str, Any]], dict[str, Any]], rows: int, length: int) -> None:
        self._ask = ask
        self.rows = min(rows, int(ask({"type": "batch", "rows": rows, "length": length})["rows"]))

    def add(self, tasks: Sequence[DecodingTask]) -> None:
        """See `protocol.DecodingBatch.add`."""
        self._ask({"type": "add", "tasks": [asdict(task) for task in tasks]})

    def step(self) -> list[DecodingProgress]:
        """See `protocol.DecodingBatch.step`."""
        return [
            DecodingProgress(each["key"], each["text"], each["completion"] and _decode_completion(each["completion"]))
            for each in self._ask({"type": "step"})["progress"]
        ]

    def drop(self, keys: Collection[int]) -> None:
        """See `protocol.DecodingBatch.drop`."""
        self._ask({"type": "drop", "keys": list(keys)})

    def close(self) -> None:
        """Nothing to do: the child keeps its context for the next request."""


class _ChildDied(Exception):
    """The child ended without an answer; the message describes how."""


class _Refused(Exception):
    """The child answered that it cannot serve the request."""

    def __init__(self, error: SceError) -> None:
        super().__init__(str(error))
        self.error = error


class _Streamed:
    """Passes pieces of text on; on a retry it omits the text that was passed on before."""

    def __init__(self, on_token: OnToken | None) -> None:
        self.on_token = on_token
        self._sent: defaultdict[Key, int] = defaultdict(int)
        self._seen: defaultdict[Key, int] = defaultdict(int)

    def add(self, key: Key, text: str) -> None:
        self._seen[key] += len(text)
        news = self._seen[key] - self._sent[key]
        if news > 0 and self.on_token:
            self._sent[key] += news
            self.on_token(*key, text[-news:])

    def begin_again(self) -> None:
        self._seen.clear()


class _Child:
    """A worker process and the pipes to it."""

    def __init__(self, settings: dict[str, Any], wait: bool = True) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            module_command("securecoderl_edge.runtimes.gguf.llama_worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # Ctrl-C is for this process only; the child exits when its standard input closes.
            start_new_session=True,
            env=child_environment(),
        )
        self._description: dict[str, Any] | None = None
        try:
            self._send(settings)
            if wait:
                _ = self.description
        except BaseException as error:
            self.kill()
            if isinstance(error, _ChildDied):
                raise SceError(f"{settings['path']}: {error} while loading the model; see: sce doctor") from None
            raise

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def description(self) -> dict[str, Any]:
        """The child's description of the model, sent once it is loaded."""
        if self._description is None:
            answer = self.receive()
            if answer["type"] == "error":
                raise _error_in(answer)
            self._description = answer
        return self._description

    def send(self, message: dict[str, Any]) -> None:
        """Send a request, once the model is loaded."""
        _ = self.description
        self._send(message)

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        message = read_message(self._process.stdout)
        if message is None:
            raise _ChildDied(self._crash_report())
        return message

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with suppress(BrokenPipeError):  # nobody reads what is still in the buffer
                    stream.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            write_message(self._process.stdin, message)
        except BrokenPipeError:
            raise _ChildDied(self._crash_report()) from None

    def _crash_report(self) -> str:
        """How the child ended, and its last message."""
        how = describe_end(self._process.wait())
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return f"the llama.cpp process crashed with {how}" + (f" ({lines[-1].strip()[:200]})" if lines else "")


def _error_in(answer: dict[str, Any]) -> SceError:
    return (UsageError if answer["is_usage"] else SceError)(answer["message"])


def _decode_completion(record: dict[str, Any]) -> Completion:
    """The completion that the child sent."""
    lists = {name: tuple(record[name]) for name in ("token_ids", "logprobs", "token_seconds")}
    reports = {name: tuple(map(_decode_report, record[name])) for name in ("reports", "prompt_reports")}
    return Completion(**{**record, **lists, **reports})


def _decode_report(record: dict[str, Any]) -> TokenReport:
    return TokenReport(record["raw"], record["logprob"], tuple((raw, logprob) for raw, logprob in record["top"]))
