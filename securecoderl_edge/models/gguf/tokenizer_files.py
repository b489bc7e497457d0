"""The tokenizer files of a Hugging Face folder from the metadata of a GGUF file, equal to llama.cpp's tokenization."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError, UsageError, first_line, needs
from securecoderl_edge.models.gguf.header import GgufHeader
from securecoderl_edge.models.gguf.pre_tokenizers import ignores_merges, pre_tokenizer_of
from securecoderl_edge.models.tokenizer import is_failure
from securecoderl_edge.text import NORMALIZER_KEY

# Values of tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "▁"
# With these texts, llama.cpp ends an answer in addition to the tokens that the metadata name.
_ENDS = {
    "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
    "<EOT>", "<|EOT|>", "<eos>", "<｜end▁of▁sentence｜>",
}  # fmt: skip
# Characters of a token, and merges that the scores of all tokens make: several times those of known models.
_LONGEST_TOKEN, _MOST_MERGES = 1024, 1 << 21
_PROBE = "def f(x: int) -> str:\n    if x > 10:\n\t\treturn  'a_b' + \"{}\" % (x ** 2)  # 123, [4.5]\n"


@dataclass(frozen=True)
class TokenizerFiles:
    """Tokenizer files by name, and the ids of special tokens under their names in config.json."""

    files: dict[str, str]
    ids: dict[str, Any]


def tokenizer_files_of(header: GgufHeader, size: int, path: Path) -> TokenizerFiles:
    """The tokenizer of a GGUF file with ``size`` embeddings.

    Raises:
        UsageError: a tokenizer that a tokenizer.json cannot express (named).
        SceError: the metadata are damaged.
        MissingExtra: tokenizers is not installed.
    """
    values = header.values
    tokens, types = _tokens(header, size, path)
    kind = values.get("tokenizer.ggml.model")
    if kind == "gpt2":
        document = _byte_level(header, tokens, types, path)
    elif kind == "llama":
        document = _sentencepiece(header, tokens, types, path)
    else:
        raise UsageError(f"{path}: a tokenizer of the kind {kind!r} is not supported, only gpt2 and llama")
    ids = _special_ids(header, size, is_sentencepiece=kind == "llama")
    texts = {name: tokens[index] for name, index in ids.items()}
    # For some pre-tokenizers llama.cpp adds a start token because of their name.
    starts = kind == "llama" or ignores_merges(str(values.get("tokenizer.ggml.pre")))
    adds_bos = bool(values.get("tokenizer.ggml.add_bos_token", starts))
    if "eos_token" not in ids or (adds_bos and "bos_token" not in ids):
        raise UsageError(f"{path}: the metadata name no start or end token; give the Hugging Face folder instead")
    document |= {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(tokens, types),
        "post_processor": _post_processor(ids, texts) if adds_bos else None,
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": adds_bos,
        **texts,
    }
    files = {
        "tokenizer.json": json.dumps(document, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(settings, ensure_ascii=False, indent=1),
    }
    _check_round_trip(files["tokenizer.json"], path)
    template = values.get("tokenizer.chat_template")
    if isinstance(template, str) and template:
        files["chat_template.jinja"] = template
    return TokenizerFiles(files, _config_ids(ids, header, tokens, types))


def _tokens(header: GgufHeader, size: int, path: Path) -> tuple[list[str], list[int]]:
    tokens = [*header.lists.get("tokenizer.ggml.tokens", ())]
    types = [*header.lists.get("tokenizer.ggml.token_type", (NORMAL,) * len(tokens))]
    if len(tokens) != size:
        raise SceError(f"{path}: {len(tokens)} tokens, but {size} embeddings; download it again")
    are_texts = all(isinstance(text, str) and 0 < len(text) <= _LONGEST_TOKEN for text in tokens)
    if len(types) != size or not are_texts or len({*tokens}) != size:
        raise SceError(f"{path}: its list of tokens is damaged, or names a token twice; download it again")
    return tokens, types


def _byte_level(header: GgufHeader, tokens: list[str], types: list[int], path: Path) -> dict[str, Any]:
    name = header.values.get("tokenizer.ggml.pre")
    parts = pre_tokenizer_of(name) if isinstance(name, str) else None
    if not isinstance(name, str) or parts is None:
        raise UsageError(f"{path}: unknown pre-tokenizer {name!r}; give the Hugging Face folder instead")
    merges = header.lists.get("tokenizer.ggml.merges", ())
    if not all(isinstance(merge, str) and " " in merge[1:] for merge in merges):
        raise SceError(f"{path}: its list of merges is damaged; download it again")
    form = header.values.get(NORMALIZER_KEY)
    return {
        "normalizer": {"type": form} if form else None,
        "pre_tokenizer": parts,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": _bpe(tokens, types)
        | {
            "ignore_merges": ignores_merges(name),
            # The first of the two may begin with a space.
            "merges": [[merge[0] + first, rest] for merge in merges for first, _, rest in [merge[1:].partition(" ")]],
        },
    }


def _sentencepiece(header: GgufHeader, tokens: list[str], types: list[int], path: Path) -> dict[str, Any]:
    scores = [*header.lists.get("tokenizer.ggml.scores", ())]
    if len(scores) != len(tokens):
        raise SceError(f"{path}: {len(scores)} scores for {len(tokens)} tokens; download it again")
    adds_space = bool(header.values.get("tokenizer.ggml.add_space_prefix", True))
    to_mark = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    steps = [{"type": "Prepend", "prepend": SPACE}, to_mark] if adds_space else [to_mark]
    from_mark: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if adds_space:
        from_mark.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": from_mark},
        "model": _bpe(tokens, types)
        | {
            "unk_token": next((text for text, kind in zip(tokens, types, strict=True) if kind == UNKNOWN), None),
            "fuse_unk": True,
            "byte_fallback": True,
            "merges": _merges(tokens, types, scores, path),
        },
    }


def _bpe(tokens: list[str], types: list[int]) -> dict[str, Any]:
    """What the two kinds of models have in common, and the values that one of them changes."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        # Without the unused; with added ones, as tokenizers numbers those anew that are not in it.
        "vocab": {text: index for index, text in enumerate(tokens) if types[index] != UNUSED},
    }


