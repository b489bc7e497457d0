"""The server over HTTP: whose answer is whose, OpenAI's shapes, limits, hang-ups, and requests that are refused."""

from __future__ import annotations

import gc
import http.client
import json
import random
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the serve extra")

from fake_runtime import BROKEN, RIGHT, UNSAFE, WRONG
from quick import few
from served import CHAT, KEY, TEXT, EchoRuntime, Served, echo, serving

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.styles import OURS, PromptFormat
from securecoderl_edge.runtimes.protocol import DecodingTask, Sampling
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.serving import app
from securecoderl_edge.serving.requests import parse
from securecoderl_edge.serving.serve_settings import ServeSettings

DOUBLE = [{"input": "3\n", "output": "6\n"}, {"input": "4\n", "output": "8\n"}]


@pytest.fixture(scope="module")
def server(scorer: Scorer) -> Iterator[Served]:
    """A server that no test holds or breaks."""
    with serving(scorer) as served:
        yield served


def program(statement: str, seed: int, sample: int = 0) -> str:
    return echo(DecodingTask(0, OURS.prompt(Problem("request", statement)), Sampling(seed=seed), sample))


def by_sample(*programs: str) -> EchoRuntime:
    """A model whose sample number i is the i-th program."""
    return EchoRuntime(lambda task: programs[task.sample % len(programs)])


def texts_of(events: list[Any], key: str) -> dict[int, str]:
    """The text of each choice of a stream."""
    found: dict[int, str] = {}
    for event in events:
        for choice in event["choices"] if event != "[DONE]" else ():
            piece = choice["text"] if key == "text" else choice["delta"].get("content", "")
            found[choice["index"]] = found.get(choice["index"], "") + piece
    return found


def test_200_clients_at_once_get_their_own_answers_or_are_told_to_come_back(scorer: Scorer) -> None:
    def ask(number: int) -> tuple[int, int, Any]:
        answer = served.chat(f"Problem {number}.", seed=number, n=1 + number % 2, stream=number % 3 == 0)
        return number, answer.status, answer.events if number % 3 == 0 and answer.status == 200 else answer.record

    with serving(scorer, rows=8, max_requests=40) as served, ThreadPoolExecutor(200) as threads:
        answers = list(threads.map(ask, range(200)))
        assert served.ask("GET", "/health").record == {"status": "ok"}
        served.wait_for(lambda: served.server.engine.busy_rows == 0)
    served_ones = [(number, body) for number, status, body in answers if status == 200]
    assert {status for _, status, _ in answers} <= {200, 429}
    assert len(served_ones) >= 40
    for number, body in served_ones:
        expected = {sample: program(f"Problem {number}.", number, sample) for sample in range(1 + number % 2)}
        if number % 3 == 0:
            assert texts_of(body, "delta") == expected
        else:
            assert {each["index"]: each["message"]["content"] for each in body["choices"]} == expected


