"""Trying something out in a process of its own, whose death is an answer."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from typing import IO, Any

from securecoderl_edge.runtimes.channel import read_message
from securecoderl_edge.runtimes.child import child_environment, describe_end, module_command

SECONDS = 120.0


@dataclass(frozen=True)
class Answers:
    """What a child said, in order, and how it ended if that was before its work was done (else empty)."""

    messages: list[dict[str, Any]]
    death: str = ""


def ask_child(module: str, request: dict[str, Any], seconds: float = SECONDS) -> Answers:
    """Run ``module`` as a fresh process with ``request`` as JSON on standard input, and wait for its end."""
    try:
        ended = subprocess.run(
            module_command(module),
            input=json.dumps(request).encode(),
            capture_output=True,
            check=False,
            timeout=seconds,
            env=child_environment(),
        )
    except subprocess.TimeoutExpired as late:
        return Answers(_messages(late.stdout or b""), f"no end within {seconds:g} s")
    return Answers(_messages(ended.stdout), _describe_death(ended.returncode, ended.stderr))


def begin_child() -> tuple[dict[str, Any], IO[bytes]]:
    """In the child: the request, and where messages go. What libraries print joins stderr; a crash leaves no core."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return json.load(sys.stdin), answers


def _messages(output: bytes) -> list[dict[str, Any]]:
    stream, messages = io.BytesIO(output), []
    while (message := read_message(stream)) is not None:
        messages.append(message)
    return messages


def _describe_death(status: int, complaints: bytes) -> str:
    if status == 0:
        return ""
    if status < 0:
        return describe_end(status)
    lines = complaints.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip()[:300] if lines else f"exit status {status}"
