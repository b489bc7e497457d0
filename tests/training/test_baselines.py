"""What compares methods of training: tokens that are counted, budgets of them, a random reward, secure solutions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from small_runs import PHASES, an_update, equal, outcome, rows, settings_maker, untimed

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.evaluation.report.contents import read_contents
from securecoderl_edge.evaluation.report.page import _results
from securecoderl_edge.models.sampling import TokenCompletion
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.runs import Run
from securecoderl_edge.training import phase as phases
from securecoderl_edge.training.plan import make_plan
from securecoderl_edge.training.settings import RewardSettings, TrainSettings, with_own_r
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import minibatches, ppo_update, rollout, supervised
from securecoderl_edge.training.update.rollout import Rollout, with_coin_flips

pytestmark = pytest.mark.usefixtures("varied_reward")

# A random model does not solve anything: what rft keeps is a coin's.
COUNTED = (
    *("binary.steps=3", "ppo.epochs=2", "ppo.minibatches=2", "rft.steps=3", "rft.updates_per_round=2", "rft.epochs=3"),
    *("rft.batch_size=2", "ssd.steps=2", "selection.problems=2", "selection.every=9"),
)
COIN = "reward.random=0.5"
KINDS = ("sft", "binary", "rft", "ssd")


class Counts:
    """Tokens by phase, counted where they pass: at the sampler, and in each forward pass with gradients."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.phase, self.in_update = "", False
        self.sampled, self.trained = Counter[str](), Counter[str]()
        for phase, update in phases.UPDATES.items():
            patch.setitem(phases.UPDATES, phase, self._during(phase, update))
        for module in (rollout, supervised):
            patch.setattr(module, "own_completions", self._sampling(module.own_completions))
        for module in (ppo_update, minibatches, supervised):
            patch.setattr(module, "completion_log_probs", self._training(module.completion_log_probs))

    def _during(self, phase: str, update: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.phase, self.in_update = phase, True
            made = update(*arguments)
            self.in_update = False
            return made

        return counted

    def _sampling(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> list[TokenCompletion]:
            made: list[TokenCompletion] = real(*arguments, **options)
            if self.in_update:
                self.sampled[self.phase] += sum(len(done.token_ids) for done in made)
            return made

        return counted

    def _training(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(model: Any, batch: Any, *arguments: Any) -> Any:
            if torch.is_grad_enabled():
                self.trained[self.phase] += int(batch.mask.sum())
            return real(model, batch, *arguments)

        return counted


@pytest.fixture(scope="module")
def every_end() -> Any:
    """Completions count as finished, wherever they were cut, so that rft and ssd have something to train on."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (rollout, supervised):
            real = module.own_completions

            def finished(*arguments: Any, real: Any = real, **options: Any) -> list[TokenCompletion]:
                return [
                    TokenCompletion(done.prompt, done.sample, done.token_ids, done.log_probs, True)
                    for done in real(*arguments, **options)
                ]

            patch.setattr(module, "own_completions", finished)
        yield


@pytest.fixture(scope="module")
def counted(
    settings: Callable[..., TrainSettings], every_end: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, Counts]:
    """A run with every kind of phase, and its tokens; read only."""
    with pytest.MonkeyPatch.context() as patch:
        counts = Counts(patch)
        config = settings(*COUNTED, COIN, phases=KINDS)
        return train(config, tmp_path_factory.mktemp("counted") / "run"), counts


def test_the_tokens_of_each_phase_are_those_of_the_sampler_and_of_passes_with_gradients(
    counted: tuple[Run, Counts],
) -> None:
    run, counts = counted
    for phase in KINDS:
        made = [row for row in rows(run) if row["phase"] == phase]
        last = made[-1]
        assert (last["tokens_sampled"], last["tokens_trained"]) == (counts.sampled[phase], counts.trained[phase])
        assert outcome(run, phase)["tokens_sampled"] == counts.sampled[phase]
        assert outcome(run, phase)["tokens_trained"] == counts.trained[phase] > 0
        for name in ("tokens_sampled", "tokens_trained"):
            course = [row[name] for row in made]
            assert course == sorted(course)
        if phase != "sft":
            assert last["tokens_sampled"] == sum(row["tokens"] for row in made)
    assert counts.sampled["sft"] == 0
    # Two epochs on all that RL sampled: no group is dropped.
    assert counts.trained["binary"] == 2 * counts.sampled["binary"]


def test_reports_show_the_tokens_of_each_phase_side_by_side(counted: tuple[Run, Counts], whole: Run) -> None:
    run, counts = counted
    contents = read_contents([run, whole])
    record = json.loads(json.dumps(contents.to_record(), default=str))
    shown = {(each["run"], each["phase"]): each for each in record["results"]}
    own = contents.names[0]
    for phase in KINDS:
        assert shown[own, phase]["tokens_trained"] == counts.trained[phase]
        assert shown[own, phase]["tokens_sampled"] == counts.sampled[phase]
    assert shown[contents.names[1], "sft"]["tokens_trained"] > 0
    page = "".join(_results(contents))
    assert f"{counts.trained['binary']:,}" in page
    assert "tokens trained on" in page


def test_a_run_without_counts_says_so(counted: tuple[Run, Counts], tmp_path: Path) -> None:
    (tmp_path / "phases/1-sft").mkdir(parents=True)
    old = [{key: value for key, value in row.items() if "tokens_" not in key} for row in rows(counted[0])]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in old))
    results = read_contents([Run(tmp_path)]).results
    assert {(each.tokens_sampled, each.tokens_trained) for each in results} == {(None, None)}


def budget_of(made: list[dict[str, Any]], name: str, step: int) -> int:
    """A budget that update ``step`` is the first to reach."""
    return int(made[step - 2][name]) + 1


@pytest.mark.parametrize(
    ("phase", "name"),
    [("sft", "tokens_trained"), ("binary", "tokens_sampled"), ("binary", "tokens_trained"), ("ssd", "tokens_sampled")],
)
def test_a_phase_ends_with_the_update_that_reaches_its_budget(
    phase: str, name: str, counted: tuple[Run, Counts], settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    whole = [row for row in rows(counted[0]) if row["phase"] == phase]
    most = budget_of(whole, name, 2)
    last = KINDS[: KINDS.index(phase) + 1]
    coin = () if phase == "sft" else (COIN,)  # refused where nothing is rewarded
    config = settings(*COUNTED, *coin, f"{phase}.steps=3", f"{phase}.max_{name}={most}", phases=last)
    said: list[str] = []
    run = train(config, tmp_path / "run", say=said.append)
    made = [row for row in rows(run) if row["phase"] == phase]
    assert [row["step"] for row in made] == [1, 2]
    assert made[-1][name] >= most > made[-2][name]
    assert [row["steps"] for row in made] == [3, 2]
    assert "eval/reward" in made[-1]
    assert outcome(run, phase)["steps"] == 2
    assert made[-1][name] == whole[1][name]


def test_a_round_that_a_budget_ends_is_trained_on_and_the_phase_resumes_no_further(
    every_end: None,
    settings: Callable[..., TrainSettings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One more than an update of 8 completions of 10 tokens can sample.
    budget = ("rft.updates_per_round=9", "rft.steps=9", "rft.max_tokens_sampled=81")
    config = settings(*COUNTED, COIN, *budget, phases=("rft",))
    real = phases.PhaseFiles.publish

    def crash(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(phases.PhaseFiles, "publish", crash)
    with pytest.raises(ZeroDivisionError):
        train(config, tmp_path / "run")
    before = untimed(Run(tmp_path / "run"))
    assert [row.get("optimizer_steps", 0) > 0 for row in before] == [False, True]
    monkeypatch.setattr(phases.PhaseFiles, "publish", real)
    run = train(config, tmp_path / "run")
    assert untimed(run) == before
    assert equal(run.policy, run.phase_folder(1, "rft") / "checkpoints/step-000002")


def test_a_plan_has_no_more_tokens_than_the_budget_and_the_rest_of_an_update(
    settings: Callable[..., TrainSettings],
) -> None:
    def most(*overrides: str) -> int | None:
        return make_plan(settings("readiness_problems=0", *overrides, phases=("binary",))).phases[0].most_tokens

    assert most() == 4 * 8 * 10
    assert most("binary.max_tokens_sampled=100") == 100 + 8 * 10 - 1
    assert most("binary.max_tokens_sampled=1000") == 4 * 8 * 10


def test_a_random_reward_knows_the_seed_and_the_update_and_nothing_of_the_program() -> None:
    completions = [TokenCompletion(0, number, (1,), (0.0,), True) for number in range(4000)]

    def flips(step: int = 1, **given: Any) -> list[float | None]:
        update = an_update([], None, "binary", step=step, **{"reward": RewardSettings(random=0.3), **given})
        made = with_coin_flips(Rollout([], completions, [], []), update).own
        assert made is not None
        return made

    assert flips() == flips()
    assert set(flips()) == {0.0, 1.0}
    # Five standard errors.
    assert abs(sum(float(each or 0) for each in flips()) / 4000 - 0.3) < 5 * (0.3 * 0.7 / 4000) ** 0.5
    assert flips(2) != flips() != flips(seed=6)
    assert set(flips(reward=RewardSettings(random=0.0))) == {0.0}
    assert set(flips(reward=RewardSettings(random=1.0))) == {1.0}


def test_a_run_with_a_random_reward_says_so_and_evaluates_by_r(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    said: list[str] = []
    config = settings("reward.random=0.5", phases=("sft", "binary"))
    run = train(config, tmp_path / "run", say=said.append)
    assert any("the reward is random (reward.random = 0.5)" in line for line in said)
    made = [row for row in rows(run) if row["phase"] == "binary"]
    for row in made:
        assert row["objective/reward"] == row["random_reward"]
        assert row["random_reward"] * 8 in range(9)
    samples = [each for each in rows(run, "samples.jsonl") if each["phase"] == "binary"]
    assert {each.get("random_reward") for each in samples if not each["held_out"]} == {0.0, 1.0}
    # Held-out programs have no coin; R of `varied_reward` depends on problem and sample alone.
    by_r = [row["eval/reward"] for row in rows(whole) if row["phase"] == "binary" and "eval/reward" in row]
    assert [row["eval/reward"] for row in made if "eval/reward" in row] == by_r
    assert with_own_r(config.reward).random is None
    assert not equal(run.policy, whole.phase_folder(2, "binary") / "adapter")


def test_a_random_reward_and_a_function_exclude_each_other(settings: Callable[..., TrainSettings]) -> None:
    with pytest.raises(UsageError, match=r"Leave out reward.function"):
        settings("reward.random=0.5", "reward.function=rewards.py:brevity")


@pytest.mark.parametrize("reward", ["reward.random=0.5", "reward.function=rewards.py:brevity"])
@pytest.mark.parametrize("phases", [("sft",), ("sft", "ssd")])
def test_a_reward_of_ones_own_is_refused_where_nothing_uses_it(
    settings: Callable[..., TrainSettings], reward: str, phases: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError, match=rf"has no effect: no phase has a reward \({', '.join(phases)}\)"):
        settings(reward, phases=phases)


SECURE, OPEN = "print(len(input()))\n", "text = input()\nprint(9 if text == 'attack' else len(text))\n"
FOUND = "print(eval('len(input())'))\n"
WRONG = "input()\nprint(2)\n"


def attacked(number: int, solutions: tuple[str, ...], has_tests: bool = True) -> Problem:
    attack = (SecurityTest("a text that opens", 94, "attack", output="6\n"),)
    tests = (Test("ab", "2\n"), Test("abc", "3\n"))
    statement = f"Print the length. ({number})"
    security = attack if has_tests else ()
    return Problem(f"p{number}", statement, tests=tests, security_tests=security, solutions=solutions)


def solutions_in(
    tiny_model: Path, tmp_path: Path, problems: list[Problem], *overrides: str
) -> tuple[Counter[str], list[str]]:
    """The solutions that SFT trains on, and what it says."""
    write_problems(tmp_path / "problems.jsonl", problems)
    make, seen, said = settings_maker(tiny_model, tmp_path / "problems.jsonl", PHASES), Counter[str](), list[str]()
    real = supervised.solution_batch

    def watched(learner: Any, update: Any) -> Any:
        batch = real(learner, update)
        known = {tuple(learner.solution_tokens(program)): program for program in (SECURE, OPEN, FOUND, WRONG)}
        seen.update(known[completion] for _, completion in batch.sequences)
        return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervised, "solution_batch", watched)
        config = make("sft.steps=16", "sft.solutions=any", "selection.problems=0", *overrides, phases=("sft",))
        train(config, tmp_path / "run", say=said.append)
    return seen, said


def test_sft_can_leave_out_solutions_that_fail_a_test_an_attack_or_a_scan(tiny_model: Path, tmp_path: Path) -> None:
    problems = [
        attacked(1, (SECURE, OPEN, FOUND, WRONG)),
        attacked(2, (OPEN, FOUND)),
        attacked(3, (FOUND, OPEN), has_tests=False),
    ]
    seen, said = solutions_in(tiny_model, tmp_path / "secure", problems, "sft.filter=security")
    # Without attacks nothing is known against the open one.
    assert seen.keys() == {SECURE, OPEN}
    assert any(line.startswith("sft: 2 of 3 problems have a secure solution") for line in said)
    seen, _ = solutions_in(tiny_model, tmp_path / "tests", problems, "sft.filter=security", "reward.security=tests")
    assert seen.keys() == {SECURE, OPEN, FOUND}


def test_sft_without_a_secure_solution_is_told(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(SceError, match="no problem has a secure reference solution"):
        solutions_in(tiny_model, tmp_path, [attacked(1, (OPEN, FOUND))], "sft.filter=security")
