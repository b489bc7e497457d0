"""Bodies of requests, checked and turned into what is to be generated; nothing here reads a file or the network."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from securecoderl_edge.config import MAX_SEED
from securecoderl_edge.errors import UsageError
from securecoderl_edge.generation.examples import Examples, example_sections
from securecoderl_edge.generation.inputs import GivenTests, parse_assertion, prompt_problem
from securecoderl_edge.languages.language import LANGUAGE_NAMES, PYTHON
from securecoderl_edge.problems.problem import Problem, with_few_tests
from securecoderl_edge.problems.problem_file import ProblemError, stdin_test
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.serving.faults import Fault, invalid
from securecoderl_edge.serving.serve_settings import LONGEST_STOP, MAX_REPAIRS, MAX_STOPS, MAX_TESTS

_LARGEST, _MOST_DIGITS = 1e6, 400
_ROLES = ("system", "developer", "user", "assistant")
_OWN = ("tests", "assertions", "hide_tests", "language", "best_of", "repair", "top_k", "min_p")
_SHARED = ("model", "n", "seed", "stop", "max_tokens", "temperature", "top_p", "stream", "stream_options", *_OWN)
_FIELDS = {"chat": ("messages", "max_completion_tokens", *_SHARED), "text": ("prompt", *_SHARED)}
# Fields of OpenAI's and of local servers that change no answer, and values of others that ask for nothing.
_IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "cache_prompt")
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "parallel_tool_calls": (True, False),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "top_logprobs", "min_tokens", "mirostat"), (0,)),
    **dict.fromkeys(("repetition_penalty", "repeat_penalty", "length_penalty", "typical_p"), (1,)),
    **dict.fromkeys(("logprobs", "echo", "ignore_eos", "use_beam_search"), (False,)),
    **dict.fromkeys(("tools", "functions"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "suffix": ("",),
}
_MINUS_ONE = ("seed", "top_k", "max_tokens", "max_completion_tokens")  # with this value as if left out, as in vLLM


@dataclass(frozen=True)
class RequestLimits:
    """Limits and defaults of requests.

    Attributes:
        model: the name of the served model.
        max_tokens, max_samples: see `ServeSettings`.
        default_tokens: of a request without ``max_tokens``.
        is_chat_model: whether the model is asked through a chat template.
        language: of a request that names none.
    """

    model: str
    max_tokens: int
    max_samples: int
    default_tokens: int
    is_chat_model: bool = False
    language: str = PYTHON.name


@dataclass(frozen=True)
class Wanted:
    """A request that passed all checks.

    Attributes:
        is_chat: the statement is put to the model as in ``sce generate``; else the model continues it as it is.
        is_question: no tests and no language are given, so a chat model gets the messages as they are.
        earlier: the messages before the statement, of a chat model.
        n: choices in the answer. samples: sampled first; the best ones become choices.
        repairs: rounds of self-repair.
        hides_tests: from the model.
        includes_usage: whether a stream ends with the number of tokens.
    """

    is_chat: bool
    is_question: bool
    problem: Problem
    earlier: tuple[Mapping[str, str], ...]
    n: int
    samples: int
    repairs: int
    hides_tests: bool
    sampling: Sampling
    is_stream: bool
    includes_usage: bool

    @property
    def is_ranked(self) -> bool:
        """Whether choices are the best of several samples, best first; else they are in the order of sampling."""
        return self.samples > self.n or self.repairs > 0


def read_body(content: bytes) -> dict[str, Any]:
    """The JSON object in a body.

    Raises:
        Fault: it is not one, names a key twice, or holds text that is not Unicode.
    """
    try:
        body = json.loads(
            content.decode("utf-8"),
            parse_int=_integer_of,
            parse_constant=_refuse_constant,
            object_pairs_hook=_without_repetition,
        )
        json.dumps(body, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise invalid(None, f"the body is not valid JSON ({str(error)[:120]})", code="invalid_json") from None
    if not isinstance(body, dict):
        raise invalid(None, "the body must be a JSON object", code="invalid_json")
    return body


def parse(body: Mapping[str, Any], bounds: RequestLimits, *, is_chat: bool) -> Wanted:
    """What a body of ``/v1/chat/completions``, or else of ``/v1/completions``, asks for.

    Raises:
        Fault: a field is unknown, missing, of the wrong type or out of bounds; or the model is another one.
    """
    body = {each: value for each, value in body.items() if value not in ((None, -1) if each in _MINUS_ONE else (None,))}
    _check_names(body, _FIELDS["chat" if is_chat else "text"])
    if body.get("model", bounds.model) != bounds.model:
        message = f"unknown model {str(body['model'])[:100]!r}; this server has {bounds.model!r}"
        raise Fault(404, message, param="model", code="model_not_found")
    earlier, statement = _messages(body, bounds.is_chat_model) if is_chat else ((), _text(body, "prompt"))
    n = _integer(body, "n", 1, 1, bounds.max_samples)
    samples = _integer(body, "best_of", n, n, bounds.max_samples)
    repairs = _integer(body, "repair", 0, 0, MAX_REPAIRS)
    is_stream = _boolean(body, "stream")
    if repairs and not is_chat:
        raise invalid("repair", "needs /v1/chat/completions: it changes the prompt")
    problem = _problem(body, statement, bounds.language)
    wanted = Wanted(
        is_chat=is_chat,
        is_question=not problem.test_count and "language" not in body,
        problem=problem,
        earlier=earlier,
        n=n,
        samples=samples,
        repairs=repairs,
        hides_tests=_boolean(body, "hide_tests"),
        sampling=_sampling(body, bounds),
        is_stream=is_stream,
        includes_usage=_includes_usage(body, is_stream),
    )
    if is_stream and wanted.is_ranked:
        raise invalid(
            "stream", "cannot be combined with repair, or with best_of above n: their choice comes at the end"
        )
    return wanted


def _check_names(body: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name, value in body.items():
        if name in known or name in _IGNORED or value in _NEUTRAL.get(name, ()):
            continue
        if name in _NEUTRAL:
            raise invalid(name, "is not supported with this value; leave it out", code="unsupported_parameter")
        raise Fault(400, f"unknown field {name[:100]!r}; leave it out", param=name[:100], code="unknown_parameter")


def _sampling(body: Mapping[str, Any], bounds: RequestLimits) -> Sampling:
    name = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    usual = Sampling()
    try:
        return Sampling(
            temperature=_number(body, "temperature", usual.temperature),
            max_tokens=_integer(body, name, min(bounds.default_tokens, bounds.max_tokens), 1, bounds.max_tokens),
            seed=_integer(body, "seed", secrets.randbelow(MAX_SEED), 0, MAX_SEED),
            top_k=_integer(body, "top_k", usual.top_k, 0, 1 << 31),
            top_p=_number(body, "top_p", usual.top_p),
            min_p=_number(body, "min_p", usual.min_p),
            stop=_stops(body),
        )
    except UsageError as error:
        raise invalid(None, str(error)) from None


def _problem(body: Mapping[str, Any], statement: str, usual: str) -> Problem:
    """The statement with the tests or assertions of the body, or else with the examples in it."""
    language = body.get("language", usual)
    if language not in LANGUAGE_NAMES:
        raise invalid("language", f"must be {' or '.join(LANGUAGE_NAMES)}")
    tests, assertions = _list(body, "tests"), _list(body, "assertions")
    name = "tests"
    try:
        given = GivenTests(tuple(stdin_test(test, f"test {number}") for number, test in enumerate(tests, 1)))
        name = "assertions"
        given += GivenTests(assertions=tuple(map(parse_assertion, map(str, assertions))))
        # A question may have a call with its result as well, so that only whole sections are examples here.
        problem = prompt_problem(statement, language, given, Examples(example_sections(statement)), id="request")
    except (ProblemError, UsageError) as error:
        raise invalid(name, f"are malformed: {error}") from None
    return with_few_tests(problem, MAX_TESTS)


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    entries = body.get(name, [])
    if not isinstance(entries, list):
        raise invalid(name, f"must be a list of {'expressions' if name == 'assertions' else 'objects'}")
    if len(entries) > MAX_TESTS:
        raise invalid(name, f"must be at most {MAX_TESTS}")
    return entries


def _messages(body: Mapping[str, Any], is_chat_model: bool) -> tuple[tuple[Mapping[str, str], ...], str]:
    """The messages before the last one, and the statement; a model without a template gets all as one statement."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", 'must be a list of objects with "role" and "content"')
    checked = [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]
    # Many templates take system messages at the beginning only.
    end = max((index for index, each in enumerate(checked, 1) if each["role"] != "system"), default=len(checked))
    checked = [*checked[end:], *checked[:end]]
    if checked[-1]["role"] == "assistant" or not checked[-1]["content"].strip():
        raise invalid("messages", 'must end with a message of the role "user" or "system" that is not empty')
    if is_chat_model:
        return tuple(checked[:-1]), checked[-1]["content"]
    return (), "\n\n".join(message["content"] for message in checked if message["content"].strip())


