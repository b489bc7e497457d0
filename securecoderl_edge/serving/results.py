"""What a request comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from securecoderl_edge.generation.answers import Candidate
from securecoderl_edge.generation.code_blocks import CodeBlock
from securecoderl_edge.runtimes.protocol import Completion


@dataclass(frozen=True)
class Choice:
    """One choice of an answer.

    Attributes:
        text: without calls of tools.
        candidate: the check of its program; None if there was nothing to check.
        blocks: of a chat answer that is no task.
        calls: of tools, each with ``id``, ``name`` and ``arguments``.
        echo: the prompt, if the text is to begin with it.
    """

    completion: Completion
    text: str
    candidate: Candidate | None = None
    blocks: tuple[CodeBlock, ...] | None = None
    calls: tuple[Mapping[str, str], ...] = ()
    echo: str = ""


@dataclass(frozen=True)
class Result:
    """A finished request.

    Attributes:
        choices: in the order of the answer.
        prompt_tokens: of the request's own prompts, without those of repairs.
        completion_tokens: of all samples.
        is_cut: text around a hole was left out.
    """

    choices: tuple[Choice, ...]
    prompt_tokens: int
    completion_tokens: int
    is_cut: bool = False
