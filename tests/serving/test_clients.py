"""Programs that people use with the server, set up as docs/clients.md says: llm, curl, and the requests of Continue.

The package openai is in test_http.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the serve extra")

from places import ROOT
from quick import few
from served import CHAT, TEXT, Served, echo, serving

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.styles import OURS
from securecoderl_edge.runtimes.protocol import DecodingTask, Sampling
from securecoderl_edge.scoring.scorer import Scorer

PAGE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def server(scorer: Scorer) -> Iterator[Served]:
    with serving(scorer) as served:
        yield served


def program(statement: str, seed: int) -> str:
    return echo(DecodingTask(0, OURS.prompt(Problem("request", statement)), Sampling(seed=seed), 0))


def configuration(beginning: str, served: Served) -> str:
    """A block of the page, for the model and the port of a test."""
    (block,) = [each for each in PAGE.split("```yaml\n")[1:] if each.startswith(beginning)]
    return block.partition("```")[0].replace("8080", str(served.port)).replace("nano", "echo")


@pytest.mark.parametrize("options", few([[], ["--no-stream"]], []), ids=["stream", "whole"])
def test_llm_prints_the_program(server: Served, options: list[str], tmp_path: Path) -> None:
    pytest.importorskip("llm", reason="comes with the smollm2 extra")
    (tmp_path / "extra-openai-models.yaml").write_text(configuration("- model_id", server))
    command = [
        sys.executable,
        "-m",
        "llm",
        "-m",
        "sce",
        "-o",
        "seed",
        "7",
        "-o",
        "max_tokens",
        "256",
        *options,
        "Print.",
    ]
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "LLM_LOAD_PLUGINS": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, program("Print.", 7).strip()), done.stderr


def test_curl_posts_a_body_and_reads_a_stream(server: Served) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("needs curl")
    body = {"messages": [{"role": "user", "content": "Print."}], "seed": 3, "stream": True}
    command = [curl, "-sN", f"http://127.0.0.1:{server.port}{CHAT}", "-H", "Content-Type: application/json", "-d"]
    done = subprocess.run([*command, json.dumps(body)], capture_output=True, text=True, check=True)
    events = [line.removeprefix("data: ") for line in done.stdout.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    deltas = [choice["delta"] for event in events[:-1] for choice in json.loads(event)["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == program("Print.", 3)


def test_continue_gets_what_it_asks_for(server: Served) -> None:
    """The bodies and headers of core/llm/llms/OpenAI.ts and packages/openai-adapters/src/apis/OpenAI.ts."""
    yaml = pytest.importorskip("yaml", reason="comes with transformers")
    found = yaml.safe_load(configuration("name: local", server))
    assert found["schema"] == "v1"
    (model,) = found["models"]
    assert (model["provider"], model["apiBase"]) == ("openai", f"http://127.0.0.1:{server.port}/v1")
    options = {"model": model["model"], "max_tokens": model["defaultCompletionOptions"]["maxTokens"], "stream": True}
    key = model["apiKey"]
    headers = {"Authorization": f"Bearer {key}", "api_key": key, "x_api_key": key, "Accept": "application/json"}
    chat: dict[str, Any] = {
        "messages": [{"role": "system", "content": "You write Python."}, {"role": "user", "content": "Print."},
                     {"role": "assistant", "content": " "}, {"role": "user", "content": "Again."}],
        "temperature": 0.5, "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0,
        "stop": ["a stop"] * model["maxStopWords"], "stream_options": {"include_usage": True}, **options,
    }  # fmt: skip
    answer = server.ask("POST", CHAT, chat, **headers)
    assert answer.status == 200
    assert "Again." in "".join(
        choice["delta"].get("content", "") for event in answer.events[:-1] for choice in event["choices"]
    )
    edit = server.ask("POST", TEXT, {"prompt": "# Print.\n", "stop": ["a stop"], **options}, **headers)
    assert edit.events[-1] == "[DONE]"
    assert server.ask("GET", "/v1/models", **headers).record["data"][0]["id"] == "echo"
