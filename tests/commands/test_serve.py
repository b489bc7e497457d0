"""`sce serve`: addresses and keys that are refused, and a server of its own from start to Ctrl-C."""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from cli_runs import run_sce
from quick import few

pytest.importorskip("uvicorn", reason="needs the serve extra")

from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.sandbox.limits import TRAINING_LIMITS
from securecoderl_edge.serving.serve_settings import KEY_VARIABLE, ServeSettings

KEY = "0123456789abcdef"


def test_a_port_in_use_is_an_error_before_the_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run_sce("serve", "--model", "nano", "--port", str(port))
    assert code == 2
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use. Choose another --port" in err


def test_an_address_of_another_machine_is_an_error() -> None:
    code, _, err = run_sce("serve", "--model", "nano", "--host", "::1", "--api-key-file", "/nowhere")
    assert (code, "cannot read it" in err) == (2, True)
    code, _, err = run_sce("serve", "--host", "example.com")
    assert (code, "expected an IP address" in err) == (2, True)


def test_other_machines_need_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        code, _, err = run_sce("serve", "--host", host)
        assert (code, f"Set a key in {KEY_VARIABLE}" in err) == (2, True)
    assert ServeSettings("127.0.0.2").api_key() is None
    assert ServeSettings("::1").api_key() is None


def test_a_key_comes_from_a_file_or_the_environment_and_must_be_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    file = tmp_path / "key"
    file.write_text(f"{KEY}-of-the-file\n")
    assert ServeSettings("0.0.0.0").api_key() == KEY
    assert ServeSettings("0.0.0.0", api_key_file=str(file)).api_key() == f"{KEY}-of-the-file"
    for wrong in ("short", "", "with a space inside it", "é" * 20):
        file.write_text(wrong)
        with pytest.raises(UsageError, match="at least 16 ASCII characters"):
            ServeSettings(api_key_file=str(file)).api_key()


def test_a_server_never_runs_programs_without_isolation() -> None:
    code, _, err = run_sce("serve", "--sandbox", "off")
    assert (code, "must isolate them" in err) == (2, True)


def test_the_reward_is_served_without_a_model(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    write_problems(problems, [Problem("double", "Double it.", tests=(Test("4\n", "8\n"),))])
    code, _, err = run_sce("serve", "--problems", str(problems))
    assert (code, "--problems needs --reward" in err) == (2, True)
    command = [
        sys.executable,
        "-m",
        "securecoderl_edge",
        "serve",
        "--reward",
        "--problems",
        str(problems),
        "--port",
        "0",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        ready = re.search(r"the reward at http://127\.0\.0\.1:(\d+);", process.stderr.readline())
        assert ready
        connection = http.client.HTTPConnection("127.0.0.1", int(ready[1]), timeout=60)
        body = json.dumps({"items": [{"problem_id": "double", "completion": "print(2 * int(input()))"}]})
        connection.request("POST", "/v1/score", body, {"Content-Type": "application/json"})
        (score,) = json.loads(connection.getresponse().read())["data"]
        connection.close()
        process.send_signal(signal.SIGINT)
        rest, code = process.stderr.read(), process.wait(60)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert (code, rest) == (0, "stopped\n")
    assert score["reward"] == 1.0
    assert score["limits"] == dataclasses.asdict(TRAINING_LIMITS)


@pytest.mark.parametrize("ending", few([signal.SIGINT, signal.SIGTERM], signal.SIGTERM))
def test_a_server_answers_until_it_is_told_to_stop_and_leaves_no_process(ending: signal.Signals) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    process = subprocess.Popen(
        [sys.executable, "-m", "securecoderl_edge", "serve", "--model", "nano", "--port", "0", "--threads", "1"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, KEY_VARIABLE: KEY},
    )
    assert process.stderr is not None
    try:
        ready = re.search(r"nano at http://127\.0\.0\.1:(\d+);", process.stderr.readline())
        assert ready
        children = [int(each) for each in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        for child in children:
            with suppress(PermissionError):  # a zygote hides it even from us
                assert KEY not in Path(f"/proc/{child}/environ").read_text()
        connection = http.client.HTTPConnection("127.0.0.1", int(ready[1]), timeout=60)
        body = json.dumps({"messages": [{"role": "user", "content": "Print 1."}], "max_tokens": 8, "seed": 1})
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        choice = json.loads(connection.getresponse().read())["choices"][0]
        connection.close()
        assert choice["sce"]["program"]
        process.send_signal(ending)
        rest = process.stderr.read()
        code = process.wait(60)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert (code, rest) == ((0, "stopped\n") if ending == signal.SIGINT else (143, ""))
    assert children
    for child in children:
        assert not Path(f"/proc/{child}").exists() or Path(f"/proc/{child}/stat").read_text().split()[2] == "Z"
