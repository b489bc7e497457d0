"""Bodies of requests, checked and turned into what is to be generated; nothing here reads a file or the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from securecoderl_edge.errors import UsageError
from securecoderl_edge.generation.examples import Examples, example_sections
from securecoderl_edge.generation.inputs import GivenTests, parse_assertion, prompt_problem
from securecoderl_edge.languages.language import LANGUAGE_NAMES
from securecoderl_edge.problems.problem import Problem, with_few_tests
from securecoderl_edge.problems.problem_file import ProblemError, stdin_test
from securecoderl_edge.runtimes.extras import Extras, Prompt
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.serving.conversation import Message, as_text, read_messages
from securecoderl_edge.serving.faults import Fault, invalid, unknown_field
from securecoderl_edge.serving.fields import boolean, integer, text, unsupported
from securecoderl_edge.serving.infill import Hole
from securecoderl_edge.serving.request_sampling import (
    TOKENS,
    Kind,
    RequestLimits,
    alternatives_of,
    extras_of,
    sampling_of,
    seed_of,
)
from securecoderl_edge.serving.serve_settings import (
    LONGEST_ASSERTION,
    MAX_CHOICES,
    MAX_ECHOED,
    MAX_ECHOED_ALTERNATIVES,
    MAX_ENTRIES,
    MAX_FILES,
    MAX_REPAIRS,
    MAX_SHOWN,
    MAX_TESTS,
)
from securecoderl_edge.serving.tools import Tools, read_tools

_OWN = ("tests", "assertions", "hide_tests", "language", "best_of", "repair", "top_k", "min_p", "cache_prompt")
_SHARED = ("model", "n", "seed", "stop", "temperature", "top_p", "stream", "stream_options", "presence_penalty",
           "frequency_penalty", "logprobs", *TOKENS, *_OWN)  # fmt: skip
_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
_FIELDS: dict[Kind, tuple[str, ...]] = {
    "chat": ("messages", "task", "top_logprobs", "response_format", *_TOOLS, *_SHARED),
    "text": ("prompt", "suffix", "echo", *_SHARED),
    "infill": ("input_prefix", "input_suffix", "input_extra", "prompt", "n_cmpl", "response_fields",
               *(name for name in _SHARED if name != "logprobs")),  # llama.cpp's answer has no place for them
}  # fmt: skip
# Fields of OpenAI's and of local servers that change no answer, alone or without another one that is refused; and
# llama.cpp's order of sampling steps, its times and its adapters, in whose place ours hold.
_IGNORED = (
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "keep_alive", "id", "chat_id", "session_id", "message_id", "request_id", "id_slot", "background_tasks", "samplers",
    "t_max_prompt_ms", "t_max_predict_ms", "n_indent", "timings_per_token", "return_tokens", "dynatemp_exponent",
    "lora", "response_fields", "reasoning_effort", "verbosity", "reasoning_format", "min_keep",
    "xtc_threshold", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "repeat_last_n", "mirostat_tau",
    "mirostat_eta", "dry_sequence_breakers", "prediction",
)  # fmt: skip
_ZERO = ("top_logprobs", "min_tokens", "mirostat", "n_keep", "n_probs", "dry_multiplier", "xtc_probability",
         "dynatemp_range")  # fmt: skip
_ONE = ("repetition_penalty", "repeat_penalty", "length_penalty", "typical_p", "typ_p", "tfs_z")
_FALSE = ("logprobs", "echo", "ignore_eos", "use_beam_search", "return_progress", "post_sampling_probs",
          "continue_final_message", "include_stop_str_in_output", "enable_thinking", "raw")  # fmt: skip
_NO_LIST = ("tools", "functions", "tool_ids", "files", "filter_ids", "tool_servers", "stop_token_ids", "bad_words",
            "images")  # fmt: skip
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "parallel_tool_calls": (True, False),
    **dict.fromkeys(_ZERO, (0,)),
    **dict.fromkeys(_ONE, (1,)),
    **dict.fromkeys(_FALSE, (False,)),
    **dict.fromkeys(("skip_special_tokens", "add_generation_prompt", "add_special_tokens"), (True,)),
    **dict.fromkeys(_NO_LIST, ([],)),
    "grammar": ("",),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    **dict.fromkeys(("options", "features", "variables"), ({},)),
    "logit_bias": ({}, []),
    "chat_template_kwargs": ({}, {"enable_thinking": False}),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "suffix": ("",),
}
_MINUS_ONE = ("seed", "top_k")  # with this value as if left out, as in vLLM


@dataclass(frozen=True)
class Wanted:
    """A request that passed all checks.

    Attributes:
        kind: of its path: chat, text to be continued, or a hole to be filled.
        is_task: the last message is put to the model as a programming problem, as in ``sce generate``.
        problems: one for each prompt, with the tests; the statement of one in tokens is empty.
        prompts: of text completions. messages: of a chat, without ``prefill``, the beginning of its answer.
        hole: to be filled.
        names_language: or has tests; else an answer may be in one that is not checked.
        n: choices per prompt. samples: sampled first; the best ones become choices.
        repairs: rounds of self-repair.
        hides_tests: from the model.
        tools: that the model may call.
        extras: for its batch. reports: whether the answer has them.
        is_flexible: ``max_tokens`` may be less where the context ends. cut_to: the limit, if more was asked for.
        is_skipped: nothing is generated, the prompt is only computed. echoes: the text begins with the prompt.
        seed: as it was asked for.
        includes_usage: whether a stream ends with the number of tokens.
        shown_fields: of the answer to ``/infill``; without any, all.
    """

    kind: Kind
    is_task: bool
    problems: tuple[Problem, ...]
    names_language: bool
    n: int
    samples: int
    repairs: int
    hides_tests: bool
    sampling: Sampling
    extras: Extras
    is_stream: bool
    includes_usage: bool
    seed: int
    prompts: tuple[Prompt, ...] = ()
    messages: tuple[Message, ...] = ()
    prefill: str = ""
    hole: Hole | None = None
    tools: Tools | None = None
    reports: bool = False
    is_flexible: bool = False
    cut_to: int | None = None
    is_skipped: bool = False
    echoes: bool = False
    shown_fields: tuple[str, ...] = ()

    @property
    def is_chat(self) -> bool:
        """Whether the answer is a message."""
        return self.kind == "chat"

    @property
    def problem(self) -> Problem:
        """The only problem, or the first one."""
        return self.problems[0]

    @property
    def is_ranked(self) -> bool:
        """Whether choices are the best of several samples, best first; else they are in the order of sampling."""
        is_choice = self.hole is not None and self.samples > 1 and not self.is_stream
        return self.samples > self.n or self.repairs > 0 or is_choice


def parse(body: Mapping[str, Any], bounds: RequestLimits, kind: Kind) -> Wanted:
    """What a body asks for.

    Raises:
        Fault: a field is unknown, missing, of the wrong type or out of bounds; or the model is another one.
    """
    asks_for_all = any(name in body and body[name] in (None, -1) for name in TOKENS)
    body = {
        name: value
        for name, value in body.items()
        if value is not None and not (value == -1 and name in (*_MINUS_ONE, *TOKENS))
    }
    _check_names(body, kind)
    if body.get("model", "") not in ("", bounds.model):  # editors send an empty name where none is set
        message = f"unknown model {str(body['model'])[:100]!r}; this server has {bounds.model!r}"
        raise Fault(404, message, param="model", code="model_not_found")
    n = integer(body, "n_cmpl" if kind == "infill" and "n_cmpl" in body else "n", 1, 1, bounds.max_samples)
    seed = seed_of(body)
    own = {"chat": _chat, "text": _text, "infill": _infill}[kind](body, bounds)
    names_limit = any(name in body for name in TOKENS)
    has_limit = asks_for_all or (own.is_talk and not names_limit)
    sampling, cut_to, is_skipped = sampling_of(body, bounds, seed, has_limit, own.stops)
    wanted = Wanted(
        kind=kind,
        names_language="language" in body or bool(body.get("tests") or body.get("assertions")),
        n=n,
        samples=integer(body, "best_of", n, n, bounds.max_samples),
        repairs=integer(body, "repair", 0, 0, MAX_REPAIRS),
        hides_tests=boolean(body, "hide_tests"),
        sampling=sampling,
        extras=extras_of(body, bounds, kind, own.fields),
        is_stream=boolean(body, "stream"),
        includes_usage=_includes_usage(body),
        seed=seed,
        reports=alternatives_of(body, kind) is not None,
        is_flexible=has_limit or not names_limit or cut_to is not None or kind == "infill",
        cut_to=cut_to,
        is_skipped=is_skipped,
        **own.fields,
    )
    _check_together(wanted)
    return wanted


@dataclass(frozen=True)
class _Own:
    """What a kind of request has of its own: fields of `Wanted`, stop strings, whether it is a talk."""

    fields: dict[str, Any]
    stops: tuple[str, ...] = ()
    is_talk: bool = False


def _check_names(body: Mapping[str, Any], kind: Kind) -> None:
    for name, value in body.items():
        if name in _FIELDS[kind] or name in _IGNORED or value in _NEUTRAL.get(name, ()):
            continue
        if name in _NEUTRAL:
            raise unsupported(name, "is not supported with this value; leave it out")
        raise unknown_field(name, _FIELDS[kind])


def _check_together(wanted: Wanted) -> None:
    if wanted.repairs and not (wanted.is_chat and wanted.is_task):
        raise invalid("repair", 'needs a chat with "task": "program": it changes the prompt')
    if wanted.hides_tests and not wanted.is_task:
        raise invalid("hide_tests", 'needs "task": "program": other prompts show no tests')
    if wanted.is_stream and (wanted.samples > wanted.n or wanted.repairs):
        raise invalid(
            "stream", "cannot be combined with repair, or with best_of above n: their choice comes at the end"
        )
    if len(wanted.problems) * wanted.samples > MAX_CHOICES:
        raise invalid("prompt", f"asks for more than {MAX_CHOICES} samples")
    count = len(wanted.problems) * wanted.samples
    alternatives = wanted.extras.alternatives or 0
    if wanted.reports and count * wanted.sampling.max_tokens * (1 + alternatives) > MAX_ENTRIES:
        raise invalid("logprobs", f"ask for more than {MAX_ENTRIES} entries. Lower max_tokens, n or logprobs")
    if wanted.extras.reports_prompt and (count > MAX_ECHOED or alternatives > MAX_ECHOED_ALTERNATIVES):
        most = f"{MAX_ECHOED} samples and {MAX_ECHOED_ALTERNATIVES} alternatives"
        raise invalid("logprobs", f"with echo are for at most {most}")
    if wanted.prefill and wanted.extras.is_bound:
        name = "tool_choice" if wanted.tools else "response_format"
        raise unsupported(name, "cannot continue a beginning of the answer: leave out the last message")
    if wanted.is_skipped and wanted.is_task:
        raise invalid("max_tokens", "must be at least 1")


def _chat(body: Mapping[str, Any], bounds: RequestLimits) -> _Own:
    messages = read_messages(body)
    if (task := body.get("task", "")) not in ("", "program"):
        raise invalid("task", 'must be "program"')
    is_task = task == "program" or not bounds.is_chat_model
    tools = read_tools(body, bounds.notation if bounds.abilities.vocabulary else None)
    if is_task:
        if tools or body.get("response_format", {"type": "text"}) != {"type": "text"}:
            raise unsupported("tools" if tools else "response_format", "cannot be combined with a task")
        earlier, statement = _task_in(messages, bounds.is_chat_model)
        fields = {"is_task": True, "problems": (_problem(body, statement, bounds.language),), "messages": earlier}
        return _Own(fields)
    prefill = ""
    if messages[-1]["role"] == "assistant" and len(messages) > 1 and "tool_calls" not in messages[-1]:
        messages, prefill = messages[:-1], messages[-1]["content"]
    if bounds.notation is None:
        messages = tuple(map(as_text, messages))
    asked = [message["content"] for message in messages if message["role"] in ("user", "system")]
    problem = _problem(body, asked[-1] if asked else "", bounds.language)
    fields = {"is_task": False, "problems": (problem,), "messages": messages, "prefill": prefill, "tools": tools}
    return _Own(fields, is_talk=True)


def _task_in(messages: Sequence[Message], is_chat_model: bool) -> tuple[tuple[Message, ...], str]:
    """The messages before the last one, and the statement; a model without a template gets all as one statement."""
    plain = list(map(as_text, messages))
    # Many templates take system messages at the beginning only.
    end = max((index for index, each in enumerate(plain, 1) if each["role"] != "system"), default=len(plain))
    plain = [*plain[end:], *plain[:end]]
    if plain[-1]["role"] == "assistant" or not plain[-1]["content"].strip():
        raise invalid("messages", 'must end with a message of the role "user" or "system" that is not empty')
    if is_chat_model:
        return tuple(plain[:-1]), plain[-1]["content"]
    return (), "\n\n".join(message["content"] for message in plain if message["content"].strip())


def _text(body: Mapping[str, Any], bounds: RequestLimits) -> _Own:
    suffix = text(body, "suffix")
    # At the start of a file nothing is before the hole.
    prompts = ("",) if suffix and body.get("prompt", "") == "" else _prompts(body.get("prompt"), bounds)
    fields: dict[str, Any] = {"is_task": False, "problems": _problems(body, prompts, bounds), "prompts": prompts}
    if not suffix:
        return _Own({**fields, "echoes": boolean(body, "echo")})
    if len(prompts) > 1 or not isinstance(prompts[0], str) or boolean(body, "echo"):
        raise invalid("suffix", "needs one prompt of text, without echo")
    return _with_hole(Hole(prompts[0], suffix), fields, bounds, "suffix")


def _infill(body: Mapping[str, Any], bounds: RequestLimits) -> _Own:
    extra = body.get("input_extra", [])
    if not isinstance(extra, list) or len(extra) > MAX_FILES:
        raise invalid("input_extra", f"must be a list of at most {MAX_FILES} objects")
    files = tuple(_file(each, f"input_extra[{index}]") for index, each in enumerate(extra))
    prefix = text(body, "input_prefix") + text(body, "prompt")
    shown = body.get("response_fields", [])
    if not isinstance(shown, list) or not all(isinstance(name, str) for name in shown) or len(shown) > MAX_SHOWN:
        raise invalid("response_fields", f"must be a list of at most {MAX_SHOWN} texts")
    hole = Hole(prefix, text(body, "input_suffix"), files, may_cut=True)
    problem = _problem(body, prefix, bounds.language)
    return _with_hole(hole, {"is_task": False, "problems": (problem,), "shown_fields": tuple(shown)}, bounds, None)


def _with_hole(hole: Hole, fields: dict[str, Any], bounds: RequestLimits, name: str | None) -> _Own:
    if bounds.abilities.infill is None:
        raise unsupported(name or "", "this model cannot fill in the middle: it has no tokens for that")
    return _Own({**fields, "hole": hole}, (hole.stop,) if hole.stop else ())


def _file(entry: Any, where: str) -> tuple[str, str]:
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        raise invalid(where, 'needs a "text"')
    name = entry.get("filename", "file")
    if not isinstance(name, str):
        raise invalid(where, 'may have a "filename" of text')
    return name, entry["text"]


def _prompts(found: Any, bounds: RequestLimits) -> tuple[Prompt, ...]:
    """Texts, or tokens, one or a list of them."""
    is_one = isinstance(found, str) or (isinstance(found, list) and found and not isinstance(found[0], str | list))
    several = [found] if is_one else found
    if not isinstance(several, list) or not several:
        raise invalid("prompt", "must be a text that is not empty, token ids, or a list of these")
    if len(several) > MAX_CHOICES:
        raise invalid("prompt", f"must be at most {MAX_CHOICES} prompts")
    return tuple(_prompt(each, bounds) for each in several)


def _prompt(prompt: Any, bounds: RequestLimits) -> Prompt:
    if isinstance(prompt, str) and prompt:
        return prompt
    if not isinstance(prompt, list) or not prompt:
        raise invalid("prompt", "must be a text that is not empty, token ids, or a list of these")
    vocabulary = bounds.abilities.vocabulary
    if not vocabulary:
        raise unsupported("prompt", "must be text: token ids need a model in GGUF")
    if not all(type(token) is int and 0 <= token < vocabulary for token in prompt):
        raise invalid("prompt", f"must have token ids from 0 to {vocabulary - 1}")
    return tuple(prompt)


def _problems(body: Mapping[str, Any], prompts: Sequence[Prompt], bounds: RequestLimits) -> tuple[Problem, ...]:
    """A problem for each prompt. The tests of the body are read once: for each of many prompts that takes seconds."""
    texts = [each if isinstance(each, str) else "" for each in prompts]
    first = _problem(body, texts[0], bounds.language)
    if _list(body, "tests") or _list(body, "assertions"):
        return tuple(replace(first, statement=text) for text in texts)
    return (first, *(_problem(body, text, bounds.language) for text in texts[1:]))


def _problem(body: Mapping[str, Any], statement: str, usual: str) -> Problem:
    """The statement with the tests or assertions of the body, or else with the examples in it."""
    language = body.get("language", usual)
    if language not in LANGUAGE_NAMES:
        raise invalid("language", f"must be {' or '.join(LANGUAGE_NAMES)}")
    tests, assertions = _list(body, "tests"), _list(body, "assertions")
    if not all(isinstance(each, str) for each in assertions):
        raise invalid("assertions", "must be a list of texts")
    if sum(map(len, assertions)) > LONGEST_ASSERTION:
        raise invalid("assertions", f"must have at most {LONGEST_ASSERTION} characters together")
    name = "tests"
    try:
        given = GivenTests(tuple(stdin_test(test, f"test {number}") for number, test in enumerate(tests, 1)))
        name = "assertions"
        given += GivenTests(assertions=tuple(map(parse_assertion, assertions)))
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


def _includes_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options", {})
    if not isinstance(options, dict) or set(options) - {"include_usage", "include_obfuscation"}:
        raise invalid("stream_options", 'may only have "include_usage"')
    if options and not boolean(body, "stream"):
        raise invalid("stream_options", 'needs "stream": true')
    return options.get("include_usage") is not None and boolean(options, "include_usage")
