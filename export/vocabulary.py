"""A byte-level BPE tokenizer as llama.cpp needs it: tokens with types, merges, and the pre-tokenizer's name.

llama.cpp knows pre-tokenizers by name and splits text otherwise, without a word, when the name is wrong. So
the name comes from how the tokenizer behaves or is built, and one that matches nothing is refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.chat import read_chat_template
from securecoderl_edge.errors import UsageError
from securecoderl_edge.files import read_json
from securecoderl_edge.token_counts import read_tokenizer

# Token types of GGUF's tokenizer.ggml.token_type.
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5

# Touches what pre-tokenizers disagree on: line ends, spaces, digits, fractions, CJK, marks, contractions.
_PROBE = (
    "\n\n\t \r\n    def f(x1, y22):\r\n        return  x1**2+3.1415 # it's WE'LL\u00a0done\n"
    "12345 4 ½ ²³ ٣٤ 我们今天12点 カタカナ 한국어 नमस्ते Ελλάδα naïve e\u0301 🙂🙂 "
    "_snake__case CamelCase '\"``` ...!!??\n\n"
)
# sha256 of the ids of the probe, without special tokens.
_KNOWN_FINGERPRINTS = {
    "d1e870ae2282367e0d1838a2edf4cadcef6b4dff3587e5de6dcb55a4367c0080": "deepseek-coder",
}


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, ready to be written into a GGUF header.

    Attributes:
        pre: llama.cpp's name of the pre-tokenizer.
        fingerprint: sha256 of the ids of a fixed probe text.
        eot: a second token that ends an answer, when the config names another than the tokenizer.
    """

    pre: str
    fingerprint: str
    tokens: list[str]
    types: list[int]
    merges: list[str]
    bos: int | None
    eos: int | None
    eot: int | None
    pad: int | None
    adds_bos: bool
    adds_eos: bool
    chat_template: str | None


def fingerprint(tokenizer: Any) -> str:
    """sha256 of the ids of a fixed probe text, without special tokens."""
    ids = tokenizer.encode(_PROBE, add_special_tokens=False).ids
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()


def read_vocabulary(base: Path, size: int) -> Vocabulary:
    """Read the tokenizer of ``base``, padded to the model's vocabulary of ``size`` tokens.

    Raises:
        UsageError: no byte-level BPE tokenizer that llama.cpp knows, or larger than the model's vocabulary.
        SceError: a file is missing or damaged.
    """
    where = base / "tokenizer.json"
    tokenizer = read_tokenizer(base)
    document = read_json(where)
    model = document["model"]
    _refuse_unsupported(where, document)
    tokens, types = _tokens(document, size, where)
    digest = fingerprint(tokenizer)
    settings = read_json(base / "tokenizer_config.json") if (base / "tokenizer_config.json").is_file() else {}
    ids = {role: _token_id(settings.get(f"{role}_token"), tokenizer) for role in ("bos", "eos", "pad")}
    config_eos, config_bos = _config_id(base, "eos_token_id"), _config_id(base, "bos_token_id")
    eos = ids["eos"] if ids["eos"] is not None else config_eos
    bos = ids["bos"] if ids["bos"] is not None else config_bos
    template = read_chat_template(base)
    with_specials, bare = (tokenizer.encode("a", add_special_tokens=flag).ids for flag in (True, False))
    return Vocabulary(
        pre=_pre_tokenizer(document, digest, where),
        fingerprint=digest,
        tokens=tokens,
        types=types,
        merges=[merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]],
        bos=bos,
        eos=eos,
        eot=config_eos if config_eos != eos else None,
        pad=ids["pad"],
        adds_bos=len(with_specials) > len(bare) and with_specials[0] == bos,
        adds_eos=len(with_specials) > len(bare) and with_specials[-1] == eos,
        chat_template=template.source if template is not None else None,
    )


def _refuse_unsupported(where: Path, document: dict[str, Any]) -> None:
    model = document["model"]
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        kind = "SentencePiece-style BPE" if model.get("byte_fallback") else model.get("type")
        raise UsageError(f"{where}: export writes byte-level BPE tokenizers, this one is {kind}")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if model.get(key):
            raise UsageError(f"{where}: the tokenizer uses {key}, which llama.cpp would not follow")
    if document.get("normalizer"):
        raise UsageError(f"{where}: the tokenizer normalises text, which llama.cpp would not follow")
    for token in document.get("added_tokens", []):
        for key in ("lstrip", "rstrip", "single_word"):
            if token.get(key):
                raise UsageError(f"{where}: token {token['content']!r} uses {key}, which llama.cpp would not follow")


def _pre_tokenizer(document: dict[str, Any], digest: str, where: Path) -> str:
    if digest in _KNOWN_FINGERPRINTS:
        return _KNOWN_FINGERPRINTS[digest]
    splitter = document.get("pre_tokenizer") or {}
    is_gpt2 = splitter.get("type") == "ByteLevel" and splitter.get("use_regex", True)
    if is_gpt2 and not splitter.get("add_prefix_space"):
        return "gpt-2"
    raise UsageError(f"{where}: llama.cpp has no known pre-tokenizer for it (fingerprint {digest[:12]}); cannot export")


def _tokens(document: dict[str, Any], size: int, where: Path) -> tuple[list[str], list[int]]:
    """Text and type of every id: added tokens keep their place, gaps up to ``size`` become unused tokens."""
    texts = {index: (text, NORMAL) for text, index in document["model"]["vocab"].items()}
    for token in document.get("added_tokens", []):
        special = token["special"] or _looks_special(token["content"])
        texts[token["id"]] = (token["content"], CONTROL if special else USER_DEFINED)
    if max(texts) >= size:
        raise UsageError(f"{where}: has token id {max(texts)}, but the model's vocabulary ends at {size - 1}")
    rows = [texts.get(index, (f"[PAD{index}]", UNUSED)) for index in range(size)]
    return [text for text, _ in rows], [kind for _, kind in rows]


def _looks_special(text: str) -> bool:
    """Whether llama.cpp's own converter would mark the token as control although the tokenizer does not."""
    pairs = (("<|", "|>"), ("<｜", "｜>"))
    return text == "<pad>" or any(text.startswith(left) and text.endswith(right) for left, right in pairs)


def _token_id(setting: Any, tokenizer: Any) -> int | None:
    text = setting.get("content") if isinstance(setting, dict) else setting
    index = tokenizer.token_to_id(text) if isinstance(text, str) else None
    return None if index is None else int(index)


def _config_id(base: Path, key: str) -> int | None:
    value = read_json(base / "config.json").get(key)
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, int) else None
