"""Small tokenizers as the model hub's files look: tokenizer.json and tokenizer_config.json of each family.

The ids of the special tokens, the pre-tokenizer, the normalizer, the post-processor and the settings are those of the
family; the vocabulary is trained on a few files of Python's library.
"""

from __future__ import annotations

import json
import sysconfig
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tiny_models import PYTHON_LINES
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

_RUNS = 31  # Gemma's longest run of spaces, tabs or line ends
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def library(files: int) -> Iterator[str]:
    """The text of some files of Python's own library."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    yield from (path.read_text(encoding="utf-8") for path in paths[:: max(1, len(paths) // files)])


def _bytes(use_regex: bool) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def _split(regex: str, behavior: str = "isolated", invert: bool = False) -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), behavior, invert), _bytes(False)])


def _digits() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _bytes(True)])


def byte_level(split: Any, specials: list[str], start: str | None = None, whole_words: bool = False) -> Tokenizer:
    """Byte-level BPE of about 600 tokens.

    Args:
        start: the token that the post-processor adds.
        whole_words: the model says ``ignore_merges``, and has a word that no merge makes.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*PYTHON_LINES * 4, *library(6)], trainer)
    if whole_words:
        document = json.loads(tokenizer.to_str())
        document["model"]["vocab"]["Ġunmergeable"] = tokenizer.get_vocab_size()
        document["model"]["ignore_merges"] = True
        tokenizer = Tokenizer.from_str(json.dumps(document))
    if start:
        template = processors.TemplateProcessing(
            single=f"{start} $A", special_tokens=[(start, tokenizer.token_to_id(start))]
        )
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


@cache
def _pieces() -> tuple[list[str], list[str]]:
    """Frequent pieces of words, most frequent first, and all characters."""
    counts: Counter[str] = Counter()
    texts = [*PYTHON_LINES, *library(4)]
    for text in texts:
        for word in text.replace(" ", " ▁").split(" ")[:3000]:
            counts.update(word[a : a + n] for n in range(2, 7) for a in range(len(word) - n + 1))
    characters = sorted({character for text in texts for character in text.replace(" ", "▁")} | {"▁"})
    frequent = [piece for piece, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:500]]
    return [piece for piece in frequent if "\n" not in piece], characters


def sentencepiece(specials: list[str], start: str, runs: bool) -> Tokenizer:
    """As transformers converts a SentencePiece model: each way to put a piece together is a merge, by score.

    Args:
        runs: with Gemma's user-defined pieces, which have the highest score: runs of spaces, tabs and line ends.
    """
    frequent, characters = _pieces()
    scores: dict[str, float] = {piece: -float(rank + 1) for rank, piece in enumerate(frequent)}
    of = [text * count for text in "\n▁\t" for count in range(1, _RUNS + 1)] if runs else []
    scores = dict.fromkeys(of, 0.0) | scores
    vocabulary = {text: index for index, text in enumerate(specials)}
    for text in [*of, *(f"<0x{byte:02X}>" for byte in range(256)), *frequent, *characters]:
        vocabulary.setdefault(text, len(vocabulary))
    ways = [
        (score, piece[:cut], piece[cut:])
        for piece, score in scores.items()
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
    ways.sort(key=lambda way: (way[0], len(way[1]), len(way[2])), reverse=True)
    merges = [(left, right) for _, left, right in ways]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.add_special_tokens([text for text in specials if text.startswith("<")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A", special_tokens=[(start, vocabulary[start])]
    )
    return tokenizer


def _llama_style(scheme: str) -> Tokenizer:
    tokenizer = sentencepiece(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], "<s>", runs=False)
    fused = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*fused, decoders.Strip(" ", 1, 0)])
    if scheme == "normalizer":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=False)
    return tokenizer