def test_a_chat_completion_has_the_shape_of_openais(server: Served) -> None:
    record = server.chat("Print it.", seed=5, n=2).record
    assert (record["object"], record["model"], len(record["choices"])) == ("chat.completion", "echo", 2)
    assert record["id"].startswith("chatcmpl-")
    for index, choice in enumerate(record["choices"]):
        text = program("Print it.", 5, index)
        assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
        assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (index, "stop", None)
        assert choice["sce"]["program"] == text
        assert choice["sce"]["seed"] == 5
    tokens = sum(-(-len(program("Print it.", 5, index)) // 3) for index in range(2))
    assert record["usage"] == {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": tokens + 5}


def test_a_text_completion_continues_the_prompt_and_checks_both_together(scorer: Scorer) -> None:
    with serving(scorer, by_sample("* 2)\n")) as served:
        record = served.ask("POST", TEXT, {"prompt": "print(int(input()) ", "tests": DOUBLE}).record
    (choice,) = record["choices"]
    assert (record["object"], choice["text"], choice["finish_reason"]) == ("text_completion", "* 2)\n", "stop")
    assert choice["sce"]["program"] == RIGHT
    assert (choice["sce"]["accepted"], choice["sce"]["tests"]) == (True, ["pass", "pass"])


@pytest.mark.parametrize(("path", "key"), [(CHAT, "delta"), (TEXT, "text")])
def test_a_stream_has_the_same_text_and_verdicts_as_the_whole_answer(server: Served, path: str, key: str) -> None:
    body = {"seed": 3, "n": 3, "max_tokens": 5}
    body |= {"messages": [{"role": "user", "content": "x"}]} if path == CHAT else {"prompt": "# x\n"}
    whole = server.ask("POST", path, body).record
    answer = server.ask("POST", path, {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    *events, last = answer.events
    assert last == "[DONE]"
    expected = [choice["text"] if path == TEXT else choice["message"]["content"] for choice in whole["choices"]]
    assert texts_of(events, key) == dict(enumerate(expected))
    ends = [choice for event in events for choice in event["choices"] if choice["finish_reason"]]
    assert [choice["sce"] for choice in ends] == [choice["sce"] for choice in whole["choices"]]
    assert [choice["finish_reason"] for choice in ends] == ["length"] * 3
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == whole["usage"]
    assert all(event["usage"] is None for event in events[:-1])
    assert len({event["id"] for event in events}) == 1


def test_the_official_client_reads_every_answer(server: Served) -> None:
    openai = pytest.importorskip("openai", reason="comes with the smollm2 extra")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
    with client:
        messages = [{"role": "user", "content": "Print."}]
        own = {"tests": DOUBLE, "hide_tests": True}
        chat = client.chat.completions.create(model="echo", messages=messages, seed=1, extra_body=own)
        assert chat.choices[0].message.content == program("Print.", 1)
        assert chat.choices[0].sce["tests"] == ["wrong", "wrong"]
        stream = client.chat.completions.create(model="echo", messages=messages, seed=1, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == program("Print.", 1)
        assert (
            client.completions.create(model="echo", prompt="# p\n", max_tokens=1).choices[0].finish_reason == "length"
        )
        assert [model.id for model in client.models.list()] == ["echo"]
        assert client.models.retrieve("echo").owned_by == "securecoderl-edge"
        with pytest.raises(openai.NotFoundError, match="unknown model"):
            client.chat.completions.create(model="other", messages=messages)


def test_failing_and_unsafe_programs_are_marked_and_never_left_out(scorer: Scorer) -> None:
    with serving(scorer, by_sample(WRONG, RIGHT, BROKEN, UNSAFE)) as served:
        choices = served.chat("Double.", n=4, tests=DOUBLE).record["choices"]
    checked = [choice["sce"] for choice in choices]
    assert [choice["message"]["content"] for choice in choices] == [WRONG, RIGHT, BROKEN, UNSAFE]
    assert [each["accepted"] for each in checked] == [False, True, False, False]
    assert [each["tests"] for each in checked] == [["wrong"] * 2, ["pass"] * 2, ["not run"] * 2, ["pass"] * 2]
    assert checked[2]["verdict"] == "does not parse"
    assert [(finding["test_id"], finding["line"]) for finding in checked[3]["findings"]] == [("B307", 1)]


def test_best_of_returns_the_best_samples_first(scorer: Scorer) -> None:
    with serving(scorer, by_sample(BROKEN, WRONG, RIGHT, UNSAFE)) as served:
        record = served.chat("Double.", best_of=4, n=2, tests=DOUBLE).record
    assert record["choices"][0]["message"]["content"] == RIGHT
    assert [choice["index"] for choice in record["choices"]] == [0, 1]
    assert record["usage"]["completion_tokens"] == sum(-(-len(each) // 3) for each in (BROKEN, WRONG, RIGHT, UNSAFE))


def test_repair_shows_the_failure_to_the_model_and_samples_again(scorer: Scorer) -> None:
    runtime = EchoRuntime(lambda task: RIGHT if "This program is wrong" in task.prompt else WRONG)
    with serving(scorer, runtime) as served:
        record = served.chat("Double.", repair=1, tests=DOUBLE).record
        assert served.chat("Double.", tests=DOUBLE).record["choices"][0]["sce"]["accepted"] is False
    (choice,) = record["choices"]
    assert (choice["message"]["content"], choice["sce"]["accepted"]) == (RIGHT, True)


def test_c_programs_are_compiled_tested_and_watched(scorer: Scorer, c_compiler: None) -> None:
    right = '#include <stdio.h>\nint main(void) { int n; scanf("%d", &n); printf("%d\\n", 2 * n); return 0; }\n'
    unsafe = right.replace("2 * n", "2 * n / (n - 3)")
    with serving(scorer, by_sample(right, unsafe, RIGHT)) as served:
        choices = served.chat("Double.", n=3, language="c", tests=DOUBLE).record["choices"]
        python = served.chat("Double.", n=3, tests=DOUBLE).record["choices"]
        prompt = "int main(void) {\n"
        text = served.ask("POST", TEXT, {"prompt": prompt, "language": "c"}).record["choices"][0]["sce"]
    checked = [choice["sce"] for choice in choices]
    assert [each["accepted"] for each in checked] == [True, False, False]
    assert [each["tests"] for each in checked] == [["pass"] * 2, ["crash", "pass"], ["not run"] * 2]
    assert [finding["cwe"] for finding in checked[1]["findings"]] == [369]
    assert checked[0]["verdict"] == "passed 2/2 tests, analyzers and sanitizers: no findings"
    assert checked[2]["verdict"] == text["verdict"] == "does not compile"
    assert [choice["sce"]["accepted"] for choice in python] == [False, False, True]
    assert text["program"] == prompt + right


def test_the_model_is_asked_for_the_language_of_the_request(scorer: Scorer, c_compiler: None) -> None:
    with serving(scorer) as served:
        text = served.chat("Double.", language="c", seed=1).record["choices"][0]["message"]["content"]
    assert text == echo(DecodingTask(0, OURS.prompt(Problem("request", "Double.", language="c")), Sampling(seed=1), 0))


def test_a_language_that_the_machine_cannot_run_is_refused_before_the_model_writes(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(language: str) -> None:
        raise SceError("cannot run C programs: /secret/gcc is missing")

    with serving(scorer) as served, monkeypatch.context() as patch:
        patch.setattr(scorer, "prepare", refuse)
        answer = served.chat("Double.", language="c")
        assert (answer.status, answer.error["param"], answer.error["code"]) == (400, "language", "unsupported_language")
        assert b"secret" not in answer.body
        assert served.runtime.batches[0].most == 0
        assert served.chat("Double.").status == 200


def test_a_chat_model_sees_the_whole_conversation(scorer: Scorer) -> None:
    check = "{{ raise_exception('no system') if m.role == 'system' }}"
    template = f"{{% for m in messages %}}{check}[{{{{ m.role }}}}]{{{{ m.content }}}}{{% endfor %}}"
    runtime = EchoRuntime(lambda task: f"print({task.prompt!r})\n")
    with serving(scorer, runtime, format=PromptFormat("chat", ChatTemplate(template, where="/secret/file"))) as served:
        messages = [
            {"role": "user", "content": "A?"},
            {"role": "assistant", "content": "B."},
            {"role": "user", "content": "C?"},
        ]
        text = served.ask("POST", CHAT, {"messages": messages}).record["choices"][0]["message"]["content"]
        assert text == "print('[user]A?[assistant]B.[user]C?')\n"  # a question stays as it is
        task = {"messages": messages, "tests": DOUBLE, "task": "program"}
        tested = served.ask("POST", CHAT, task).record["choices"][0]
        shown = "C?\\n\\nExample input:\\n3\\nExample output:\\n6"
        assert shown in tested["message"]["content"]
        assert "\\n\\nWrite a Python 3 program that reads standard input" in tested["message"]["content"]
        hidden = served.ask("POST", CHAT, {**task, "hide_tests": True})
        assert shown not in hidden.record["choices"][0]["message"]["content"]
        system = {"role": "system", "content": "S"}
        told = served.ask("POST", CHAT, {"messages": [system, messages[0]]}).record["choices"][0]
        assert told["message"]["content"] == "print('[user]S\\n\\nA?')\n"  # a template without system messages
        refused = served.ask("POST", CHAT, {"messages": [system, messages[0]], "task": "program"})
    assert (refused.status, refused.error["param"]) == (400, "messages")
    assert "no system" in refused.error["message"]
    assert "secret" not in refused.error["message"]


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_hangs_up_frees_its_rows(scorer: Scorer, is_stream: bool) -> None:
    runtime = EchoRuntime(lambda task: "x" * 10_000)
    pause = threading.Event()
    runtime.before_step = lambda: pause.wait(0.01) and None
    with serving(scorer, runtime, context=8000, max_tokens=5000) as served:
        connection = served.connect()
        body = {"messages": [{"role": "user", "content": "x"}], "n": 4, "max_tokens": 3000, "stream": is_stream}
        connection.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"})
        served.wait_for(lambda: served.server.engine.busy_rows == 4)
        if is_stream:
            assert connection.getresponse().read(20).startswith(b"data: ")
        connection.close()
        served.wait_for(lambda: served.server.engine.busy_rows == 0)
        runtime.write_task = echo
        assert served.chat("next", seed=1).record["choices"][0]["message"]["content"] == program("next", 1)
        assert runtime.batches[0].tasks == {}
        served.wait_for(lambda: b"sce_requests_running 0" in served.ask("GET", "/metrics").body)
        served.wait_for(lambda: b'status="499"} 1' in served.ask("GET", "/metrics").body)


def test_a_full_queue_answers_429_and_a_later_request_is_served(scorer: Scorer) -> None:
    with serving(scorer, max_requests=2) as served, ThreadPoolExecutor(2) as threads:
        served.runtime.may_step.clear()
        waiting = [threads.submit(served.chat, "x") for _ in range(2)]
        served.wait_for(lambda: b"sce_requests_running 2" in served.ask("GET", "/metrics").body)
        refused = served.chat("y")
        assert (refused.status, refused.error["type"], refused.error["code"]) == (
            429, "rate_limit_error", "too_many_requests"
        )  # fmt: skip
        served.runtime.may_step.set()
        assert [future.result().status for future in waiting] == [200, 200]
        served.wait_for(lambda: b"sce_requests_running 0" in served.ask("GET", "/metrics").body)
        assert served.chat("y").status == 200


@pytest.mark.parametrize("is_stream", few([True, False], True))
def test_a_request_ends_when_its_time_is_over_and_frees_its_rows(scorer: Scorer, is_stream: bool) -> None:
    runtime = EchoRuntime(lambda task: "x" * 10_000_000)
    runtime.context = 90_000
    pause = threading.Event()
    runtime.before_step = lambda: pause.wait(0.01) and None
    with serving(scorer, runtime, context=90_000, max_tokens=80_000, timeout=2.0) as served:
        answer = served.chat("x", max_tokens=80_000, stream=is_stream)
        if is_stream:
            assert answer.status == 200
            assert answer.events[-1]["error"]["code"] == "timeout"
        else:
            assert (answer.status, answer.error["type"], answer.error["code"]) == (504, "server_error", "timeout")
            assert answer.headers["connection"] == "close"
            assert answer.headers["x-should-retry"] == "false"  # OpenAI's packages would do it all again
        served.wait_for(lambda: served.server.engine.busy_rows == 0)


@pytest.mark.parametrize("hangs_up", [True, False])
def test_a_stream_that_waits_for_its_first_token_ends_like_a_whole_answer(scorer: Scorer, hangs_up: bool) -> None:
    with serving(scorer, rows=1, timeout=60.0 if hangs_up else 1.0) as served:
        served.runtime.may_step.clear()
        if hangs_up:
            connection = served.connect()
            body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
            connection.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"})
            served.wait_for(lambda: served.server.engine.busy_rows == 1)
            connection.close()
        else:
            answer = served.chat("x", stream=True)
            assert (answer.status, answer.error["code"]) == (504, "timeout")
        status = b'status="499"} 1' if hangs_up else b'status="504"} 1'
        served.wait_for(lambda: status in served.ask("GET", "/metrics").body)
        served.runtime.may_step.set()
        served.wait_for(lambda: b"sce_requests_running 0" in served.ask("GET", "/metrics").body)
        assert served.chat("x").status == 200


def test_bodies_that_wait_are_not_read_when_their_requests_have_ended(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    may_read, begun = threading.Event(), list[object]()

    def read(body: object, *_: object) -> Any:
        begun.append(body)
        assert may_read.wait(30)
        return parse(body, *_)  # type: ignore[arg-type]

    monkeypatch.setattr(app, "parse", read)
    with serving(scorer) as served:
        for number in range(3 * app._READERS):
            connection = served.connect()
            connection.request("POST", TEXT, json.dumps({"prompt": 1}), {"Content-Type": "application/json"})
            served.wait_for(lambda number=number: len(begun) == min(number + 1, app._READERS))
            connection.close()
            status = f'status="499"}} {number + 1}'.encode()  # at once, though the threads go on
            served.wait_for(lambda status=status: status in served.ask("GET", "/metrics").body)
        assert len(begun) == app._READERS
        may_read.set()
        assert served.ask("POST", TEXT, {"prompt": "x"}).status == 200
        assert len(begun) == app._READERS + 1
    gc.collect()
    assert not caplog.records  # of what was wrong with bodies whose clients have left


@pytest.mark.parametrize("hangs_up", few([True, False], True))
def test_the_programs_of_a_request_that_has_ended_stop(scorer: Scorer, hangs_up: bool) -> None:
    tests = [{"input": str(number), "output": "1\n"} for number in range(20)]
    body = {"prompt": "import time\ntime.sleep(600)\n", "n": 16, "max_tokens": 1, "tests": tests}
    with serving(scorer, timeout=60.0 if hangs_up else 1.0) as served:
        if hangs_up:
            connection = served.connect()
            connection.request("POST", TEXT, json.dumps(body), {"Content-Type": "application/json"})
            served.wait_for(lambda: b"sce_requests_running 1" in served.ask("GET", "/metrics").body)
            served.wait_for(lambda: served.server.engine.busy_rows == 0)
            connection.close()
        else:
            assert served.ask("POST", TEXT, body).status == 504
        served.wait_for(lambda: b"sce_requests_running 0" in served.ask("GET", "/metrics").body)
        assert scorer.score(Problem("next", "", tests=(Test("", "1\n"),)), "print(1)").passed == 1


def test_a_request_that_has_ended_does_not_wait_for_the_programs_of_others(scorer: Scorer) -> None:
    tests = [{"input": str(number), "output": "1\n"} for number in range(20)]
    slow = {"prompt": "import time\ntime.sleep(600)\n", "n": 16, "max_tokens": 1, "tests": tests}
    with serving(scorer) as served:
        connections = [served.connect(), served.connect()]
        connections[0].request("POST", TEXT, json.dumps(slow), {"Content-Type": "application/json"})
        served.wait_for(lambda: scorer._threads._work_queue.qsize() > 1)
        body = {"prompt": "print(1)\n", "max_tokens": 1, "stream": True}
        connections[1].request("POST", TEXT, json.dumps(body), {"Content-Type": "application/json"})
        assert connections[1].getresponse().read(20).startswith(b"data: ")  # it is written, and waits for its check
        connections[1].close()
        served.wait_for(lambda: b"sce_requests_running 1" in served.ask("GET", "/metrics").body)
        connections[0].close()
        served.wait_for(lambda: b"sce_requests_running 0" in served.ask("GET", "/metrics").body)


def test_a_model_that_fails_is_an_error_of_the_server_which_stays(scorer: Scorer) -> None:
    runtime = EchoRuntime()

    def fail() -> None:
        runtime.before_step = lambda: None
        raise SceError("secret path")

    with serving(scorer, runtime) as served:
        runtime.before_step = fail
        answer = served.chat("x")
        assert (answer.status, answer.error["type"]) == (500, "server_error")
        assert b"secret" not in answer.body
        assert served.log == ["the model failed: secret path"]
        runtime.before_step = fail
        early = served.chat("x", stream=True)
        assert (early.status, early.error["type"]) == (500, "server_error")
        runtime.before_step = lambda: setattr(runtime, "before_step", fail)
        late = served.chat("x", stream=True)
        assert (late.status, late.events[-1]["error"]["type"]) == (200, "server_error")
        assert served.chat("x").status == 200


@pytest.mark.parametrize("end", [BrokenPipeError(), SystemExit(1)], ids=["as Python", "as rich"])
def test_an_operator_who_no_longer_reads_ends_nothing(scorer: Scorer, end: BaseException) -> None:
    def report(_: str) -> None:
        raise end

    def fail() -> None:
        served.runtime.before_step = lambda: None
        raise SceError("a crash")

    with serving(scorer, report=report, timeout=20) as served:
        served.runtime.before_step = fail
        assert served.chat("x").status == 500
        assert served.chat("x").status == 200


def test_a_model_that_is_lost_ends_the_server(scorer: Scorer) -> None:
    def fail() -> None:
        served.runtime.fails_to_open = True
        raise SceError("a crash")

    with serving(scorer) as served:
        served.runtime.before_step = fail
        assert served.chat("x").status in (500, 503)
        served.wait_for(lambda: served.server.engine.failure is not None)


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"\xff\xfe", 400, "invalid_json"),
        (b"[1]", 400, "invalid_json"),
        (b'{"messages": [], "n": -1}', 400, None),
        (b'{"model": "gpt-9", "messages": [{"role": "user", "content": "x"}]}', 404, "model_not_found"),
        (b'{"messages": [{"role": "user", "content": "' + b"x " * 5000 + b'"}]}', 400, "context_length_exceeded"),
        (b'{"messages": [{"role": "user", "content": "' + b"x" * 200_000 + b'"}]}', 400, "context_length_exceeded"),
        (b'{"messages": [{"role": "user", "content": "' + b"x" * 10_000_000 + b'"}]}', 413, "body_too_large"),
    ],
    ids=["torn", "bytes", "list", "n", "model", "many tokens", "many characters", "10 MB"],
)
def test_bad_bodies_have_a_clear_error(server: Served, content: bytes, status: int, code: str | None) -> None:
    answer = server.ask("POST", CHAT, content)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert (answer.headers.get("connection") == "close") == (status == 413)
    assert answer.error["type"] == "invalid_request_error"
    assert server.ask("GET", "/health").status == 200


def test_no_body_makes_the_server_fail(server: Served) -> None:
    rng = random.Random(3)
    usual = {"messages": [{"role": "user", "content": "Print é."}], "tests": DOUBLE, "stop": ["z"], "max_tokens": 3}
    values = (None, True, -1, 2.5, 10**30, "", "\0", [], {}, [None], [["a"]], {"role": "user"}, [{"input": "\0"}])
    names = (
        *usual,
        "prompt",
        "n",
        "best_of",
        "repair",
        "stream",
        "stream_options",
        "top_p",
        "logit_bias",
        "seed",
        "language",
    )
    statuses = set()
    for _ in range(200):
        body = bytearray(json.dumps({**usual, rng.choice(names): rng.choice(values)}).encode())
        if rng.random() < 0.3:
            body[rng.randrange(len(body))] = rng.randrange(256)
        answer = server.ask("POST", rng.choice((CHAT, TEXT)), bytes(body))
        statuses.add(answer.status)
        assert answer.status in (200, 400, 404)
        assert answer.status == 200 or answer.error["type"] == "invalid_request_error"
    assert {200, 400} <= statuses
    assert server.log == []


def test_only_json_is_read(server: Served) -> None:
    answer = server.ask("POST", CHAT, b"{}", Content_Type="text/plain")
    assert (answer.status, answer.error["type"]) == (415, "invalid_request_error")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/v1/nothing", 404), ("GET", CHAT, 405), ("PUT", "/", 405)]
)
def test_unknown_paths_and_methods_have_an_error_in_openais_format(
    server: Served, method: str, path: str, status: int
) -> None:
    answer = server.ask(method, path)
    assert (answer.status, answer.error["type"]) == (status, "invalid_request_error")


@pytest.mark.parametrize("end", ["%0A", "%0a/", "%0D%0A", "%00", "%7F", "/%0A"])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("GET", "/page.js"), ("GET", "/v1/models/echo"), ("POST", CHAT), ("POST", TEXT)]
)
def test_a_path_with_a_control_character_is_unknown_and_not_in_the_metrics(
    server: Served, method: str, path: str, end: str
) -> None:
    answer = server.ask(method, path + end, {"prompt": "x"} if method == "POST" else None)
    assert (answer.status, answer.error["type"]) == (404, "invalid_request_error")
    for line in server.ask("GET", "/metrics").body.decode().splitlines():
        assert re.fullmatch(r'# .*|sce_\w+(\{(\w+="[^"]+",?)+\})? [0-9.e+-]+', line)


@pytest.mark.parametrize("path", ["/health/", "//health", "/health///"])
def test_slashes_too_many_do_not_count_and_nothing_is_redirected(server: Served, path: str) -> None:
    answer = server.ask("GET", path)
    assert (answer.status, "location" in answer.headers) == (200, False)


def test_a_path_may_be_a_whole_address_of_this_server_only(scorer: Scorer) -> None:
    with serving(scorer, key=KEY) as served:
        host = f"127.0.0.1:{served.port}"
        for address, status in (
            (f"http://{host}/health", 200), (f"HTTP://{host}//health/", 200), (f"https://{host}", 200),
            (f"http://{host}/v1/models", 401), (f"http://{host}/v1/models?/health", 401),
            ("http://evil.example/health", 400), (f"http://evil@{host}/health", 400), ("http:///health", 400),
        ):  # fmt: skip
            assert (address, served.ask("GET", address, Host=host).status) == (address, status)


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/page/../app.py", "/%2e%2e/app.py", "/page.js/../app.py", "//etc/passwd"]
)
def test_no_file_but_those_of_the_page_can_be_read(server: Served, path: str) -> None:
    assert server.ask("GET", path).status == 404


def test_a_missing_or_wrong_key_is_refused_and_the_page_is_open(scorer: Scorer) -> None:
    with serving(scorer, key=KEY) as served:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": KEY}, {"Authorization": f"Bearer {KEY}x"},
                        {"Authorization": "Bearer \xe9"}):  # fmt: skip
            for method, path in (("POST", CHAT), ("POST", TEXT), ("GET", "/v1/models"), ("GET", "/metrics")):
                answer = served.ask(method, path, {} if method == "POST" else None, **headers)
                assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
                assert answer.error["type"] == "authentication_error"
        for path in ("/", "/page.css", "/page.js", "/show.js", "/health"):
            assert served.ask("GET", path).status == 200
        assert served.ask("GET", "/v1/models", Authorization=f"Bearer {KEY}").status == 200
        body = {"messages": [{"role": "user", "content": "x"}]}
        assert served.ask("POST", CHAT, body, Authorization=f"bearer {KEY}").status == 200


def test_names_that_are_not_the_servers_are_refused_against_dns_rebinding(scorer: Scorer) -> None:
    with serving(scorer, hostnames=("Model.example",)) as served:
        for host in (
            "evil.example", "evil.example:80", "localhost.evil.example", "", "127.0.0.1.evil.example", "localhost:",
            "127.0.0.1:80/evil", "127.0.0.1:1@evil.example", "localhost:evil.example", "127.0.0.1:1/v1/models?", "::1",
            "[::1]evil.example", "[::1%25evil]", "[fe80::1%lo]:80", "[localhost]", "user@127.0.0.1", "localhost evil",
        ):  # fmt: skip
            for path in ("/", "/v1/models", "/metrics", "/health"):
                assert served.ask("GET", path, Host=host).status in (400, 403)
        for host in (
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]:8080",
            "localhost:8080",
            "LOCALHOST",
            "model.example",
            "10.0.0.7",
        ):
            assert served.ask("GET", "/v1/models", Host=host).status == 200


def test_requests_of_other_web_pages_are_refused(server: Served) -> None:
    own = f"http://127.0.0.1:{server.port}"
    for headers in (
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": f"http://127.0.0.1:{server.port + 1}"},
        {"Origin": "http://127.0.0.1"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    ):  # fmt: skip
        for method, path in (("POST", CHAT), ("OPTIONS", CHAT), ("GET", "/v1/models"), ("GET", "/metrics")):
            answer = server.ask(method, path, {} if method == "POST" else None, **headers)
            assert (answer.status, answer.error["type"]) == (403, "permission_error")
            assert "access-control-allow-origin" not in answer.headers
    assert server.ask("GET", "/v1/models", Origin=own, Sec_Fetch_Site="same-origin").status == 200
    assert server.ask("GET", "/", Sec_Fetch_Site="cross-site").status == 200  # a link to the page
    assert server.ask("GET", "/", Origin="https://evil.example").status == 403


PAGE_OF_ANOTHER = "http://localhost:3000"


def test_pages_of_allowed_origins_may_use_the_server_and_no_others(scorer: Scorer) -> None:
    allowed = (PAGE_OF_ANOTHER, "app://obsidian.md", "vscode-file://vscode-app")
    with serving(scorer, key=KEY, allow_origin=allowed) as served:
        for origin in allowed:
            asks = served.ask("OPTIONS", CHAT, None, Origin=origin, Access_Control_Request_Method="POST",
                              Access_Control_Request_Headers="authorization, content-type, x-stainless-os")  # fmt: skip
            assert (asks.status, asks.headers["access-control-allow-origin"]) == (204, origin)
            assert "authorization" in asks.headers["access-control-allow-headers"]
            assert "access-control-allow-credentials" not in asks.headers
            headers = {"Origin": origin, "Sec_Fetch_Site": "cross-site"}
            answer = served.ask("GET", "/v1/models", None, **headers, Authorization=f"Bearer {KEY}")
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, origin)
            assert (answer.headers["vary"], answer.headers["cross-origin-resource-policy"]) == (
                "Origin",
                "cross-origin",
            )
            unnamed = served.ask("GET", "/v1/models", None, **headers)  # the page may read why
            assert (unnamed.status, unnamed.headers["access-control-allow-origin"]) == (401, origin)
        for origin in ("http://localhost:3001", "https://localhost:3000", "null", "http://localhost:3000.evil.example",
                       "HTTP://LOCALHOST:3000", "http://localhost:3000/", "*"):  # fmt: skip
            for method in ("GET", "OPTIONS"):
                answer = served.ask(method, "/v1/models", None, Origin=origin, Authorization=f"Bearer {KEY}")
                assert answer.status == 403
                assert not [name for name in answer.headers if name.startswith("access-control")]
        assert served.ask("OPTIONS", CHAT, None, Authorization=f"Bearer {KEY}").status == 405
        rebound = served.ask("GET", "/v1/models", None, Origin=PAGE_OF_ANOTHER, Host="evil.example")
        assert rebound.status == 403


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "localhost:3000", "http://", "http://a/b", "http://a b", "http://*", "", "http://A:3000",
     "HTTP://a", "http://a:80", "https://a:443"],
)  # fmt: skip
def test_an_origin_to_allow_is_one_that_browsers_send(origin: str) -> None:
    with pytest.raises(UsageError, match="--allow-origin"):
        ServeSettings(allow_origin=(origin,))


