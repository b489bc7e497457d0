"""Time limits that mean the same work on a slow processor."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from securecoderl_edge.errors import SceError
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.sandbox.calibration import CALIBRATION_FILE, REFERENCE_SECONDS, factor_for, time_factor
from securecoderl_edge.scoring.scorer import Scorer

# About half a second of work; sleeping would not be counted.
BUSY = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end:\n    pass\nprint(1)\n"


@pytest.mark.parametrize(
    ("slowness", "factor"), [(0.2, 1.0), (1.0, 1.0), (1.19, 1.0), (1.3, 1.414), (2.0, 2.0), (2.5, 2.828), (9.0, 8.0)]
)
def test_factors_are_coarse_and_never_below_one(slowness: float, factor: float) -> None:
    assert factor_for(slowness * REFERENCE_SECONDS) == factor


def test_this_processor_has_a_factor() -> None:
    assert time_factor() >= 1


@pytest.fixture
def varied_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the processor finds it twice as slow as the one before."""
    seconds = (REFERENCE_SECONDS * 2.0**look for look in itertools.count())
    monkeypatch.setattr("securecoderl_edge.sandbox.calibration._TRIES", 1)
    monkeypatch.setattr("securecoderl_edge.sandbox.calibration._seconds", lambda: next(seconds))


@pytest.mark.usefixtures("varied_speed")
def test_a_folder_keeps_its_factor_on_the_same_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [time_factor(tmp_path / name) for name in ("a", "b", "a", "b")] == [1, 2, 1, 2]
    monkeypatch.setattr("securecoderl_edge.sandbox.calibration.cpu_model", lambda: "another")
    assert [time_factor(tmp_path / "a"), time_factor(tmp_path / "a")] == [4, 4]
    monkeypatch.undo()
    assert time_factor(tmp_path / "a") == 1


@pytest.mark.parametrize("content", ["[1]", "{", '{"cpu": 0.5}', '{"cpu": "2"}', '{"cpu": true}', '{"cpu": NaN}'])
def test_a_factor_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setattr("securecoderl_edge.sandbox.calibration.cpu_model", lambda: "cpu")
    (tmp_path / CALIBRATION_FILE).write_text(content)
    with pytest.raises(SceError, match=CALIBRATION_FILE):
        time_factor(tmp_path)


def test_all_time_limits_are_multiplied() -> None:
    limits = Limits(cpu_seconds=0.25, wall_seconds=5)
    problems = [Problem("p", "", tests=(Test("", "1"),), time_limit_s=limit) for limit in (None, 0.25)]
    for factor, verdict in ((1.0, "timeout"), (8.0, "pass")):
        with Scorer(1, limits, time_factor=factor) as scorer:
            scores = [scorer.score(problem, BUSY) for problem in problems]
        assert [score.verdicts for score in scores] == [(verdict,)] * 2
        assert scores[0].limits["cpu_seconds"] == 0.25 * factor


def test_limits_stay_within_what_clocks_can_count() -> None:
    assert Limits(wall_seconds=80_000).slower(10).wall_seconds == 86_400
