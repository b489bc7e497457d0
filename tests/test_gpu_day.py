"""The day on a GPU: a step that fails, is missing or is interrupted costs no other, and nothing is measured twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

pytest.importorskip("torch", reason="needs the train extra")

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu_day

    return gpu_day


@pytest.fixture
def run(day: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs a day of the given measurements, each a step of two parts; returns the steps of its record."""

    def call(*words: str, **measures: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        def step(name: str) -> Any:
            def parts(_: Any) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
                yield from (("one", measures[name]), ("two", lambda: {"seconds": 1}))

            return day.Step(name, 60, parts)

        out = tmp_path / "day.json"
        monkeypatch.setattr(day, "STEPS", tuple(map(step, measures)))
        monkeypatch.setattr(day, "name_of_device", lambda day: "a GPU")
        monkeypatch.setattr(sys, "argv", ["gpu_day.py", "--out", str(out), *words])
        day.main()
        return dict(json.loads(out.read_text())["steps"]) if out.exists() else {}

    return call


def never() -> dict[str, Any]:
    raise AssertionError("was measured again")


def test_a_part_that_fails_is_recorded_and_the_rest_of_the_day_runs(
    day: Any, run: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> dict[str, Any]:
        return {"said": day_child("raise SystemExit('the kernel is missing')")}

    def day_child(code: str) -> str:
        import gpu_day_steps

        return str(gpu_day_steps.child(gpu_day_steps.Day(Path.cwd(), True), "-c", code))

    found = run(first=fail, second=lambda: {"seconds": 2})
    assert found["first"]["one"]["error"] == "the kernel is missing"
    assert (found["first"]["two"]["seconds"], found["second"]["one"]["seconds"]) == (1, 2)
    assert "FAILED  the kernel is missing" in capsys.readouterr().out


def test_only_what_failed_is_measured_again(day: Any, run: Callable[..., dict[str, Any]]) -> None:
    def fail() -> dict[str, Any]:
        raise day.Failed("no")

    def skip() -> dict[str, Any]:
        raise day.Skipped("the package is missing")

    run(done=lambda: {"seconds": 2}, failing=fail, skipped=skip)
    found = run(done=never, failing=lambda: {"seconds": 3}, skipped=never)
    assert found["failing"]["one"]["seconds"] == 3
    assert found["skipped"]["one"]["skipped"] == "the package is missing"


def test_an_interrupted_step_keeps_its_finished_parts(run: Callable[..., dict[str, Any]]) -> None:
    def interrupt() -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(first=lambda: {"seconds": 2}, second=interrupt)
    found = run(first=never, second=lambda: {"seconds": 3})
    assert found["second"]["one"]["seconds"] == 3


def test_no_step_begins_that_does_not_fit_into_the_minutes(run: Callable[..., dict[str, Any]]) -> None:
    assert run("--minutes", "0.5", first=never) == {}


def test_only_the_named_steps_run(run: Callable[..., dict[str, Any]]) -> None:
    assert set(run("--only", "second", first=never, second=dict)) == {"second"}


def test_results_of_another_device_are_not_added_to(
    day: Any, run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(first=dict)
    with pytest.raises(SystemExit, match="has results of a GPU"):
        run("--rehearse", first=dict)


def test_a_rehearsal_writes_elsewhere_than_a_day_on_a_gpu(
    day: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(day, "REHEARSED", tmp_path / "runs" / "rehearsal.json")

    def out_of(*words: str) -> Path:
        monkeypatch.setattr(sys, "argv", ["gpu_day.py", *words])
        return Path(day.parse().out)

    assert out_of() == day.OUT
    assert out_of("--rehearse") == tmp_path / "runs" / "rehearsal.json"
    assert out_of("--rehearse", "--out", "mine.json") == Path("mine.json")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_rehearsal_does_every_step_on_a_cpu_and_a_second_one_nothing(tmp_path: Path) -> None:
    out = tmp_path / "rehearsal.json"
    command = [sys.executable, str(BENCHMARKS / "gpu_day.py"), "--rehearse", "--out", str(out)]
    first = subprocess.run(command, capture_output=True, text=True, timeout=1100)
    steps = json.loads(out.read_text())["steps"]
    failed = {step: found for step, parts in steps.items() for found in parts.values() if "error" in found}
    assert (first.returncode, failed) == (0, {}), first.stderr
    resumed = steps["kill"]["small model"]
    assert (resumed["policy_is_equal"], resumed["metrics_are_equal"]) == (True, True), resumed
    assert steps["team"]["two of one"]["policy_largest_difference"] < 0.01
    before = out.read_bytes()
    second = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert out.read_bytes() == before
    assert second.stdout.startswith("== CPU (rehearsal)")  # the table alone
