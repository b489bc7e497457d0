"""Tokenizers in a GGUF header: llama.cpp splits and merges as the tokenizer does, for every kind that is written."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_models import PYTHON_LINES, build_model

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llama_cpp", reason="needs the gguf extra")

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from securecoderl_edge.errors import UsageError
from securecoderl_edge.export.gguf import write_gguf
from securecoderl_edge.export.verify import PROMPTS
from securecoderl_edge.export.vocabulary import read_vocabulary
from securecoderl_edge.models.pre_tokenizers import _LLAMA_3, _QWEN_2
from securecoderl_edge.runtimes.gguf.llama import LlamaModel

SMALL = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
TEXTS = (
    *PROMPTS,
    "",
    " ",
    "\t\tx = 12345 + 0x1F\r\n\r\n  return",
    "I'LL we've 'S it'd",
    "½²³ ٣٤ 我们今天12点 नमस्ते e\u0301 🙂🙂 \u00a0 \u2003 \u200d",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>",
    "word" * 300,
)


def library(files: int) -> Iterator[str]:
    """The text of some files of Python's own library."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    yield from (path.read_text(encoding="utf-8") for path in paths[:: max(1, len(paths) // files)])


def byte_level(split: Any, bos: bool = False, **changes: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**changes))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*PYTHON_LINES * 4, *library(12)], trainer)
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
    return tokenizer


def split_by(regex: str) -> Any:
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), behavior="isolated"), bytes_alone])


def write_model(folder: Path, tokenizer: Tokenizer, **settings: str) -> Path:
    size = tokenizer.get_vocab_size()
    build_model(folder, vocab_size=size + 3, num_hidden_layers=1, **SMALL)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>", **settings}))
    return folder


def assert_equal_tokens(base: Path, tokenizer: Tokenizer, path: Path, **options: Any) -> None:
    write_gguf(base, None, "f32", path, "m", **options)
    model = LlamaModel(path)
    try:
        for text in (*TEXTS, *library(25)):
            assert model.tokenize(text) == tokenizer.encode(text).ids, text[:60]
    finally:
        model.close()


KINDS = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "qwen2": split_by(_QWEN_2),
    "dbrx": split_by(_LLAMA_3),
    "smollm": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    ),
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("bos", [False, True])
def test_llama_cpp_makes_the_same_tokens(tmp_path: Path, kind: str, bos: bool) -> None:
    tokenizer = byte_level(KINDS[kind], bos)
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    base = write_model(tmp_path / "m", tokenizer, **({"bos_token": "<|endoftext|>"} if bos else {}))
    vocabulary = read_vocabulary(base, tokenizer.get_vocab_size() + 3)
    assert (vocabulary.model, vocabulary.pre, vocabulary.adds_bos) == ("gpt2", kind, bos)
    assert vocabulary.normalizer == ("NFC" if kind == "qwen2" else None)
    assert_equal_tokens(base, tokenizer, tmp_path / "m.gguf")


def test_a_pre_tokenizer_that_is_not_known_can_be_named(tmp_path: Path) -> None:
    # The digits are split off in another way than usual.
    split = pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")
    tokenizer = byte_level(pre_tokenizers.Sequence([split, KINDS["gpt-2"]]))
    base = write_model(tmp_path / "m", tokenizer)
    with pytest.raises(UsageError, match="--pre-tokenizer"):
        read_vocabulary(base, 800)
    assert_equal_tokens(base, tokenizer, tmp_path / "m.gguf", pre_tokenizer="smollm")


def test_whole_words_that_are_tokens_are_not_merged_where_the_tokenizer_says_so(tmp_path: Path) -> None:
    tokenizer = byte_level(KINDS["dbrx"])
    document = json.loads(tokenizer.to_str())
    vocabulary = document["model"]["vocab"]
    # A word that no merge makes.
    vocabulary["Ġunmergeable"] = max(vocabulary.values()) + 2
    document["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(document))
    base = write_model(tmp_path / "m", tokenizer)
    assert len(tokenizer.encode(" unmergeable").ids) == 1
    assert_equal_tokens(base, tokenizer, tmp_path / "m.gguf")
    document["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = _QWEN_2
    Tokenizer.from_str(json.dumps(document)).save(str(base / "tokenizer.json"))
    with pytest.raises(UsageError, match="ignore_merges"):
        read_vocabulary(base, 800)


def sentencepiece(scheme: str) -> Tokenizer:
    """As transformers makes them of a SentencePiece model: every way of putting a piece together is a merge."""
    pieces: dict[str, int] = {}
    for line in [*PYTHON_LINES, *library(4)]:
        for word in line.replace(" ", " ▁").split(" ")[:4000]:
            for size in range(2, 7):
                for start in range(len(word) - size + 1):
                    piece = word[start : start + size]
                    pieces[piece] = pieces.get(piece, 0) + 1
    characters = sorted(
        {character for text in library(4) for character in text.replace(" ", "▁") if character != "▁"} | {"▁"}
    )
    frequent = sorted(
        (piece for piece, count in pieces.items() if count > 8), key=lambda piece: (-pieces[piece], piece)
    )
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for token in (*frequent[:600], *characters):
        vocabulary.setdefault(token, len(vocabulary))
    merges = [
        (token[:cut], token[cut:])
        for token in frequent[:600]
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if scheme == "normalizer":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=False)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


@pytest.mark.parametrize("scheme", ["normalizer", "never"])
def test_sentencepiece_tokens_are_the_same(tmp_path: Path, scheme: str) -> None:
    tokenizer = sentencepiece(scheme)
    base = write_model(tmp_path / "m", tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    vocabulary = read_vocabulary(base, tokenizer.get_vocab_size() + 3)
    assert (vocabulary.model, vocabulary.adds_space, vocabulary.adds_bos) == ("llama", scheme != "never", True)
    path = tmp_path / "m.gguf"
    write_gguf(base, None, "f32", path, "m")
    model = LlamaModel(path)
    try:
        for text in (*TEXTS, *library(10)):
            if text:  # an empty text is a start token here and nothing there
                assert model.tokenize(text) == tokenizer.encode(text).ids, text[:60]
    finally:
        model.close()


@pytest.mark.parametrize("scheme", ["always", "first"])
def test_a_sentencepiece_tokenizer_that_puts_spaces_where_llama_cpp_does_not_is_refused(
    tmp_path: Path, scheme: str
) -> None:
    base = write_model(tmp_path / "m", sentencepiece(scheme), eos_token="</s>")
    with pytest.raises(UsageError, match=r"in a way that llama\.cpp does not support"):
        read_vocabulary(base, 2000)


def test_a_tokenizer_with_another_normalizer_is_refused(tmp_path: Path) -> None:
    tokenizer = byte_level(KINDS["gpt-2"])
    tokenizer.normalizer = normalizers.NFKC()
    with pytest.raises(UsageError, match="does not support the normalizer NFKC"):
        read_vocabulary(write_model(tmp_path / "m", tokenizer), 800)
