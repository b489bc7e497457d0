"""Phases of a run: chosen, stopped early, reused from other runs, started from other policies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from small_runs import equal, outcome, rows, scripted, varied_reward

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem import Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.runs import Run
from securecoderl_edge.runtimes.spec import resolve_model
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.system.rows import RowFile
from securecoderl_edge.training import phase
from securecoderl_edge.training.checkpoint import checkpoints, load_step
from securecoderl_edge.training.reuse import phase_keys
from securecoderl_edge.training.selection import hold_out
from securecoderl_edge.training.settings import RewardSettings, TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import rollout
from securecoderl_edge.training.update.learner import Learner

pytestmark = pytest.mark.usefixtures("varied_reward")


def test_every_phase_is_evaluated_before_it_every_so_often_and_at_its_end(whole: Run) -> None:
    for name, steps in (("sft", [0, 2]), ("binary", [0, 2, 4]), ("partial", [0, 2])):
        (folder,) = whole.path.glob(f"phases/*-{name}")
        assert [row["step"] for row in RowFile(folder / "evaluations.jsonl").read()] == steps
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


def test_what_reinforcement_learning_is_paid_changes_nothing_before_it(
    settings: Callable[..., TrainSettings],
) -> None:
    plain = phase_keys(settings(), {})
    for name in ("reward.security_weight=0.8", "reward.unparsable=paper", "reward.subtract_constant_baseline=true"):
        other = phase_keys(settings(name), {})
        assert other["sft"] == plain["sft"]
        assert other["binary"] != plain["binary"]
    assert phase_keys(settings("reward.severity=cwe"), {})["sft"] != plain["sft"]


@pytest.mark.parametrize(("name", "weights"), [("binary", {0.0}), ("scheduled", {1.0}), ("partial", {1.0})])
def test_a_phase_is_selected_by_the_reward_that_it_is_trained_on(
    settings: Callable[..., TrainSettings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    weights: set[float],
) -> None:
    seen: list[float] = []

    def pay(score: Score, weight: float, *_: Any) -> float:
        seen.append(weight)
        return varied_reward(score, weight)

    def update(*_: Any) -> Any:
        return {"all_tests_rate": 0.0}, None

    monkeypatch.setattr(rollout, "training_reward", pay)
    monkeypatch.setitem(phase.UPDATES, name, update)  # what is left are evaluations
    train(settings(phases=(name,)), tmp_path / "run")
    assert set(seen) == weights


def test_sft_ends_after_its_epochs_over_the_problems_that_have_solutions(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    config = settings("sft.epochs=3", "sft.steps=50", "sft.batch_size=4", "selection.problems=0", phases=("sft",))
    problems = load_problems(config.problems)[:7]
    problems[0] = replace(problems[0], solutions=())
    write_problems(tmp_path / "problems.jsonl", problems)
    config = replace(config, problems=str(tmp_path / "problems.jsonl"))
    run = train(config, tmp_path / "run")
    assert [(row["step"], row["steps"]) for row in rows(run)] == [(n, 5) for n in range(1, 6)]  # 18 of 20 sequences
    again = train(config, tmp_path / "run")
    assert again.outcomes() == run.outcomes()
    short = train(replace(config, sft=replace(config.sft, steps=2)), tmp_path / "short")
    assert len(rows(short)) == 2


def test_constant_answers_earn_nothing_in_training_when_they_are_corrected(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings("reward.subtract_constant_baseline=true", phases=("partial",))
    same = tuple(Test(f"{n}\n", f"{n > 1}\n") for n in (1, 3, 5))
    problems = [
        replace(each, tests=same if n % 2 else each.tests) for n, each in enumerate(load_problems(config.problems))
    ]
    write_problems(tmp_path / "problems.jsonl", problems)
    seen: dict[str, set[int]] = {}

    def pay(score: Score, weight: float, reward: RewardSettings, passes: int) -> float:
        seen.setdefault(score.id, set()).add(passes)
        return varied_reward(score, weight)

    monkeypatch.setattr(rollout, "training_reward", pay)
    train(replace(config, problems=str(tmp_path / "problems.jsonl")), tmp_path / "run")
    constants = {problem.id: {2 if n % 2 else 1} for n, problem in enumerate(problems)}
    assert len(seen) > 4
    assert all(constants[name] == passes for name, passes in seen.items())
    with pytest.raises(UsageError, match=r"needs reward\.credit_rule = any or fraction"):
        settings("reward.subtract_constant_baseline=true", "reward.credit_rule=all")


def test_tests_that_the_statement_shows_are_dropped_from_the_reward(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings()
    # No number but those of the example, which could show other tests.
    shown = [
        replace(each, statement=f"Add one{'.' * at} 1 -> 2") for at, each in enumerate(load_problems(config.problems))
    ]
    tests = [len(each.tests) for each in shown]
    write_problems(tmp_path / "problems.jsonl", shown)
    totals: dict[str, set[int]] = {"keep": set(), "drop": set()}
    for choice, seen in totals.items():

        def pay(score: Score, weight: float, *_: Any, seen: set[int] = seen) -> float:
            seen.add(score.total)
            return varied_reward(score, weight)

        monkeypatch.setattr(rollout, "training_reward", pay)
        short = settings(
            f"reward.visible_tests={choice}", problems=str(tmp_path / "problems.jsonl"), phases=("partial",)
        )
        train(short, tmp_path / choice)
    assert totals == {"keep": set(tests), "drop": {count - 1 for count in tests}}


def test_reformatted_solutions_train_as_solutions_in_that_format_do(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    problems = load_problems(settings().problems)
    uneven = "def add(n):\n  # one more\n  return (n+1)\nprint( add(int(input())) )"
    even = "def add(n):\n    return n + 1\nprint(add(int(input())))\n"
    policies = []
    for name, solution, reformat in (
        ("uneven", uneven, "true"),
        ("even", even, "false"),
        ("as-it-is", uneven, "false"),
    ):
        file = tmp_path / f"{name}.jsonl"
        write_problems(file, [replace(each, solutions=(solution,)) for each in problems])
        overrides = (f"reformat_solutions={reformat}", "selection.problems=0")  # keep the last step
        chosen = settings(*overrides, problems=str(file), phases=("sft",))
        run = train(chosen, tmp_path / name)
        policies.append((run.policy / "adapter_model.safetensors").read_bytes())
    assert policies[0] == policies[1] != policies[2]


def test_the_last_checkpoints_and_the_best_are_kept(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, 0.9, 0.1, 0.2, 0.3)
    run = train(settings("binary.steps=6", phases=("binary",)), tmp_path / "run")
    kept = [path.name for path in checkpoints(run.phase_folder(1, "binary") / "checkpoints")]
    assert kept == ["step-000000", "step-000005", "step-000006"]


def test_the_scheduled_phase_pays_more_and_more_for_partial_credit(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[float] = []
    monkeypatch.setattr(rollout, "training_reward", lambda score, weight, *_: (paid.append(weight), 0.5)[1])
    run = train(settings("selection.problems=0", phases=("scheduled",)), tmp_path / "run")
    assert paid == [weight for weight in (0.0, 0.5, 1.0) for _ in range(8)]
    assert [row["objective/partial_weight"] for row in rows(run)] == [0.0, 0.5, 1.0]


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


def test_being_asked_to_stop_at_the_last_update_of_a_phase_does_not_begin_the_next(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    asked = iter([False, True])
    with pytest.raises(phase.Stopped, match="at the end of sft"):
        train(settings(), tmp_path / "run", should_stop=lambda: next(asked, True))
    assert [folder.name for folder in Run(tmp_path / "run").phase_folders()] == ["1-sft"]


def test_the_memory_plan_counts_the_prompts_of_held_out_problems(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from securecoderl_edge.training.measured_plan import measure_plan

    config = settings("selection.problems=2")
    problems = load_problems(config.problems)
    _, held_out = hold_out(problems, config.selection, config.seed)
    long = [replace(each, statement="word " * 80) if each in held_out else each for each in problems]
    write_problems(tmp_path / "problems.jsonl", long)
    made = measure_plan(replace(config, problems=str(tmp_path / "problems.jsonl"), phases=("binary",)), Run(tmp_path))
    assert made.longest_prompt > 80


def test_weights_that_did_best_and_are_damaged_are_not_published(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read again at the end of a phase, when another step is the newest checkpoint."""

    def damage(folder: Path, step: int, learner: Learner) -> None:
        weights = folder / f"step-{step:06d}" / "adapter_model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        load_step(folder, step, learner)

    monkeypatch.setattr(phase, "choose", lambda done, *others: (done[0], "the first"))
    monkeypatch.setattr(phase, "load_step", damage)
    with pytest.raises(SceError, match=r"adapter_model\.safetensors, the best checkpoint, is damaged"):
        train(settings(phases=("sft",)), tmp_path / "run")
    assert not list((tmp_path / "run").glob("phases/*/adapter"))
