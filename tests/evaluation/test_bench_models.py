"""`sce bench` with real models and files: what is measured, and that a dead child changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from cli_runs import run_sce
from exports import export_gguf
from fake_runtime import problem

from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.runtimes.gguf.runtime import GgufRuntime
from securecoderl_edge.sandbox.calibration import CALIBRATION_FILE

pytestmark = pytest.mark.usefixtures("one_sandbox", "known_references")


def run(*args: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``sce bench``."""
    return run_sce("bench", *args)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with six problems."""
    monkeypatch.chdir(tmp_path)
    write_problems(tmp_path / "six.jsonl", [problem(number) for number in range(6)])
    return tmp_path


def test_a_real_gguf_file_is_measured(tiny_gguf: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = (str(tiny_gguf), "--problems", "six.jsonl", "--max-tokens", "8", "--threads", "1", "--json")
    code, out, err = run(*args)
    assert code == 0, err
    model = json.loads(out)["models"][0]
    assert model["samples"] == sum(model["stages"]) == 6
    assert model["decode_tokens_per_second"] > 0
    assert model["peak_rss_bytes"] > 0
    assert model["file_bytes"] == tiny_gguf.stat().st_size


def test_a_real_hugging_face_folder_is_measured(tiny_model: Path, folder: Path) -> None:
    args = (str(tiny_model), "--problems", "six.jsonl", "--max-tokens", "8", "--threads", "1", "--json")
    code, out, err = run(*args)
    assert code == 0, err
    model = json.loads(out)["models"][0]
    assert model["samples"] == 6
    assert model["first_token_seconds_p50"] > 0


@pytest.mark.slow
def test_a_killed_child_changes_no_figure(tiny_gguf: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = (
        str(tiny_gguf),
        "--problems",
        "six.jsonl",
        "--samples",
        "20",
        "--max-tokens",
        "12",
        "--threads",
        "1",
        "--json",
    )
    timing = {"prompt_tokens_per_second", "decode_tokens_per_second", "peak_rss_bytes"}

    def quality(text: str) -> dict[str, Any]:
        model = json.loads(text)["models"][0]
        return {name: value for name, value in model.items() if name not in timing and "seconds" not in name}

    _, expected, _ = run(*args, "--out", "whole")
    deaths = []
    serve = GgufRuntime._serve

    def die_in_the_middle(
        self: GgufRuntime, prompts: Any, keys: Any, sampling: Any, facts: Any, part: Any, finished: Any, streamed: Any
    ) -> None:
        if not finished:  # the first try of each batch: after its first completion, whatever else was sent is lost
            receive = self._child.receive

            def receive_one() -> dict[str, Any]:
                answer = receive()
                if finished:
                    os.kill(self.process_id, signal.SIGKILL)
                    deaths.append(self.process_id)
                    while True:
                        receive()
                return answer

            self._child.receive = receive_one  # type: ignore[method-assign]
        serve(self, prompts, keys, sampling, facts, part, finished, streamed)

    monkeypatch.setattr(GgufRuntime, "_serve", die_in_the_middle)
    # Beside other work the second bench might find the processor slower; the log is named after the time limits too.
    (folder / "killed").mkdir()
    shutil.copy(folder / "whole" / CALIBRATION_FILE, folder / "killed")
    code, found, err = run(*args, "--out", "killed")
    assert code == 0, err
    assert deaths
    assert quality(found) == quality(expected)
    assert completions(folder / "killed") == completions(folder / "whole")


def completions(out: Path) -> list[str]:
    (rows,) = out.glob("*/rows.jsonl")
    return [json.loads(line)["completion"] for line in rows.read_text().splitlines()]


def test_what_the_file_and_the_machine_are_is_in_the_record(tiny_model: Path, folder: Path) -> None:
    pytest.importorskip("llama_cpp")
    export_gguf(tiny_model, None, "q8_0", folder / "m.gguf", force=False)
    flags = ("--problems", "six.jsonl", "--max-tokens", "8", "--threads", "1", "--parallel", "auto")
    code, out, err = run("m.gguf", *flags, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["time_factor"] >= 1
    assert {"cpu", "load_average", "cores"} <= document["machine"].keys()
    assert document["settings"]["parallel"] is None
    model = document["models"][0]
    assert 8 < model["bits_per_weight"] < 10
    for name in ("first_token_seconds", "between_tokens_seconds"):
        assert 0 < model[f"{name}_p50"] <= model[f"{name}_p90"] <= model[f"{name}_p99"]
    content = bytearray((folder / "m.gguf").read_bytes())
    content[-50] ^= 1
    (folder / "m.gguf").write_bytes(content)
    code, _, err = run("m.gguf", *flags)
    assert (code, "m.gguf has changed since its export" in err) == (1, True)
