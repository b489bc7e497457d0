"""Curves that other programs draw: TensorBoard, trackio, W&B. Fake modules stand in for them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from securecoderl_edge.cli import sce
from securecoderl_edge.errors import SceError
from securecoderl_edge.runs import Run
from securecoderl_edge.training import curves
from securecoderl_edge.training.curves import TRACKERS, check_trackers, curves_of

ROWS = [
    {"phase": "sft", "step": 1, "steps": 1, "loss/sft": 2.0},
    {"phase": "binary", "step": 4, "steps": 9, "objective/kl": 0.5, "stages": {"crash": 1}, "secure_rate": None},
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial/environment.json").write_text('{"started": "today", "sessions": []}')
    return Run(tmp_path / "trial")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The packages that are installed, as far as this module asks; changed by tests."""
    names: set[str] = set()
    monkeypatch.setattr(curves, "find_spec", lambda name: object() if name in names else None)
    return names


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, installed: set[str]) -> dict[str, list[Any]]:
    """What a TensorBoard that is installed is given, by its folder."""
    found: dict[str, list[Any]] = {}

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            self.rows = found.setdefault(Path(folder).name, [purge_step])

        def add_scalar(self, name: str, value: float, step: int) -> None:
            self.rows.append((name, value, step))

        def close(self) -> None:
            self.rows.append("closed")

    fake = ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    installed.add("tensorboard")
    return found


class Tracker(ModuleType):
    """A fake trackio or W&B: all that is sent to it, and a fault that it may have."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.sent: list[Any] = []
        self.fault: Exception | None = None

    def Settings(self, **settings: Any) -> dict[str, Any]:
        return settings

    def init(self, **facts: Any) -> Tracker:
        print("a tracker says hello")
        self.sent.append(facts)
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        if self.fault:
            raise self.fault
        self.sent.append((step, values))

    def finish(self) -> None:
        self.sent.append("finished")


@pytest.fixture(params=TRACKERS)
def tracker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, installed: set[str]) -> Tracker:
    fake = Tracker(request.param)
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    installed.add(fake.__name__)
    return fake


def pass_on(run: Run, *trackers: str, enabled: bool = True) -> tuple[list[dict[str, Any]], list[str]]:
    """Log `ROWS`; the rows that come through, and what is said."""
    logged: list[dict[str, Any]] = []
    said: list[str] = []
    with curves_of(run, logged.append, trackers, said.append, enabled=enabled) as log:
        for row in ROWS:
            log(row)
    return logged, said


def test_numbers_go_to_tensorboard_by_phase_where_it_is_installed(run: Run, written: dict[str, list[Any]]) -> None:
    assert pass_on(run) == (ROWS, [])
    assert written == {
        "sft": [1, ("loss/sft", 2.0, 1), "closed"],
        "binary": [4, ("objective/kl", 0.5, 4), "closed"],
    }


def test_a_process_that_does_not_write_passes_nothing_on(
    run: Run, written: dict[str, list[Any]], tracker: Tracker
) -> None:
    with curves_of(run, ROWS.append, [tracker.__name__], enabled=False) as log:
        assert log == ROWS.append
    assert (written, tracker.sent) == ({}, [])


def test_a_tracker_that_nobody_asked_for_gets_nothing(run: Run, tracker: Tracker) -> None:
    assert pass_on(run) == (ROWS, [])
    assert tracker.sent == []


def test_a_tracker_gets_numbers_and_names_alone_with_one_run_per_phase(
    run: Run, tracker: Tracker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pass_on(run, tracker.__name__) == (ROWS, [])
    sft, first, done, binary, second, end = tracker.sent
    assert (first, second) == ((1, {"loss/sft": 2.0}), (4, {"objective/kl": 0.5}))
    assert (done, end) == ("finished", "finished")
    assert (sft["name"], binary["name"]) == ("trial-sft", "trial-binary")
    assert {"group", "project", "resume", "name"} <= sft.keys()
    assert sft.keys() <= {"group", "project", "resume", "name", "id", "dir", "settings"}
    assert "mode" not in sft  # so that WANDB_MODE decides
    assert capsys.readouterr().out == ""  # which is for data


def test_a_resumed_training_resumes_the_run_of_wandb(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Tracker("wandb")
    monkeypatch.setitem(sys.modules, "wandb", fake)
    pass_on(run, "wandb")
    (run.path / "environment.json").write_text('{"started": "today", "sessions": [1]}')
    pass_on(run, "wandb")
    ids = [each["id"] for each in fake.sent if isinstance(each, dict)]
    assert ids[:2] == ids[2:]
    assert len(set(ids)) == 2
    settings = next(each["settings"] for each in fake.sent if isinstance(each, dict))
    assert settings == {"console": "off", "disable_git": True, "disable_code": True, "save_code": False}


def test_training_goes_on_without_a_tracker_that_fails(run: Run, tracker: Tracker) -> None:
    tracker.fault = RuntimeError("no connection\nand more")
    logged, said = pass_on(run, tracker.__name__)
    assert logged == ROWS
    assert said == [f"{tracker.__name__} failed, so its curves end here: no connection"]


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_one_sentence_before_any_work(name: str, installed: set[str], tmp_path: Path) -> None:
    check_trackers([])
    with pytest.raises(SceError, match=f"^{name} is not installed.*pip install {name}$"):
        check_trackers([name])
    if find_spec(name) is None:
        failed = CliRunner().invoke(sce, ["train", "--track", name, "--out", str(tmp_path / "run")]).exception
        assert "is not installed" in str(failed)
        assert not (tmp_path / "run").exists()