def _gemma() -> Tokenizer:
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>"]
    tokenizer = sentencepiece(specials, "<bos>", runs=True)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    document = json.loads(tokenizer.to_str())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    vocabulary = document["model"]["vocab"]
    runs = [text * count for text in "\n▁" for count in range(1, _RUNS + 1) if text * count != "▁"]
    document["added_tokens"] += [{"id": vocabulary[text], "content": text, **flags} for text in runs]
    document["added_tokens"].sort(key=lambda token: token["id"])
    # No row of the embedding belongs to it, as in the text models.
    last = {"id": len(vocabulary), "content": "<image_soft_token>", **flags, "special": True}
    document["added_tokens"].append(last)
    return Tokenizer.from_str(json.dumps(document))


_CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def _deepseek() -> Tokenizer:
    steps = [Regex(part) for part in ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+")]
    split = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(part, "isolated") for part in steps),
            pre_tokenizers.Digits(individual_digits=True),
            _bytes(False),
        ]
    )
    return byte_level(split, ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<|EOT|>"])


def _qwen() -> Tokenizer:
    tokenizer = byte_level(_split(QWEN), _CHATML)
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def make(style: str) -> tuple[Tokenizer, dict[str, Any]]:
    """The tokenizer of a style, and its tokenizer_config.json."""
    if style in ("llama-3", "smollm3"):
        specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", *_CHATML[1:]]
        names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": specials[0], "eos_token": specials[1]}
        own = style == "llama-3"
        tokenizer = byte_level(_split(CL100K), specials, specials[0] if own else None, whole_words=True)
        return tokenizer, names if own else {**names, "bos_token": None, "eos_token": "<|im_end|>"}
    if style == "tekken":
        tokenizer = byte_level(_split(TEKKEN), ["<unk>", "<s>", "</s>", "[INST]"], "<s>", whole_words=True)
        names = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True, "add_eos_token": False}
        return tokenizer, {**names, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    if style in ("mistral", "mistral-first"):
        names = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False}
        tokenizer = _llama_style("first" if style == "mistral-first" else "normalizer")
        return tokenizer, {**names, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": None}
    if style == "gemma":
        names = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": False}
        texts = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
        return _gemma(), {**names, **texts}
    if style == "deepseek-coder":
        token = {"__type": "AddedToken", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
        texts = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
        names = {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, "add_eos_token": False, "legacy": True}
        return _deepseek(), {**names, **{name: {**token, "content": text} for name, text in texts.items()}}
    if style == "qwen":
        names = {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "bos_token": None}
        return _qwen(), {**names, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None}
    gpt2 = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "clean_up_tokenization_spaces": True}
    if style == "smollm2":
        tokenizer = byte_level(_digits(), _CHATML)
        texts = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"}
        return tokenizer, {**gpt2, **texts, "pad_token": "<|im_end|>"}
    if style == "granite-3":
        tokenizer = byte_level(_digits(), ["<|end_of_text|>", "<fim_prefix>", "<|start_of_role|>"])
    else:
        split = _split(CL100K, "removed", invert=True)
        tokenizer = byte_level(split, ["<|end_of_text|>", "<|start_of_role|>"])
    end = {f"{name}_token": "<|end_of_text|>" for name in ("bos", "eos", "pad", "unk")}
    return tokenizer, {**gpt2, "add_bos_token": False, **end}


# llama.cpp's name of each style's pre-tokenizer.
STYLES = {
    "smollm2": "smollm",
    "qwen": "qwen2",
    "deepseek-coder": "deepseek-coder",
    "gemma": "default",
    "llama-3": "llama-bpe",
    "smollm3": "llama-bpe",
    "olmo-2": "dbrx",
    "granite-3": "smollm",
    "granite-4": "dbrx",
    "mistral": "default",
    "tekken": "tekken",
}


def write_tokenizer(folder: Path, style: str, **changes: Any) -> Tokenizer:
    """Write both files of a style to ``folder``; ``changes`` are settings of tokenizer_config.json."""
    tokenizer, settings = make(style)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, **changes}))
    return tokenizer
