"""Phases of a run: chosen, stopped early, taken over from other runs, started from other policies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from securecoderl_edge import collect, phase, updates
from securecoderl_edge.checkpoint import checkpoints
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.files import locked
from securecoderl_edge.models import resolve_model
from securecoderl_edge.problems import Problem, Test, load_problems, write_problems
from securecoderl_edge.reuse import phase_keys
from securecoderl_edge.reward import Score
from securecoderl_edge.runs import Run
from securecoderl_edge.selection import Evaluation, hold_out
from securecoderl_edge.settings import RewardSettings, TrainSettings, resolve
from securecoderl_edge.train import train

SMALL = (
    "lora.rank=4", "sft.steps=2", "sft.batch_size=4", "binary.steps=4", "partial.steps=2", "scheduled.steps=3",
    "ppo.batch_size=8", "ppo.epochs=1", "ppo.samples_per_prompt=4", "ppo.max_tokens=10", "ppo.micro_batch_tokens=400",
    "checkpoint_every=1", "selection.every=2", "rate_schedule=constant", "ppo.skip_flat_groups=false",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def varied_reward() -> Iterator[None]:
    """A random tiny model never solves anything: without differences in reward there would be nothing to learn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collect, "training_reward", lambda score, weight, *_: len(score.program) % 7 / 7)
        yield


@pytest.fixture(scope="module")
def settings(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TrainSettings]:
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    tests = tuple(Test(f"{n}\n", f"{n + 1}\n") for n in (1, 3, 5))
    solutions = ("print(int(input()) + 1)\n",)
    write_problems(path, [Problem(f"p{n}", f"Add {n}.", tests=tests, solutions=solutions) for n in range(20)])

    def make(*overrides: str, **flags: Any) -> TrainSettings:
        values = {"model": str(tiny_model), "problems": str(path), "device": "cpu", **flags}
        return resolve("starter", (*SMALL, *overrides), values)

    return make