def _merges(tokens: list[str], types: list[int], scores: list[float], path: Path) -> list[list[str]]:
    """Merges that give the same tokens as scores: SentencePiece joins the neighbors whose token has the best score.

    Among the splits of one token the order is that of its left part, which only matters where two of them overlap.
    """
    normal = {text: score for text, kind, score in zip(tokens, types, scores, strict=True) if kind == NORMAL}
    splits = (
        (-score, text, cut)
        for text, score in normal.items()
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    )
    merges = list(itertools.islice(splits, _MOST_MERGES + 1))
    if len(merges) > _MOST_MERGES:
        raise SceError(f"{path}: its tokens have more than {_MOST_MERGES} merges; choose another file")
    return [[text[:cut], text[cut:]] for _, text, cut in sorted(merges)]


def _added(tokens: list[str], types: list[int]) -> list[dict[str, Any]]:
    """The tokens that are found in a text before it is split."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": index, "content": text, **flags, "special": kind != USER_DEFINED}
        for index, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (CONTROL, USER_DEFINED, UNKNOWN)
    ]


def _special_ids(header: GgufHeader, size: int, is_sentencepiece: bool) -> dict[str, int]:
    """Ids of the special tokens by their names in tokenizer_config.json."""
    defaults = {"bos": 1, "eos": 2, "unknown": 0} if is_sentencepiece else {}
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    ids = {}
    for key, name in names.items():
        index = header.values.get(f"tokenizer.ggml.{key}_token_id", defaults.get(key))
        if isinstance(index, int) and 0 <= index < size:
            ids[name] = index
    return ids


def _config_ids(ids: dict[str, int], header: GgufHeader, tokens: list[str], types: list[int]) -> dict[str, Any]:
    """The ids for config.json; there is a list of end tokens if there are several."""
    eos, others = ids["eos_token"], [header.values.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom")]
    named = [index for index, text in enumerate(tokens) if text in _ENDS and types[index] == CONTROL]
    named += [end for end in others if isinstance(end, int) and end in range(len(tokens))]
    ends = [eos, *sorted({*named} - {eos})]
    config: dict[str, Any] = {f"{name}_id": index for name, index in ids.items() if name != "unk_token"}
    return {**config, "eos_token_id": ends if len(ends) > 1 else eos}


def _post_processor(ids: dict[str, int], texts: dict[str, str]) -> dict[str, Any]:
    """The one that puts the start token before a text."""
    start = texts["bos_token"]

    def template(sequence: str) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": start, "type_id": 0}}, {"Sequence": {"id": sequence, "type_id": 0}}]

    return {
        "type": "TemplateProcessing",
        "single": template("A"),
        "pair": template("A") + template("B"),
        "special_tokens": {start: {"id": start, "ids": [ids["bos_token"]], "tokens": [start]}},
    }


def _check_round_trip(text: str, path: Path) -> None:
    """Check that the tokenizer can be loaded, and that it loses nothing of a program.

    Raises:
        SceError: it cannot, or it does.
    """
    with needs("tokenizers", "train"):
        from tokenizers import Tokenizer
    try:
        tokenizer = Tokenizer.from_str(text)
        text_again = tokenizer.decode(tokenizer.encode(_PROBE, add_special_tokens=False).ids, skip_special_tokens=False)
    except BaseException as error:
        if not is_failure(error):
            raise
        raise SceError(f"{path}: its tokenizer is damaged ({first_line(error)}); download it again") from None
    if text_again != _PROBE:
        raise SceError(f"{path}: its tokenizer does not give a program back as it was; choose another file")
