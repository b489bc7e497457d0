"""An update with a value head against a slow reference, and the scale of advantages, statistic by statistic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from small_runs import SlowUpdate, Unrun, an_update, policy_of, sgd_learner
from torch import Tensor

from securecoderl_edge.models.adapters import POLICY_ADAPTER, adapter_parameters, reference_active
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.update import ppo_update, rollout
from securecoderl_edge.training.update.learner import Learner, seed_of, shuffled
from securecoderl_edge.training.update.ppo import estimate_advantages
from securecoderl_edge.training.update.sequences import make_batch
from securecoderl_edge.training.update.trajectory import Trajectory

PROBLEMS = [Problem(f"p{n}", f"Add {n} to a number.") for n in range(8)]
PPO = PpoSettings(
    advantage="gae", batch_size=8, samples_per_prompt=1, max_tokens=10, epochs=1, micro_batch_tokens=120,
    kl_coefficient=0.3, temperature=0.8,
)  # fmt: skip
SEED, PHASE, LAMBDA = 5, "partial", 0.95


def some_reward(score: Score, *_: Any) -> float:
    return 3 * int(score.id[1:]) % 7 / 7


@pytest.fixture(autouse=True)
def rewarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "training_reward", some_reward)


@pytest.fixture
def make_learner(tiny_model: Path) -> Callable[..., Learner]:
    """Equal learners with plain gradient descent; their policy is not their reference, their values are not 0."""

    def make() -> Learner:
        learner = sgd_learner(tiny_model, 0.3, moved=0.05)
        learner.end_tokens |= frozenset(range(0, learner.model.config.vocab_size, 8))
        head = torch.nn.Linear(learner.model.config.hidden_size, 1)
        with torch.no_grad():
            head.weight.copy_(0.2 * torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(9)))
            head.bias.fill_(0.1)
        learner.optimizer.add_param_group({"params": list(head.parameters()), "lr": 0.05})
        return replace(learner, value_head=head)

    return make


class Slow(SlowUpdate):
    """An update as its documentation says, completion by completion and token by token."""

    def values(self, row: int) -> Tensor:
        """What the value head says before each token of a completion."""
        done = self.made.completions[row]
        before = [*self.made.prompts[done.prompt]]
        tokens = torch.tensor([[*before, *done.token_ids]])
        states = self.learner.model(tokens, output_hidden_states=True).hidden_states[-1][0]
        assert self.learner.value_head is not None
        values: Tensor = self.learner.value_head(states[len(before) - 1 : -1].detach())[:, 0]
        return values

    def advantages(self, old: list[Tensor], values: list[Tensor]) -> list[list[float]]:
        """Of each token of each completion, not scaled."""
        with torch.no_grad(), reference_active(self.learner.model):
            reference = [self.log_probs(row) for row in range(len(old))]
        found = []
        for row, (ours, theirs, states) in enumerate(zip(old, reference, values, strict=True)):
            rewards = [-self.ppo.kl_coefficient * float(a - b) for a, b in zip(ours, theirs, strict=True)]
            rewards[-1] += some_reward(self.made.scores[row])
            later = [*states.tolist(), 0.0]
            errors = [reward + later[t + 1] - later[t] for t, reward in enumerate(rewards)]
            found.append([sum(LAMBDA**k * error for k, error in enumerate(errors[t:])) for t in range(len(errors))])
        return found

    def update(self) -> float:
        """Make the steps; returns the fraction of the variance of the returns that the values explain."""
        ppo, rows, head = self.ppo, range(len(self.made.completions)), self.learner.value_head
        assert head is not None
        with torch.no_grad():
            old, states = [self.log_probs(row) for row in rows], [self.values(row) for row in rows]
        raw = self.advantages(old, states)
        returns = [[a + float(v) for a, v in zip(*each, strict=True)] for each in zip(raw, states, strict=True)]
        every = [value for each in raw for value in each]
        mean = sum(every) / len(every)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in every) / len(every))
        policy = list(adapter_parameters(self.learner.model, POLICY_ADAPTER).values())
        for epoch in range(ppo.epochs):
            order = shuffled(len(rows), seed_of(SEED, PHASE, "minibatches", 1, epoch))
            for number in range(ppo.minibatches):
                losses, errors = [], []
                for row in order[number :: ppo.minibatches]:
                    now, said = self.log_probs(row), self.values(row)
                    for t in range(len(now)):
                        advantage, ratio = (raw[row][t] - mean) / deviation, (now[t] - old[row][t]).exp()
                        near = ratio.clamp(0.8, 1.2)
                        losses.append(-torch.minimum(advantage * ratio, advantage * near))
                        close = states[row][t] + (said[t] - states[row][t]).clamp(-0.2, 0.2)
                        goal = returns[row][t]
                        errors.append(0.5 * torch.maximum((said[t] - goal) ** 2, (close - goal) ** 2))
                gradients = torch.autograd.grad(torch.stack(losses).mean(), policy)
                for parameter, gradient in zip(policy, gradients, strict=True):
                    parameter.grad = gradient
                torch.nn.utils.clip_grad_norm_(policy, ppo.max_grad_norm)
                torch.stack(errors).mean().backward()
                self.learner.optimizer.step()
                self.learner.optimizer.zero_grad()
        goals = [value for each in returns for value in each]
        left = [
            goal - float(value) for each in zip(returns, states, strict=True) for goal, value in zip(*each, strict=True)
        ]
        return 1 - float(torch.tensor(left).var(correction=0) / torch.tensor(goals).var(correction=0))


@pytest.mark.parametrize("parts", [{}, {"epochs": 2, "minibatches": 2}], ids=["one step", "four steps"])
def test_an_update_with_a_value_head_is_that_of_a_slow_reference(
    parts: dict[str, int], make_learner: Callable[..., Learner]
) -> None:
    ppo = replace(PPO, **parts)  # type: ignore[arg-type]
    fast, slow = make_learner(), make_learner()
    before, value_before = policy_of(fast), of_head(fast)
    row, made = ppo_update.ppo_update(fast, an_update(PROBLEMS, Unrun(), PHASE, seed=SEED, ppo=ppo))
    explained = Slow(slow, made, ppo).update()
    moved, expected = policy_of(fast) - before, policy_of(slow) - before
    assert expected.norm() > 0.1
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()) + 1e-6)
    moved, expected = of_head(fast) - value_before, of_head(slow) - value_before
    assert expected.norm() > 1e-3
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
    assert row["val/explained_variance"] == pytest.approx(explained, rel=1e-3)
    assert 0 < row["truncated_rate"] < 1


def of_head(learner: Learner) -> Tensor:
    assert learner.value_head is not None
    return torch.cat([each.detach().flatten().clone() for each in learner.value_head.parameters()])


def trajectory(rows: int, seed: int = 0, masked: tuple[int, ...] = ()) -> Trajectory:
    """Completions of 1 to 4 tokens with random numbers, in float64; half of the tokens of the batch were dropped."""
    chance = torch.Generator().manual_seed(seed)
    lengths = [1 + (row + seed) % 4 for row in range(rows)]
    batch = make_batch([([1], [2] * length) for length in lengths], 0, "cpu")
    numbers = torch.randn(4, *batch.mask.shape, generator=chance, dtype=torch.double) * batch.mask
    sizes = tuple(0.0 if row in masked else float(length) for row, length in enumerate(lengths))
    weights = batch.mask.double() * (torch.tensor(sizes) > 0)[:, None]
    return Trajectory(
        batch=batch, rewards=torch.rand(rows, generator=chance, dtype=torch.double), weights=weights, sizes=sizes,
        share=0.5, sampled=numbers[0], log_probs=numbers[0], reference=numbers[1], values=numbers[2],
        advantages=numbers[3], returns=numbers[3],
    )  # fmt: skip


def raw_advantages(made: Trajectory, ppo: PpoSettings) -> Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("securecoderl_edge.training.update.ppo._scaled", lambda advantages, *_: advantages)
        return estimate_advantages(made, ppo, {}).advantages


def of_tokens(values: Tensor, made: Trajectory) -> list[float]:
    """Those of the tokens that count."""
    return [float(values[row, t]) for row, t in made.weights.nonzero().tolist()]


@pytest.mark.parametrize("masked", [(), (1, 6)])
@pytest.mark.parametrize("advantage", ["rloo", "gae"])
def test_a_batch_is_divided_by_the_root_mean_square_of_its_own_tokens_dropped_ones_included(
    advantage: str, masked: tuple[int, ...]
) -> None:
    """GAE subtracts the mean first: RLOO's advantages are centered by construction."""
    made = trajectory(8, masked=masked)
    ppo = PpoSettings(advantage=advantage, batch_size=16, samples_per_prompt=4, kl_coefficient=0.3)
    raw = of_tokens(raw_advantages(made, ppo), made)
    mean = sum(raw) / len(raw) if advantage == "gae" else 0.0
    square = sum((value - mean) ** 2 for value in raw) / len(raw)
    expected = [(value - mean) / math.sqrt(0.5 * square + 1e-8) for value in raw]
    found = of_tokens(estimate_advantages(made, ppo, {}).advantages, made)
    assert found == pytest.approx(expected, rel=1e-6)


