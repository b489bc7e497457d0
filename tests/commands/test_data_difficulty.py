"""``sce data difficulty``: its file, that it resumes, and what it refuses; with a runtime that needs no model."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from cli_runs import run_sce
from fake_runtime import RIGHT, WRONG, FakeRuntime, always, problem

from securecoderl_edge.problems.difficulty import read_difficulty
from securecoderl_edge.problems.problem_file import problem_digest, write_problems
from securecoderl_edge.runtimes.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("one_sandbox")


def by_sample(prompt: str, sample: int, _rng: random.Random) -> str:
    """Of problem N, the first N completions are right."""
    return RIGHT if sample < int(prompt.partition("(")[2].partition(")")[0]) else WRONG


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with ten problems, and a file that passes for a model."""
    monkeypatch.chdir(tmp_path)
    write_problems(tmp_path / "ten.jsonl", [problem(number) for number in range(10)])
    (tmp_path / "model.gguf").write_text("GGUF model")
    return tmp_path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[FakeRuntime]:
    """What was opened, in order; the first one is interrupted after 64 completions."""
    found: list[FakeRuntime] = []

    def open_fake(spec: ModelSpec, **options: object) -> FakeRuntime:
        found.append(FakeRuntime(by_sample, fail_after=None if found else 64))
        return found[-1]

    monkeypatch.setattr("securecoderl_edge.runtimes.opening.open_runtime", open_fake)
    return found


def test_an_interrupted_measurement_resumes_and_ends_as_an_uninterrupted_one(
    folder: Path, opened: list[FakeRuntime]
) -> None:
    command = ("data", "difficulty", "ten.jsonl", "--model", "model.gguf")
    assert run_sce(*command)[0] == 130
    assert not (folder / "ten-difficulty.jsonl").exists()
    code, out, err = run_sce(*command)
    assert code == 0
    assert [call[0] for call in opened[0].calls] == [80]
    assert [call[0] for call in opened[1].calls] == [16]
    found = read_difficulty(folder / "ten-difficulty.jsonl")
    assert [each.passed for each in found.values()] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]
    assert {each.samples for each in found.values()} == {8}
    assert found["p3"].problem_hash == problem_digest(problem(3))
    assert found["p3"].pass_rate == 3 / 8
    assert out.splitlines()[-1] == "8 of 8 completions pass: 2 problems"
    assert "next: sce train --problems ten.jsonl --set sampling.difficulty=ten-difficulty.jsonl" in err


def test_it_samples_as_the_flags_say_and_prints_rates_as_json(folder: Path, opened: list[FakeRuntime]) -> None:
    opened.append(FakeRuntime(always(RIGHT)))  # none is interrupted
    words = ("--samples", "4", "--temperature", "0.8", "--max-tokens", "99", "--out", "rates.jsonl", "--json")
    code, out, _ = run_sce("data", "difficulty", "ten.jsonl", "-m", "model.gguf", *words)
    assert code == 0
    assert json.loads(out) == {f"p{number}": min(number, 4) / 4 for number in range(10)}
    assert [(call[0], call[1].temperature, call[1].max_tokens) for call in opened[1].calls] == [(40, 0.8, 99)]
    assert len(read_difficulty(folder / "rates.jsonl")) == 10


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("ten.jsonl", "--out", "ten.jsonl"), "ten.jsonl is also an input file. Choose another output file."),
        (
            ("ten.jsonl", "--out", "notes.txt"),
            "notes.txt exists, and is not a file of pass rates.",
        ),
        (("none.jsonl",), "none.jsonl: no such file, and not a built-in set"),
    ],
)
def test_files_that_are_something_else_are_left_alone(
    folder: Path, opened: list[FakeRuntime], words: tuple[str, ...], sentence: str
) -> None:
    (folder / "notes.txt").write_text("precious")
    before = (folder / "ten.jsonl").read_bytes()
    code, _, err = run_sce("data", "difficulty", *words, "--model", "model.gguf")
    assert code == 2
    assert sentence in err
    assert opened == []
    assert (folder / "ten.jsonl").read_bytes() == before
    assert (folder / "notes.txt").read_text() == "precious"
