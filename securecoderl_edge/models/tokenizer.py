"""Which tokens start a prompt and end an answer, by the files beside a model's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from securecoderl_edge.system.files import read_json_if_there

_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")
_NAMING_ENDS = ("config.json", "generation_config.json")


def special_tokens(folder: Path) -> dict[str, str]:
    """Texts of a model folder's special tokens by name: ``bos_token``, ``eos_token``, ``pad_token``, ``unk_token``.

    Raises:
        SceError: tokenizer_config.json is damaged.
    """
    settings = read_json_if_there(folder / "tokenizer_config.json")
    texts = {}
    for name in _NAMES:
        token = settings.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            texts[name] = text
    return texts


def end_tokens(folder: Path, end_of_sequence: int | None) -> frozenset[int]:
    """The tokens that end an answer: the tokenizer's, and those that the model's configurations name besides.

    Raises:
        SceError: a file is damaged.
    """
    named: list[Any] = [end_of_sequence]
    for name in _NAMING_ENDS:
        value = read_json_if_there(folder / name).get("eos_token_id")
        named += value if isinstance(value, list) else [value]
    return frozenset(token for token in named if isinstance(token, int))


def needs_start(prompt: str, start: str | None) -> bool:
    """Whether the start token is still to be added to a prompt: chat templates begin with it themselves."""
    return not (start and prompt.startswith(start))
