"""How a run puts its problems to the model, and which of them fit into its context."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.tokenizer import encode_prompt
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.chat import read_chat_template
from securecoderl_edge.prompts.fitting import Fitted, fit_problems
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.settings import TrainSettings


def training_format(settings: TrainSettings, base: Path) -> PromptFormat:
    """How problems are put to the model in ``base``.

    Raises:
        UsageError: by its chat template, which it does not have.
    """
    style = settings.prompt.style
    return PromptFormat(style, read_chat_template(base) if style == "chat" else None)


def fit_for_training(
    settings: TrainSettings,
    context: int,
    tokenizer: Any,
    format: PromptFormat,
    problems: Sequence[Problem],
    held_out: Sequence[Problem],
) -> tuple[Fitted, list[Problem]]:
    """The problems to learn from and those to choose by whose prompts leave room for the answer, or were cut to do so.

    Args:
        context: tokens that the model can see.

    Raises:
        SceError: there are none to learn from.
    """
    room, overlong = settings.prompt_room(context), settings.prompt.overlong
    fitted, chosen_by = (
        fit_problems(part, format, lambda text: len(encode_prompt(tokenizer, text)), room, overlong)
        for part in (problems, held_out)
    )
    if not fitted.problems:
        raise SceError(
            f"{settings.problems}: no prompt leaves {settings.ppo.max_tokens} tokens of room for the answer (the "
            f"context holds {context}), or is as short as prompt.max_tokens says; prompt.overlong = truncate cuts them"
        )
    return fitted, list(chosen_by.problems)


def fitted_in_words(settings: TrainSettings, context: int, fitted: Fitted) -> list[str]:
    """What became of problems whose prompts were too long, as sentences; none if there were none."""
    room, total = settings.prompt_room(context), len(fitted.problems) + fitted.left_out
    lines = []
    if fitted.left_out:
        lines.append(f"{fitted.left_out} of {total} problems left out: their prompts have more than {room} tokens")
    if fitted.cut:
        lines.append(f"{fitted.cut} of {total} problems lose the end of their statement, to fit into {room} tokens")
    return lines
