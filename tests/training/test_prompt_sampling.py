"""Which problems are sampled next: running pass rates, their choice, and resampling; the maths against a slow loop."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from quick import few
from small_runs import an_update, equal, rows, untimed, varied_pass, varied_reward

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.difficulty import Difficulty, write_difficulty
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import problem_digest
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.runs import Run
from securecoderl_edge.training import checkpoint
from securecoderl_edge.training.phase import Stopped
from securecoderl_edge.training.phase_settings import PpoSettings, PromptSamplingSettings
from securecoderl_edge.training.plan import make_plan
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.reuse import phase_keys
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import rollout
from securecoderl_edge.training.update.pass_rates import Evidence, PassRates, rates_before, rates_from_record
from securecoderl_edge.training.update.prompt_sampling import next_prompts

ADAPTIVE = ("sampling.method=adaptive", "sampling.resample=2", "ppo.drop_zero_variance_groups=true")
PROBLEMS = [Problem(f"p{n}", f"Print {n}.", tests=(Test("1\n", f"{n}\n"),)) for n in range(7)]


def half_are_flat(score: Any, weight: float, *_: Any) -> float:
    """Rewards that differ between the completions of every second problem alone."""
    return varied_reward(score, weight) if int(score.id[1:]) % 2 else 0.4


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "training_reward", half_are_flat)
    monkeypatch.setattr("securecoderl_edge.training.update.prompt_sampling.is_correct", varied_pass)


def simulated(rates: dict[str, float], updates: int, count: int, seed: int, start: PassRates) -> list[list[str]]:
    """The problems of each update, whose completions pass with fixed rates."""
    rng, names, known, found = random.Random(seed), list(rates), start, []
    for step in range(1, updates + 1):
        found.append([names[index] for index in known.choose(names, count, step, rng)])
        passed = [(name, sum(rng.random() < rates[name] for _ in range(8))) for name in found[-1]]
        known = known.after(((name, number, 8 - number) for name, number in passed), step)
    return found


@hypothesis_settings(max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(1, 9), st.integers(0, 999))
def test_every_problem_is_drawn_once_before_any_is_drawn_thrice(rates: list[float], count: int, seed: int) -> None:
    by_name = {f"p{index}": rate for index, rate in enumerate(rates)}
    draws: Counter[str] = Counter()
    for names in simulated(by_name, 3 * len(rates), count, seed, PassRates()):
        for name in names:
            draws[name] += 1
            assert draws[name] < 3 or len(draws) == len(rates)
    assert len(draws) == len(rates)


def test_a_draw_has_different_problems_as_long_as_there_are_any() -> None:
    rng, names = random.Random(1), [problem.id for problem in PROBLEMS]
    assert sorted(PassRates().choose(names, 7, 1, rng)) == list(range(7))
    assert sorted(Counter(PassRates().choose(names, 16, 1, rng)).values()) == [2, 2, 2, 2, 2, 3, 3]
    assert not {0, 1} & set(PassRates().choose(names, 5, 1, rng, without={"p0", "p1"}))
    assert {2, 3, 4, 5, 6} < set(PassRates().choose(names, 6, 1, rng, without={"p0", "p1"}))


def test_equal_evidence_is_drawn_equally_often_and_half_passed_problems_as_a_slow_loop_says() -> None:
    """The bias of the draw is that of Thompson sampling: towards rates near one half, and no other."""
    names = ["a", "b", "never", "half"]
    known = PassRates(
        {
            "a": Evidence(1.0, 6.0, 2, 5),
            "b": Evidence(1.0, 6.0, 2, 5),
            "never": Evidence(0.0, 8.0, 2, 5),
            "half": Evidence(4.0, 4.0, 2, 5),
        }
    )
    rng, trials = random.Random(3), 20_000
    first = Counter(names[known.choose(names, 1, 65, rng)[0]] for _ in range(trials))
    # Sixty updates later evidence counts half; the prior is Beta(0.3, 0.3).
    slow: Counter[str] = Counter()
    other = random.Random(4)
    for _ in range(trials):
        shapes = {"a": (0.8, 3.3), "b": (0.8, 3.3), "never": (0.3, 4.3), "half": (2.3, 2.3)}
        distance = {name: abs(other.betavariate(*shape) - 0.5) for name, shape in shapes.items()}
        slow[min(distance, key=lambda name: distance[name])] += 1
    for name in names:
        assert first[name] / trials == pytest.approx(slow[name] / trials, abs=0.015)
    assert first["a"] / trials == pytest.approx(first["b"] / trials, abs=0.015)
    assert first["half"] > first["a"] > first["never"] > 0


def test_evidence_is_forgotten_with_updates_and_with_draws() -> None:
    known = Evidence(4.0, 4.0, 1, 10)
    assert known.posterior(10) == (4.3, 4.3)
    assert known.posterior(70) == (2.3, 2.3)
    assert known.after(8, 0, 10) == Evidence(0.3 * 4 + 8, 0.3 * 4, 2, 10)
    # A slow loop over all groups: each counts by its age in draws, and by its updates.
    groups = [(3, 5, 2), (7, 1, 9), (8, 0, 30)]
    now = Evidence()
    for passed, failed, step in groups:
        now = now.after(passed, failed, step)
    ages = [0.3 ** (2 - place) * 0.5 ** ((40 - step) / 60) for place, (_, _, step) in enumerate(groups)]
    alpha, beta = now.posterior(40)
    assert alpha == pytest.approx(0.3 + sum(age * group[0] for age, group in zip(ages, groups, strict=True)))
    assert beta == pytest.approx(0.3 + sum(age * group[1] for age, group in zip(ages, groups, strict=True)))


def test_measured_rates_are_drawn_by_from_the_first_update_on() -> None:
    rates = {f"p{index}": rate for index, rate in enumerate([0.0] * 40 + [0.5] * 8 + [1.0] * 40)}
    start = rates_before({name: (8, round(8 * rate)) for name, rate in rates.items()})
    first = [rates[name] for names in simulated(rates, 5, 4, 1, start) for name in names]
    assert first.count(0.5) > 15
    blind = [rates[name] for names in simulated(rates, 5, 4, 1, PassRates()) for name in names]
    assert blind.count(0.5) < 10


def test_a_record_gives_the_same_numbers_back_and_a_damaged_one_is_refused() -> None:
    known = PassRates().after([("a", 3, 5), ("b", 0, 8), ("a", 1, 7)], 4).after([("a", 2, 6)], 9)
    assert rates_from_record(json.loads(json.dumps(known.to_record()))) == known
    for wrong in ({"a": [1.0, -1.0, 1, 1]}, {"a": [1.0, 1.0, 0.5, 1]}, {"a": [1.0]}, [], {"a": None}):
        with pytest.raises((ValueError, TypeError, AttributeError)):
            rates_from_record(wrong)


def test_uniform_draws_stay_those_of_earlier_versions_and_resample_others(tiny_learner: Any) -> None:
    update = an_update(PROBLEMS, ppo=PpoSettings(batch_size=12, samples_per_prompt=4), step=2)
    first = next_prompts(tiny_learner, update)
    assert first == update.prompted()
    more = next_prompts(tiny_learner, update, first, 4, 1)
    assert len({problem.id for problem in [*first, *more]}) == 7
    assert more == next_prompts(tiny_learner, update, first, 4, 1)
    orders = {
        tuple(each.id for each in next_prompts(tiny_learner, update, first, 4, attempt)) for attempt in range(1, 9)
    }
    assert len(orders) > 1


def test_all_processes_draw_what_the_first_one_chose(tiny_learner: Any) -> None:
    class Second:
        is_writer, count = False, 2

        def collect(self, own: list[int]) -> list[int]:
            assert own == []  # else the problems of both would be drawn
            return [6, 0]

    adaptive = PromptSamplingSettings(method="adaptive")
    update = an_update(PROBLEMS, ppo=PpoSettings(batch_size=8, samples_per_prompt=4), sampling=adaptive)
    alone = next_prompts(tiny_learner, update)
    assert len(alone) == 2
    tiny_learner.team = Second()
    assert [problem.id for problem in next_prompts(tiny_learner, update)] == ["p6", "p0"]


@pytest.fixture
def tiny_learner(tiny_model: Path) -> Any:
    from small_runs import sgd_learner

    return sgd_learner(tiny_model, 0.1)


def test_flat_groups_are_resampled_within_the_bound_and_counted(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, passing: None
) -> None:
    config = epoch_settings(*ADAPTIVE[1:], "selection.problems=0", "binary.steps=3", phases=("binary",))
    plain = epoch_settings(ADAPTIVE[2], "selection.problems=0", "binary.steps=3", phases=("binary",))
    run, without = train(config, tmp_path / "a" / "run"), train(plain, tmp_path / "b" / "run")
    episode = 0
    for row, before in zip(rows(run), rows(without), strict=True):
        asked = {each["id"] for each in rows(run, "samples.jsonl") if each["step"] == row["step"]}
        assert len(asked) == 2 + row["groups_resampled"], "no problem twice"
        assert row["groups_resampled"] <= 2
        assert row["groups_used"] == sum(int(name[1:]) % 2 for name in asked)
        assert row["groups_used"] == 2 or row["groups_resampled"] == 2, "a full batch, or the bound"
        assert row["scores"] == 4 * (2 + row["groups_resampled"])
        assert row["tokens"] > before["tokens"] or not row["groups_resampled"]
        episode += row["scores"]
        assert row["episode"] == episode
    assert any(row["groups_resampled"] for row in rows(run))
    assert "groups_resampled" not in rows(without)[0]


@pytest.mark.parametrize("updates", few([1, 2, 4], 2))
def test_a_stopped_adaptive_run_resumes_bit_for_bit(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, passing: None, updates: int
) -> None:
    config = epoch_settings(*ADAPTIVE, "binary.steps=5", "selection.problems=0", phases=("binary",))
    whole, done = train(config, tmp_path / "a" / "run"), 0

    def stop_after() -> bool:
        nonlocal done
        done += 1
        return done == updates

    with pytest.raises(Stopped):
        train(config, tmp_path / "b" / "run", should_stop=stop_after)
    parts = train(config, tmp_path / "b" / "run")
    assert untimed(parts) == untimed(whole)
    assert rows(parts, "samples.jsonl") == rows(whole, "samples.jsonl")
    assert equal(parts.policy, whole.policy)


def test_an_update_that_is_interrupted_leaves_no_trace_in_the_pass_rates(
    epoch_settings: Callable[..., TrainSettings],
    tmp_path: Path,
    passing: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = epoch_settings(*ADAPTIVE, "binary.steps=4", "selection.problems=0", phases=("binary",))
    whole = train(config, tmp_path / "a" / "run")
    real, calls = torch.optim.AdamW.step, 0

    def interrupted(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return real(*arguments, **named)

    monkeypatch.setattr(torch.optim.AdamW, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "b" / "run")
    monkeypatch.setattr(torch.optim.AdamW, "step", real)
    parts = train(config, tmp_path / "b" / "run")
    assert untimed(parts) == untimed(whole)
    assert equal(parts.policy, whole.policy)


def test_damaged_pass_rates_of_a_checkpoint_are_refused_by_name(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, passing: None
) -> None:
    config = epoch_settings(*ADAPTIVE, "selection.problems=0", phases=("binary",))
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=lambda: True)
    (file,) = (tmp_path / "run").glob("phases/*/checkpoints/*/state.json")
    state = json.loads(file.read_text())
    assert len(state["pass_rates"]) == 2 + rows(Run(tmp_path / "run"))[0]["groups_resampled"]
    file.write_text(json.dumps(state | {"pass_rates": {"p1": [1]}}))
    with pytest.raises(SceError, match=r"state\.json is damaged"):
        train(config, tmp_path / "run")


def test_checkpoints_of_uniform_draws_have_no_pass_rates_and_those_without_any_still_resume(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    config = epoch_settings("selection.problems=0", phases=("binary",))
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=lambda: True)
    (folder,) = checkpoint.checkpoints(tmp_path / "run" / "phases/1-binary/checkpoints")
    state = json.loads((folder / "state.json").read_text())
    assert state.pop("pass_rates") == {}
    (folder / "state.json").write_text(json.dumps(state))
    assert len(rows(train(config, tmp_path / "run"))) == 2


def measured(
    config: TrainSettings, file: Path, passed: list[int], temperature: float = 1.0, style: str = "auto"
) -> Path:
    """A file of pass rates of the problems of a run, of 8 completions."""
    numbers = zip(load_problems(config.problems), passed, strict=True)
    write_difficulty(
        file,
        (Difficulty(each.id, problem_digest(each), 8, count, "tiny", temperature, style) for each, count in numbers),
    )
    return file


def test_the_plan_says_where_pass_rates_were_measured_otherwise(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    file = tmp_path / "rates.jsonl"
    config = epoch_settings(f"sampling.difficulty={file}", "sampling.method=adaptive", "ppo.temperature=0.8")
    numbers = [0, 1, 4, 7, 8, 8]
    measured(config, file, numbers, 0.8, config.prompt.style)
    assert "measured with" not in make_plan(config).difficulty
    measured(config, file, numbers, 0.8)
    assert "measured with" not in make_plan(config).difficulty
    measured(config, file, numbers, 0.2, "chat")
    assert make_plan(config).difficulty.endswith(
        f"; measured with temperature 0.2 (training: 0.8) and prompt style chat (training: {config.prompt.style})"
    )


def test_only_problems_in_the_range_are_asked_and_the_file_is_on_record(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    file = measured(epoch_settings(), tmp_path / "rates.jsonl", [0, 1, 4, 7, 8, 8])
    chosen = (f"sampling.difficulty={file}", "sampling.pass_rate=0.1,0.9", "binary.steps=3", "selection.problems=0")
    said: list[str] = []
    config = epoch_settings(*chosen, phases=("sft", "binary"))
    run = train(config, tmp_path / "run", say=said.append)
    assert {each["id"] for each in rows(run, "samples.jsonl")} == {"p1", "p2", "p3"}
    assert f"binary: 3 of 6 training problems have a pass rate from 0.1 to 0.9 in {file}" in said
    assert json.loads((run.path / "environment.json").read_text())["difficulty_sha256"]
    plan = make_plan(config).difficulty
    assert plan.startswith(f"3 of 6 problems have a pass rate from 0.1 to 0.9; {file}, sha256 ")
    # With other rates it is another run.
    measured(config, file, [0, 1, 4, 7, 7, 8])
    with pytest.raises(UsageError, match="is not that of"):
        train(config, tmp_path / "run")
    measured(config, file, [0, 0, 0, 8, 8, 8])
    with pytest.raises(SceError, match=r"none of 6 training problems have a pass rate from 0\.1 to 0\.9"):
        train(config, tmp_path / "other")


def test_pass_rates_of_other_problems_are_refused_in_one_sentence(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    config = epoch_settings()
    file = measured(config, tmp_path / "rates.jsonl", [4] * 6)
    lines = file.read_text().splitlines()
    faults = {
        "problem 'p5' is missing": lines[:-1],
        "problem 'p5' has changed since": [*lines[:-1], lines[-1].replace('"problem_hash": "', '"problem_hash": "0')],
        "rates.jsonl:7: a second line for this problem": [*lines, lines[0]],
        'rates.jsonl:1: "passed" is not from 0 to "samples"': [lines[0].replace('"passed": 4', '"passed": 9')],
        'rates.jsonl:1: not the pass rate of a problem: "samples"': [
            lines[0].replace('"samples": 8', '"samples": "8"')
        ],
        "rates.jsonl:1: not the pass rate of a problem": ["[1]"],
        "the file is empty": [],
    }
    settings = epoch_settings(f"sampling.difficulty={file}", "sampling.method=adaptive")
    for sentence, content in faults.items():
        file.write_text("".join(f"{line}\n" for line in content))
        with pytest.raises(SceError) as caught:
            train(settings, tmp_path / "run")
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)
    file.unlink()
    with pytest.raises(UsageError, match=r"rates\.jsonl: no such file"):
        train(settings, tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("sampling.resample=2",), "sampling.resample needs ppo.drop_zero_variance_groups = true"),
        (("sampling.pass_rate=0.1,0.9",), "sampling.pass_rate needs sampling.difficulty"),
        (
            ("sampling.pass_rate=0.9,0.1", "sampling.difficulty=x"),
            "sampling.pass_rate begins at 0.9, above its end 0.1",
        ),
        (("sampling.difficulty=x",), "sampling.difficulty has no effect"),
        (("sampling.pass_rate=0.5",), "pass_rate must be 2 numbers, found 0.5"),
        (("sampling.pass_rate=0.1,0.2,0.3",), "pass_rate must be 2 numbers"),
        (("sampling.pass_rate=low,high",), "pass_rate must be 2 numbers, found 'low,high'"),
        (("sampling.pass_rate=0.1,1.5",), "pass_rate must be at least 0 and at most 1"),
        (("sampling.method=best",), "method must be one of uniform, adaptive"),
    ],
)
def test_settings_that_contradict_each_other_or_do_nothing_are_refused(
    overrides: tuple[str, ...], sentence: str
) -> None:
    plain = ("ppo.drop_zero_variance_groups=false",)
    with pytest.raises(UsageError) as caught:
        resolve("starter", (*plain, *overrides), {})
    assert sentence in str(caught.value)


def test_phases_of_uniform_draws_keep_their_keys_and_sft_never_depends_on_draws() -> None:
    phases = ("sft", "binary")
    plain = phase_keys(resolve("starter", (), {"phases": phases}), {})
    file = "sampling.difficulty=rates.jsonl"
    hashed = {"difficulty_sha256": "1"}
    for overrides in (("sampling.method=adaptive",), ("sampling.pass_rate=0.1,0.9", file)):
        other = phase_keys(resolve("starter", overrides, {"phases": phases}), hashed)
        assert other["sft"] == plain["sft"]
        assert other["binary"] != plain["binary"]
    moved = resolve(
        "starter", ("sampling.method=adaptive", "sampling.difficulty=other/rates.jsonl"), {"phases": phases}
    )
    same = resolve("starter", ("sampling.method=adaptive", file), {"phases": phases})
    assert phase_keys(moved, hashed) == phase_keys(same, hashed)
    assert phase_keys(moved, {"difficulty_sha256": "2"})["binary"] != phase_keys(moved, hashed)["binary"]
