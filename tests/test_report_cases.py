"""Inputs modelled on bug reports of graders and harnesses: each folder has its ``want.md`` and its command.

``../shared/cases/reports`` is for developers only. Their kinds have tests of further members next to what they test.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from cli_runs import run_sce
from places import ROOT

from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.runtimes.opening import RuntimeSettings, check_runtime
from securecoderl_edge.runtimes.spec import ModelSpec
from securecoderl_edge.scoring.scorer import Scorer

REPORTS = ROOT.parent / "shared" / "cases" / "reports"
CASES = sorted(folder.name for folder in REPORTS.glob("*") if (folder / "want.md").is_file())
ABOUT_SERVE = [name for name in CASES if "-serve-" in name]
ABOUT_GGUF = [name for name in CASES if "-gguf-" in name]
COMMANDS = [name for name in CASES if name not in (*ABOUT_SERVE, *ABOUT_GGUF)]

pytestmark = pytest.mark.skipif(not CASES, reason="no ../shared/cases/reports next to this checkout")


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a folder, which is the working directory."""
    shutil.copytree(REPORTS / request.param, tmp_path / "case")
    monkeypatch.chdir(tmp_path / "case")
    return tmp_path / "case"


def commands(folder: Path) -> Iterator[list[str]]:
    """The commands of sce in a folder, without what a shell does with their output."""
    for line in (folder / "cmd.sh").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            for command in line.removesuffix("2>/dev/null").split("&&"):
                sce, *arguments = shlex.split(command)
                assert sce == "$SCE"
                yield arguments


@pytest.mark.parametrize("case", COMMANDS, indirect=True)
def test_a_command_passes_as_its_case_wants(case: Path, scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    # Starting a sandbox for each command would take longer than the command.
    monkeypatch.setattr("securecoderl_edge.scoring.cluster_scorer.open_scorer", lambda *_, **__: nullcontext(scorer))
    want = (case / "want.md").read_text(encoding="utf-8")
    assert "pass" in want.split("\n", 1)[0]
    for arguments in commands(case):
        code, out, err = run_sce(*arguments)
        assert code == 0, (arguments, out, err)
        if "--completions" in arguments:
            scores = [json.loads(line) for line in out.splitlines()]
            assert len(scores) == len((case / "completion.jsonl").read_text(encoding="utf-8").splitlines())
            assert [score["verdicts"] for score in scores] == [["pass"] * score["total"] for score in scores], want
        elif arguments[:2] == ["data", "check"]:
            assert "1 of 1 problems pass, 0 fail" in out + err, want
        elif arguments[0] == "score":
            assert out.startswith("passes: "), want
        else:
            assert "wrote 1 to" in out + err, want


@pytest.mark.parametrize("case", ABOUT_SERVE, indirect=True)
@pytest.mark.parametrize("is_chat_model", [False, True])
def test_a_request_is_answered_as_its_case_wants(case: Path, is_chat_model: bool, scorer: Scorer) -> None:
    pytest.importorskip("uvicorn", reason="needs the serve extra")
    from served import CHAT, TEXT, EchoRuntime, serving

    want = (case / "want.md").read_text(encoding="utf-8")
    assert "Status 200" in want or "The model gets the messages as they are" in want
    template = ChatTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    format = PromptFormat("chat", template) if is_chat_model else PromptFormat()
    path = CHAT if CHAT in (case / "cmd.sh").read_text(encoding="utf-8") else TEXT
    request = json.loads((case / "request.json").read_text(encoding="utf-8"))
    prompts: list[str] = []
    runtime = EchoRuntime(lambda task: prompts.append(task.prompt) or "print(1)\n")  # type: ignore[func-returns-value]
    with serving(scorer, runtime, format=format) as served:
        answer = served.ask("POST", path, request)
    assert answer.status == 200, (want, answer.body)
    if is_chat_model and path == CHAT:
        assert all(f"]{message['content']}" in prompts[0] for message in request["messages"]), want
        assert "standard input" not in prompts[0], want


@pytest.mark.parametrize("case", ABOUT_GGUF, indirect=True)
def test_a_gguf_file_without_a_pre_tokenizer_is_told_of(case: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="needs the gguf extra")
    assert "the file names no pre-tokenizer" in (case / "want.md").read_text(encoding="utf-8")
    for model, name, is_told in (
        ("gpt2", None, True),
        ("gpt2", "", True),
        ("gpt2", "qwen2", False),
        ("llama", None, False),
    ):
        writer = gguf.GGUFWriter(case / "m.gguf", "llama")
        writer.add_tokenizer_model(model)
        writer.add_token_list([b"a", b"b"])
        if name is not None:
            writer.add_key_value("tokenizer.ggml.pre", name, gguf.GGUFValueType.STRING)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        told: list[str] = []
        check_runtime([ModelSpec("m.gguf", "gguf", str(case / "m.gguf"))], RuntimeSettings("cpu"), told.append)
        assert len(told) == is_told
        assert all("does not name a pre-tokenizer, so a default rule splits texts" in line for line in told)
