"""Batches in which some groups have no variance: their KL, the size of their gradient, and steps that overflow."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from small_runs import SlowUpdate, Unrun, an_update, policy_of, sgd_learner

from securecoderl_edge.models.adapters import POLICY_ADAPTER, adapter_parameters, reference_active
from securecoderl_edge.models.device import Compute
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.update import minibatches, ppo_update, rollout
from securecoderl_edge.training.update.learner import Learner
from securecoderl_edge.training.update.rollout import Rollout

PROBLEMS = [Problem(f"p{n}", f"Add {n}.", tests=(Test("1\n", f"{n}\n"),), solutions=("print(1)",)) for n in range(4)]
PPO = PpoSettings(
    batch_size=16, samples_per_prompt=4, max_tokens=10, epochs=1, micro_batch_tokens=200, max_grad_norm=1e9,
    temperature=1.0, kl_coefficient=0.02, drop_zero_variance_groups=True,
)  # fmt: skip


@pytest.fixture
def learner(tiny_model: Path) -> Learner:
    return moved_learner(tiny_model)


def moved_learner(model: Path) -> Learner:
    """Its policy is not its reference, and some completions end."""
    learner = sgd_learner(model, 0.1, moved=0.05)
    learner.end_tokens |= frozenset(range(0, learner.model.config.vocab_size, 8))
    return learner


def update(learner: Learner, ppo: PpoSettings, varied: int) -> tuple[dict[str, Any], Rollout]:
    """One update in which the first ``varied`` problems have groups with different rewards."""

    def reward(score: Score, *_: Any) -> float:
        return score.sample**2 % 5 / 5 if int(score.id[1:]) < varied else 0.4

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout, "training_reward", reward)
        return ppo_update.ppo_update(learner, an_update(PROBLEMS, Unrun(), ppo=ppo))


def kl_of(learner: Learner, made: Rollout, ppo: PpoSettings, rows: list[int]) -> float:
    """The mean over completions of the difference of their log-probabilities, one by one."""
    slow, differences = SlowUpdate(learner, made, ppo), []
    with torch.no_grad():
        for row in rows:
            ours = slow.log_probs(row).sum()
            with reference_active(learner.model):
                differences.append(float(ours - slow.log_probs(row).sum()))
    return sum(differences) / len(differences)


def unmoved(learner: Learner) -> Learner:
    """The same, with a rate of zero, so that the policy that sampled is there afterwards."""
    learner.optimizer.param_groups[0]["lr"] = 0.0
    return learner


@pytest.mark.parametrize("varied", [0, 1, 3, 4])
def test_the_kl_is_that_of_all_groups_of_which_dropped_ones_are_represented(learner: Learner, varied: int) -> None:
    row, made = update(unmoved(learner), PPO, varied)
    size = PPO.samples_per_prompt
    groups = [range(start, start + size) for start in range(0, 16, size)]
    kept = [int(made.problems[made.completions[group[0]].prompt].id[1:]) < varied for group in groups]
    parts = [
        kl_of(learner, made, PPO, list(group) if is_kept else [group[0]])
        for group, is_kept in zip(groups, kept, strict=True)
    ]
    assert row["objective/kl"] == pytest.approx(sum(parts) / len(parts), abs=1e-4)
    assert row["objective/non_score_reward"] == pytest.approx(-0.02 * row["objective/kl"])
    assert row["groups_used"] == varied


def test_the_kl_without_dropped_groups_is_another(learner: Learner) -> None:
    """As it was reported before: groups without variance can be those that are far from the reference."""
    row, made = update(unmoved(learner), PPO, 1)
    whole, _ = update(unmoved(learner), replace(PPO, drop_zero_variance_groups=False), 1)
    of_kept = kl_of(learner, made, PPO, [row for row in range(16) if made.scores[row].id == "p0"])
    assert abs(row["objective/kl"] - whole["objective/kl"]) < abs(of_kept - whole["objective/kl"])


def test_masked_completions_count_in_the_kl(learner: Learner) -> None:
    masking = replace(PPO, drop_zero_variance_groups=False, mask_truncated=True)
    row, made = update(unmoved(learner), masking, 4)
    total = 0.0
    for start in range(0, 16, 4):
        group = range(start, start + 4)
        whole = [row for row in group if made.completions[row].finished]
        cut = [row for row in group if not made.completions[row].finished]
        total += len(whole) * kl_of(learner, made, masking, whole) if whole else 0.0
        total += len(cut) * kl_of(learner, made, masking, cut[:1]) if cut else 0.0
    assert 0 < row["truncated_rate"] < 1
    assert row["objective/kl"] == pytest.approx(total / 16, abs=1e-4)


def test_the_kl_of_dropped_groups_changes_nothing_in_the_policy(tiny_model: Path) -> None:
    policies = []
    for measures in (True, False):
        learner = moved_learner(tiny_model)
        learner.measures_kl = measures
        row, _ = update(learner, replace(PPO, kl_coefficient=0.0), 2)
        assert ("objective/kl" in row) == measures
        policies.append(policy_of(learner))
    assert torch.equal(*policies)


def gradient_of(model: Path, ppo: PpoSettings, varied: int) -> torch.Tensor:
    learner = moved_learner(model)
    before = policy_of(learner)
    update(learner, ppo, varied)
    return (before - policy_of(learner)) / learner.optimizer.param_groups[0]["lr"]


def alone(model: Path, ppo: PpoSettings, varied: int) -> tuple[torch.Tensor, float]:
    """The gradient of the groups that vary, as if there were no others, and their share of the tokens."""
    learner = moved_learner(model)
    _, made = update(unmoved(learner), ppo, varied)
    slow, parts, squares, tokens = SlowUpdate(learner, made, ppo), [], 0.0, 0
    for start in range(0, 16, 4):
        group = range(start, start + 4)
        if int(made.scores[start].id[1:]) < varied:
            rewards = [made.scores[row].sample ** 2 % 5 / 5 for row in group]
            for row, reward in zip(group, rewards, strict=True):
                advantage = reward - (sum(rewards) - reward) / 3
                log_probs = slow.log_probs(row)
                parts.append(-advantage * log_probs.sum())
                squares, tokens = squares + advantage**2 * len(log_probs), tokens + len(log_probs)
    parameters = list(adapter_parameters(learner.model, POLICY_ADAPTER).values())
    scaled = torch.stack(parts).sum() / tokens / math.sqrt(squares / tokens)
    every = torch.autograd.grad(scaled, parameters)
    return torch.cat([each.flatten() for each in every]), tokens / sum(len(done.token_ids) for done in made.completions)


@pytest.mark.parametrize("varied", [1, 2, 4])
@pytest.mark.parametrize("drops", [True, False])
def test_scaled_advantages_shrink_the_gradient_by_the_root_of_the_share_that_varies(
    tiny_model: Path, varied: int, drops: bool
) -> None:
    ppo = replace(PPO, kl_coefficient=0.0, drop_zero_variance_groups=drops)
    expected, share = alone(tiny_model, ppo, varied)
    assert (share == 1) == (varied == 4)
    found = gradient_of(tiny_model, ppo, varied)
    torch.testing.assert_close(found, math.sqrt(share) * expected, rtol=1e-2, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["grpo", "dr-grpo"])
def test_other_advantages_shrink_it_by_the_share_itself(tiny_model: Path, name: str) -> None:
    ppo = replace(PPO, kl_coefficient=0.0, advantage=name)
    parts = []
    for varied in (1, 2):
        part = gradient_of(tiny_model, ppo, varied)
        parts.append(part)
    without = gradient_of(tiny_model, replace(ppo, drop_zero_variance_groups=False), 1)
    torch.testing.assert_close(parts[0], without, rtol=1e-3, atol=1e-4 * float(without.abs().max()))
    second = parts[1] - parts[0]  # the second group adds its own quarter, whatever the first one does
    assert float(second.norm()) > 0.1 * float(parts[0].norm())


def test_gradients_of_scaled_advantages_have_the_same_noise_however_few_groups_vary() -> None:
    """Per-token gradients without a signal: the variance of a batch's gradient depends on its size alone."""
    from securecoderl_edge.training.update.ppo import leave_one_out_advantages, whiten

    groups, size, trials = 8, 4, 4000
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(trials, groups * size, generator=generator)
    found = {}
    for varied in (1, 3, 8):
        rewards = torch.rand(varied * size, 1, generator=generator)
        mask = torch.ones_like(rewards)
        share = varied / groups
        scaled = whiten(leave_one_out_advantages(rewards, mask, size), mask, center=False)[:, 0] / share**0.5
        found[varied] = float((share * (scaled * noise[:, : varied * size]).mean(1)).std())
    expected = 1 / math.sqrt(groups * size)
    assert all(each == pytest.approx(expected, rel=0.05) for each in found.values())


@pytest.mark.parametrize("advantage", ["grpo", "dr-grpo"])
@pytest.mark.parametrize(("coefficient", "distance", "skipped"), [(0.02, 12.0, 1), (0.02, 0.0, 0), (0.0, 12.0, 0)])
def test_a_kl_in_the_loss_far_from_its_reference_overflows_float16_and_skips_one_step(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, advantage: str, coefficient: float, distance: float, skipped: int
) -> None:
    """The estimate has the factor pi_ref / pi, which nothing bounds; without it nothing overflows."""
    learner = replace(moved_learner(tiny_model), compute=Compute("cpu", "fp32", torch.float16))
    before, real = policy_of(learner), minibatches.kl_loss
    monkeypatch.setattr(minibatches, "kl_loss", lambda now, reference, *a: real(now, reference + distance, *a))
    ppo = replace(PPO, advantage=advantage, kl_coefficient=coefficient, drop_zero_variance_groups=False)
    row, _ = update(learner, ppo, 4)
    assert row["skipped_steps"] == skipped
    assert row["loss_scale"] == 2.0 ** (16 - skipped)
    assert torch.equal(policy_of(learner), before) == bool(skipped)
    assert ("grad_norm" in row) == (not skipped), "that of no step is reported"