@pytest.fixture(scope="module")
def whole(settings: Callable[..., TrainSettings], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(settings(), tmp_path_factory.mktemp("runs") / "whole")


def rows(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


def equal(one: Path, two: Path) -> bool:
    first, second = weights(one), weights(two)
    return first.keys() == second.keys() and all(torch.equal(value, second[key]) for key, value in first.items())


def outcome(run: Run, name: str) -> dict[str, Any]:
    return dict(run.outcomes())[name]


def scripted(monkeypatch: pytest.MonkeyPatch, *rewards: float) -> None:
    """Evaluations that find the given rewards, one after the other."""
    answers = iter(rewards)

    def evaluate(learner: Any, scorer: Any, held_out: Any, settings: Any, step: int, phase: str) -> Evaluation:
        reward = next(answers)
        return Evaluation(step, (reward,) * 4, 0.0, 1.0)

    monkeypatch.setattr(phase, "evaluate_policy", evaluate)


def test_every_phase_is_evaluated_before_it_every_so_often_and_at_its_end(whole: Run) -> None:
    for name, steps in (("sft", [0, 2]), ("binary", [0, 2, 4]), ("partial", [0, 2])):
        assert [each["step"] for each in outcome(whole, name)["held_out"]] == steps
    assert [row["step"] for row in rows(whole) if "eval/reward" in row and row["phase"] == "binary"] == [2, 4]


def test_the_best_step_is_published_when_it_was_clearly_better(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, 0.1, 0.9, 0.5)
    run = train(settings(phases=("binary",)), tmp_path / "run")
    facts = outcome(run, "binary")
    assert (facts["chosen_step"], facts["steps"]) == (2, 4)
    folder = run.phase_folder(1, "binary")
    assert equal(folder / "best", folder / "adapter")
    assert equal(run.policy, folder / "adapter")
    assert not equal(folder / "checkpoints/step-000004", folder / "adapter")


def test_a_phase_that_only_does_harm_gives_back_what_it_got(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, 0.2, 0.3, 0.9, 0.5, 0.4)
    run = train(settings(phases=("sft", "binary")), tmp_path / "run")
    assert outcome(run, "binary")["chosen_step"] == 0
    assert equal(run.policy, run.phase_folder(1, "sft") / "adapter")


def test_snapshots_are_adapters_of_their_own_and_change_nothing(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    run = train(settings("snapshot_every=2"), tmp_path / "run")
    kept = sorted(folder.relative_to(run.path).as_posix() for folder in run.path.glob("phases/*/snapshots/*"))
    expected = ("1-sft/snapshots/step-000002", "2-binary/snapshots/step-000002", "2-binary/snapshots/step-000004")
    assert kept == [f"phases/{name}" for name in (*expected, "3-partial/snapshots/step-000002")]
    last = run.path / "phases/3-partial"
    assert equal(run.policy, whole.policy)
    assert equal(last / "snapshots/step-000002", last / "checkpoints/step-000002")
    assert not equal(last / "snapshots/step-000002", run.path / "phases/2-binary/snapshots/step-000004")
    assert resolve_model(str(last / "snapshots/step-000002")).prompt_style == "stdin"


def test_a_phase_that_is_taken_over_brings_its_snapshots(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    one = train(settings("snapshot_every=2", phases=("sft", "binary")), tmp_path / "one")
    two = train(settings("snapshot_every=2"), tmp_path / "two")
    taken = two.path / "phases/2-binary"
    assert not (taken / "checkpoints").exists(), "it was to be taken over"
    for step in ("step-000002", "step-000004"):
        assert equal(taken / "snapshots" / step, one.path / "phases/2-binary/snapshots" / step)


def test_what_reinforcement_learning_is_paid_changes_nothing_before_it(
    settings: Callable[..., TrainSettings],
) -> None:
    plain = phase_keys(settings(), {})
    for name in ("reward.security_weight=0.8", "reward.reading=paper", "reward.correct_constants=true"):
        other = phase_keys(settings(name), {})
        assert other["sft"] == plain["sft"]
        assert other["binary"] != plain["binary"]
    assert phase_keys(settings("reward.severity=cwe"), {})["sft"] != plain["sft"]


def test_constant_answers_earn_nothing_in_training_when_they_are_corrected(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings("reward.correct_constants=true", phases=("partial",))
    same = tuple(Test(f"{n}\n", f"{n > 1}\n") for n in (1, 3, 5))
    problems = [
        replace(each, tests=same if n % 2 else each.tests) for n, each in enumerate(load_problems(config.problems))
    ]
    write_problems(tmp_path / "problems.jsonl", problems)
    seen: dict[str, set[int]] = {}

    def pay(score: Score, weight: float, reward: RewardSettings, passes: int) -> float:
        seen.setdefault(score.id, set()).add(passes)
        return len(score.program) % 7 / 7

    monkeypatch.setattr(collect, "training_reward", pay)
    train(replace(config, problems=str(tmp_path / "problems.jsonl")), tmp_path / "run")
    constants = {problem.id: {2 if n % 2 else 1} for n, problem in enumerate(problems)}
    assert len(seen) > 4
    assert all(constants[name] == passes for name, passes in seen.items())
    with pytest.raises(UsageError, match=r"needs reward\.stage_rule any or fraction"):
        settings("reward.correct_constants=true", "reward.stage_rule=all")


def test_tests_that_the_statement_shows_are_dropped_from_the_reward(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings()
    shown = [replace(each, statement=f"{each.statement} 1 -> 2") for each in load_problems(config.problems)]
    tests = [len(each.tests) for each in shown]
    write_problems(tmp_path / "problems.jsonl", shown)
    totals: dict[str, set[int]] = {"keep": set(), "drop": set()}
    for choice, seen in totals.items():

        def pay(score: Score, *_: Any, seen: set[int] = seen) -> float:
            seen.add(score.total)
            return len(score.program) % 7 / 7

        monkeypatch.setattr(collect, "training_reward", pay)
        short = settings(f"reward.shown_tests={choice}", problems=str(tmp_path / "problems.jsonl"), phases=("partial",))
        train(short, tmp_path / choice)
    assert totals == {"keep": set(tests), "drop": {count - 1 for count in tests}}


def test_the_last_checkpoints_and_the_best_are_kept(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, 0.9, 0.1, 0.2, 0.3)
    run = train(settings("binary.steps=6", phases=("binary",)), tmp_path / "run")
    kept = [path.name for path in checkpoints(run.phase_folder(1, "binary") / "checkpoints")]
    assert kept == ["step-000000", "step-000005", "step-000006"]


def test_evaluations_without_progress_end_a_phase(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, 0.1, 0.5, 0.4, 0.4)
    run = train(settings("binary.steps=20", "binary.patience=2", phases=("binary",)), tmp_path / "run")
    assert outcome(run, "binary")["steps"] == 6
    assert "no progress since step 2" in outcome(run, "binary")["ended"]


def test_a_policy_far_from_its_reference_ends_a_phase(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    run = train(settings("binary.stop_kl=1e-9", "ppo.learning_rate=0.05", phases=("binary",)), tmp_path / "run")
    assert outcome(run, "binary")["steps"] < 4
    assert "nats from the reference" in outcome(run, "binary")["ended"]


def test_a_phase_that_ended_early_stays_ended_when_it_is_resumed(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: Any) -> None:
        raise RuntimeError("power cut")

    config = settings("binary.stop_kl=1e-9", "ppo.learning_rate=0.05", phases=("binary",))
    with monkeypatch.context() as patch:
        patch.setattr(phase, "publish", crash)
        with pytest.raises(RuntimeError):
            train(config, tmp_path / "run")
    count = len(rows(Run(tmp_path / "run")))
    assert len(rows(train(config, tmp_path / "run"))) == count < 4


def test_finished_phases_of_a_run_with_the_same_inputs_are_taken_over(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "first")
    said: list[str] = []
    simple = train(settings(phases=("sft", "binary")), tmp_path / "second", say=said.append)
    assert [message.split(":")[0] for message in said] == ["sft", "binary"]
    assert equal(simple.policy, whole.phase_folder(2, "binary") / "adapter")
    assert [(row["phase"], row["step"]) for row in rows(simple)] == [
        (row["phase"], row["step"]) for row in rows(whole) if row["phase"] != "partial"
    ]
    # As if it had been trained here.
    alone = train(settings(phases=("sft", "binary")), tmp_path / "elsewhere" / "second", say=said.append)
    assert len(said) == 2
    assert equal(simple.policy, alone.policy)


@pytest.mark.parametrize(
    ("overrides", "flags", "taken"),
    [
        (("sft.learning_rate=0.1",), {}, 0),
        ((), {"seed": 7}, 0),
        (("lora.rank=2",), {}, 0),
        (("ppo.kl_coefficient=0.9",), {}, 1),
        (("binary.steps=3",), {}, 1),
        (("partial.steps=1",), {}, 2),
        (("partial.steps=1", "rate_schedule=linear"), {}, 0),
        (("checkpoint_every=7",), {}, 3),
    ],
)
def test_only_what_depends_on_the_same_settings_is_taken_over(
    settings: Callable[..., TrainSettings],
    whole: Run,
    tmp_path: Path,
    overrides: tuple[str, ...],
    flags: dict[str, Any],
    taken: int,
) -> None:
    shutil.copytree(whole.path, tmp_path / "first")
    said: list[str] = []
    train(settings(*overrides, **flags), tmp_path / "second", say=said.append)
    assert len(said) == taken


def test_a_damaged_phase_is_trained_instead_of_taken_over(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "first")
    file = Run(tmp_path / "first").phase_folder(1, "sft") / "adapter/adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    said: list[str] = []
    train(settings(phases=("sft",)), tmp_path / "second", say=said.append)
    assert said == []


def test_nothing_is_taken_over_when_a_run_is_to_start_anew(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "first")
    said: list[str] = []
    train(settings(phases=("sft",)), tmp_path / "second", resume=False, say=said.append)
    assert said == []


def test_a_run_starts_from_a_phase_of_another_and_measures_the_kl_from_its_supervised_policy(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    last = "selection.problems=0"
    first = train(settings(last), tmp_path / "a" / "first")
    continued = train(settings(last, phases=("partial",), init=f"{first.path}:binary"), tmp_path / "b" / "continued")
    # The same updates as in the run that had all phases.
    assert equal(continued.policy, first.policy)
    fresh = train(settings(last, phases=("partial",), init=f"{first.path}:sft"), tmp_path / "b" / "fresh")
    assert rows(fresh)[0]["objective/kl"] == pytest.approx(0, abs=1e-5)
    assert not equal(fresh.policy, continued.policy)


@pytest.mark.parametrize(("init", "message"), [("nothing", "no such run"), (":nothing", "no phase 'nothing'")])
def test_a_run_cannot_start_from_what_is_not_there(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path, init: str, message: str
) -> None:
    name = f"{whole.path}{init}" if init.startswith(":") else init
    with pytest.raises(UsageError, match=message):
        train(settings(init=name), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_does_not_start_from_a_policy_of_another_base_model(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="trained another base model than nano"):
        train(settings(init=str(whole.path), model="nano"), tmp_path / "run")


def test_the_scheduled_phase_pays_more_and_more_for_partial_credit(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[float] = []
    monkeypatch.setattr(collect, "training_reward", lambda score, weight, *_: (paid.append(weight), 0.5)[1])
    run = train(settings("selection.problems=0", phases=("scheduled",)), tmp_path / "run")
    assert paid == [weight for weight in (0.0, 0.5, 1.0) for _ in range(8)]
    assert [row["objective/partial_weight"] for row in rows(run)] == [0.0, 0.5, 1.0]


def test_a_pass_rate_is_remembered_over_an_interruption(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = iter((0.2, 0.4, 0.4, 0.2, 0.4, 0.4))
    real = updates.summarise
    monkeypatch.setattr(updates, "summarise", lambda scores: real(scores) | {"all_tests_rate": next(rates)})
    config = settings("scheduled.mixture=pass-rate", "selection.problems=0", phases=("scheduled",))
    run = train(config, tmp_path / "a" / "whole")
    weights_seen = [row["objective/partial_weight"] for row in rows(run)]
    assert weights_seen == pytest.approx([0, 0.4, 0.42])
    asked = iter((True,))
    with pytest.raises(phase.Stopped):
        train(config, tmp_path / "b" / "parts", should_stop=lambda: next(asked))
    parts = train(config, tmp_path / "b" / "parts")
    assert [row["objective/partial_weight"] for row in rows(parts)] == weights_seen


def test_a_checkpoint_of_another_base_model_is_refused(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    with pytest.raises(phase.Stopped):
        train(settings(), tmp_path / "run", should_stop=lambda: True)
    newest = checkpoints(tmp_path / "run/phases/1-sft/checkpoints")[-1]
    state = json.loads((newest / "state.json").read_text())
    state["facts"]["base_model"] = "another"
    (newest / "state.json").write_text(json.dumps(state))
    with pytest.raises(SceError, match=f"{newest.name} was made with other base model"):
        train(settings(), tmp_path / "run")


def test_half_a_checkpoint_is_refused_by_name_and_the_one_before_it_offered(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    with pytest.raises(phase.Stopped):
        train(settings(), tmp_path / "run", should_stop=lambda: True)
    folder = tmp_path / "run/phases/1-sft/checkpoints"
    shutil.copytree(checkpoints(folder)[-1], folder / "step-000009")
    (folder / "step-000009/state.json").unlink()
    with pytest.raises(SceError, match=r"step-000009 is no whole checkpoint.*delete it to go on from step-000001"):
        train(settings(), tmp_path / "run")


def test_two_trainings_do_not_work_in_one_folder(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"), pytest.raises(SceError, match="another process is working"):
        train(settings(), tmp_path / "run")


def test_what_a_killed_process_left_behind_is_cleared_away(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    with pytest.raises(phase.Stopped):
        train(settings(), tmp_path / "run", should_stop=lambda: True)
    left = tmp_path / "run/phases/1-sft/checkpoints/.step-000002.tmp-1-abcd"
    left.mkdir()
    train(settings(), tmp_path / "run")
    assert not left.exists()


def test_an_update_that_is_not_finite_stops_with_its_batch_saved_and_the_checkpoint_intact(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings("selection.problems=0", phases=("binary",))
    real, calls = updates.policy_loss, 0

    def broken(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        found = real(*arguments)
        return found if calls < 3 else replace(found, loss=found.loss * float("nan"))

    monkeypatch.setattr(updates, "policy_loss", broken)
    run = tmp_path / "a" / "run"
    with pytest.raises(SceError, match=r"the loss of binary update \d is not finite.*not-finite-00000\d.safetensors"):
        train(config, run)
    (saved,) = run.glob("phases/1-binary/not-finite-*.safetensors")
    assert {"tokens", "mask", "log_probs", "reference", "advantages", "rewards"} <= load_file(saved).keys()
    monkeypatch.setattr(updates, "policy_loss", real)
    assert equal(train(config, run).policy, train(config, tmp_path / "b" / "whole").policy)


def test_a_reward_that_is_not_finite_is_named(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "training_reward", lambda *_: float("inf"))
    with pytest.raises(SceError, match="a reward of binary update 1 is not finite"):
        train(settings(phases=("binary",)), tmp_path / "run")


def test_running_out_of_memory_names_the_knob(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes.")

    monkeypatch.setattr(updates, "completion_log_probs", full)
    with pytest.raises(SceError, match=r"out of memory while .*lower ppo\.micro_batch_tokens"):
        train(settings(phases=("binary",)), tmp_path / "run")


def test_a_phase_ends_after_its_newest_checkpoint_was_damaged_and_deleted(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though that one was the best, and the best before it came long before."""
    scripted(monkeypatch, 0.9, 0.1, 0.95, 0.2, 0.3, 0.4)
    asked = iter([False] * 3 + [True])
    config = settings("binary.steps=6", phases=("binary",))
    with pytest.raises(phase.Stopped):
        train(config, tmp_path / "run", should_stop=lambda: next(asked))
    folder = Run(tmp_path / "run").phase_folder(1, "binary")
    shutil.rmtree(folder / "checkpoints/step-000004")
    run = train(config, tmp_path / "run")
    assert outcome(run, "binary")["chosen_step"] == 0
    assert equal(folder / "best", run.policy)


def test_starting_anew_throws_away_nothing_but_runs(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    (tmp_path / "mine/policy").mkdir(parents=True)
    (tmp_path / "mine/environment.json").write_text('{"id": "postman"}')
    with pytest.raises(UsageError, match="not a training run"):
        train(settings(), tmp_path / "mine", resume=False)
    assert (tmp_path / "mine/policy").exists()


def test_a_run_is_not_thrown_away_when_it_is_what_to_start_from(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "run")
    with pytest.raises(UsageError, match="would throw away what"):
        train(settings(init=str(tmp_path / "run")), tmp_path / "run", resume=False)
    assert equal(tmp_path / "run/policy", whole.policy)


@pytest.mark.parametrize("override", ["lora.alpha=1", "lora.rank=2", "lora.targets=['q_proj']"])
def test_a_run_does_not_start_from_an_adapter_of_another_kind(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path, override: str
) -> None:
    with pytest.raises(UsageError, match="another rank, alpha or targets"):
        train(settings(override, init=str(whole.path)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_base_model_with_another_configuration_is_another_base_model(
    settings: Callable[..., TrainSettings], whole: Run, tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_model, tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.1}))
    with pytest.raises(UsageError, match="another base model"):
        train(settings(model=str(tmp_path / "model"), init=str(whole.path)), tmp_path / "run")


def test_rows_that_are_none_do_not_stop_a_run(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    with pytest.raises(phase.Stopped):
        train(settings(), tmp_path / "run", should_stop=lambda: True)
    with (tmp_path / "run/metrics.jsonl").open("a") as out:
        out.write('[1]\nnull\n{"phase": "sft", "step": "a"}\n')
    assert len(rows(train(settings(), tmp_path / "run"))) == 8


@pytest.mark.parametrize("change", ["last line lost", "file gone", "a reward lost"])
def test_evaluations_that_were_lost_are_noticed(
    settings: Callable[..., TrainSettings], tmp_path: Path, change: str
) -> None:
    asked = iter([False, False, True])
    config = settings("binary.steps=6", phases=("binary",))
    with pytest.raises(phase.Stopped):
        train(config, tmp_path / "run", should_stop=lambda: next(asked))
    file = tmp_path / "run/phases/1-binary/evaluations.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    assert len(lines) == 2
    if change == "file gone":
        file.unlink()
    elif change == "last line lost":
        file.write_text(lines[0])
    else:
        row = json.loads(lines[1])
        file.write_text(lines[0] + json.dumps(row | {"rewards": row["rewards"][:-1]}) + "\n")
    with pytest.raises(SceError, match=r"evaluations\.jsonl is damaged"):
        train(config, tmp_path / "run")


def test_a_run_that_starts_from_another_chooses_by_no_problem_which_that_one_has_learnt_from(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    from securecoderl_edge.train import find_sources

    first = train(settings(init=str(whole.path), phases=("partial",), seed=7), tmp_path / "first")
    second = find_sources(settings(init=str(first.path), phases=("partial",), seed=9))
    assert find_sources(settings(seed=7)).hold_out_seed == 7
    assert second.hold_out_seed == 42


def test_a_run_whose_name_has_a_colon_can_be_started_from(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "a:b")
    for init in (tmp_path / "a:b", f"{tmp_path}/a:b:sft"):
        train(settings(init=str(init), phases=("partial",)), tmp_path / f"run-{init}".replace("/", "-"))


@pytest.mark.parametrize("name", ["policy", "phases/2-binary/adapter"])
def test_a_damaged_result_of_a_run_is_not_gone_on_from(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path, name: str
) -> None:
    shutil.copytree(whole.path, tmp_path / "run")
    file = tmp_path / "run" / name / "adapter_model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    if name != "policy":
        shutil.rmtree(tmp_path / "run/policy")
    with pytest.raises(SceError, match=rf"{name}/adapter_model.safetensors is damaged"):
        train(settings(), tmp_path / "run")


def test_being_asked_to_stop_at_the_last_update_of_a_phase_does_not_begin_the_next(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    asked = iter([False, True])
    with pytest.raises(phase.Stopped, match="at the end of sft"):
        train(settings(), tmp_path / "run", should_stop=lambda: next(asked, True))
    assert [folder.name for folder in Run(tmp_path / "run").phase_folders()] == ["1-sft"]


def test_starting_anew_removes_links_and_not_what_they_lead_to(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/thesis.tex").write_text("years of work")
    (tmp_path / "run/exports").symlink_to(tmp_path / "elsewhere")
    train(settings(phases=("sft",)), tmp_path / "run", resume=False)
    assert (tmp_path / "elsewhere/thesis.tex").exists()
    assert not (tmp_path / "run/exports").exists()


def test_a_run_that_was_half_thrown_away_can_be_thrown_away_again(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole.path, tmp_path / "run")

    class Killed(BaseException):
        pass

    def killed(path: Path) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            train(settings(phases=("sft",)), tmp_path / "run", resume=False)
    assert train(settings(phases=("sft",)), tmp_path / "run", resume=False).policy.exists()


def test_a_run_that_was_refused_before_it_began_takes_other_settings(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"needs about .* GiB, there are 0\.1"):
        train(settings(memory_gib=0.1), tmp_path / "run")
    assert train(settings("seed=7", phases=("sft",)), tmp_path / "run").policy.is_dir()


def test_what_decides_memory_alone_may_change_while_a_run_goes_on(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(phase.Stopped):
        train(settings(), tmp_path / "a" / "run", should_stop=lambda: True)
    changed = settings("ppo.rollout_sequences=8", "checkpoint_every=2", gradient_checkpointing=True, memory_gib=9.0)
    run = train(changed, tmp_path / "a" / "run")
    assert "rollout_sequences = 8" in (run.path / "config.toml").read_text()
    # Computing layers again changes no bit; decoding fewer at a time is rounding, so what is learnt first is the same.
    same = ("loss/sft", "objective/reward", "gradient_norm")
    for before, after in zip(rows(whole)[:3], rows(run)[:3], strict=True):
        for name in before.keys() & set(same):
            assert after[name] == pytest.approx(before[name], rel=1e-3)
    with pytest.raises(UsageError, match=r"other settings \(ppo.epochs"):
        train(settings("ppo.epochs=2"), run.path)


def test_a_run_that_has_made_something_does_not_take_other_settings(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    """Though its phases were deleted to save space: its policy is that of the settings that it was made with."""
    shutil.copytree(whole.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/phases")
    config = (tmp_path / "run/config.toml").read_text()
    with pytest.raises(UsageError, match=r"other settings \(seed"):
        train(settings(seed=7), tmp_path / "run")
    train(settings(gradient_checkpointing=True), tmp_path / "run")
    assert (tmp_path / "run/config.toml").read_text() == config


def test_what_hugging_face_s_sampler_decodes_together_may_not_change(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    with pytest.raises(phase.Stopped):
        train(settings("ppo.rollout=hf"), tmp_path / "run", should_stop=lambda: True)
    with pytest.raises(UsageError, match=r"ppo\.rollout_sequences"):
        train(settings("ppo.rollout=hf", "ppo.rollout_sequences=4"), tmp_path / "run")


def test_the_memory_plan_counts_the_prompts_of_held_out_problems(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from securecoderl_edge import plan

    config = settings("selection.problems=2")
    problems = load_problems(config.problems)
    _, held_out = hold_out(problems, 2, config.seed)
    long = [replace(each, statement="word " * 80) if each in held_out else each for each in problems]
    write_problems(tmp_path / "problems.jsonl", long)
    made = plan.make_plan(replace(config, problems=str(tmp_path / "problems.jsonl"), phases=("binary",)), Run(tmp_path))
    assert made.longest_prompt > 80
