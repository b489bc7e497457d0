"""The tokenizer in a model folder, and its start, EOS and stop tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError, first_line, needs
from securecoderl_edge.models.packages import require_torch
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
    """EOS and stop tokens: the tokenizer's, and those in the model's configuration files.

    Raises:
        SceError: a file is damaged.
    """
    named: list[Any] = [end_of_sequence]
    for name in _NAMING_ENDS:
        value = read_json_if_there(folder / name).get("eos_token_id")
        named += value if isinstance(value, list) else [value]
    return frozenset(token for token in named if isinstance(token, int))


def needs_start(prompt: str, start: str | None) -> bool:
    """Whether a prompt still needs the start token; chat templates already begin with it."""
    return not (start and prompt.startswith(start))


def load_tokenizer(folder: Path) -> Any:
    """The fast tokenizer of a model folder, with a padding token.

    Raises:
        SceError: the folder has no tokenizer, a damaged one, or one without an end-of-sequence token.
    """
    require_torch()
    from transformers import AutoTokenizer

    if not (folder / "tokenizer.json").is_file():
        raise SceError(f"{folder}: no tokenizer.json; download it from the source of the weights")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the tokenizers library raises plain exceptions for a damaged file
        raise SceError(f"cannot load the tokenizer of {folder}: {first_line(error)}") from None
    if tokenizer.eos_token_id is None:
        raise SceError(f"{folder}: the tokenizer has no end-of-sequence (EOS) token")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def encode_prompt(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a prompt, with the start token that the tokenizer adds unless the text begins with it."""
    return list(tokenizer(text, add_special_tokens=needs_start(text, tokenizer.bos_token))["input_ids"])


def read_tokenizer(folder: Path) -> Any:
    """The ``tokenizers.Tokenizer`` of a model folder.

    Raises:
        SceError: tokenizer.json is missing or damaged.
        MissingExtra: tokenizers is not installed.
    """
    with needs("tokenizers", "onnx"):  # the train extra has it as well
        from tokenizers import Tokenizer
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise SceError(f"{folder}: no tokenizer.json; download it from the source of the weights")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the bindings raise bare Exception
        raise SceError(f"{path}: not a tokenizer ({error})") from None
