"""The fields of a request that say how tokens are sampled and what is reported of them, within the server's limits."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from securecoderl_edge.config import MAX_SEED
from securecoderl_edge.errors import UsageError
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.runtimes.extras import TEXT_ONLY, Abilities, Extras
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.serving.faults import invalid
from securecoderl_edge.serving.fields import boolean, integer, number, stops, unsupported
from securecoderl_edge.serving.json_grammar import SchemaError, json_grammar
from securecoderl_edge.serving.serve_settings import MAX_ALTERNATIVES
from securecoderl_edge.serving.tools import Notation, Tools

Kind = Literal["chat", "text", "infill"]
# Names of the limit of tokens, the last one given counts.
TOKENS = ("max_tokens", "max_completion_tokens", "n_predict")
_WIDEST_SEED = 1 << 64
_LEAST_TOP_P = 1e-9


@dataclass(frozen=True)
class RequestLimits:
    """Limits and defaults of requests.

    Attributes:
        model: the name of the served model.
        max_tokens, max_samples: see `ServeSettings`.
        default_tokens: of a request for a program without ``max_tokens``.
        is_chat_model: whether the model is asked through a chat template.
        language: of a request that names none.
        abilities: of its runtime.
        notation: of its calls of tools; None if it knows none.
    """

    model: str
    max_tokens: int
    max_samples: int
    default_tokens: int
    is_chat_model: bool = False
    language: str = PYTHON.name
    abilities: Abilities = TEXT_ONLY
    notation: Notation | None = None


def seed_of(body: Mapping[str, Any]) -> int:
    """The seed as it is asked for, else one by chance."""
    if "seed" not in body:
        return secrets.randbelow(MAX_SEED)
    return integer(body, "seed", 0, -_WIDEST_SEED, _WIDEST_SEED)


def sampling_of(
    body: Mapping[str, Any], bounds: RequestLimits, seed: int, has_limit: bool, ends: tuple[str, ...]
) -> tuple[Sampling, int | None, bool]:
    """How to sample, the limit if more tokens are asked for, and whether none are.

    Args:
        has_limit: the limit is the default. ends: further stop strings.
    """
    name = next((name for name in reversed(TOKENS) if name in body), "max_tokens")
    usual = Sampling()
    default = bounds.max_tokens if has_limit else min(bounds.default_tokens, bounds.max_tokens)
    wanted = integer(body, name, default, 0, 1 << 64)
    # Ours have 32 bits.
    own = seed if 0 <= seed <= MAX_SEED else int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:4], "big") >> 1
    try:
        sampling = Sampling(
            temperature=number(body, "temperature", usual.temperature),
            max_tokens=max(1, min(wanted, bounds.max_tokens)),
            seed=own,
            top_k=integer(body, "top_k", usual.top_k, 0, 1 << 31),
            # With none of the probability, the most likely token is kept, as OpenAI and llama.cpp do.
            top_p=number(body, "top_p", usual.top_p) or _LEAST_TOP_P,
            min_p=number(body, "min_p", usual.min_p),
            stop=(*stops(body), *ends),
        )
    except UsageError as error:
        raise invalid(None, str(error)) from None
    return sampling, bounds.max_tokens if wanted > bounds.max_tokens else None, wanted == 0


def alternatives_of(body: Mapping[str, Any], kind: Kind) -> int | None:
    """The number of alternatives to report at each token; None without a report."""
    if kind == "chat":
        count = integer(body, "top_logprobs", 0, 0, MAX_ALTERNATIVES)
        if not boolean(body, "logprobs"):
            if count:
                raise invalid("top_logprobs", 'needs "logprobs": true')
            return None
        return count
    if body.get("logprobs", False) is False:
        return None
    return integer(body, "logprobs", 0, 0, MAX_ALTERNATIVES)


def extras_of(body: Mapping[str, Any], bounds: RequestLimits, kind: Kind, own: Mapping[str, Any]) -> Extras:
    """What the batch is to do beyond sampling; ``own`` are the other fields of the request.

    A talk repeats itself with every message, and an editor's text with every key, so they reuse their prefix, unless a
    seed asks for an answer to the bit. Of a prompt that is reported, each token is computed anyway.
    """
    alternatives = alternatives_of(body, kind)
    if alternatives is not None and not bounds.abilities.vocabulary:
        raise unsupported("logprobs", "need a model in GGUF")
    reports_prompt = alternatives is not None and own.get("echoes", False)
    repeats = kind == "infill" or not ("seed" in body or own["is_task"] or reports_prompt)
    extras = Extras(
        frequency_penalty=number(body, "frequency_penalty", 0.0, 2.0),
        presence_penalty=number(body, "presence_penalty", 0.0, 2.0),
        alternatives=alternatives,
        reports_prompt=reports_prompt,
        grammar=_grammar(body.get("response_format", {"type": "text"}), bounds),
        reuses_prefix=boolean(body, "cache_prompt", default=repeats),
    )
    tools: Tools | None = own.get("tools")
    if tools is None:
        return extras
    if extras.grammar:
        raise unsupported("response_format", "cannot be combined with tools")
    return replace(extras, grammar=tools.grammar(), grammar_after=tools.begin, grammar_within=tools.within)


def _grammar(wanted: Any, bounds: RequestLimits) -> str:
    """The grammar of a ``response_format``; empty for text."""
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "text":
        return ""
    if kind not in ("json_object", "json_schema"):
        raise invalid("response_format", 'must have the "type" text, json_object or json_schema')
    if not bounds.abilities.vocabulary:
        raise unsupported("response_format", "needs a model in GGUF")
    # OpenAI has the schema within "json_schema"; llama.cpp has it here, also for json_object.
    named = wanted.get("json_schema", wanted) if kind == "json_schema" else wanted
    schema = named.get("schema") if isinstance(named, dict) else None
    if schema is None and kind == "json_object":
        schema = {"type": "object"}
    if not isinstance(schema, dict):
        raise invalid("response_format", 'needs "json_schema" with a "schema"')
    try:
        return json_grammar(schema)
    except (SchemaError, RecursionError) as error:
        raise invalid("response_format", f"has a schema that cannot be followed: {error}") from None
