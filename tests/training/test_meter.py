"""What training says of its stages: true counts, and no effect on what is trained."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from small_runs import PHASES, rows, settings_maker, untimed, write_additions

from securecoderl_edge.runs import Run
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import meter as meters
from securecoderl_edge.training.update.meter import PROGRAMS, TOKENS, Meter, Stage


def test_a_meter_tells_beginnings_at_once_and_counts_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Stage] = []
    meter = Meter(told.append)
    with meter.within("held-out evaluation"):
        meter.begin("sampling", 8)
        for _ in range(5):
            meter.advance()
    meter.begin("learning", 100)
    assert told == [Stage("held-out evaluation: sampling", 0, 8), Stage("learning", 0, 100)]
    monkeypatch.setattr(meters, "_SECONDS_BETWEEN", 0.0)
    meter.advance(40)
    assert told[-1] == Stage("learning", 40, 100)


def test_tokens_that_will_not_come_leave_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "_SECONDS_BETWEEN", 0.0)
    told: list[Stage] = []
    meter = Meter(told.append)
    meter.begin("sampling", 20)
    count = meter.counting(10, frozenset({0}))
    # One completion ends with its third token, the other has the maximum length.
    assert not any(count(0, 0, token) for token in (5, 5, 0))
    assert not any(count(0, 1, 5) for _ in range(10))
    assert told[-1] == Stage("sampling", 13, 13)


@pytest.fixture(scope="module")
def settings(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., object]:
    problems = write_additions(tmp_path_factory.mktemp("problems") / "problems.jsonl")
    return settings_maker(tiny_model, problems, PHASES)


def test_a_training_names_its_stages_with_true_counts_and_trains_the_same(
    settings: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "_SECONDS_BETWEEN", 0.0)
    told: list[Stage] = []
    config = settings("binary.steps=1", "sft.steps=1", phases=("sft", "binary"))
    watched = train(config, tmp_path / "a" / "run", on_stage=told.append)  # type: ignore[arg-type]
    names = [name for name, _ in groupby(told, key=lambda stage: stage.name)]
    assert names == [
        "loading the model",
        *("held-out evaluation: sampling", "held-out evaluation: scoring", "saving a checkpoint"),
        "learning",
        *("held-out evaluation: sampling", "held-out evaluation: scoring", "saving a checkpoint"),
        *("held-out evaluation: sampling", "held-out evaluation: scoring", "saving a checkpoint"),
        *("sampling", "scoring", "log-probabilities", "learning"),
        *("held-out evaluation: sampling", "held-out evaluation: scoring", "saving a checkpoint"),
    ]
    last = {stage.name: stage for stage in told}  # of the phase binary, whose tokens its row has
    row = rows(watched)[-1]
    for name in ("sampling", "learning"):
        assert last[name] == Stage(name, row["tokens"], row["tokens"], TOKENS)
    assert last["log-probabilities"].done == 2 * row["tokens"]  # of the policy and its reference
    assert last["scoring"] == Stage("scoring", 8, 8, PROGRAMS)
    assert all(0 <= stage.done <= stage.total for stage in told)
    assert untimed(watched) == untimed(train(config, tmp_path / "b" / "run"))  # type: ignore[arg-type]


def test_samples_keep_the_first_held_out_problems_of_each_evaluation_with_their_statements(
    settings: Callable[..., object], tmp_path: Path
) -> None:
    config = settings("sft.steps=2", "selection.every=1", phases=("sft",))
    run: Run = train(config, tmp_path / "run")  # type: ignore[arg-type]
    kept = rows(run, "samples.jsonl")
    assert [row["step"] for row in kept] == [0, 0, 1, 1, 2, 2]
    assert all(row["held_out"] and row["statement"].startswith("Read n.") for row in kept)
    assert len({row["id"] for row in kept}) == 2
