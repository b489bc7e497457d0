"""Bodies of requests: what is accepted, and what each wrong one is answered."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from securecoderl_edge.problems.problem import Test
from securecoderl_edge.serving.faults import Fault
from securecoderl_edge.serving.requests import RequestLimits, Wanted, parse, read_body

BOUNDS = RequestLimits("m", max_tokens=100, max_samples=8, default_tokens=64)
USER = {"role": "user", "content": "Double a number."}


def chat(**fields: Any) -> Wanted:
    return parse({"messages": [USER], **fields}, BOUNDS, is_chat=True)


def fault(**fields: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        chat(**fields)
    return caught.value


def test_a_request_without_settings_gets_the_defaults() -> None:
    wanted = chat()
    assert wanted.problem.statement == "Double a number."
    assert (wanted.n, wanted.samples, wanted.repairs, wanted.is_stream, wanted.is_ranked) == (1, 1, 0, False, False)
    assert (wanted.sampling.max_tokens, wanted.sampling.temperature) == (64, 0.7)


def test_requests_without_a_seed_have_different_ones() -> None:
    assert len({chat().sampling.seed for _ in range(20)}) == 20


def test_every_setting_arrives() -> None:
    wanted = chat(
        model="m", n=2, best_of=5, repair=1, seed=9, stop=["a", "b"], max_tokens=7, temperature=1, top_p=0.5, top_k=3,
        min_p=0.1, tests=[{"input": "1", "output": "2"}], user="ignored", logprobs=False, presence_penalty=0,
    )  # fmt: skip
    assert (wanted.n, wanted.samples, wanted.repairs, wanted.is_ranked) == (2, 5, 1, True)
    sampling = wanted.sampling
    assert (sampling.seed, sampling.stop, sampling.max_tokens, sampling.temperature) == (9, ("a", "b"), 7, 1.0)
    assert (sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 3, 0.1)
    assert wanted.problem.tests == (Test("1", "2"),)
    assert chat(max_completion_tokens=5).sampling.max_tokens == 5


def test_examples_in_the_statement_are_tests_unless_the_request_has_others() -> None:
    text = "Double.\n\nExample input:\n2\nExample output:\n4\n"
    messages = [{"role": "user", "content": text}]
    assert chat(messages=messages).problem.tests == (Test("2\n", "4"),)
    assert chat(messages=messages, tests=[{"input": "1", "output": "2"}]).problem.tests == (Test("1", "2"),)


@pytest.mark.parametrize("tests", [[], [{"input": "1", "output": "2"}]])
def test_programs_are_in_python_unless_the_request_names_another_language(tests: list[dict[str, str]]) -> None:
    assert chat(tests=tests).problem.language == "python"
    assert chat(tests=tests, language=None).problem.language == "python"
    assert chat(tests=tests, language="c").problem.language == "c"
    assert parse({"prompt": "int", "language": "c", "tests": tests}, BOUNDS, is_chat=False).problem.language == "c"
    of_c = replace(BOUNDS, language="c")
    assert parse({"prompt": "int", "tests": tests}, of_c, is_chat=False).problem.language == "c"
    assert parse({"prompt": "int", "language": "python"}, of_c, is_chat=False).problem.language == "python"


def test_a_model_with_a_chat_template_gets_the_messages_and_others_one_statement() -> None:
    messages = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": "A?"},
                {"role": "assistant", "content": "B."}, USER]  # fmt: skip
    joined = chat(messages=messages)
    assert (joined.earlier, joined.problem.statement) == ((), "Be short.\n\nA?\n\nB.\n\nDouble a number.")
    bounds = RequestLimits("m", 100, 8, 64, is_chat_model=True)
    wanted = parse({"messages": messages}, bounds, is_chat=True)
    assert [message["role"] for message in wanted.earlier] == ["system", "user", "assistant"]
    assert wanted.problem.statement == "Double a number."


def test_system_messages_at_the_end_come_first_and_one_alone_is_the_question() -> None:
    system = {"role": "system", "content": "Be short."}
    bounds = RequestLimits("m", 100, 8, 64, is_chat_model=True)
    for messages, earlier, statement in (
        ([USER, system], ["Be short."], "Double a number."),
        ([system, USER, {**system, "role": "developer"}], ["Be short.", "Be short."], "Double a number."),
        ([system], [], "Be short."),
        ([system, system], ["Be short."], "Be short."),
    ):
        wanted = parse({"messages": messages}, bounds, is_chat=True)
        assert [message["content"] for message in wanted.earlier] == earlier
        assert wanted.problem.statement == statement
    with pytest.raises(Fault, match="must end with"):
        parse({"messages": [USER, {"role": "assistant", "content": "x"}, system]}, bounds, is_chat=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"suffix": ""}, {"tool_choice": "none"}, {"tool_choice": "auto", "tools": []}, {"repetition_penalty": 1.0},
        {"repeat_penalty": 1}, {"frequency_penalty": 0.0}, {"seed": -1}, {"top_k": -1}, {"max_tokens": -1},
        {"function_call": "none", "functions": []}, {"parallel_tool_calls": True}, {"top_logprobs": 0},
        {"modalities": ["text"]}, {"ignore_eos": False}, {"min_tokens": 0}, {"cache_prompt": True}, {"suffix": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_field_that_changes_nothing_is_no_error(fields: dict[str, Any]) -> None:
    assert replace(chat(**fields).sampling, seed=0) == replace(chat().sampling, seed=0)
    assert parse({"prompt": "x", **fields}, BOUNDS, is_chat=False)


def test_assertions_test_a_function_and_may_be_hidden() -> None:
    wanted = chat(assertions=["half(4) == 2", "assert half(2)"])
    assert (wanted.problem.kind, wanted.problem.entry_point) == ("call", "half")
    assert wanted.problem.assertions == ("assert half(4) == 2", "assert half(2)")
    assert (wanted.is_question, wanted.hides_tests) == (False, False)
    assert chat(assertions=["half(4) == 2"], hide_tests=True).hides_tests


@pytest.mark.parametrize("text", ["Why does f(2) give 4?", "What is f(2) == 4?", "Explain a -> b.\n1 -> 2"])
def test_a_question_stays_one_whatever_results_it_has(text: str) -> None:
    wanted = chat(messages=[{"role": "user", "content": text}])
    assert (wanted.is_question, wanted.problem.test_count) == (True, 0)


def test_a_question_has_no_tests_no_examples_and_no_language() -> None:
    examples = [{"role": "user", "content": "Double.\n\nExample input:\n2\nExample output:\n4\n"}]
    assert chat().is_question
    for fields in ({"tests": [{"input": "1", "output": "2"}]}, {"language": "c"}, {"messages": examples}):
        assert not chat(**fields).is_question


def test_content_may_come_in_parts_of_text() -> None:
    parts = [{"type": "text", "text": "Double "}, {"type": "text", "text": "it."}]
    assert chat(messages=[{"role": "user", "content": parts}]).problem.statement == "Double it."


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"), ({"n": -1}, "n"), ({"n": 9}, "n"), ({"n": True}, "n"), ({"n": 1.5}, "n"), ({"n": "2"}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"), ({"best_of": 9}, "best_of"), ({"repair": -1}, "repair"),
        ({"seed": -2}, "seed"), ({"seed": 2**32}, "seed"), ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 101}, "max_tokens"), ({"max_completion_tokens": 101}, "max_completion_tokens"),
        ({"temperature": "1"}, "temperature"), ({"temperature": 10**400}, "temperature"), ({"temperature": -1}, None),
        ({"top_p": 0}, None), ({"top_p": 1.1}, None), ({"min_p": 2}, None), ({"top_k": -2}, "top_k"),
        ({"stop": [""]}, "stop"), ({"stop": ["a"] * 5}, "stop"), ({"stop": 5}, "stop"), ({"stop": "a" * 201}, "stop"),
        ({"stream": 1}, "stream"), ({"stream": True, "best_of": 2}, "stream"),
        ({"stream": True, "repair": 1}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options"),
        ({"messages": []}, "messages"), ({"messages": "x"}, "messages"), ({"messages": [1]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
        ({"messages": [USER, {"role": "assistant", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0]"),
        ({"language": "rust"}, "language"), ({"language": 3}, "language"), ({"language": ["c"]}, "language"),
        ({"assertions": "f(2)"}, "assertions"), ({"assertions": ["2 == 2"]}, "assertions"),
        ({"assertions": [1]}, "assertions"), ({"assertions": ["f(2)"] * 21}, "assertions"),
        ({"assertions": ["f(2)"], "tests": [{"input": "1", "output": "2"}]}, "assertions"),
        ({"assertions": ["f(2)"], "language": "c"}, "assertions"), ({"hide_tests": 1}, "hide_tests"),
        ({"tests": {}}, "tests"), ({"tests": "x"}, "tests"), ({"tests": [1]}, "tests"),
        ({"tests": [{"input": "1"}]}, "tests"), ({"tests": [{"input": "1", "output": " "}]}, "tests"),
        ({"tests": [{"input": "1", "output": "2"}] * 21}, "tests"),
        ({"presence_penalty": 1}, "presence_penalty"), ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"tools": [{}]}, "tools"), ({"tool_choice": "required"}, "tool_choice"), ({"suffix": "x"}, "suffix"),
        ({"ignore_eos": True}, "ignore_eos"), ({"messages": [{"role": "system", "content": ""}]}, "messages"),
        ({"logprobs": True}, "logprobs"),
        ({"nonsense": 1}, "nonsense"), ({"prompt": "x"}, "prompt"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str | None) -> None:
    found = fault(**fields)
    assert (found.status, found.param) == (400, param)
    assert found.kind == "invalid_request_error"


def test_another_model_is_not_found() -> None:
    found = fault(model="gpt-9")
    assert (found.status, found.code, found.param) == (404, "model_not_found", "model")


def test_a_text_completion_has_a_prompt_and_no_repair() -> None:
    assert parse({"prompt": ["def f("]}, BOUNDS, is_chat=False).problem.statement == "def f("
    for body in ({}, {"prompt": ""}, {"prompt": ["a", "b"]}, {"prompt": [1, 2]}, {"prompt": "a", "repair": 1}):
        with pytest.raises(Fault):
            parse(body, BOUNDS, is_chat=False)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"\xff", b'{"n": NaN}', b'{"a": "\\ud800"}', b"[" * 100_000,
        b'{"n": ' + b"9" * 5000 + b"}", b'{"n": 1, "n": 2}', b'{"messages": [{"role": "user", "role": "system"}]}',
    ],
    ids=lambda content: repr(content[:12]),
)  # fmt: skip
def test_what_is_not_a_json_object_of_unicode_text_is_refused(content: bytes) -> None:
    with pytest.raises(Fault) as caught:
        read_body(content)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("role", "content", "input")), inner),
    max_leaves=6,
)
NAMES = (
    "model", "messages", "prompt", "n", "best_of", "repair", "tests", "seed", "stop", "max_tokens", "temperature",
    "top_p", "top_k", "min_p", "stream", "stream_options", "tools", "user", "response_format", "language",
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), JSON), st.booleans(), st.booleans())
def test_any_body_is_either_accepted_within_the_bounds_or_a_fault(
    fields: dict[str, Any], is_chat: bool, is_right: bool
) -> None:
    body = {**fields, "messages": [USER], "prompt": "x"} if is_right else fields
    body.pop("prompt" if is_chat else "messages", None)
    try:
        wanted = parse(read_body(json.dumps(body).encode()), BOUNDS, is_chat=is_chat)
    except Fault:
        return
    assert 1 <= wanted.n <= wanted.samples <= 8
    assert 1 <= wanted.sampling.max_tokens <= 100
    assert wanted.problem.statement.strip()
