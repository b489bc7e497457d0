"""Reports of tokens in OpenAI's two shapes of log-probabilities."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

from securecoderl_edge.runtimes.extras import TokenReport


def of_message(reports: Sequence[TokenReport], text: str) -> dict[str, Any]:
    """For chat completions: the tokens of ``text``, each with its bytes and its alternatives."""
    content = []
    for report in _within(reports, text, keeps_end=False):
        top = [_entry(raw, logprob) for raw, logprob in report.top]
        content.append({**_entry(report.raw, report.logprob), "top_logprobs": top})
    return {"content": content, "refusal": None}


def of_text(
    prompt: Sequence[TokenReport],
    reports: Sequence[TokenReport],
    text: str,
    echo: str | None = None,
    stop: str = "",
) -> dict[str, Any]:
    """For text completions: parallel lists over the tokens of the prompt, if it has reports, and of ``text``.

    The end token is part of them: clients count on a token for each that was sampled. Offsets are in characters.

    Args:
        echo: the prompt, before which its tokens may have a start token and a space; by default their text.
        stop: the stop string that ended the text, if one did; its tokens are no part of it.
    """
    found = [*prompt, *_within(reports, text, keeps_end=not stop)]
    more = 0 if echo is None else max(0, sum(_lengths(prompt)) - len(echo))
    places = accumulate(chain(_lengths(prompt), _lengths(found[len(prompt) :])), initial=0)
    offsets = [max(0, place - more) for place in places][: len(found)]
    return {
        "tokens": [_name(report.raw) for report in found],
        "token_logprobs": [report.logprob for report in found],
        "top_logprobs": [{_name(raw): each for raw, each in report.top} or None for report in found],
        "text_offset": offsets,
    }


def _within(reports: Sequence[TokenReport], text: str, *, keeps_end: bool) -> list[TokenReport]:
    """The tokens up to the one with which a text ends, perhaps with the end token; others were cut off."""
    read, kept = 0, list[TokenReport]()
    for place, (report, length) in enumerate(zip(reports, _lengths(reports), strict=True)):
        if read >= len(text) and not (keeps_end and place == len(reports) - 1):
            break
        kept.append(report)
        read += length
    return kept


def _lengths(reports: Sequence[TokenReport]) -> Iterator[int]:
    """The characters that each token completes; bytes that are part of none make one as well, as in the text."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for left, report in zip(range(len(reports) - 1, -1, -1), reports, strict=True):
        yield len(decoder.decode(_bytes(report.raw), final=not left))


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
