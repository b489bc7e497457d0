"""Optimizer steps of an update: those of a slow reference, in minibatches of whole groups, on the right scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from quick import few
from small_runs import SlowUpdate, an_update, policy_of, rows, sgd_learner, untimed

from securecoderl_edge.models.adapters import (
    POLICY_ADAPTER,
    adapter_parameters,
    reference_active,
)
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.settings import RewardSettings, TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import minibatches, ppo_update, rollout
from securecoderl_edge.training.update.learner import Learner, seed_of, shuffled
from securecoderl_edge.training.update.rollout import Rollout

PROBLEMS = [
    Problem(f"p{n}", f"Add {n} to a number.", tests=(Test("1\n", f"{n}\n"),), solutions=("print(1)",)) for n in range(7)
]
PPO = PpoSettings(batch_size=16, samples_per_prompt=4, max_tokens=10, epochs=1, micro_batch_tokens=150)
BETA = 0.4
REWARD = RewardSettings(security_weight=BETA)
SEED, PHASE = 5, "partial"


def two_rewards(score: Score, weight: float, reward: RewardSettings, *_: Any) -> float:
    """R_func and R_sec of different spread, whatever is sampled; equal for all programs of two problems."""
    place = 4 if score.id in ("p1", "p5") else 3 * int(score.id[1:]) + score.sample
    return (1 - reward.security_weight) * (place % 7) / 7 + reward.security_weight * (place % 3) / 30


@pytest.fixture(autouse=True)
def rewarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "training_reward", two_rewards)


@pytest.fixture
def make_learner(tiny_model: Path) -> Callable[..., Learner]:
    """Equal learners; with plain gradient descent, in which a rounding error of a gradient stays one.

    A larger learning rate multiplies it: another token may then be clipped.
    """

    def make() -> Learner:
        return sgd_learner(tiny_model, 0.3)

    return make


def update(learner: Learner, scorer: Scorer, ppo: PpoSettings, step: int = 1) -> tuple[dict[str, Any], Rollout]:
    made = an_update(PROBLEMS, scorer, PHASE, step=step, seed=SEED, ppo=ppo, reward=REWARD)
    return ppo_update.ppo_update(learner, made)


class Slow(SlowUpdate):
    """An update as its documentation says, completion by completion and token by token.

    Attributes:
        entropy: its estimate from the tokens of the update, before the first step.
    """

    entropy = 0.0

    def rewards(self) -> list[float]:
        return [two_rewards(score, 1.0, REWARD) for score in self.made.scores]

    def groups(self) -> list[list[int]]:
        size, rewards = self.ppo.samples_per_prompt, self.rewards()
        every = [list(range(start, start + size)) for start in range(0, len(rewards), size)]
        drops = self.ppo.drop_zero_variance_groups
        return [group for group in every if not drops or len({rewards[row] for row in group}) > 1]

    def lengths(self, rows: list[int]) -> list[int]:
        return [len(self.made.completions[row].token_ids) for row in rows]

    def leave_one_out(self, values: list[float]) -> dict[int, float]:
        found = {}
        for group in self.groups():
            for row in group:
                others = [values[other] for other in group if other != row]
                found[row] = values[row] - sum(others) / len(others)
        return found

    def scaled(self, advantages: dict[int, float], tokens: int) -> dict[int, float]:
        """Divided by the root mean square over the tokens of a batch."""
        square = sum(value**2 * self.lengths([row])[0] for row, value in advantages.items()) / tokens
        return {row: value / math.sqrt(square) for row, value in advantages.items()}

    def advantages(self, old: list[torch.Tensor], tokens: int) -> dict[int, float]:
        with torch.no_grad(), reference_active(self.learner.model):
            reference = [self.log_probs(row) for row in range(len(old))]
        kl = [-self.ppo.kl_coefficient * float((a - b).sum()) for a, b in zip(old, reference, strict=True)]
        shaped = [reward + penalty for reward, penalty in zip(self.rewards(), kl, strict=True)]
        return self.scaled(self.leave_one_out(shaped), tokens)

    def update(self) -> tuple[float, float]:
        """Make the steps; returns means over them: the fraction of clipped tokens, and the gradient's norm."""
        ppo, groups = self.ppo, self.groups()
        with torch.no_grad():
            old = [self.log_probs(row) for row in range(len(self.made.completions))]
        used = [row for group in groups for row in group]
        self.entropy = -float(torch.cat([old[row] for row in used]).mean())
        flat = [row for row in range(len(old)) if row not in used]
        missing = ppo.batch_size - len(used)
        tokens = sum(self.lengths([*used, *flat[len(flat) - missing :]]))
        share = sum(self.lengths(used)) / tokens
        advantages, clipped, norms = self.advantages(old, tokens), [], []
        parameters = list(adapter_parameters(self.learner.model, POLICY_ADAPTER).values())
        for epoch in range(ppo.epochs):
            order = shuffled(len(groups), seed_of(SEED, PHASE, "minibatches", 1, epoch))
            count = min(ppo.minibatches, len(groups))
            for number in range(count):
                chosen = [row for group in order[number::count] for row in groups[group]]
                losses, outside = [], []
                for row in chosen:
                    ratios = (self.log_probs(row) - old[row]).exp()
                    for ratio in ratios:
                        near = ratio.clamp(1 - ppo.clip_range, 1 + ppo.clip_range)
                        losses.append(-torch.minimum(advantages[row] * ratio, advantages[row] * near))
                        outside.append(float(abs(ratio.item() - 1) > ppo.clip_range))
                gradients = torch.autograd.grad(share * torch.stack(losses).mean(), parameters)
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.grad = gradient
                norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, ppo.max_grad_norm)))
                self.learner.optimizer.step()
                clipped.append(sum(outside) / len(outside))
        return sum(clipped) / len(clipped), sum(norms) / len(norms)


