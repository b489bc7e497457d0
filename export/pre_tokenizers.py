"""Names of pre-tokenizers in llama.cpp, by the tokenizer.json.

With a wrong name, llama.cpp splits text differently without a warning. The name is found by the token ids of a probe
text, or by the parts of the pre-tokenizer; an unknown one is an error.
"""

from __future__ import annotations

from typing import Any

# sha256 of the ids of the probe text of `vocabulary`, without special tokens.
_KNOWN_FINGERPRINTS = {
    "d1e870ae2282367e0d1838a2edf4cadcef6b4dff3587e5de6dcb55a4367c0080": "deepseek-coder",
}

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS, _SIGNS, _SPACES = r"[^\r\n\p{L}\p{N}]?\p{L}+", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3 = f"{_CONTRACTIONS}|{_WORDS}|\\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_QWEN_2 = f"{_CONTRACTIONS}|{_WORDS}|\\p{{N}}|{_SIGNS}|{_SPACES}"
_BYTES_ALONE, _BYTES_AND_REGEX = ("ByteLevel", False, False), ("ByteLevel", False, True)
_KNOWN_PARTS = {
    (_BYTES_AND_REGEX,): "gpt-2",
    (("Split", _LLAMA_3, "isolated", False), _BYTES_ALONE): "llama-bpe",
    (("Split", _QWEN_2, "isolated", False), _BYTES_ALONE): "qwen2",
    (("Digits", True), _BYTES_AND_REGEX): "smollm",
}
# With these, llama.cpp takes a whole word that is a token before it merges, like ``ignore_merges``.
IGNORES_MERGES = ("llama-bpe",)


def name_of(pre_tokenizer: dict[str, Any] | None, fingerprint: str) -> str | None:
    """Find the name; None if it is unknown.

    Args:
        pre_tokenizer: the ``pre_tokenizer`` of a tokenizer.json.
        fingerprint: see `vocabulary.fingerprint`.
    """
    return _KNOWN_FINGERPRINTS.get(fingerprint) or _KNOWN_PARTS.get(_parts(pre_tokenizer or {}))


def _parts(step: dict[str, Any]) -> tuple[tuple[Any, ...], ...]:
    """List the steps of a pre-tokenizer with their relevant settings."""
    kind = step.get("type")
    if kind == "Sequence":
        return tuple(part for inner in step.get("pretokenizers", []) for part in _parts(inner))
    if kind == "Split":
        pattern = step.get("pattern")
        regex = pattern.get("Regex") if isinstance(pattern, dict) else None
        return (("Split", regex, str(step.get("behavior")).lower(), bool(step.get("invert"))),)
    if kind == "Digits":
        return (("Digits", bool(step.get("individual_digits"))),)
    if kind == "ByteLevel":
        return (("ByteLevel", bool(step.get("add_prefix_space")), bool(step.get("use_regex", True))),)
    return ((kind,),)
