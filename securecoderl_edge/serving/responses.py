"""Results in OpenAI's shapes, with ``sce`` in each choice: verdict, tests and security findings of its program."""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

from securecoderl_edge.generation.answers import Candidate
from securecoderl_edge.serving.requests import Wanted
from securecoderl_edge.serving.service import Result

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

    def whole(self, result: Result) -> dict[str, Any]:
        """The response without streaming."""
        choices = []
        for index, candidate in enumerate(result.choices):
            text = candidate.completion.text
            message = {"role": "assistant", "content": text, "refusal": None}
            content = {"message": message} if self._wanted.is_chat else {"text": text}
            choices.append({"index": index, **content, "logprobs": None, **self._end(candidate)})
        return {**self._head, "object": self._kind, "choices": choices, "usage": _usage(result)}

    def first(self) -> Iterator[bytes]:
        """The chunks before any text: chat answers have a role."""
        if self._wanted.is_chat:
            for index in range(self._wanted.n):
                yield self._chunk([self._choice(index, {"role": "assistant", "content": ""})])

    def piece(self, index: int, text: str) -> bytes:
        """The chunk of a piece of text."""
        return self._chunk([self._choice(index, {"content": text} if self._wanted.is_chat else text)])

    def last(self, result: Result) -> Iterator[bytes]:
        """The chunks after the text: the end of each choice, then the tokens if they were asked for."""
        for index, candidate in enumerate(result.choices):
            yield self._chunk([{**self._choice(index, {} if self._wanted.is_chat else ""), **self._end(candidate)}])
        if self._wanted.includes_usage:
            yield self._chunk([], usage=_usage(result))
        yield DONE

    def _choice(self, index: int, delta: dict[str, str] | str) -> dict[str, Any]:
        content = {"text": delta} if isinstance(delta, str) else {"delta": delta}
        return {"index": index, **content, "logprobs": None, "finish_reason": None}

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        if self._wanted.includes_usage and not more:
            more = {"usage": None}
        kind = "chat.completion.chunk" if self._wanted.is_chat else self._kind
        return event({**self._head, "object": kind, "choices": choices, **more})

    def _end(self, candidate: Candidate) -> dict[str, Any]:
        score = candidate.score
        checked: dict[str, Any] = {
            "accepted": candidate.is_accepted,
            "verdict": candidate.verdict(),
            "tests": list(score.verdicts) or ["not run"] * score.total,
            "findings": [dataclasses.asdict(finding) for finding in score.findings],
            "denied": None if score.denied is None else list(map(dataclasses.asdict, score.denied)),
            "program": score.program,
            "seed": self._wanted.sampling.seed,
        }
        return {"finish_reason": candidate.completion.finish, "sce": checked}


def event(record: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(record).encode("ascii") + b"\n\n"


def models(name: str, created: int) -> dict[str, Any]:
    """The list of ``/v1/models``."""
    return {"object": "list", "data": [model(name, created)]}


def model(name: str, created: int) -> dict[str, Any]:
    """The served model."""
    return {"id": name, "object": "model", "created": created, "owned_by": "securecoderl-edge"}


def _usage(result: Result) -> dict[str, int]:
    total = result.prompt_tokens + result.completion_tokens
    return {
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
        "total_tokens": total,
    }
