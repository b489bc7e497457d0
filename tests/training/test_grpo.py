"""GRPO, Dr. GRPO, clip-higher and masked completions against the formulas of their papers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from once import Once
from quick import few
from small_runs import SlowUpdate, Unrun, an_update, policy_of, sgd_learner, untimed
from torch import Tensor

from securecoderl_edge.config import build
from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.adapters import (
    POLICY_ADAPTER,
    adapter_parameters,
    reference_active,
)
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.training.phase import Stopped
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import ppo_update, rollout
from securecoderl_edge.training.update.learner import Learner, seed_of, shuffled
from securecoderl_edge.training.update.ppo import (
    batch_advantages,
    group_advantages,
    kl_loss,
    leave_one_out_advantages,
    masked_mean,
    policy_loss,
)
from securecoderl_edge.training.update.prompt_sampling import rows_of_varied_groups
from securecoderl_edge.training.update.rollout import Rollout

PROBLEMS = [
    Problem(f"p{n}", f"Add {n} to a number.", tests=(Test("1\n", f"{n}\n"),), solutions=("print(1)",)) for n in range(4)
]
PPO = PpoSettings(
    batch_size=16, samples_per_prompt=4, max_tokens=10, epochs=1, micro_batch_tokens=150, max_grad_norm=1e9,
    temperature=1.0, kl_coefficient=0.0, advantage="grpo",
)  # fmt: skip
SEED, PHASE = 5, "partial"
NAMES = ("grpo", "dr-grpo")


def some_reward(score: Score, *_: Any) -> float:
    """Different in all groups but one, whose mean is another number than its rewards by rounding."""
    return 0.1 if score.id == "p2" else (7 * int(score.id[1:]) + 3 * score.sample**2) % 11 / 10


@pytest.fixture(autouse=True)
def rewarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "training_reward", some_reward)


@pytest.fixture
def make_learner(tiny_model: Path) -> Callable[..., Learner]:
    """Equal learners with plain gradient descent, whose policy is not their reference; an eighth of the tokens end."""

    def make() -> Learner:
        learner = sgd_learner(tiny_model, 0.1, moved=0.05)
        learner.end_tokens |= frozenset(range(0, learner.model.config.vocab_size, 8))
        return learner

    return make


def update(learner: Learner, ppo: PpoSettings) -> tuple[dict[str, Any], Rollout]:
    return ppo_update.ppo_update(learner, an_update(PROBLEMS, Unrun(), PHASE, seed=SEED, ppo=ppo))


class Paper(SlowUpdate):
    """The objective of DeepSeekMath, eq. 3 and 4, or of Dr. GRPO, eq. 1 to 3, completion by completion."""

    def __init__(self, learner: Learner, made: Rollout, ppo: PpoSettings) -> None:
        super().__init__(learner, made, ppo)
        self.low, self.high = ppo.clip_range if isinstance(ppo.clip_range, tuple) else (ppo.clip_range,) * 2

    def advantages(self, group: Sequence[int]) -> list[float]:
        rewards = [some_reward(self.made.scores[row]) for row in group]
        if len(set(rewards)) == 1:
            return [0.0] * len(group)
        mean = sum(rewards) / len(group)
        spread = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (len(group) - 1))
        return [(reward - mean) / (spread if self.ppo.advantage == "grpo" else 1.0) for reward in rewards]

    def of_completion(self, row: int, advantage: float, old: Tensor, reference: Tensor) -> Tensor:
        terms = []
        for now, before, frozen in zip(self.log_probs(row), old, reference, strict=True):
            ratio = (now - before).exp()
            near = ratio.clamp(1 - self.low, 1 + self.high)
            inverse = (frozen - now).exp()
            kl = inverse - inverse.log() - 1
            terms.append(torch.minimum(ratio * advantage, near * advantage) - self.ppo.kl_coefficient * kl)
        length = len(terms) if self.ppo.advantage == "grpo" else self.ppo.max_tokens
        return torch.stack(terms).sum() / length

    def update(self) -> None:
        """Gradient ascent on the objective of each minibatch, for all epochs."""
        ppo, size, count = self.ppo, self.ppo.samples_per_prompt, len(self.made.completions)
        groups = [range(start, start + size) for start in range(0, count, size)]
        kept = [group for group in groups if self.is_kept(group)]
        share = len(kept) / len(groups)
        with torch.no_grad():
            old = [self.log_probs(row) for row in range(count)]
            with reference_active(self.learner.model):
                reference = [self.log_probs(row) for row in range(count)]
        parameters = list(adapter_parameters(self.learner.model, POLICY_ADAPTER).values())
        for epoch in range(ppo.epochs):
            order = shuffled(len(kept), seed_of(SEED, PHASE, "minibatches", 1, epoch))
            for number in range(min(ppo.minibatches, len(kept))):
                chosen, parts = [kept[index] for index in order[number :: ppo.minibatches]], []
                for group in chosen:
                    for row, advantage in zip(group, self.advantages(group), strict=True):
                        if self.made.completions[row].finished or not ppo.mask_truncated:
                            parts.append(self.of_completion(row, advantage, old[row], reference[row]))
                objective = share * torch.stack(parts).sum() / (len(chosen) * size)
                for parameter, gradient in zip(parameters, torch.autograd.grad(objective, parameters), strict=True):
                    parameter.grad = -gradient
                self.learner.optimizer.step()

    def is_kept(self, group: Sequence[int]) -> bool:
        if self.ppo.mask_truncated and not any(self.made.completions[row].finished for row in group):
            return False
        return not self.ppo.drop_zero_variance_groups or any(self.advantages(group))


CASES = {
    "plain": PPO,
    "no group whole in a piece": replace(PPO, micro_batch_tokens=20),
    "kl": replace(PPO, kl_coefficient=0.3, epochs=2),
    "clipped": replace(PPO, epochs=3, minibatches=2, clip_range=(0.005, 0.02)),
    "masked": replace(PPO, mask_truncated=True, epochs=2, minibatches=2, kl_coefficient=0.1),
    "dropped": replace(PPO, drop_zero_variance_groups=True, epochs=2, minibatches=2, mask_truncated=True),
}


@pytest.mark.parametrize("case", few(CASES, "plain", "masked", "clipped"))
@pytest.mark.parametrize("name", NAMES)
def test_an_update_is_gradient_ascent_on_the_objective_of_the_paper(
    name: str, case: str, make_learner: Callable[..., Learner]
) -> None:
    ppo = replace(CASES[case], advantage=name)
    fast, slow = make_learner(), make_learner()
    before = policy_of(fast)
    row, made = update(fast, ppo)
    Paper(slow, made, ppo).update()
    moved, expected = policy_of(fast) - before, policy_of(slow) - before
    assert expected.norm() > 1e-3
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
    assert row["val/first_ratio_error"] == 0
    assert 0 < row["truncated_rate"] < 1
    assert row["policy/clipfrac"] > 0 or case != "clipped"
    assert ("loss/kl" in row) == (ppo.kl_coefficient > 0)
    assert "objective/non_score_reward" not in row or not ppo.kl_coefficient
    assert row["zero_variance_rate"] == 0.25
    assert row["groups_used"] == (3 if case == "dropped" else 4)


def test_dr_grpo_is_rloo_times_one_less_than_the_group_over_the_group() -> None:
    generator = torch.Generator().manual_seed(0)
    for size in (2, 3, 8):
        mask = (torch.rand(4 * size, 5, generator=generator) > 0.3).float()
        mask[:, 0] = 1
        scores = torch.rand(4 * size, generator=generator)
        rewards = torch.zeros_like(mask)
        rewards[:, 0] = scores
        found = group_advantages(scores, mask, size, divided=False)
        torch.testing.assert_close(found, leave_one_out_advantages(rewards, mask, size) * (size - 1) / size)


@pytest.mark.parametrize("score", [0.0, 0.1, 1 / 3, 0.7])
@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("divided", [True, False])
def test_equal_scores_of_a_group_give_zeros(score: float, size: int, divided: bool) -> None:
    assert not group_advantages(torch.full((size,), score), torch.ones(size, 2), size, divided=divided).any()


def test_scores_that_differ_by_little_are_divided_to_the_same_size() -> None:
    near, far = (group_advantages(torch.tensor([0.4, each]), torch.ones(2, 1), 2, divided=True) for each in (0.42, 0.9))
    torch.testing.assert_close(near, far, atol=1e-4, rtol=0)


@pytest.mark.parametrize("scores", [(0.1 + 0.2 - 0.3, 0.0), (1e-7, 0.0), (0.5, 0.5 + 1e-7), (0.7, 0.7)])
def test_scores_that_differ_by_rounding_are_no_variance(scores: tuple[float, float]) -> None:
    """Divided by their deviation they would be as far apart as 0 and 1."""
    rewards, mask = torch.tensor([*scores, 0.0, 1.0]), torch.ones(4, 1)
    assert rows_of_varied_groups(rewards, 2) == [2, 3]
    for divided in (True, False):
        found = group_advantages(rewards, mask, 2, divided=divided)
        assert not found[:2].any()
        assert found[2:].all()
    assert not batch_advantages(rewards[:2], torch.zeros(2, 1), mask[:2]).any()


@pytest.mark.parametrize(("rows", "size"), [(4, 1), (3, 2)])
def test_a_group_of_one_and_rows_that_make_no_groups_are_refused(rows: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"cannot split {rows} rows into groups of {size}"):
        group_advantages(torch.zeros(rows), torch.ones(rows, 1), size, divided=True)


@pytest.mark.parametrize("name", NAMES)
def test_settings_with_groups_of_one_or_a_value_head_to_warm_up_are_refused(name: str) -> None:
    chosen = (f"ppo.advantage={name}", "ppo.batch_size=8")
    with pytest.raises(UsageError, match=f"advantage = {name} needs ppo.samples_per_prompt of at least 2"):
        resolve("starter", (*chosen, "ppo.samples_per_prompt=1"), {})
    with pytest.raises(UsageError, match="has no value head"):
        resolve("starter", (*chosen, "ppo.value_warmup_steps=1"), {})
    assert resolve("starter", (*chosen, "ppo.samples_per_prompt=2", "ppo.drop_zero_variance_groups=true"), {})


def expected_gradient(size: int, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The mean over all groups of ``size`` one-token completions of the gradient of a loss of their log-probabilities.

    Enumerated: a group has the probability of its completions together.
    """
    logits = torch.tensor([0.3, -0.5, 0.1], dtype=torch.double, requires_grad=True)
    total = torch.zeros(3, dtype=torch.double)
    for group in itertools.product(range(3), repeat=size):
        log_probs = logits.log_softmax(-1)[list(group)]
        (gradient,) = torch.autograd.grad(loss(log_probs[:, None], torch.tensor(group)), logits)
        total += log_probs.detach().sum().exp() * gradient
    return total


