"""The readiness report: its estimates against slow counting, and that training is the same with and without it."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from click.testing import CliRunner
from quick import few
from small_runs import equal, rows, write_additions

from securecoderl_edge.cli import sce
from securecoderl_edge.runs import Run
from securecoderl_edge.training import readiness
from securecoderl_edge.training import train as train_module
from securecoderl_edge.training.measured_plan import measure_plan
from securecoderl_edge.training.phase import Stopped
from securecoderl_edge.training.readiness import (
    Readiness,
    band_of,
    expected_updates,
    read_readiness,
    zero_variance_rate,
)
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import rollout

TIMES = ("seconds", "seconds_sample", "seconds_score", "seconds_update", "tokens_per_second", "peak_rss_mib")
FEW = ("readiness_problems=3", "sft.steps=1", "binary.steps=2", "selection.problems=0")


def found(*passed: int, **changes: Any) -> Readiness:
    """A report on one problem for each count of completions that passed, of 8."""
    failed = 8 * len(passed) - sum(passed)
    usual = Readiness("binary", "the base model", "k", 8, passed, (0, 0, 0, failed, sum(passed)), 0.0, 0.5, 4, 4, 1.0)
    return replace(usual, **changes)


def untimed(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows(run)]


@pytest.mark.parametrize(("rate", "band"), [(0.0, 0), (0.0099, 0), (0.01, 1), (0.0499, 1), (0.05, 2), (1.0, 2)])
def test_a_band_begins_where_the_one_before_ends(rate: float, band: int) -> None:
    assert band_of(rate) == band


def test_the_advice_follows_the_band_of_pass_at_1_and_names_the_bands_that_the_interval_reaches() -> None:
    never, rarely, often = found(*[0] * 32), found(1, *[0] * 3, 1, *[0] * 3), found(*[4, 5] * 16)
    assert "pass@1 is below 1 %: RL would rarely see" in never.advice()
    assert "train SFT longer (sft.steps)" in never.advice()
    assert (
        "from the band 'below 1 %' to '5 % or more': more problems (--readiness-problems) narrow it" in never.advice()
    )
    assert "pass@1 is from 1 to 5 %: use larger groups" in rarely.advice()
    assert often.advice() == "pass@1 is 5 % or more: ready for RL"
    assert "most groups give no gradient: use harder problems" in replace(often, zero_variance=0.9).advice()
    certain = found(*[0] * 1000)
    assert "interval" not in certain.advice()
    assert certain.pass_at(1).high < 0.01


@pytest.mark.parametrize(("passed", "group", "prompts"), [((1, 0, 0, 3), 4, 2), ((8, 0), 8, 1), ((2, 5, 0), 1, 3)])
def test_the_first_pass_is_expected_as_a_slow_count_of_all_groups_says(
    passed: tuple[int, ...], group: int, prompts: int
) -> None:
    solved = []
    for count in passed:
        outcomes = [number < count for number in range(8)]
        groups = list(combinations(outcomes, group))
        solved.append(sum(map(any, groups)) / len(groups))
    expected = 1 / (1 - (1 - statistics.fmean(solved)) ** prompts)
    first = found(*passed, group=group, prompts=prompts).updates_to_pass()
    assert first.value == pytest.approx(expected)
    assert 1 <= first.low <= first.value <= first.high


@pytest.mark.parametrize(("rates", "prompts", "group"), [((0.0, 0.01, 0.1), 2, 4), ((0.002, 0.0), 8, 8)])
def test_the_expected_updates_are_the_mean_of_simulated_runs(
    rates: tuple[float, ...], prompts: int, group: int
) -> None:
    numbers = random.Random(1)
    counts = []
    for _ in range(3000):
        count = 1
        while not any(numbers.random() < rate for rate in numbers.choices(rates, k=prompts) for _ in range(group)):
            count += 1
        counts.append(count)
    solved = statistics.fmean(1 - (1 - rate) ** group for rate in rates)
    error = statistics.stdev(counts) / math.sqrt(len(counts))
    assert abs(expected_updates(solved, prompts) - statistics.fmean(counts)) < 4 * error


def test_variants_of_a_task_widen_the_interval_and_are_one_in_the_rule_of_three() -> None:
    passed = (8, 8, 8, 8, 0, 0, 0, 0) * 4
    alone, variants = found(*passed), found(*passed, groups=tuple(f"g{n // 4}" for n in range(32)))
    narrow, wide = (each.pass_at(1) for each in (alone, variants))
    assert wide.value == narrow.value == 0.5
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
    assert variants.facts()["readiness"].startswith("32 problems in 8 groups x 8")
    assert alone.facts()["readiness"].startswith("32 problems x 8")
    never = found(*[0] * 32, groups=tuple(f"g{n // 4}" for n in range(32)))
    assert never.updates_to_pass().low == found(*[0] * 8).updates_to_pass().low


def test_without_a_pass_only_the_least_number_of_updates_is_known() -> None:
    first = found(*[0] * 30, prompts=5).updates_to_pass()
    assert (first.value, first.high) == (math.inf, math.inf)
    assert first.low == pytest.approx(1 / (1 - 0.9**5))
    shown = found(*[0] * 30, prompts=5).facts()["first pass"]
    assert shown == "none of 240 completions passed: expect at least 2.4 updates of 5 x 4 completions"
    assert found(0, 0).updates_to_pass().low == 1
    assert expected_updates(0.0, 4) == math.inf


@pytest.mark.parametrize("group", [1, 2, 3, 6])
def test_the_zero_variance_rate_is_that_of_all_groups_that_could_be_made(group: int) -> None:
    rewards = [(0.0, 0.0, 0.0, 0.4, 0.4, 1.0), (0.4,) * 6, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)]
    slow = [statistics.fmean(len(set(each)) == 1 for each in combinations(one, group)) for one in rewards]
    assert zero_variance_rate(rewards, group) == pytest.approx(statistics.fmean(slow))


@pytest.mark.parametrize("overrides", few([(), ("ppo.advantage=gae",)], ("ppo.advantage=gae",)))
def test_training_is_the_same_bit_for_bit_with_and_without_a_report(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    runs = []
    for count in (3, 0):
        chosen = epoch_settings(*FEW, f"readiness_problems={count}", *overrides, phases=("sft", "binary"))
        runs.append(train(chosen, tmp_path / str(count) / "run"))
    with_report, without = runs
    assert (with_report.path / "readiness.json").is_file()
    assert not (without.path / "readiness.json").exists()
    assert untimed(with_report) == untimed(without)
    assert equal(with_report.policy, without.policy)


def test_a_resumed_run_prints_its_report_and_does_not_make_another(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Readiness] = []

    def measure(*arguments: Any) -> Readiness:
        made.append(readiness.measure_readiness(*arguments))
        return made[-1]

    monkeypatch.setattr(train_module, "measure_readiness", measure)
    said: list[list[str]] = []
    settings = epoch_settings(*FEW, phases=("sft", "binary"))
    for asked in ([False, False, True], [False, True], [False] * 9):
        said.append([])
        try:
            train(settings, tmp_path / "run", say=said[-1].append, should_stop=iter(asked).__next__)
        except Stopped:
            continue
    (report,) = made
    assert read_readiness(Run(tmp_path / "run")) == report
    assert report.start == "the policy after sft"
    texts = [f"{name:15} {fact}" for name, fact in report.facts().items()]
    assert said == [said[0], texts, texts]
    assert said[0] == ["readiness: sampling 3 problems x 8 completions before binary (off with --readiness-problems 0)"]
    finished: list[str] = []
    train(settings, tmp_path / "run", say=finished.append)
    assert finished == []


def test_a_report_of_other_inputs_is_made_again(epoch_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    settings = epoch_settings(*FEW, phases=("binary",))
    run = Run(tmp_path / "run")
    with pytest.raises(Stopped, match="stopped before binary"):
        train(settings, run.path, should_stop=lambda: True)
    first = read_readiness(run)
    assert first is not None
    assert first.start == "the base model"
    with pytest.raises(Stopped):
        train(replace(settings, seed=7), run.path, should_stop=lambda: True)
    second = read_readiness(run)
    assert second is not None
    assert second.key != first.key
    assert len(second.passed) == 3
    with pytest.raises(Stopped):
        train(replace(settings, seed=7, readiness_problems=4), run.path, should_stop=lambda: True)
    third = read_readiness(run)
    assert third is not None
    assert (len(third.passed), third.key) == (4, second.key)


def test_completions_are_sampled_as_many_at_once_as_memory_was_planned_for(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[str], int]] = []
    real = rollout.collect

    def collecting(learner: Any, scorer: Any, problems: Any, samples: int, *rest: Any, **options: Any) -> Any:
        asked.append(([problem.id for problem in problems], samples))
        return real(learner, scorer, problems, samples, *rest, **options)

    monkeypatch.setattr(rollout, "collect", collecting)
    few = ("ppo.advantage=gae", "ppo.batch_size=6", "ppo.samples_per_prompt=3", "ppo.rollout_sequences=2")
    with pytest.raises(Stopped):
        train(epoch_settings(*FEW, *few, phases=("binary",)), tmp_path / "run", should_stop=lambda: True)
    ((ids, samples),) = asked
    assert samples == 2
    assert ids == [name for name in dict.fromkeys(ids) for _ in range(4)]
    assert len(set(ids)) == 3
    report = read_readiness(Run(tmp_path / "run"))
    assert report is not None
    assert (report.total, sum(report.levels), report.zero_variance) == (24, 24, None)


def test_a_plan_reports_on_the_policy_that_rl_would_start_from(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    settings, said = epoch_settings(*FEW, phases=("sft", "binary")), list[str]()
    before = measure_plan(settings, Run(tmp_path / "run"), say=said.append)
    assert said == ["readiness: sampling 3 problems x 8 completions before binary (off with --readiness-problems 0)"]
    assert before.readiness is not None
    assert before.readiness.start == "the base model, before sft"
    assert before.seconds is not None
    assert before.seconds > before.readiness_seconds == before.readiness.seconds > 0
    assert not (tmp_path / "run").exists()
    run = train(settings, tmp_path / "run")
    report = read_readiness(run)
    after = measure_plan(settings, run).readiness
    assert report is not None
    assert after is not None
    assert replace(after, seconds=0.0) == replace(report, seconds=0.0, key="")
    other = measure_plan(replace(settings, seed=7), run).readiness
    assert other is not None
    assert other.start == "the base model, before sft"
    assert measure_plan(replace(settings, readiness_problems=0), run).readiness is None


def test_a_dry_run_of_a_model_that_never_passes_advises_sft_and_shows_no_control_characters_of_programs(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "print('\\x1b]0;owned\\x07\x1b[31m')\n"
    monkeypatch.setattr(rollout, "extract_program", lambda *_: program)
    problems = write_additions(tmp_path / "problems.jsonl")
    words = ["train", "--recipe", "starter", "--model", str(tiny_model), "--problems", str(problems)]
    words += ["--device", "cpu", "--phases", "binary"]
    words += ["--set", "ppo.max_tokens=8", "--set", "ppo.batch_size=8", "--readiness-problems", "2"]
    result = CliRunner().invoke(
        sce, [*words, "--out", str(tmp_path / "run"), "--dry-run", "--measure"], catch_exceptions=False
    )
    assert result.exit_code == 0
    lines = {line[:15].strip(): line[16:] for line in result.stdout.splitlines()}
    assert lines["readiness"] == "2 problems in 1 group x 8 completions of the base model"
    assert lines["pass@1"].startswith("0.0 %, 95 % CI [0.0, ")
    assert lines["levels"].startswith("does not parse 0 %, parses 0 %")
    assert lines["advice"].startswith("pass@1 is below 1 %: RL would rarely see a program that passes: first train SFT")
    assert result.stderr.startswith("readiness: sampling 2 problems x 8 completions before binary")
    result = CliRunner().invoke(sce, [*words, "--out", str(tmp_path / "run"), "--max-steps", "1"])
    assert result.exit_code == 0
    assert "pass@1 is below 1 %" in result.stderr
    assert "owned" not in result.output
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    "lie",
    [
        {"passed": []},
        {"passed": [9]},
        {"passed": "1"},
        {"passed": [1.0]},
        {"levels": [0, 0, 0, 8]},
        {"levels": [0, 0, 0, 8, 8]},
        {"completions": 10**9},
        {"group": 0},
        {"group": 9},
        {"prompts": 10**9},
        {"truncated": math.nan},
        {"zero_variance": 2.0},
        {"start": 3},
        {"more": 1},
        {"groups": ["a", "b"]},
        {"groups": [1]},
        {"groups": 3},
    ],
)
def test_a_damaged_report_is_none(lie: dict[str, Any], tmp_path: Path) -> None:
    record = json.loads(json.dumps(asdict(found(3))))
    (tmp_path / "readiness.json").write_text(json.dumps(record))
    assert read_readiness(Run(tmp_path)) == found(3)
    (tmp_path / "readiness.json").write_text(json.dumps({**record, **lie}))
    assert read_readiness(Run(tmp_path)) is None
