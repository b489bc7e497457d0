"""Which tokens start a prompt and end an answer, by a model's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.tokenizer import end_tokens, special_tokens


@pytest.mark.parametrize(
    ("files", "ends", "ends_without_tokenizer"),
    [
        ({}, {3}, set()),
        ({"config.json": {"eos_token_id": 3}}, {3}, {3}),
        ({"config.json": {"eos_token_id": None}, "generation_config.json": {}}, {3}, set()),
        ({"config.json": {"eos_token_id": 4}}, {3, 4}, {4}),
        (
            {"config.json": {"eos_token_id": 3}, "generation_config.json": {"eos_token_id": [5, 7]}},
            {3, 5, 7},
            {3, 5, 7},
        ),
        ({"generation_config.json": {"eos_token_id": ["</s>"]}}, {3}, set()),
    ],
)
def test_every_end_that_the_files_name_ends_an_answer(
    tmp_path: Path, files: dict[str, Any], ends: set[int], ends_without_tokenizer: set[int]
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert end_tokens(tmp_path, 3) == ends
    assert end_tokens(tmp_path, None) == ends_without_tokenizer


def test_special_tokens_are_texts_or_records_and_others_are_left_out(tmp_path: Path) -> None:
    assert special_tokens(tmp_path) == {}
    settings = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": False},
        "pad_token": None,
        "unk_token": 3,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert special_tokens(tmp_path) == {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{")
    with pytest.raises(SceError, match=name):
        end_tokens(tmp_path, 3)
