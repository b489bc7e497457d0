"""Bodies of requests: what is accepted, and what each wrong one is answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from securecoderl_edge.generation.inputs import parse_assertion
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.runtimes.extras import Abilities, InfillTokens
from securecoderl_edge.serving import requests
from securecoderl_edge.serving.faults import Fault
from securecoderl_edge.serving.fields import read_body
from securecoderl_edge.serving.infill import Hole
from securecoderl_edge.serving.request_sampling import RequestLimits
from securecoderl_edge.serving.requests import Wanted, parse
from securecoderl_edge.serving.tools import Notation

BOUNDS = RequestLimits("m", max_tokens=100, max_samples=8, default_tokens=64)
USER = {"role": "user", "content": "Double a number."}


def chat(**fields: Any) -> Wanted:
    return parse({"messages": [USER], **fields}, BOUNDS, "chat")


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
    assert parse({"prompt": "int", "language": "c", "tests": tests}, BOUNDS, "text").problem.language == "c"
    of_c = replace(BOUNDS, language="c")
    assert parse({"prompt": "int", "tests": tests}, of_c, "text").problem.language == "c"
    assert parse({"prompt": "int", "language": "python"}, of_c, "text").problem.language == "python"


SYSTEM = {"role": "system", "content": "Be short."}
CHAT_MODEL = replace(BOUNDS, is_chat_model=True)
NOTATION = Notation("<tool_call>\n", "name", "arguments", "\n</tool_call>")
INFILL = InfillTokens((), 1, 2, 3)
# A chat model in GGUF that knows tools and can fill in the middle.
ABLE = replace(CHAT_MODEL, abilities=Abilities(100, INFILL), notation=NOTATION)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def talk(bounds: RequestLimits = ABLE, **fields: Any) -> Wanted:
    return parse({"messages": [USER], **fields}, bounds, "chat")


def test_a_model_with_a_chat_template_gets_the_messages_and_others_one_statement() -> None:
    messages = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": "A?"},
                {"role": "assistant", "content": "B."}, USER]  # fmt: skip
    joined = chat(messages=messages)
    assert (joined.is_task, joined.messages) == (True, ())
    assert joined.problem.statement == "Be short.\n\nA?\n\nB.\n\nDouble a number."
    wanted = talk(CHAT_MODEL, messages=messages)
    assert [message["role"] for message in wanted.messages] == ["system", "user", "assistant", "user"]
    assert (wanted.is_task, wanted.problem.statement) == (False, "Double a number.")
    task = talk(CHAT_MODEL, messages=messages, task="program")
    assert (task.is_task, len(task.messages), task.problem.statement) == (True, 3, "Double a number.")


@pytest.mark.parametrize("tests", [{}, {"tests": [{"input": "1", "output": "2"}]}, {"assertions": ["f(1) == 2"]},
                                   {"language": "c"}, {"best_of": 2}])  # fmt: skip
def test_only_the_field_makes_a_task_of_a_message_to_a_chat_model(tests: dict[str, Any]) -> None:
    assert not talk(**tests).is_task
    assert talk(**tests, task="program").is_task


def test_a_last_message_of_the_assistant_begins_the_answer() -> None:
    begun = talk(messages=[USER, {"role": "assistant", "content": "```python\n"}])
    assert (begun.prefill, begun.messages) == ("```python\n", (USER,))
    assert talk(messages=[{"role": "assistant", "content": "Hi."}]).prefill == ""


def test_system_messages_stay_where_they_are_and_in_a_task_come_first() -> None:
    for messages in ([USER, SYSTEM], [SYSTEM, USER, SYSTEM], [SYSTEM], [USER, SYSTEM, USER]):
        assert list(talk(messages=messages).messages) == messages
    assert talk(messages=[USER, SYSTEM], task="program").messages == (SYSTEM,)
    with pytest.raises(Fault, match="must end with"):
        talk(messages=[USER, {"role": "assistant", "content": "x"}, SYSTEM], task="program")


def test_calls_and_results_of_tools_are_text_for_a_model_that_knows_none() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "seen"}]  # fmt: skip
    known = talk(messages=messages, tools=[TOOL]).messages
    assert known[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": {"at": 1}}
    assert known[2] == {"role": "tool", "content": "seen"}
    text = talk(CHAT_MODEL, messages=messages).messages
    assert text[1] == {"role": "assistant", "content": '{"name": "look", "arguments": {"at": 1}}'}
    assert text[2] == {"role": "user", "content": "Result:\nseen"}


@pytest.mark.parametrize("value", [-1, None])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_no_limit_of_tokens_is_the_servers(name: str, value: int | None) -> None:
    for wanted in (talk(**{name: value}), parse({"prompt": "x", name: value}, BOUNDS, "text")):
        assert (wanted.sampling.max_tokens, wanted.cut_to, wanted.is_flexible) == (100, None, True)


def test_a_talk_has_the_servers_limit_and_a_task_the_models() -> None:
    assert (talk().sampling.max_tokens, talk(task="program").sampling.max_tokens) == (100, 64)


def test_only_a_limit_of_tokens_that_was_asked_for_must_fit() -> None:
    for fields in ({}, {"max_tokens": 100}, {"max_completion_tokens": 3}):
        found = [talk(**fields), talk(task="program", **fields), parse({"prompt": "x", **fields}, BOUNDS, "text")]
        assert [wanted.is_flexible for wanted in found] == [not fields] * 3


def test_more_tokens_than_the_limit_are_cut_to_it() -> None:
    wanted = talk(max_tokens=101)
    assert (wanted.sampling.max_tokens, wanted.cut_to) == (100, 100)
    assert talk(max_tokens=2**63 - 1).cut_to == 100  # as clients write that there is no limit
    assert talk(max_tokens=100).cut_to is None


@pytest.mark.parametrize(("field", "value"), [("max_tokens", 8), ("n", 2), ("seed", 2**40), ("top_k", 3), ("seed", -7)])
def test_a_whole_number_may_be_written_as_a_float(field: str, value: int) -> None:
    assert chat(**{"seed": 1, field: float(value)}) == chat(**{"seed": 1, field: value})
    assert fault(**{field: value + 0.5}).param == field


def test_an_unknown_field_is_told_with_the_nearest_known_one() -> None:
    assert fault(temprature=0.5).message == "unknown field 'temprature'. Did you mean temperature?"
    assert fault(qqqq=1).message == "unknown field 'qqqq'. Leave it out"


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 5}}},
        {"type": "json_schema", "schema": {"const": 5}}, {"type": "json_object", "schema": {"const": 5}},
    ],
)  # fmt: skip
def test_a_schema_is_followed_wherever_clients_put_it(wanted: dict[str, Any]) -> None:
    assert '"5"' in talk(response_format=wanted).extras.grammar


@pytest.mark.parametrize("schema", [[], "", 5, False])
@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_a_schema_that_is_none_is_refused(kind: str, schema: Any) -> None:
    with pytest.raises(Fault) as caught:
        talk(response_format={"type": kind, "schema": schema})
    assert caught.value.param == "response_format"


def test_none_of_the_probability_is_the_most_likely_token() -> None:
    assert 0 < talk(top_p=0).sampling.top_p < 1e-6


def test_what_tools_and_calls_may_lack_is_empty() -> None:
    bare = {"type": "function", "function": {"name": "f"}}
    null = {"type": "function", "function": {"name": "f", "parameters": None}}
    assert talk(tools=[null]).tools.schemas == talk(tools=[bare]).tools.schemas
    for call in ({"name": "f"}, *({"name": "f", "arguments": none} for none in (None, "", " \n"))):
        said = {"role": "assistant", "content": None}
        told = talk(messages=[USER, {**said, "tool_calls": [{"function": call}]}], tools=[bare]).messages
        older = talk(messages=[USER, {**said, "function_call": call}], tools=[bare]).messages
        assert told[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {}}
        assert older == told
    result = {"role": "tool", "tool_call_id": None, "content": None}
    assert talk(messages=[USER, result]).messages[1] == {"role": "tool", "content": ""}


def test_the_task_is_a_field_of_chats() -> None:
    for kind, body in (("text", {"prompt": "x"}), ("infill", {"input_prefix": "x"})):
        with pytest.raises(Fault) as caught:
            parse({**body, "task": "program"}, ABLE, kind)
        assert caught.value.param == "task"


@pytest.mark.parametrize("seed", [-2, -(2**63), 2**32, 2**40, 2**64])
def test_a_seed_may_have_64_bits_and_a_sign(seed: int) -> None:
    wanted = talk(seed=seed)
    assert (wanted.seed, wanted.sampling.seed) == (seed, talk(seed=seed).sampling.seed)
    assert 0 <= wanted.sampling.seed < 2**32
    assert wanted.sampling.seed != talk(seed=seed - 1).sampling.seed


def test_prompts_may_be_several_and_token_ids() -> None:
    def prompts(prompt: Any) -> tuple[Any, ...]:
        return parse({"prompt": prompt}, ABLE, "text").prompts

    assert prompts("a") == prompts(["a"]) == ("a",)
    assert prompts(["a", "b"]) == ("a", "b")
    assert prompts([1, 2]) == prompts([[1, 2]]) == ((1, 2),)
    assert prompts([[1], [99]]) == ((1,), (99,))
    for wrong in ([], [[]], [1, "a"], ["a", 1], [100], [-1], [True], [1.0], "", [""], None, 5, ["a"] * 129):
        with pytest.raises(Fault) as caught:
            prompts(wrong)
        assert (caught.value.status, caught.value.param) == (400, "prompt")
    with pytest.raises(Fault, match="more than 128 samples"):
        parse({"prompt": ["a"] * 20, "n": 8}, ABLE, "text")


def test_tests_are_read_once_for_many_prompts_and_examples_are_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(text: str) -> str:
        read.append(text)
        return parse_assertion(text)

    monkeypatch.setattr(requests, "parse_assertion", noted)
    prompts = [f"# {number}\ndef f(n):\n" for number in range(64)]
    for body in ({"prompt": prompts, "assertions": ["f(1) == 2"]}, {"prompt": prompts[0], "assertions": ["f(1) == 2"]}):
        found = parse(body, ABLE, "text").problems
        assert {each.assertions for each in found} == {("assert f(1) == 2",)}
        assert [each.statement for each in found] == prompts[: len(found)]
    assert read == ["f(1) == 2"] * 2
    first, second = parse({"prompt": ["Example input: 1\nExample output: 2\n", "x"]}, ABLE, "text").problems
    assert (len(first.tests), len(second.tests)) == (1, 0)


def test_penalties_logprobs_and_echo_arrive() -> None:
    extras = talk(frequency_penalty=1.5, presence_penalty=-2, logprobs=True, top_logprobs=3, cache_prompt=True).extras
    assert (extras.frequency_penalty, extras.presence_penalty, extras.alternatives) == (1.5, -2.0, 3)
    assert (extras.reuses_prefix, extras.reports_prompt) == (True, False)
    echoed = parse({"prompt": "a", "echo": True, "logprobs": 1, "max_tokens": 0}, ABLE, "text")
    assert (echoed.echoes, echoed.is_skipped, echoed.extras.reports_prompt) == (True, True, True)
    assert (echoed.extras.alternatives, echoed.sampling.max_tokens) == (1, 1)


def continued(**fields: Any) -> Wanted:
    return parse({"prompt": "a", **fields}, ABLE, "text")


@pytest.mark.parametrize("ask", [talk, continued])
def test_without_a_seed_a_chat_or_text_reuses_what_was_computed_before(ask: Callable[..., Wanted]) -> None:
    known = {
        "plain": ask(),
        "seed": ask(seed=3),
        "off": ask(cache_prompt=False),
        "asked": ask(seed=3, cache_prompt=True),
    }
    assert {name for name, wanted in known.items() if wanted.extras.reuses_prefix} == {"plain", "asked"}


def test_tasks_and_reported_prompts_leave_the_cache_to_others() -> None:
    for wanted in (talk(task="program"), continued(echo=True, logprobs=1)):
        assert not wanted.extras.reuses_prefix
    assert continued(echo=True).extras.reuses_prefix


def test_log_probabilities_are_bounded_together() -> None:
    for body in (
        {"prompt": ["a"] * 17, "echo": True, "logprobs": 1}, {"prompt": "a", "echo": True, "logprobs": 6},
        {"prompt": ["a"] * 128, "logprobs": 20, "max_tokens": 100},
    ):  # fmt: skip
        with pytest.raises(Fault) as caught:
            parse(body, ABLE, "text")
        assert caught.value.param == "logprobs"
    assert parse({"prompt": ["a"] * 16, "echo": True, "logprobs": 5}, ABLE, "text").reports


@pytest.mark.parametrize(
    "arguments", ['{"a": "\\ud800"}', '{"a": NaN}', "[]", '{"a": 1, "a": 2}', "{" * 5000, '{"a": ' + "9" * 5000 + "}"],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_arguments_of_calls_are_read_as_strictly_as_bodies(arguments: str) -> None:
    call = {"function": {"name": "look", "arguments": arguments}}
    with pytest.raises(Fault) as caught:
        talk(messages=[USER, {"role": "assistant", "tool_calls": [call]}])
    assert (caught.value.status, caught.value.param) == (400, "messages[1].tool_calls[0]")


def test_a_hole_needs_a_model_that_can_fill_it() -> None:
    wanted = parse({"prompt": "a", "suffix": "b"}, ABLE, "text")
    assert wanted.hole == Hole("a", "b")
    files = [{"filename": "x.py", "text": "y"}, {"text": "z"}]
    body = {"input_prefix": "a", "prompt": "c", "input_suffix": "b", "input_extra": files, "n_predict": 5}
    filled = parse(body, ABLE, "infill")
    assert filled.hole == Hole("ac", "b", (("x.py", "y"), ("file", "z")), may_cut=True)
    assert (filled.sampling.max_tokens, filled.extras.reuses_prefix) == (5, True)
    for asked, kind in (({"prompt": "a", "suffix": "b"}, "text"), (body, "infill")):
        with pytest.raises(Fault, match="cannot fill in the middle"):
            parse(asked, CHAT_MODEL, kind)  # type: ignore[arg-type]


def test_a_filling_has_no_place_for_log_probabilities() -> None:
    assert not parse({"input_prefix": "a", "logprobs": False}, ABLE, "infill").reports
    with pytest.raises(Fault) as caught:
        parse({"input_prefix": "a", "logprobs": 1}, ABLE, "infill")
    assert (caught.value.status, caught.value.param) == (400, "logprobs")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"), ({"logprobs": True}, "logprobs"),
        ({"tools": [TOOL]}, "tools"), ({"tools": [TOOL], "tool_choice": "required"}, "tools"),
    ],
    ids=str,
)  # fmt: skip
def test_what_needs_a_model_in_gguf_says_so(fields: dict[str, Any], param: str) -> None:
    assert talk(**fields)
    with pytest.raises(Fault) as caught:
        talk(CHAT_MODEL, **fields)
    assert (caught.value.param, caught.value.code) == (param, "unsupported_parameter")
    assert "a model in GGUF" in caught.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{}]}, "tools[0]"), ({"tools": [TOOL, TOOL]}, "tools[1]"), ({"tools": [TOOL] * 33}, "tools"),
        ({"tools": [TOOL], "tool_choice": "other"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"tools": [TOOL], "task": "program"}, "tools"), ({"task": "poem"}, "task"),
        ({"tools": [TOOL], "response_format": {"type": "json_object"}}, "response_format"),
        *(({"tools": none}, "tools") for none in (False, 0, "", {})),
        ({"parallel_tool_calls": []}, "parallel_tool_calls"),
        ({"response_format": {"type": "xml"}}, "response_format"), ({"response_format": []}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": "a"}}}},
         "response_format"),
        ({"messages": [USER, {"role": "assistant", "content": '{"name":'}], "response_format": {"type": "json_object"}},
         "response_format"),
        ({"messages": [USER, {"role": "assistant", "content": "I"}], "tools": [TOOL], "tool_choice": "required"},
         "tool_choice"),
        ({"assertions": ["f([" + "1," * 1000 + "]) == 1"] * 9}, "assertions"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0]"),
        ({"top_logprobs": 2}, "top_logprobs"), ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 3}, "logprobs"), ({"frequency_penalty": 2.1}, "frequency_penalty"), ({"seed": 2**65}, "seed"),
        ({"stop_token_ids": [1]}, "stop_token_ids"), ({"grammar": "root ::= x"}, "grammar"),
        ({"skip_special_tokens": False}, "skip_special_tokens"), ({"enable_thinking": True}, "enable_thinking"),
        ({"repair": 1}, "repair"), ({"hide_tests": True}, "hide_tests"), ({"cache_prompt": 1}, "cache_prompt"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0]"),
        ({"messages": [{**USER, "tool_calls": [{}]}]}, "messages[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
         "messages[0].tool_calls[0]"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_field_of_a_talk_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Fault) as caught:
        talk(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": ""}, {"stop": [""]}, {"reasoning_effort": "low"}, {"verbosity": "high"}, {"lora": []},
        {"response_fields": [""]}, {"suffix": ""},
        {"tool_choice": "none"}, {"tool_choice": "auto", "tools": []}, {"repetition_penalty": 1.0},
        {"repeat_penalty": 1}, {"frequency_penalty": 0.0}, {"seed": -1}, {"top_k": -1},
        {"function_call": "none", "functions": []}, {"parallel_tool_calls": True}, {"top_logprobs": 0},
        {"modalities": ["text"]}, {"ignore_eos": False}, {"min_tokens": 0}, {"cache_prompt": False}, {"suffix": None},
        {"stop_token_ids": []}, {"logit_bias": []}, {"grammar": ""}, {"skip_special_tokens": True}, {"raw": False},
        {"add_generation_prompt": True}, {"continue_final_message": False}, {"return_progress": False}, {"tfs_z": 1.0},
        {"prediction": {"type": "content", "content": "x"}}, {"enable_thinking": False}, {"images": []},
        {"typ_p": 1, "min_keep": 0, "reasoning_format": "auto"},
        {"logprobs": None}, {"functions": None, "function_call": None},
        {"keep_alive": "5m"}, {"chat_id": "x"}, {"options": {}}, {"chat_template_kwargs": {"enable_thinking": False}},
    ],
    ids=str,
)  # fmt: skip
def test_a_field_that_changes_nothing_is_no_error(fields: dict[str, Any]) -> None:
    assert replace(chat(**fields).sampling, seed=0) == replace(chat().sampling, seed=0)
    assert parse({"prompt": "x", **fields}, BOUNDS, "text")


def test_assertions_test_a_function_and_may_be_hidden() -> None:
    wanted = chat(assertions=["half(4) == 2", "assert half(2)"])
    assert (wanted.problem.kind, wanted.problem.entry_point) == ("call", "half")
    assert wanted.problem.assertions == ("assert half(4) == 2", "assert half(2)")
    assert not wanted.hides_tests
    assert chat(assertions=["half(4) == 2"], hide_tests=True).hides_tests


@pytest.mark.parametrize("text", ["Why does f(2) give 4?", "What is f(2) == 4?", "Explain a -> b.\n1 -> 2"])
def test_a_question_has_no_tests_whatever_results_it_has(text: str) -> None:
    assert talk(messages=[{"role": "user", "content": text}]).problem.test_count == 0


def test_an_assistant_may_have_said_nothing() -> None:
    nothing = {"role": "assistant", "content": None}
    assert talk(messages=[USER, nothing, USER]).messages[1] == {"role": "assistant", "content": ""}
    assert talk(messages=[USER, nothing]).prefill == ""


def test_content_may_come_in_parts_of_text() -> None:
    parts = [{"type": "text", "text": "Double "}, {"type": "text", "text": "it."}]
    assert chat(messages=[{"role": "user", "content": parts}]).problem.statement == "Double it."


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"), ({"n": -1}, "n"), ({"n": 9}, "n"), ({"n": True}, "n"), ({"n": 1.5}, "n"), ({"n": "2"}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"), ({"best_of": 9}, "best_of"), ({"repair": -1}, "repair"),
        ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -2}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"),
        ({"temperature": "1"}, "temperature"), ({"temperature": 10**400}, "temperature"), ({"temperature": -1}, None),
        ({"top_p": -0.1}, None), ({"top_p": 1.1}, None), ({"min_p": 2}, None), ({"top_k": -2}, "top_k"),
        ({"stop": ["a"] * 33}, "stop"), ({"stop": 5}, "stop"), ({"stop": "a" * 201}, "stop"),
        ({"stream": 1}, "stream"), ({"stream": True, "best_of": 2}, "stream"),
        ({"stream": True, "repair": 1}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "include_usage"),
        ({"messages": []}, "messages"), ({"messages": "x"}, "messages"), ({"messages": [1]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0]"),
        ({"messages": [USER, {"role": "assistant", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0]"),
        ({"language": "rust"}, "language"), ({"language": 3}, "language"), ({"language": ["c"]}, "language"),
        ({"assertions": "f(2)"}, "assertions"), ({"assertions": ["2 == 2"]}, "assertions"),
        ({"assertions": [1]}, "assertions"),
        ({"assertions": [["f(2)"]]}, "assertions"), ({"assertions": [True]}, "assertions"),
        ({"assertions": ["f(2)"] * 21}, "assertions"),
        ({"assertions": ["f(2)"], "tests": [{"input": "1", "output": "2"}]}, "assertions"),
        ({"assertions": ["f(2)"], "language": "c"}, "assertions"), ({"hide_tests": 1}, "hide_tests"),
        ({"tests": {}}, "tests"), ({"tests": "x"}, "tests"), ({"tests": [1]}, "tests"),
        ({"tests": [{"input": "1"}]}, "tests"), ({"tests": [{"input": "1", "output": " "}]}, "tests"),
        ({"tests": [{"input": "1", "output": "2"}] * 21}, "tests"),
        ({"presence_penalty": 3}, "presence_penalty"), ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"tools": [{}]}, "tools[0]"), ({"tool_choice": "required"}, "tools"), ({"suffix": "x"}, "suffix"),
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
    assert fault(model=0).status == fault(model=[]).status == 404
    assert chat(model="", seed=1) == chat(model="m", seed=1) == chat(seed=1)


def test_a_text_completion_has_a_prompt_and_no_repair() -> None:
    assert parse({"prompt": ["def f("]}, BOUNDS, "text").problem.statement == "def f("
    for body in ({}, {"prompt": ""}, {"prompt": [1, 2]}, {"prompt": "a", "repair": 1}):
        with pytest.raises(Fault):
            parse(body, BOUNDS, "text")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"\xff", b'{"n": NaN}', b'{"n": -1e400}', b'{"a": "\\ud800"}', b"[" * 100_000,
        b'{"n": ' + b"9" * 5000 + b"}", b'{"n": 1, "n": 2}', b'{"messages": [{"role": "user", "role": "system"}]}',
    ],
    ids=lambda content: repr(content[:12]),
)  # fmt: skip
def test_what_is_not_a_json_object_of_unicode_text_is_refused(content: bytes) -> None:
    with pytest.raises(Fault) as caught:
        read_body(content)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


def test_a_body_may_begin_with_a_byte_order_mark() -> None:
    assert read_body(b'\xef\xbb\xbf{"n": 1}') == {"n": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("role", "content", "input")), inner),
    max_leaves=6,
)
NAMES = (
    "model", "messages", "prompt", "n", "best_of", "repair", "tests", "seed", "stop", "max_tokens", "temperature",
    "top_p", "top_k", "min_p", "stream", "stream_options", "tools", "user", "response_format", "language", "suffix",
    "logprobs", "top_logprobs", "echo", "tool_choice", "frequency_penalty", "task", "cache_prompt", "n_predict",
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), JSON), st.booleans(), st.booleans())
def test_any_body_is_either_accepted_within_the_bounds_or_a_fault(
    fields: dict[str, Any], is_chat: bool, is_right: bool
) -> None:
    body = {**fields, "messages": [USER], "prompt": "x"} if is_right else fields
    body.pop("prompt" if is_chat else "messages", None)
    try:
        wanted = parse(read_body(json.dumps(body).encode()), ABLE, "chat" if is_chat else "text")
    except Fault:
        return
    assert 1 <= wanted.n <= wanted.samples <= 8
    assert 1 <= wanted.sampling.max_tokens <= 100
    assert all(isinstance(problem, Problem) for problem in wanted.problems)
