"""Reports of tokens in OpenAI's two shapes of log-probabilities."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from securecoderl_edge.runtimes.extras import TokenReport


def of_message(reports: Sequence[TokenReport], text: str) -> dict[str, Any]:
    """For chat completions: the tokens of ``text``, each with its bytes and its alternatives."""
    content = []
    for report in _within(reports, text, keeps_end=False):
        top = [_entry(raw, logprob) for raw, logprob in report.top]
        content.append({**_entry(report.raw, report.logprob), "top_logprobs": top})
    return {"content": content, "refusal": None}


def of_text(prompt: Sequence[TokenReport], reports: Sequence[TokenReport], text: str) -> dict[str, Any]:
    """For text completions: parallel lists over the tokens of the prompt, if it has reports, and of ``text``.

    The end token is part of them: clients count on a token for each that was sampled. Offsets are in characters.
    """
    found = [*prompt, *_within(reports, text, keeps_end=True)]
    offsets, read, decoder = [], 0, codecs.getincrementaldecoder("utf-8")("ignore")
    for report in found:
        offsets.append(read)
        read += len(decoder.decode(_bytes(report.raw)))
    return {
        "tokens": [_name(report.raw) for report in found],
        "token_logprobs": [report.logprob for report in found],
        "top_logprobs": [{_name(raw): each for raw, each in report.top} or None for report in found],
        "text_offset": offsets,
    }


def _within(reports: Sequence[TokenReport], text: str, *, keeps_end: bool) -> list[TokenReport]:
    """The tokens up to the one with which a text ends, perhaps with the end token; others were cut off."""
    size, read, kept = len(text.encode("utf-8")), 0, []
    for place, report in enumerate(reports):
        if read >= size and not (keeps_end and place == len(reports) - 1):
            break
        kept.append(report)
        read += len(report.raw)
    return kept


def _entry(raw: str, logprob: float | None) -> dict[str, Any]:
    return {"token": _name(raw), "logprob": logprob, "bytes": list(_bytes(raw))}


def _bytes(raw: str) -> bytes:
    return raw.encode("latin-1")


def _name(raw: str) -> str:
    """The text of a token; of one that is part of a character, its bytes as OpenAI writes them."""
    try:
        return _bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in _bytes(raw))