REWARDS = torch.tensor([1.0, 0.2, 0.5], dtype=torch.double)
FROZEN = torch.tensor([-0.2, 0.4, 0.9], dtype=torch.double).log_softmax(-1)


@pytest.mark.parametrize("size", [2, 3])
def test_dr_grpo_follows_the_gradient_of_the_expected_reward_but_for_a_factor(size: int) -> None:
    def loss(log_probs: Tensor, tokens: Tensor) -> Tensor:
        mask = torch.ones_like(log_probs)
        advantages = group_advantages(REWARDS[tokens], mask, size, divided=False)
        return policy_loss(log_probs, log_probs.detach(), advantages, mask, 0.2).loss

    logits = torch.tensor([0.3, -0.5, 0.1], dtype=torch.double, requires_grad=True)
    (true,) = torch.autograd.grad((logits.softmax(-1) * REWARDS).sum(), logits)
    torch.testing.assert_close(expected_gradient(size, loss), -true * (size - 1) / size)


def test_the_kl_in_the_loss_estimates_one_kl_and_has_the_gradient_of_the_other() -> None:
    def loss(log_probs: Tensor, tokens: Tensor) -> Tensor:
        return kl_loss(log_probs, FROZEN[tokens][:, None], torch.ones_like(log_probs))

    logits = torch.tensor([0.3, -0.5, 0.1], dtype=torch.double, requires_grad=True)
    ours = logits.log_softmax(-1)
    each = torch.stack([loss(ours[[token]][:, None], torch.tensor([token])) for token in range(3)])
    torch.testing.assert_close((ours.exp() * each).sum(), (ours.exp() * (ours - FROZEN)).sum())
    (true,) = torch.autograd.grad((FROZEN.exp() * (FROZEN - ours)).sum(), logits)
    torch.testing.assert_close(expected_gradient(1, loss), true)


