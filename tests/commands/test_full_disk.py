"""A disk that fills while a command writes: one sentence, which names the file.

A limit on the size of files stands in for the full disk: the kernel refuses the write in the same place.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from quick import few

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems

# The files that a command writes before its result are smaller, and so are the memory files of the sandbox.
SMALL, MEDIUM = 1000, 20_000
SENTENCE = "File too large"

COMMANDS = {
    "score": (SMALL, "scores.jsonl", ("score", "--problems", "problems.jsonl", "--completions", "completions.jsonl",
                                      "--out", "scores.jsonl", "--workers", "1")),
    "data import": (SMALL, "imported.jsonl", ("data", "import", "problems.jsonl", "--out", "imported.jsonl")),
    "data check": (SMALL, "checked.jsonl", ("data", "check", "problems.jsonl", "--out", "checked.jsonl",
                                            "--workers", "1")),
    "data split": (SMALL, "t.jsonl", ("data", "split", "others.jsonl", "--train-out", "t.jsonl", "--eval-out",
                                      "e.jsonl", "--eval", "2")),
    "data leaks": (SMALL, "other.jsonl", ("data", "leaks", "problems.jsonl", "others.jsonl", "--out", "other.jsonl")),
    "data new": (20, "new.jsonl", ("data", "new", "new.jsonl")),
    "config": (5, "config.toml", ("config", "set", "generate.max-tokens", "512")),
    "bench": (SMALL, "out/", ("bench", "nano", "--problems", "starter:eval", "--limit", "2", "--samples", "1",
                              "--max-tokens", "3", "--out", "out")),
    "train": (SMALL, "run/", ("train", "--recipe", "starter", "--phases", "sft", "--set", "sft.steps=1", "--out",
                              "run")),
    "train, its checkpoints": (MEDIUM, "run/", ("train", "--recipe", "starter", "--phases", "sft", "--set",
                                                "sft.steps=1", "--out", "run")),
    "export": (MEDIUM, "m.gguf", ("export", "nano", "--out", "m.gguf", "--quant", "q8_0")),
    "export to ONNX": (MEDIUM, "m", ("export", "nano", "--format", "onnx", "--out", "m")),
}  # fmt: skip
QUICK = ("score", "data import", "data check", "data split", "data leaks", "data new", "config")


def run(folder: Path, limit: int, *words: str, stdout: int = subprocess.PIPE) -> tuple[int, str]:
    """Exit code and last line of standard error of a command that can write files of so many bytes."""
    unbuffered = os.environ.get("PYTHONUNBUFFERED", "")
    environment = {
        "PYTHONPATH": ":".join(sys.path),
        "PYTHONUNBUFFERED": unbuffered,
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        [sys.executable, "-B", "-m", "securecoderl_edge", *words],
        cwd=folder,
        env={
            **environment,
            "PYTHONPATH": ":".join(sys.path),
            "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", ""),
        },
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        # Not the hard limit, which programs in the sandbox are given.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)),
    )
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


def prepare(folder: Path) -> None:
    tests, solution = tuple(Test(f"{n}\n", f"{n + 1}\n") for n in range(1, 4)), "print(int(input()) + 1)\n"
    additions = [Problem(f"p{n}", f"Print one more. ({n})", tests=tests, solutions=(solution,)) for n in range(40)]
    write_problems(folder / "problems.jsonl", additions)
    words = "apple bridge cloud desk engine forest garden hammer island jacket kettle lantern"
    others = [Problem(each, f"{each * 2} {each * 3} {each * 4}.", tests=(Test("b", "a"),)) for each in words.split()]
    write_problems(folder / "others.jsonl", others)
    rows = [{"id": f"p{n}", "completion": "print(int(input()) + 1)"} for n in range(40)]
    (folder / "completions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", few(COMMANDS, *QUICK))
def test_the_error_of_a_full_disk_names_the_file(name: str, tmp_path: Path) -> None:
    limit, file, words = COMMANDS[name]
    if name not in QUICK:
        pytest.importorskip("torch", reason="needs the train extra")
    prepare(tmp_path)
    code, sentence = run(tmp_path, limit, *words)
    assert code == 1
    assert sentence.startswith("sce: "), sentence
    assert file in sentence
    assert SENTENCE in sentence
    assert list(tmp_path.rglob("*.tmp-*")) == []


def test_scores_that_no_longer_fit_are_resumed_when_there_is_space(tmp_path: Path) -> None:
    prepare(tmp_path)
    words = COMMANDS["score"][2]
    for limit in (SMALL, 3 * SMALL, resource.RLIM_INFINITY):
        code, _ = run(tmp_path, limit, *words)
    assert code == 0
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == sorted(f"p{n}" for n in range(40))


@pytest.mark.parametrize("words", [("--version",), ("models",), ("completion", "bash"), ("data", "--help")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_the_error_of_full_standard_output_names_it(
    words: tuple[str, ...], unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:
        code, sentence = run(tmp_path, resource.RLIM_INFINITY, *words, stdout=full.fileno())
    assert (code, sentence) == (1, "sce: standard output: No space left on device")
