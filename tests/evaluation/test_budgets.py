"""Budgets of an evaluation come from the runs of its models."""

from __future__ import annotations

from pathlib import Path

import pytest

from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.bench import BenchSettings, with_budgets
from securecoderl_edge.runtimes.spec import ModelSpec


def policy(folder: Path, config: str) -> ModelSpec:
    """The policy of a run with these settings."""
    adapter = folder / "policy"
    adapter.mkdir(parents=True)
    (folder / "environment.json").write_text('{"base_model": "nano"}')
    (folder / "config.toml").write_text(config)
    return ModelSpec(folder.name, "hf", "nano", adapter)


def test_a_run_decides_where_no_flag_does(tmp_path: Path) -> None:
    text = '[ppo]\nmax_tokens = 384\n[prompt]\nmax_tokens = 700\n[reward]\nextract = "raw"\n'
    spec, told = policy(tmp_path / "run", text), []  # type: ignore[var-annotated]
    found = with_budgets(BenchSettings(max_prompt_tokens=90), [spec], told.append)
    assert (found.max_tokens, found.max_prompt_tokens, found.extract) == (384, 90, "raw")
    assert told == [f"as in the training of {spec.run().path}: --max-tokens 384, --extract raw"]  # type: ignore[union-attr]


def test_an_export_in_a_run_belongs_to_it(tmp_path: Path) -> None:
    policy(tmp_path / "run", "[ppo]\nmax_tokens = 100\n")
    (tmp_path / "run" / "exports").mkdir()
    file = tmp_path / "run" / "exports" / "run-q8_0.gguf"
    file.write_text("GGUF")
    assert with_budgets(BenchSettings(), [ModelSpec("file", "gguf", str(file))]).max_tokens == 100


def test_of_different_runs_the_largest_lengths_count_for_all(tmp_path: Path) -> None:
    short = policy(tmp_path / "short", "[ppo]\nmax_tokens = 100\n[prompt]\nmax_tokens = 50\n")
    long = policy(tmp_path / "long", "[ppo]\nmax_tokens = 200\n")
    told: list[str] = []
    found = with_budgets(BenchSettings(), [short, long], told.append)
    assert told == [f"one budget for all, the largest of {tmp_path}/short, {tmp_path}/long: --max-tokens 200"]
    assert (found.max_tokens, found.max_prompt_tokens) == (200, None)


def test_runs_that_extract_differently_need_a_flag(tmp_path: Path) -> None:
    raw, auto = policy(tmp_path / "raw", '[reward]\nextract = "raw"\n'), policy(tmp_path / "auto", "")
    with pytest.raises(UsageError, match="--extract"):
        with_budgets(BenchSettings(), [raw, auto])
    assert with_budgets(BenchSettings(extract="auto"), [raw, auto]).extract == "auto"


def test_models_without_a_run_get_the_defaults_without_a_word() -> None:
    told: list[str] = []
    found = with_budgets(BenchSettings(), [ModelSpec("nano", "hf", "nano")], told.append)
    assert (found.max_tokens, found.max_prompt_tokens, found.extract, told) == (256, None, "auto", [])