@pytest.mark.parametrize(
    ("ratio", "advantage", "is_moved"),
    [(1.25, 1, True), (1.3, 1, False), (1.3, -1, True), (0.85, -1, True), (0.75, -1, False), (0.75, 1, True)],
)
def test_clip_higher_lets_good_tokens_rise_further_than_bad_ones_fall(
    ratio: float, advantage: float, is_moved: bool
) -> None:
    log_probs = torch.tensor([[math.log(ratio)]], requires_grad=True)
    made = policy_loss(log_probs, torch.zeros(1, 1), torch.tensor([[float(advantage)]]), torch.ones(1, 1), (0.2, 0.28))
    (gradient,) = torch.autograd.grad(made.loss, log_probs)
    assert bool(gradient.any()) == is_moved
    assert float(made.clip_fraction) == (ratio > 1.28 or ratio < 0.8)


def test_one_number_clips_as_two_equal_ones() -> None:
    log_probs, old, advantages = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))
    one, two = (policy_loss(log_probs, old, advantages, torch.ones(4, 6), clip) for clip in (0.2, (0.2, 0.2)))
    assert all(torch.equal(getattr(one, name), getattr(two, name)) for name in vars(one))


def test_a_clip_range_is_one_number_or_two() -> None:
    def built(value: Any) -> Any:
        return build(PpoSettings, {"clip_range": value}, "x").clip_range

    assert (built(0.2), built(1), built([0.2, 1])) == (0.2, 1.0, (0.2, 1.0))
    for value, words in (
        ([0.2], "must be one number or 2"), ([0.1, 0.2, 0.3], "must be one number or 2"), ([0.2, "x"], "must be float"),
        ([-0.1, 0.2], "at least 0"), ("0.2", "must be float, found"), ([0.2, math.inf], "finite"), (True, "found True"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            built(value)
    settings = resolve("starter", ("ppo.clip_range=[0.2, 0.28]",), {})
    assert settings.ppo.clip_range == (0.2, 0.28)


def test_masked_tokens_change_no_loss_whatever_they_are() -> None:
    log_probs, old, advantages = torch.randn(3, 2, 3, generator=torch.Generator().manual_seed(0))
    weights = torch.tensor([[0.5, 0.5, 0], [0, 0, 0]])
    changed = log_probs + 500 * (weights == 0)  # ratios that overflow
    for now in (log_probs, changed):
        now.requires_grad_()
    losses = [
        policy_loss(now, old, advantages, weights, 0.2).loss + kl_loss(now, old, weights)
        for now in (log_probs, changed)
    ]
    assert torch.equal(*losses)
    (gradient,) = torch.autograd.grad(losses[1], changed)
    assert bool((gradient != 0)[0, :2].all())
    assert not gradient[weights == 0].any()
    assert masked_mean(log_probs, torch.zeros_like(weights)) == 0


@pytest.mark.parametrize("name", [*NAMES, "rloo", "batch"])
def test_a_batch_of_truncated_completions_makes_no_step(name: str, make_learner: Callable[..., Learner]) -> None:
    learner = make_learner()
    learner.optimizer = torch.optim.Adam(adapter_parameters(learner.model, POLICY_ADAPTER).values(), lr=0.01)
    ppo = replace(PPO, advantage=name, mask_truncated=True)
    assert update(learner, ppo)[0]["groups_used"] > 0
    before = policy_of(learner)  # Adam has a momentum now
    learner.end_tokens = frozenset()
    row, _ = update(learner, ppo)
    assert (row["truncated_rate"], row["groups_used"]) == (1, 0)
    assert torch.equal(policy_of(learner), before)


def test_rloo_masks_the_same_completions_and_keeps_their_rewards_in_the_baseline(
    make_learner: Callable[..., Learner],
) -> None:
    """Without the KL its step is that of Dr. GRPO but for its length: both sum over tokens."""
    moved = []
    for name in ("rloo", "dr-grpo"):
        learner = make_learner()
        before = policy_of(learner)
        update(learner, replace(PPO, advantage=name, mask_truncated=True))
        moved.append(policy_of(learner) - before)
    first, second = (each / each.norm() for each in moved)
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-3)


RUNS = {
    "grpo": ("ppo.advantage=grpo", "ppo.clip_range=[0.01, 0.02]", "ppo.minibatches=2"),
    "dr-grpo": ("ppo.advantage=dr-grpo", "ppo.drop_zero_variance_groups=true"),
}


@pytest.mark.parametrize("name", few(RUNS, "grpo"))
def test_a_run_that_was_stopped_and_resumed_equals_an_uninterrupted_one_bit_for_bit(
    name: str, epoch_settings: Callable[..., TrainSettings], once: Once, tmp_path: Path
) -> None:
    config = epoch_settings(*RUNS[name])
    whole = Run(once(f"grpo-{name}", lambda folder: train(config, folder / "run")) / "run")
    asked = iter([False] * 4 + [True] + [False] * 20)
    with pytest.raises(Stopped):
        train(config, tmp_path / "parts", should_stop=lambda: next(asked))
    parts = train(config, tmp_path / "parts")
    assert untimed(parts) == untimed(whole)
    adapters = [(run.path / "policy/adapter_model.safetensors").read_bytes() for run in (parts, whole)]
    assert adapters[0] == adapters[1]
