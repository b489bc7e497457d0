"""Tokenizers in the form of llama.cpp: byte-level BPE with the name of its pre-tokenizer, or SentencePiece-style BPE.

A feature that llama.cpp does not support is an error that names it. `verify` compares the result on a corpus.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.gguf.pre_tokenizers import ignores_merges, name_of
from securecoderl_edge.models.gguf.tokenizer_files import BYTE, CONTROL, NORMAL, SPACE, UNKNOWN, UNUSED, USER_DEFINED
from securecoderl_edge.models.tokenizer import Tokenizer, read_tokenizer, special_tokens
from securecoderl_edge.prompts.chat import read_chat_template
from securecoderl_edge.system.files import read_json

_BYTE_TOKENS = {f"<0x{byte:02X}>" for byte in range(256)}
# Below the score of every token that a merge produces.
_NO_MERGE = -1e6

# Text that pre-tokenizers split differently: line ends, spaces, digits, fractions, CJK, marks, contractions.
_PROBE = (
    "\n\n\t \r\n    def f(x1, y22):\r\n        return  x1**2+3.1415 # it's WE'LL\u00a0done\n"
    "12345 4 ½ ²³ ٣٤ 我们今天12点 カタカナ 한국어 नमस्ते Ελλάδα naïve e\u0301 🙂🙂 "
    "_snake__case CamelCase '\"``` ...!!??\n\n"
)


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer in the form of a GGUF header.

    Attributes:
        model: llama.cpp's name of the kind: ``gpt2`` is byte-level BPE, ``llama`` is SentencePiece-style.
        pre: llama.cpp's name of the pre-tokenizer; ``default`` for SentencePiece, which has none.
        fingerprint: sha256 of the ids of a fixed probe text.
        merges: merges of byte-level BPE.
        scores: scores of SentencePiece; higher ones are merged first.
        eot: a second EOS token, if the model's configuration has other ones than the tokenizer.
        adds_space: whether a text is tokenized with a space before it.
        normalizer: a Unicode normal form that is applied first; llama.cpp does not do this itself.
    """

    model: Literal["gpt2", "llama"]
    pre: str
    fingerprint: str
    tokens: list[str]
    types: list[int]
    merges: list[str]
    scores: list[float]
    bos: int | None
    eos: int | None
    eot: int | None
    pad: int | None
    unknown: int | None
    adds_bos: bool
    adds_space: bool
    normalizer: str | None
    chat_template: str | None


def fingerprint(tokenizer: Tokenizer) -> str:
    """Compute the sha256 of the ids of a fixed probe text, without special tokens."""
    return hashlib.sha256(" ".join(map(str, tokenizer.encode(_PROBE))).encode()).hexdigest()


def read_vocabulary(base: Path, size: int, pre_tokenizer: str | None = None) -> Vocabulary:
    """Read the tokenizer of ``base``, padded to the model's vocabulary of ``size`` tokens.

    Args:
        pre_tokenizer: llama.cpp's name of an unrecognized pre-tokenizer.

    Raises:
        UsageError: llama.cpp does not support the tokenizer, or it is larger than the model's vocabulary.
        SceError: a file is missing or damaged.
    """
    where = base / "tokenizer.json"
    tokenizer = read_tokenizer(base)
    document = tokenizer.document()
    model = document["model"]
    if model.get("type") != "BPE":
        raise UsageError(f"{where}: export supports only BPE tokenizers, not {model.get('type')}")
    digest = fingerprint(tokenizer)
    is_sentencepiece = bool(model.get("byte_fallback"))
    if is_sentencepiece:
        pre, adds_space, normalizer = "default", _prepends_space(where, document), None
    else:
        pre, adds_space = _pre_tokenizer(document, digest, where, pre_tokenizer), False
        normalizer = _normalizer(where, document)
    _refuse_unsupported(where, document, pre)
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    if tokenizer.before not in ((), (bos,)):
        raise UsageError(f"{where}: it adds more than a start token, which llama.cpp does not support")
    tokens, types = _tokens(document, size, where, is_sentencepiece, (bos, eos))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    ids = {name: tokenizer.id_of(text) for name, text in special_tokens(base).items()}
    config_eos, others = _config_eos(base), tokenizer.ends - {eos}
    template = read_chat_template(base)
    return Vocabulary(
        model="llama" if is_sentencepiece else "gpt2",
        pre=pre,
        fingerprint=digest,
        tokens=tokens,
        types=types,
        merges=[] if is_sentencepiece else merges,
        scores=_scores(tokens, types, merges) if is_sentencepiece else [],
        bos=bos,
        eos=eos,
        eot=config_eos if config_eos in others else min(others, default=None),
        pad=ids.get("pad_token"),
        unknown=ids.get("unk_token"),
        adds_bos=bool(tokenizer.before),
        adds_space=adds_space,
        normalizer=normalizer,
        chat_template=template.source if template is not None else None,
    )