def test_every_answer_has_a_strict_policy(server: Served) -> None:
    for path in ("/", "/page.js", "/v1/models", "/v1/nothing", "/health"):
        headers = server.ask("GET", path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
        assert "server" not in headers


@pytest.mark.parametrize(
    "lines",
    [
        ("Origin: http://localhost", "Origin: x"),
        ("Content-Type: application/json", "Content-Type: text/plain"),
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
    ],
    ids=lambda lines: lines[0].partition(":")[0],
)
def test_headers_that_decide_and_contradict_each_other_are_refused(server: Served, lines: tuple[str, ...]) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        raw.sendall("\r\n".join((f"POST {CHAT} HTTP/1.1", "Host: localhost", *lines, "", "")).encode())
        answer = raw.makefile("rb").read()
    assert answer.split()[1] == b"400"
    assert b"\r\nconnection: close\r\n" in answer


def test_garbage_and_half_requests_leave_the_server_as_it_was(server: Served) -> None:
    lines = (
        f"POST {CHAT} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        "Content-Length: 50",
        "",
        "{",
    )
    for content in (b"\x00\x01\x02\r\n\r\n", b"GET", "\r\n".join(lines).encode()):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
            raw.sendall(content)
    assert server.chat("x", seed=2).record["choices"][0]["message"]["content"] == program("x", 2)


def test_the_metrics_count_what_was_served(scorer: Scorer) -> None:
    with serving(scorer, by_sample(RIGHT, BROKEN)) as served:
        served.chat("Double.", n=2, tests=DOUBLE)
        served.chat("Double.", n=-1)
        served.chat("Double.", stream=True)
        answer = served.ask("GET", "/metrics")
        lines = answer.body.decode().splitlines()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values['sce_requests_total{path="/v1/chat/completions",status="200"}'] == "2"
    assert values['sce_requests_total{path="/v1/chat/completions",status="400"}'] == "1"
    assert values['sce_programs_total{accepted="true"}'] == "2"
    assert values['sce_programs_total{accepted="false"}'] == "1"
    assert values["sce_prompt_tokens_total"] == "10"
    assert values["sce_request_seconds_count"] == values['sce_request_seconds_bucket{le="+Inf"}'] == "3"
    assert values["sce_rows"] == "4"
    assert (values["sce_rows_busy"], values["sce_samples_waiting"]) == ("0", "0")


def test_a_server_that_stops_finishes_what_it_has_begun(scorer: Scorer) -> None:
    with ThreadPoolExecutor(1) as threads:
        with serving(scorer) as served:
            served.runtime.may_step.clear()
            asked = threads.submit(served.chat, "x", seed=4)
            served.wait_for(lambda: served.server.engine.busy_rows == 1)
            served.server.stop()
            served.runtime.may_step.set()
        assert asked.result().record["choices"][0]["message"]["content"] == program("x", 4)
    with pytest.raises((ConnectionRefusedError, http.client.RemoteDisconnected)):
        served.chat("y")


@pytest.mark.parametrize("is_stream", few([True, False], True))
def test_a_server_that_stops_ends_late_requests_with_an_answer(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    monkeypatch.setattr("securecoderl_edge.serving.server.STOP_SECONDS", 0.2)
    runtime, pause = EchoRuntime(lambda task: "x" * 10_000), threading.Event()
    runtime.before_step = lambda: pause.wait(0.02) and None
    with ThreadPoolExecutor(1) as threads:
        with serving(scorer, runtime, context=4000, max_tokens=3000) as served:
            asked = threads.submit(served.chat, "x", stream=is_stream, max_tokens=3000)
            served.wait_for(lambda: served.server.engine.busy_rows == 1)
        answer = asked.result()
    error = answer.events[-1]["error"] if is_stream else answer.error
    assert (answer.status, error["code"]) == (200 if is_stream else 503, "cancelled")
