"""Tokenizers in a GGUF header: llama.cpp splits and merges as training's tokenizer does, for every family's files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from quick import few
from tiny_models import build_model

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from tokenizer_styles import STYLES, TEKKEN, library, make, write_tokenizer
from tokenizers import Regex, pre_tokenizers

from securecoderl_edge.errors import UsageError
from securecoderl_edge.export import gguf as gguf_export
from securecoderl_edge.export.gguf import write_gguf
from securecoderl_edge.export.verify import PROMPTS, probe_texts
from securecoderl_edge.export.vocabulary import read_vocabulary
from securecoderl_edge.models.gguf.pre_tokenizers import ignores_merges, name_of, pre_tokenizer_of
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.runtimes.gguf.llama import LlamaModel
from securecoderl_edge.text import with_seams

SMALL = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
TEXTS = (
    *PROMPTS,
    " ",
    "x = [\n        1,",
    "\t\tx = 12345 + 0x1F\r\n\r\n  return",
    "1234567890 12 3.4",
    "I'LL we've 'S it'd",
    "½²³ ٣٤ 我们今天12点 नमस्ते e\u0301 🙂🙂 \u00a0 \u2003 \u200d",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|> <s> [INST]x[/INST] <start_of_turn>a<end_of_turn>",
    " unmergeable unmergeable\n" + "\n" * 40 + " " * 70 + "\t" * 40,
    "word" * 300,
)


def write_model(folder: Path, style: str, **changes: Any) -> Path:
    """A model of one small layer with the tokenizer of a style."""
    tokenizer, _ = make(style)
    rows = tokenizer.get_vocab_size() + (-1 if style == "gemma" else 3)
    build_model(folder, vocab_size=rows, num_hidden_layers=1, **SMALL)
    write_tokenizer(folder, style, **changes)
    # As if the ids 0 and 1 of the small model were not the family's own.
    for name in ("config.json", "generation_config.json"):
        document = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**document, "eos_token_id": None, "bos_token_id": None}))
    return folder


def unequal(base: Path, path: Path, texts: tuple[str, ...]) -> list[str]:
    """Export a model, and find the texts whose prompt has other ids in the file than in training."""
    write_gguf(base, None, "f32", path, "m")
    tokenizer, model = read_tokenizer(base), LlamaModel(path)
    try:
        return [text for text in texts if model.tokenize(text) != tokenizer.encode_prompt(text)]
    finally:
        model.close()


@pytest.mark.parametrize("style", few(STYLES, "deepseek-coder", "mistral", "qwen", "smollm2", "tekken"))
def test_llama_cpp_makes_the_tokens_that_training_makes(tmp_path: Path, style: str) -> None:
    base = write_model(tmp_path / "m", style)
    vocabulary = read_vocabulary(base, json.loads((base / "config.json").read_text())["vocab_size"])
    assert vocabulary.pre == STYLES[style]
    assert vocabulary.adds_bos == (style in ("deepseek-coder", "gemma", "llama-3", "mistral", "tekken"))
    assert vocabulary.adds_space == (style == "mistral")
    assert vocabulary.normalizer == ("NFC" if style == "qwen" else None)
    assert unequal(base, tmp_path / "m.gguf", (*TEXTS, *library(8))) == []


@pytest.mark.parametrize(("style", "wanted"), [("llama-3", False), ("smollm2", True), ("gemma", False)])
def test_the_file_adds_the_start_token_that_the_settings_ask_for(tmp_path: Path, style: str, wanted: bool) -> None:
    base = write_model(tmp_path / "m", style, add_bos_token=wanted, add_eos_token=wanted)
    assert unequal(base, tmp_path / "m.gguf", ("x = 1", "<|im_start|>x", "<bos>x", "<|begin_of_text|>x")) == []


@pytest.mark.parametrize("style", ["gemma", "smollm2"])
def test_a_file_that_puts_an_end_token_behind_texts_puts_none_behind_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    key = "tokenizer.ggml.add_eos_token"
    monkeypatch.setattr("gguf.GGUFWriter.add_add_eos_token", lambda writer, _: writer.add_bool(key, True))
    base = write_model(tmp_path / "m", style)
    assert unequal(base, tmp_path / "m.gguf", ("x = 1", with_seams("<|im_end|>x", ("<|im_end|>",)))) == []


@pytest.mark.parametrize(
    ("style", "wrong"), [("smollm2", "gpt-2"), ("granite-4", "qwen2"), ("deepseek-coder", "smollm")]
)
def test_a_wrong_pre_tokenizer_is_seen_in_the_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str, wrong: str
) -> None:
    base = write_model(tmp_path / "m", style)
    monkeypatch.setattr(
        gguf_export,
        "read_vocabulary",
        lambda base, size, name: dataclasses.replace(read_vocabulary(base, size), pre=wrong),
    )
    assert unequal(base, tmp_path / "m.gguf", tuple(probe_texts(base))) != []


def test_a_start_token_that_only_training_adds_is_seen_in_the_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = write_model(tmp_path / "m", "deepseek-coder")
    monkeypatch.setattr(
        gguf_export,
        "read_vocabulary",
        lambda base, size, name: dataclasses.replace(read_vocabulary(base, size), adds_bos=False),
    )
    assert len(unequal(base, tmp_path / "m.gguf", PROMPTS)) == len(PROMPTS)


def test_a_known_name_and_its_parts_are_found_from_each_other() -> None:
    for name in ("gpt-2", "smollm", "qwen2", "llama-bpe", "dbrx", "tekken", "deepseek-coder"):
        assert name_of(pre_tokenizer_of(name), "", ignores_merges(name)) == name
    assert pre_tokenizer_of("refact") == pre_tokenizer_of("smollm")
    assert ignores_merges("llama-v3")
    assert not ignores_merges("refact")
    assert pre_tokenizer_of("of-the-future") is None


def test_llama_cpp_only_comes_near_tekkens_expression(tmp_path: Path) -> None:
    # A small letter beside a capital one that is not ASCII: the reason why every export is verified.
    parts = [text for text, _ in pre_tokenizers.Split(Regex(TEKKEN), "isolated").pre_tokenize_str("éCole")]
    assert parts == ["é", "Cole"]


def test_a_pre_tokenizer_that_is_not_known_can_be_named(tmp_path: Path) -> None:
    base = write_model(tmp_path / "m", "smollm2")
    document = json.loads((base / "tokenizer.json").read_text())
    # The digits are split off in another way than usual.
    digits = {"type": "Split", "pattern": {"Regex": r"\p{N}"}, "behavior": "Isolated", "invert": False}
    document["pre_tokenizer"]["pretokenizers"][0] = digits
    (base / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match="--pre-tokenizer"):
        read_vocabulary(base, 800)
    write_gguf(base, None, "f32", tmp_path / "m.gguf", "m", pre_tokenizer="smollm")
    tokenizer, model = read_tokenizer(base), LlamaModel(tmp_path / "m.gguf")
    try:
        assert all(model.tokenize(text) == tokenizer.encode_prompt(text) for text in TEXTS)
    finally:
        model.close()


def change(base: Path, part: str, value: Any) -> Path:
    document = json.loads((base / "tokenizer.json").read_text())
    target = document["model"] if part == "ignore_merges" else document
    target[part] = value
    (base / "tokenizer.json").write_text(json.dumps(document))
    return base


@pytest.mark.parametrize(
    ("part", "value", "named"),
    [
        ("ignore_merges", True, "ignore_merges"),
        ("normalizer", {"type": "NFKC"}, "does not support the normalizer NFKC"),
        (
            "post_processor",
            {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                ],
                "pair": [],
                "special_tokens": {"<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]}},
            },
            "more than a start token",
        ),
    ],
)
def test_what_llama_cpp_does_not_do_is_refused(tmp_path: Path, part: str, value: Any, named: str) -> None:
    write_tokenizer(tmp_path, "smollm2")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=named):
        read_vocabulary(change(tmp_path, part, value), 800)


@pytest.mark.parametrize("scheme", ["always", "first"])
def test_a_sentencepiece_tokenizer_that_puts_spaces_where_llama_cpp_does_not_is_refused(
    tmp_path: Path, scheme: str
) -> None:
    write_tokenizer(tmp_path, "mistral-first")
    (tmp_path / "config.json").write_text("{}")
    parts = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    with pytest.raises(UsageError, match=r"in a way that llama\.cpp does not support"):
        read_vocabulary(change(tmp_path, "pre_tokenizer", parts), 2000)
