"""Programs that people use with the server, set up as docs/guides/clients.md says: llm, curl, recorded requests.

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
from served import CHAT, INFILL, TEXT, AbleRuntime, Served, echo, serving

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.styles import OURS, PromptFormat
from securecoderl_edge.runtimes.protocol import DecodingTask, Sampling
from securecoderl_edge.scoring.scorer import Scorer

PAGE = (ROOT / "docs" / "guides" / "clients.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def server(scorer: Scorer) -> Iterator[Served]:
    with serving(scorer) as served:
        yield served


def program(statement: str, seed: int) -> str:
    return echo(DecodingTask(0, OURS.prompt(Problem("request", statement)), Sampling(seed=seed), 0))


def configuration(beginning: str, served: Served) -> str:
    """A block of the page, for the model and the port of a test."""
    (block,) = [each for each in PAGE.split("```yaml\n")[1:] if each.startswith(beginning)]
    return block.partition("```")[0].replace("8080", str(served.port)).replace("qwen-0.5b", "echo")


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
        "stop": ["a stop"] * 12, "stream_options": {"include_usage": True}, **options,
    }  # fmt: skip
    answer = server.ask("POST", CHAT, chat, **headers)
    assert answer.status == 200
    assert "Again." in "".join(
        choice["delta"].get("content", "") for event in answer.events[:-1] for choice in event["choices"]
    )
    edit = server.ask("POST", TEXT, {"prompt": "# Print.\n", "stop": ["a stop"], **options}, **headers)
    assert edit.events[-1] == "[DONE]"
    assert server.ask("GET", "/v1/models", **headers).record["data"][0]["id"] == "echo"


@pytest.fixture(scope="module")
def able(scorer: Scorer) -> Iterator[Served]:
    """A server whose model has a template, tokens for holes and all that GGUF files can do."""
    template = ChatTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    runtime = AbleRuntime(lambda task: "x = 1\n")
    with serving(scorer, runtime, format=PromptFormat("chat", template), context=400, max_tokens=64) as served:
        yield served


def test_continue_completes_a_line_through_its_own_template(able: Served) -> None:
    """A request of its tab completion, with the template of the page and stop words as for this model."""
    assert "<|fim_prefix|>{{{prefix}}}<|fim_suffix|>{{{suffix}}}<|fim_middle|>" in PAGE
    stops = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
             "<|file_sep|>", "<|im_start|>", "<|im_end|>", "/src/", "#- coding: utf-8", "```"]  # fmt: skip
    body = {"prompt": "<|fim_prefix|>a = <|fim_suffix|>\n<|fim_middle|>", "model": "echo", "max_tokens": 64,
            "temperature": 0.01, "stream": True, "stop": stops}  # fmt: skip
    answer = able.ask("POST", TEXT, body)
    assert answer.status == 200
    assert "".join(choice["text"] for event in answer.events[:-1] for choice in event["choices"]) == "x = 1\n"
    assert able.runtime.tasks[-1].extras.reuses_prefix  # type: ignore[attr-defined]  # it sends one with every key


def test_aider_gets_a_whole_file(scorer: Scorer) -> None:
    """The request of version 0.86 for a whole-file edit, its texts cut short: no limit of tokens, greedy, a stream."""
    edit = "mean.py\n```\ndef mean(values):\n    return sum(values) / len(values) if values else 0\n```\n"
    template = ChatTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    texts = [("system", "Act as an expert software developer."), ("user", "Change the greeting to be more casual"),
             ("assistant", 'Ok, I will:\n\n1. Switch the greeting text from "Hello" to "Hey".'),
             ("user", "I switched to a new code base."), ("assistant", "Ok."),
             ("user", "I have *added these files to the chat*:\n\nmean.py\n```\ndef mean(values): ...\n```\n"),
             ("assistant", "Ok, any changes I propose will be to those files."),
             ("user", "Let mean return 0 for an empty list.\n\nTo suggest changes you MUST return")]  # fmt: skip
    body = {"messages": [{"role": role, "content": text} for role, text in texts], "model": "echo", "stream": True,
            "temperature": 0}  # fmt: skip
    with serving(scorer, AbleRuntime(lambda task: edit), format=PromptFormat("chat", template)) as served:
        *events, end = served.ask("POST", CHAT, body).events
    pieces = [choice["delta"].get("content", "") for event in events for choice in event["choices"]]
    assert (end, "".join(pieces)) == ("[DONE]", edit)
    # The block has no label: nothing says that it is a program.
    assert events[-1]["choices"][0]["sce"]["accepted"] is None


def test_llama_vscode_gets_completions_edits_and_chats(able: Served) -> None:
    """The bodies of src/llama-server.ts."""
    hole = {
        "input_prefix": "a\n",
        "input_suffix": "\nb",
        "input_extra": [{"filename": "c.py", "text": "c"}],
        "prompt": "x",
    }
    usual = {
        "top_k": 40,
        "top_p": 0.99,
        "stream": False,
        "samplers": ["top_k", "top_p", "infill"],
        "cache_prompt": True,
    }
    times = {"t_max_prompt_ms": 500, "t_max_predict_ms": 2500}
    completed = able.ask("POST", INFILL, {**hole, "n_predict": 64, **usual, "n_indent": 4, **times})
    assert (completed.status, completed.record["content"]) == (200, "x = 1\n")
    empty = {"input_prefix": "", "input_suffix": "", "input_extra": hole["input_extra"], "prompt": ""}
    warm = {**empty, "n_predict": 0, "samplers": [], "cache_prompt": True, **times}
    warmed = able.ask("POST", INFILL, warm)
    assert (warmed.status, warmed.record["content"]) == (200, "")
    messages = [{"role": "system", "content": "You are an expert coder."}, {"role": "user", "content": "Edit."}]
    edit = {"messages": messages, "stream": False, "cache_prompt": True, "samplers": "edkypmxt", "temperature": 0.8,
            "dynatemp_range": 0, "dynatemp_exponent": 1, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1,
            "xtc_probability": 0, "xtc_threshold": 0.1, "repeat_last_n": 64, "repeat_penalty": 1,
            "presence_penalty": 0, "frequency_penalty": 0, "dry_multiplier": 0, "dry_base": 1.75,
            "dry_allowed_length": 2, "dry_penalty_last_n": -1, "max_tokens": -1,
            "timings_per_token": False}  # fmt: skip
    assert able.ask("POST", CHAT, edit).record["choices"][0]["message"]["content"] == "x = 1\n"


def test_llama_vim_gets_the_fields_that_it_names_and_warms_a_chat(able: Served) -> None:
    """The bodies of autoload/llama.vim; llama.vscode also sends ``n_cmpl``, and ``lora`` where one is set."""
    hole = {"id_slot": 0, "input_prefix": "a\n", "input_suffix": "\nb", "input_extra": [], "prompt": "x",
            "n_predict": 64, "stop": [], "n_indent": 0, "top_k": 40, "top_p": 0.9,
            "samplers": ["top_k", "top_p", "infill"],
            "stream": False, "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 1000}  # fmt: skip
    fields = ["content", "timings/prompt_n", "truncated", "tokens_cached", "sce/verdict"]
    filled = able.ask("POST", INFILL, {**hole, "response_fields": fields}).record
    assert filled == {"content": "x = 1\n", "truncated": False, "sce/verdict": filled["sce/verdict"]}
    warmed = able.ask("POST", INFILL, {**hole, "n_predict": 0, "samplers": [], "response_fields": [""]})
    assert (warmed.status, warmed.record) == (200, {})
    several = able.ask("POST", INFILL, {**hole, "n_cmpl": 3, "lora": [{"id": 0, "scale": 0.5}]}).record
    assert (several["content"], len(several["choices"])) == ("x = 1\n", 3)
    messages = [{"role": "user", "content": "Edit."}]
    chat = {"id_slot": 1, "messages": messages, "samplers": [], "n_predict": 0, "stream": False, "cache_prompt": True}
    warmed = able.ask("POST", CHAT, {**chat, "response_fields": [""]})
    assert warmed.record["choices"][0]["message"]["content"] == ""
    assert able.ask("POST", INFILL, {**hole, "response_fields": [1]}).status == 400


def test_lm_eval_gets_generations_and_likelihoods(able: Served) -> None:
    """The bodies of lm_eval/models/openai_completions.py, local-completions, with its default of token ids."""
    stops = ["\nclass", "\ndef", "\n#", "\nif", "\nprint", "<eos>"]
    generate = {
        "prompt": [[97, 98], [99]],
        "model": "echo",
        "max_tokens": 64,
        "temperature": 0,
        "stop": stops,
        "seed": 1234,
    }
    answer = able.ask("POST", TEXT, generate)
    assert [choice["text"] for choice in answer.record["choices"]] == ["x = 1\n"] * 2
    score = {"model": "echo", "prompt": [[97, 98]], "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True}
    record = able.ask("POST", TEXT, score).record
    assert set(record["choices"][0]["logprobs"]) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    (task,) = [task for task in able.runtime.tasks if task.extras.reports_prompt]  # type: ignore[attr-defined]
    assert (task.prompt, task.extras.alternatives) == ((97, 98), 1)


def test_open_webui_gets_chats_and_titles(able: Served) -> None:
    """What its front end sends, and its request for a title."""
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}]
    body = {"model": "echo", "messages": messages, "stream": True, "stream_options": {"include_usage": True},
            "params": None, "chat_id": "1", "session_id": "2", "id": "3", "keep_alive": "5m", "options": {},
            "features": {}, "variables": {}, "tool_ids": [], "files": [], "filter_ids": [], "tool_servers": [],
            "background_tasks": {"title_generation": True}, "metadata": {}}  # fmt: skip
    answer = able.ask("POST", CHAT, body)
    assert (answer.status, answer.events[-1]) == (200, "[DONE]")
    title = {"model": "echo", "messages": messages, "stream": False, "max_completion_tokens": 1000}
    assert able.ask("POST", CHAT, title).headers["x-sce-max-tokens"] == "64"


def test_aider_gets_its_conversation(able: Served) -> None:
    """The shape of a request of its whole-file edits: examples as turns, and the system prompt again at the end."""
    turns = [("system", "Act as an expert."), ("user", "Change it."), ("assistant", "Ok."), ("user", "I switched."),
             ("assistant", "Ok."), ("user", "Double it."), ("system", "Only whole files.")]  # fmt: skip
    body = {"model": "echo", "messages": [{"role": role, "content": text} for role, text in turns], "stream": True,
            "temperature": 0}  # fmt: skip
    answer = able.ask("POST", CHAT, body)
    assert (answer.status, answer.events[-1]) == (200, "[DONE]")
    prompt = able.runtime.tasks[-1].prompt  # type: ignore[attr-defined]
    assert prompt == "".join(f"[{role}]{text}" for role, text in turns)