def test_small_batches_are_divided_by_the_root_of_the_mean_square_of_all_updates_the_later_ones_more() -> None:
    ppo = PpoSettings(advantage="rloo", batch_size=4, samples_per_prompt=2, kl_coefficient=0.3)
    running: dict[str, float] = {}
    squares: list[float] = []
    for step in range(4):
        made = trajectory(2, seed=step)
        raw = of_tokens(raw_advantages(made, ppo), made)
        squares.append(0.5 * sum(value**2 for value in raw) / len(raw))
        weights = [0.98 ** (step - earlier) for earlier in range(step + 1)]
        mean = sum(weight * square for weight, square in zip(weights, squares, strict=True)) / sum(weights)
        found = of_tokens(estimate_advantages(made, ppo, running).advantages, made)
        assert found == pytest.approx([value / math.sqrt(mean + 1e-8) for value in raw], rel=1e-6)


@pytest.mark.parametrize("advantage", ["batch", "grpo", "dr-grpo"])
def test_the_others_are_not_scaled_over_the_batch(advantage: str) -> None:
    made = trajectory(8)
    ppo = PpoSettings(advantage=advantage, batch_size=16, samples_per_prompt=4, kl_coefficient=0.3)
    assert torch.equal(estimate_advantages(made, ppo, {}).advantages, raw_advantages(made, ppo))