def _message(message: Any, where: str) -> dict[str, str]:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise invalid(where, f'needs a "role": {", ".join(_ROLES)}')
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        texts = [part["text"] for part in content if isinstance(part.get("text"), str)]
        content = "".join(texts) if len(texts) == len(content) else None
    if not isinstance(content, str):
        raise invalid(where, 'needs a "content" of text')
    role = message["role"]
    return {"role": "system" if role == "developer" else role, "content": content}


def _text(body: Mapping[str, Any], name: str) -> str:
    text = body.get(name)
    if isinstance(text, list) and len(text) == 1:
        (text,) = text
    if not isinstance(text, str) or not text.strip():
        raise invalid(name, "must be one text that is not empty")
    return text


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    stops = body.get("stop", [])
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list) or not all(
        isinstance(stop, str) and 0 < len(stop) <= LONGEST_STOP for stop in stops
    ):
        raise invalid("stop", f"must be a text of 1 to {LONGEST_STOP} characters, or a list of them")
    if len(stops) > MAX_STOPS:
        raise invalid("stop", f"must be at most {MAX_STOPS} texts")
    return tuple(stops)


def _includes_usage(body: Mapping[str, Any], is_stream: bool) -> bool:
    options = body.get("stream_options", {})
    if not isinstance(options, dict) or set(options) - {"include_usage", "include_obfuscation"}:
        raise invalid("stream_options", 'may only have "include_usage"')
    if options and not is_stream:
        raise invalid("stream_options", 'needs "stream": true')
    return _boolean(options, "include_usage")


def _boolean(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise invalid(name, "must be true or false")
    return value


def _integer(body: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise invalid(name, f"must be a whole number from {low} to {high}")
    return value


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name, default)
    # The bounds keep out NaN, and whole numbers that no float holds.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        raise invalid(name, "must be a number")
    return float(value)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. A proxy that checks requests may read the other one of two values with one key."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("an object has the same key twice")
    return record


def _integer_of(digits: str) -> int:
    """A number of a request; reading long ones would keep the others waiting."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError("a number has too many digits")
    return int(digits)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
