"""What the tests of `sce export` export: a model, and a run that has trained a policy for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_runs import run_sce
from tiny_models import build_adapter, build_model

from securecoderl_edge.runs import Run, mark_latest


def run(*args: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``sce export``."""
    return run_sce("export", *args)


def make_base(folder: Path) -> Path:
    """A model with a licence, wide enough for every type of llama.cpp's."""
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4}
    build_model(folder, initializer_range=0.1, **sizes)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\ntags: [x]\n---\n# Mine\n")
    return folder


def make_run(made: Path, base: Path) -> None:
    """The run ``mine`` with a policy and two evaluations of its only phase; the latest of its folder."""
    build_adapter(made / "policy", base)
    (made / "environment.json").write_text(
        json.dumps({"base_model": str(base), "problems_sha256": "f" * 64, "machine": {"cpu": "A processor"}})
    )
    (made / "config.toml").write_text(
        'problems = "mine.jsonl"\nphases = ["sft"]\nseed = 7\n[prompt]\nstyle = "paper"\n[selection]\nsamples = 2\n'
    )
    phase = made / "phases" / "1-sft"
    shutil.copytree(made / "policy", phase / "adapter")
    (phase / "adapter" / "done.json").write_text(json.dumps({"chosen_step": 4, "steps": 9}))
    rows = [{"phase": "sft", "step": step, "rewards": [0.5, 1.0, 1.0, 1.0]} for step in (0, 4)]
    (phase / "evaluations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    mark_latest(Run(made))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: Path) -> Path:
    """A working folder with a run that has a policy and two evaluations of its only phase."""
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/mine"), base)
    return tmp_path


def names(folder: Path) -> set[str]:
    """Of the files in a folder."""
    return {path.name for path in folder.iterdir()}