DROPPING = replace(PPO, drop_zero_variance_groups=True)


@pytest.mark.parametrize(
    "ppo",
    [
        replace(PPO, minibatches=2, epochs=2),
        replace(PPO, minibatches=4, clip_range=0.01),
        replace(DROPPING, minibatches=2, epochs=2),
    ],
    ids=["two", "clipped", "dropped"],
)
def test_an_update_is_that_of_a_slow_reference(
    ppo: PpoSettings, make_learner: Callable[..., Learner], scorer: Scorer, request: pytest.FixtureRequest
) -> None:
    ppo = replace(ppo, kl_coefficient=0.1)
    fast, slow = make_learner(), make_learner()
    for learner in (fast, slow):  # away from the reference, so that there is a KL
        with torch.no_grad():
            for parameter in adapter_parameters(learner.model, POLICY_ADAPTER).values():
                parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    before = policy_of(fast)
    row, made = update(fast, scorer, ppo)
    reference = Slow(slow, made, ppo)
    clipped, norm = reference.update()
    moved, expected = policy_of(fast) - before, policy_of(slow) - before
    assert expected.norm() > 0.1
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()) + 1e-6)
    assert row["policy/clipfrac"] == pytest.approx(clipped, abs=1e-6)
    assert row["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert row["objective/entropy_estimate"] == pytest.approx(reference.entropy, rel=1e-4)
    assert row["val/steps"] == ppo.epochs * min(ppo.minibatches, row["groups_used"])
    case = request.node.callspec.id
    assert (row["groups_used"] < 4) == (case == "dropped")
    assert row["policy/clipfrac"] > 0 or case != "clipped"


def test_with_one_epoch_every_ratio_is_one_unless_there_are_minibatches(
    make_learner: Callable[..., Learner], scorer: Scorer
) -> None:
    whole, _ = update(make_learner(), scorer, replace(PPO, clip_range=0.001))
    split, _ = update(make_learner(), scorer, replace(PPO, clip_range=0.001, minibatches=4))
    names = ("policy/clipfrac", "policy/approxkl", "val/ratio_var", "val/first_ratio_error")
    assert [whole[name] for name in names] == [0, 0, 0, 0]
    assert split["val/first_ratio_error"] == 0
    assert split["policy/clipfrac"] > 0
    assert (whole["val/steps"], split["val/steps"], split["val/epochs"]) == (1, 4, 1)


def test_minibatches_are_whole_groups_drawn_anew_in_each_epoch_and_each_row_is_in_one(
    make_learner: Callable[..., Learner], scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, seen = minibatches.split, []

    def splitting(*arguments: Any) -> list[minibatches.Minibatch]:
        seen.append(split(*arguments))
        return seen[-1]

    monkeypatch.setattr(minibatches, "split", splitting)
    monkeypatch.setattr(ppo_update, "split", splitting)
    update(make_learner(), scorer, replace(PPO, minibatches=2, epochs=4))
    drawn = []
    for epoch in seen:
        rows = [sorted(row for piece in minibatch.pieces for row in piece) for minibatch in epoch]
        assert sorted(rows[0] + rows[1]) == list(range(16))
        groups = [{row // 4 for row in each} for each in rows]
        assert [len(each) for each in groups] == [2, 2]
        drawn.append(frozenset(groups[0]))
    assert len(drawn) == 4
    assert len(set(drawn)) > 1


def test_a_target_kl_stops_before_the_step_that_would_exceed_it(
    make_learner: Callable[..., Learner], scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ppo = replace(PPO, minibatches=2, epochs=3)
    assert update(make_learner(), scorer, ppo)[0]["val/steps"] == 6
    stopped, once = make_learner(), make_learner()
    row, _ = update(stopped, scorer, replace(ppo, target_kl=1e-9))
    assert (row["val/steps"], row["val/epochs"]) == (1, 1)
    assert row["policy/approxkl"] <= 1e-9
    # The step beyond the limit is not taken, and nothing of it is left.
    assert all(value.grad is None for value in adapter_parameters(stopped.model, POLICY_ADAPTER).values())
    real, calls = Learner.step, []

    def first_step_alone(self: Learner, *given: Any, **more: Any) -> tuple[float, float]:
        calls.append(1)
        if len(calls) == 1:
            return real(self, *given, **more)
        self.discard_gradients()
        return 0.0, 0.0

    monkeypatch.setattr(Learner, "step", first_step_alone)
    update(once, scorer, replace(ppo, epochs=1))
    assert torch.equal(policy_of(stopped), policy_of(once))


def test_four_samples_of_sixteen_prompts_are_a_batch(make_learner: Callable[..., Learner], scorer: Scorer) -> None:
    ppo = replace(DROPPING, batch_size=64, max_tokens=4, minibatches=4)
    row, made = update(make_learner(), scorer, ppo)
    assert (len(made.completions), len(made.problems)) == (64, 16)
    assert 0 < row["groups_used"] < 16


def test_without_a_penalty_the_kl_is_measured_only_where_it_is_asked_for(
    make_learner: Callable[..., Learner], scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, passes = ppo_update._evaluate, []
    monkeypatch.setattr(ppo_update, "_evaluate", lambda *a, **b: passes.append(1) or real(*a, **b))
    ppo = replace(PPO, kl_coefficient=0.0, epochs=2)
    asked, other = make_learner(), make_learner()
    other.measures_kl = False
    for step, count in ((1, 2), (2, 4)):
        row, _ = update(asked, scorer, ppo, step)
        assert {"objective/kl", "objective/non_score_reward"} <= row.keys()
        less, _ = update(other, scorer, ppo, step)
        assert row.keys() - less.keys() == {"objective/kl", "objective/non_score_reward"}
        assert len(passes) == count
    assert torch.equal(policy_of(asked), policy_of(other))


def test_a_phase_measures_the_kl_for_its_penalty(epoch_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    for coefficient in (0, 0.02):
        run = train(epoch_settings(f"ppo.kl_coefficient={coefficient}"), tmp_path / str(coefficient))
        measured = {row["phase"]: "objective/kl" in row for row in rows(run)}
        assert measured == {"sft": False, "binary": coefficient > 0, "partial": coefficient > 0}


STEPS = ("ppo.minibatches=2", "ppo.samples_per_prompt=2", "ppo.drop_zero_variance_groups=true")
SMALL = ("ppo.batch_size=4",)  # with running statistics


@pytest.fixture(scope="module")
def whole(epoch_settings: Callable[..., TrainSettings], once: Any) -> Run:
    """An uninterrupted run; read only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout, "training_reward", two_rewards)
        folder = once("minibatches", lambda folder: train(epoch_settings(*STEPS, *SMALL), folder / "run"))
    return Run(folder / "run")


@pytest.mark.parametrize("updates", few([4, 6], 6))
def test_a_run_with_minibatches_and_dropped_groups_resumes_bit_for_bit(
    updates: int, epoch_settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    def crash(row: dict[str, Any]) -> None:
        if len(seen) == updates:
            raise RuntimeError("power cut")
        seen.append(row)

    seen: list[dict[str, Any]] = []
    with pytest.raises(RuntimeError):
        train(epoch_settings(*STEPS, *SMALL), tmp_path / "run", log=crash)
    run = train(epoch_settings(*STEPS, *SMALL), tmp_path / "run")
    assert untimed(run) == untimed(whole)
    assert (run.policy / "adapter_model.safetensors").read_bytes() == (
        whole.policy / "adapter_model.safetensors"
    ).read_bytes()
    found = [row for row in rows(run) if row["phase"] != "sft"]
    assert any(row["groups_used"] < 2 for row in found)
    assert any(row.get("val/steps", 0) > 2 for row in found)
