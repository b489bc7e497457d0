"""Results in OpenAI's shapes, with ``sce`` in each choice: verdict, tests and security findings of its program."""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from securecoderl_edge.generation.answers import Candidate
from securecoderl_edge.generation.code_blocks import CodeBlock
from securecoderl_edge.serving.logprobs import of_message, of_text
from securecoderl_edge.serving.requests import Wanted
from securecoderl_edge.serving.results import Choice, Result

DONE = b"data: [DONE]\n\n"


class Responder:
    """Writes the answer of one request.

    Args:
        model: the name of the served model.
    """

    def __init__(self, wanted: Wanted, model: str) -> None:
        self._wanted = wanted
        prefix, self._kind = ("chatcmpl", "chat.completion") if wanted.is_chat else ("cmpl", "text_completion")
        self._head = {"id": f"{prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self._sent: dict[int, int] = {}

    def whole(self, result: Result) -> dict[str, Any]:
        """The response without streaming."""
        if self._wanted.kind == "infill":
            return self._filled(result)
        choices = []
        for index, choice in enumerate(result.choices):
            content = (
                {"message": self._message(choice)} if self._wanted.is_chat else {"text": choice.echo + choice.text}
            )
            choices.append({"index": index, **content, "logprobs": self._logprobs(choice), **self._end(choice)})
        return {**self._head, "object": self._kind, "choices": choices, "usage": _usage(result)}

    def first(self) -> Iterator[bytes]:
        """The chunks before any text: chat answers have a role."""
        if self._wanted.is_chat:
            for index in range(self._wanted.n):
                yield self._chunk([self._choice(index, {"role": "assistant", "content": ""})])

    def piece(self, index: int, text: str) -> bytes:
        """The chunk of a piece of text; an empty one says that the choice is complete and will be checked."""
        if not text and self._wanted.is_chat:
            return self._chunk([{**self._choice(index, {}), "sce": {"state": "written"}}])
        self._sent[index] = self._sent.get(index, 0) + len(text)
        if self._wanted.kind == "infill":
            return event({"index": index, "content": text, "stop": False})
        return self._chunk([self._choice(index, {"content": text} if self._wanted.is_chat else text)])

    def last(self, result: Result) -> Iterator[bytes]:
        """The chunks after the text: what was held back, the end of each choice, then the tokens if asked for."""
        for index, choice in enumerate(result.choices):
            text = choice.echo + choice.text
            if rest := text[self._sent.get(index, 0) :]:
                yield self.piece(index, rest)
            if self._wanted.kind == "infill":
                filled = self._filled(result, index)
                yield event({**filled, "content": ""} if "content" in filled else filled)
                continue
            delta: dict[str, Any] | str = {} if self._wanted.is_chat else ""
            if choice.calls:
                calls = [{"index": number, **call} for number, call in enumerate(_calls(choice))]
                yield self._chunk([self._choice(index, {"tool_calls": calls})])
            ended = {**self._choice(index, delta), "logprobs": self._logprobs(choice), **self._end(choice)}
            yield self._chunk([ended])
        if self._wanted.kind == "infill":  # as llama.cpp ends it
            return
        if self._wanted.includes_usage:
            yield self._chunk([], usage=_usage(result))
        yield DONE

    def _message(self, choice: Choice) -> dict[str, Any]:
        calls = {"tool_calls": _calls(choice)} if choice.calls else {}
        content = None if choice.calls and not choice.text else choice.text
        return {"role": "assistant", "content": content, "refusal": None, **calls}

    def _choice(self, index: int, delta: dict[str, Any] | str) -> dict[str, Any]:
        content = {"text": delta} if isinstance(delta, str) else {"delta": delta}
        return {"index": index, **content, "logprobs": None, "finish_reason": None}

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        if self._wanted.includes_usage and not more:
            more = {"usage": None}
        kind = "chat.completion.chunk" if self._wanted.is_chat else self._kind
        return event({**self._head, "object": kind, "choices": choices, **more})

    def _logprobs(self, choice: Choice) -> dict[str, Any] | None:
        if not self._wanted.reports:
            return None
        written = choice.completion
        reports = [] if self._wanted.is_skipped else written.reports
        if self._wanted.is_chat:
            return of_message(reports, written.text)
        echo = choice.echo if written.prompt_reports else None
        return of_text(written.prompt_reports, reports, written.text, echo, written.stop)

    def _end(self, choice: Choice) -> dict[str, Any]:
        finish: str = choice.completion.finish
        # Behind the calls of an answer that was cut there may have been more.
        finish = "tool_calls" if choice.calls and finish == "stop" else finish
        return {"finish_reason": finish, "sce": self._checked(choice)}

    def _checked(self, choice: Choice) -> dict[str, Any]:
        checked: dict[str, Any] = {
            **(_nothing(choice) if choice.candidate is None else _check(choice.candidate)),
            "seed": self._wanted.seed,
        }
        if choice.blocks is not None:
            checked["blocks"] = [_block(block, len(self._wanted.prefill)) for block in choice.blocks]
        return checked

    def _filled(self, result: Result, index: int = 0) -> dict[str, Any]:
        """The response of llama.cpp's ``/infill``; a whole one for several fillings has all of them in ``choices``."""
        best = result.choices[index]
        filled: dict[str, Any] = {
            "index": index,
            "content": best.text,
            "stop": True,
            "stop_type": "limit" if best.completion.finish == "length" else "word" if best.completion.stop else "eos",
            "stopping_word": best.completion.stop,
            "model": self._head["model"],
            "tokens_predicted": result.completion_tokens,
            "tokens_evaluated": result.prompt_tokens,
            "truncated": result.is_cut,
            "sce": self._checked(best),
        }
        if len(result.choices) > 1 and not self._wanted.is_stream:
            filled["choices"] = [{"content": each.text, "sce": self._checked(each)} for each in result.choices]
        return _only(filled, self._wanted.shown_fields) if self._wanted.shown_fields else filled


def event(record: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(record).encode("ascii") + b"\n\n"


def models(name: str, created: int) -> dict[str, Any]:
    """The list of ``/v1/models``."""
    return {"object": "list", "data": [model(name, created)]}


def model(name: str, created: int) -> dict[str, Any]:
    """The served model."""
    return {"id": name, "object": "model", "created": created, "owned_by": "securecoderl-edge"}


def _only(record: dict[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The values at paths such as ``sce/verdict``, as llama.cpp does: what is missing is left out."""
    found = {}
    for path in paths:
        value: Any = record
        for key in path.split("/"):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found


def _calls(choice: Choice) -> list[dict[str, Any]]:
    return [{"id": call["id"], "type": "function", "function": {key: call[key] for key in ("name", "arguments")}}
            for call in choice.calls]  # fmt: skip


def _check(candidate: Candidate) -> dict[str, Any]:
    score = candidate.score
    return {
        "accepted": candidate.is_accepted,
        "verdict": candidate.verdict(),
        "tests": list(score.verdicts) or ["not run"] * score.total,
        "findings": [dataclasses.asdict(finding) for finding in score.findings],
        "denied": None if score.denied is None else list(map(dataclasses.asdict, score.denied)),
        "program": score.program,
    }


def _nothing(choice: Choice) -> dict[str, Any]:
    """The check of an answer in which nothing could be checked."""
    is_text = choice.blocks is None and bool(choice.text.strip())
    verdict = "not checked" if choice.blocks or is_text else "no program"
    return {"accepted": None, "verdict": verdict, "tests": [], "findings": [], "denied": None, "program": ""}


def _block(block: CodeBlock, prefilled: int) -> dict[str, Any]:
    """A block of an answer of which the client has the first ``prefilled`` characters."""
    check: dict[str, Any] = {"accepted": None, "verdict": "not checked", "findings": []}
    if block.candidate is not None:
        check = {key: value for key, value in _check(block.candidate).items() if key in check}
    place = {"start": max(0, block.start - prefilled), "end": max(0, block.end - prefilled)}
    return {"language": block.language, "program": block.program, **place, **check}


def _usage(result: Result) -> dict[str, int]:
    total = result.prompt_tokens + result.completion_tokens
    return {
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
        "total_tokens": total,
    }
