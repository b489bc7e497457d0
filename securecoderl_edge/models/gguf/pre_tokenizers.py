"""Names of pre-tokenizers in llama.cpp, and what a tokenizer.json says instead of a name.

With a wrong name, llama.cpp splits text differently without a warning: an unknown pre-tokenizer is never guessed.
Source of the names and regular expressions: llama-vocab.cpp of llama.cpp. There, tekken's is an approximation.
"""

from __future__ import annotations

import json
from typing import Any

# sha256 of the ids of the probe text of `vocabulary`, without special tokens.
_KNOWN_FINGERPRINTS = {
    "d1e870ae2282367e0d1838a2edf4cadcef6b4dff3587e5de6dcb55a4367c0080": "deepseek-coder",
}

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS, _SIGNS, _SPACES = r"[^\r\n\p{L}\p{N}]?\p{L}+", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_QWEN_2 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_SIGNS}|{_SPACES}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+")


def _split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def _bytes(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


_DIGITS = {"type": "Digits", "individual_digits": True}
_STEPS = {
    "gpt-2": [_bytes(True)],
    "smollm": [_DIGITS, _bytes(True)],
    "qwen2": [_split(_QWEN_2), _bytes(False)],
    "llama-bpe": [_split(_LLAMA_3), _bytes(False)],
    "dbrx": [_split(_LLAMA_3), _bytes(False)],
    "tekken": [_split(_TEKKEN), _bytes(False)],
    "deepseek-coder": [*map(_split, _DEEPSEEK_CODER), _DIGITS, _bytes(False)],
}
# Other names in GGUF files for the same splitting in llama.cpp.
_SAME = {
    "gpt-2": (
        "phi-2", "olmo", "mpt", "jais", "mellum", "exaone4", "a.x-4.0", "gigachat", "granite-docling", "trillion",
    ),
    "smollm": ("refact", "starcoder", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),
    "qwen2": ("deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "kormo", "f2llmv2", "solar-open", "grok-2"),
    "llama-bpe": ("llama3", "llama-v3", "lfm2", "pixtral", "falcon3", "falcon-h1", "midm-2.0"),
    "dbrx": ("smaug-bpe",),
}  # fmt: skip
_NAMES = {other: name for name, others in _SAME.items() for other in others} | {name: name for name in _STEPS}
# With these, llama.cpp takes a whole word that is a token before it merges, like ``ignore_merges``.
_IGNORE_MERGES = ("llama-bpe", "tekken")


def name_of(pre_tokenizer: dict[str, Any] | None, fingerprint: str, whole_words: bool = False) -> str | None:
    """llama.cpp's name of a pre-tokenizer; None if it is unknown.

    Args:
        pre_tokenizer: the ``pre_tokenizer`` of a tokenizer.json.
        fingerprint: see `vocabulary.fingerprint`.
        whole_words: ``ignore_merges`` of the tokenizer's model; some names differ in nothing else.
    """
    if name := _KNOWN_FINGERPRINTS.get(fingerprint):
        return name
    known = [name for name, steps in _STEPS.items() if _key(steps) == _key([pre_tokenizer or {}])]
    return min(known, key=lambda name: ignores_merges(name) != whole_words, default=None)


def pre_tokenizer_of(name: str) -> dict[str, Any] | None:
    """The ``pre_tokenizer`` of a tokenizer.json that splits like llama.cpp's ``name``; None if it is unknown."""
    steps = _STEPS.get(_NAMES.get(name, ""))
    if steps is None:
        return None
    document = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
    return dict(json.loads(json.dumps(document)))


def ignores_merges(name: str) -> bool:
    """Whether llama.cpp takes a whole word that is a token before it merges, as ``ignore_merges`` says."""
    return _NAMES.get(name) in _IGNORE_MERGES


def _key(steps: list[dict[str, Any]]) -> tuple[tuple[Any, ...], ...]:
    """The steps of a pre-tokenizer with their relevant settings."""
    return tuple(part for step in steps for part in _parts(step))


def _parts(step: dict[str, Any]) -> tuple[tuple[Any, ...], ...]:
    kind = step.get("type")
    if kind == "Sequence":
        return _key(step.get("pretokenizers", []))
    if kind == "Split":
        pattern = step.get("pattern")
        regex = pattern.get("Regex") if isinstance(pattern, dict) else None
        # To remove what is not a match is to isolate: the expressions that are written so match every character.
        way = (str(step.get("behavior")).lower(), bool(step.get("invert")))
        return (("Split", regex, ("isolated", False) if way == ("removed", True) else way),)
    if kind == "Digits":
        return (("Digits", bool(step.get("individual_digits"))),)
    if kind == "ByteLevel":
        return (("ByteLevel", bool(step.get("add_prefix_space")), bool(step.get("use_regex", True))),)
    return ((kind,),)