def _refuse_unsupported(where: Path, document: dict[str, Any], pre: str) -> None:
    model = document["model"]
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if model.get(key) and not (key == "ignore_merges" and ignores_merges(pre)):
            raise UsageError(f"{where}: the tokenizer uses {key}, which llama.cpp does not support")
    for token in document.get("added_tokens", []):
        for key in ("lstrip", "rstrip", "single_word"):
            if token.get(key):
                raise UsageError(f"{where}: token {token['content']!r} uses {key}, which llama.cpp does not support")


def _pre_tokenizer(document: dict[str, Any], digest: str, where: Path, chosen: str | None) -> str:
    whole_words = bool(document["model"].get("ignore_merges"))
    name = chosen or name_of(document.get("pre_tokenizer"), digest, whole_words)
    if name is None:
        raise UsageError(
            f"{where}: unknown pre-tokenizer (fingerprint {digest[:12]}). Give its name in llama.cpp with "
            "--pre-tokenizer; the export is then verified against this tokenizer."
        )
    return name


def _normalizer(where: Path, document: dict[str, Any]) -> str | None:
    """Read the normal form of the tokenizer; our runtimes apply it before llama.cpp gets the text."""
    normalizer = document.get("normalizer")
    if not normalizer:
        return None
    if normalizer.get("type") != "NFC":
        raise UsageError(f"{where}: export does not support the normalizer {normalizer.get('type')}, only NFC")
    return "NFC"


def _prepends_space(where: Path, document: dict[str, Any]) -> bool:
    """Whether a space is added before a text.

    Tokenizers with ``Metaspace`` do not add one to texts that begin with a space; llama.cpp does.
    """
    steps = _steps(document.get("normalizer"), "normalizers")
    kinds = [step.get("type") for step in steps]
    metaspace = document.get("pre_tokenizer") or {}
    if metaspace.get("type") == "Split" and metaspace.get("pattern") == {"String": " "}:
        metaspace = {}  # Gemma's: the normalizer has left no space to split at
    plain = metaspace.get("type") == "Metaspace" and not metaspace.get("split") and not steps
    if plain and metaspace.get("prepend_scheme") == "never":
        return False
    if not metaspace and kinds in (["Prepend", "Replace"], ["Replace"]) and steps[-1].get("content") == SPACE:
        return bool(kinds[0] == "Prepend")
    raise UsageError(
        f"{where}: this SentencePiece tokenizer adds spaces before texts in a way that llama.cpp does not support"
    )


def _steps(part: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    if not part:
        return []
    return list(part.get(key, [])) if part.get("type") == "Sequence" else [part]


def _tokens(
    document: dict[str, Any], size: int, where: Path, is_sentencepiece: bool, ends: tuple[int | None, ...]
) -> tuple[list[str], list[int]]:
    """List text and type of every id: added tokens keep their ids, gaps up to ``size`` become unused tokens."""
    texts = {index: (text, NORMAL) for text, index in document["model"]["vocab"].items()}
    if is_sentencepiece:
        unknown = document["model"].get("unk_token")
        texts |= {index: (text, BYTE) for index, (text, _) in texts.items() if text in _BYTE_TOKENS}
        texts |= {index: (text, UNKNOWN) for index, (text, _) in texts.items() if text == unknown}
    for token in document.get("added_tokens", []):
        if is_sentencepiece and SPACE in token["content"] and token["id"] in texts:
            continue  # Gemma's runs of spaces: merges make them, where a text has spaces
        special = token["special"] or token["id"] in ends or _looks_special(token["content"])
        kept = texts.get(token["id"], ("", NORMAL))[1] == UNKNOWN
        texts[token["id"]] = (token["content"], UNKNOWN if kept else CONTROL if special else USER_DEFINED)
    if max(texts) >= size:
        raise UsageError(f"{where}: token id {max(texts)} exceeds the model's vocabulary, which ends at {size - 1}")
    rows = [texts.get(index, (f"[PAD{index}]", UNUSED)) for index in range(size)]
    return [text for text, _ in rows], [kind for _, kind in rows]


def _scores(tokens: list[str], types: list[int], merges: list[str]) -> list[float]:
    """Compute scores as SentencePiece's BPE does: tokens of earlier merges are higher."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault(merge.replace(" ", ""), rank)
    return [
        -float(ranks[token]) if kind == NORMAL and token in ranks else (_NO_MERGE if kind == NORMAL else 0.0)
        for token, kind in zip(tokens, types, strict=True)
    ]


def _looks_special(text: str) -> bool:
    """Whether llama.cpp's own converter would mark the token as control although the tokenizer does not."""
    pairs = (("<|", "|>"), ("<｜", "｜>"))
    return text == "<pad>" or any(text.startswith(left) and text.endswith(right) for left, right in pairs)


def _config_eos(base: Path) -> int | None:
    value = read_json(base / "config.json").get("eos_token_id")
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, int) else None
