"""The maths of PPO against slow loops, and the properties that make an update correct."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from torch import Tensor

from securecoderl_edge.training.update.ppo import (
    batch_advantages,
    explained_variance,
    generalized_advantages,
    kl_shaped_rewards,
    last_token,
    leave_one_out_advantages,
    masked_mean,
    policy_loss,
    running_mean_square,
    value_loss,
    whiten,
)
from securecoderl_edge.training.update.sequences import chunked_log_probs


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def ragged_mask() -> Tensor:
    """Three sequences: prompt of 1, 2 and 1 tokens; completion of 3, 2 and 5 tokens; the rest padding."""
    return torch.tensor([[0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1]], dtype=torch.float)


@pytest.mark.parametrize("chunk", [(1, 11), (3, 4), (7, 1), (2, 5), (100, 100)])
@pytest.mark.parametrize("spread", [1.0, 50.0])  # the larger one: what a part adds up can vanish next to later ones
def test_chunked_log_probs_equal_naive_ones_in_value_and_gradient(
    random: torch.Generator, chunk: tuple[int, int], spread: float
) -> None:
    hidden = torch.randn(7, 5, generator=random).requires_grad_()
    weight, targets = spread * torch.randn(11, 5, generator=random), torch.randint(0, 11, (7,), generator=random)
    slopes = torch.randn(7, generator=random)
    naive = (hidden @ weight.T / 0.7).log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    (expected,) = torch.autograd.grad((naive * slopes).sum(), hidden)
    chunked = chunked_log_probs(hidden, weight, targets, 0.7, chunk)
    (actual,) = torch.autograd.grad((chunked * slopes).sum(), hidden)
    torch.testing.assert_close(chunked, naive)
    torch.testing.assert_close(actual, expected)


def test_log_probs_from_products_in_bfloat16_are_near_the_exact_ones(random: torch.Generator) -> None:
    hidden = torch.randn(64, 96, generator=random).requires_grad_()
    weight, targets = 0.2 * torch.randn(300, 96, generator=random), torch.randint(0, 300, (64,), generator=random)
    exact, rounded = (
        chunked_log_probs(hidden, weight, targets, 0.7, (10, 70), kind) for kind in (None, torch.bfloat16)
    )
    slope, rounded_slope = (torch.autograd.grad(each.sum(), hidden)[0] for each in (exact, rounded))
    # Inputs have 8 bits, sums and results 24: logits of size 3 would have errors of 0.01 if they were rounded as well.
    torch.testing.assert_close(rounded, exact, atol=0.05, rtol=0)
    torch.testing.assert_close(rounded_slope, slope, atol=0.05 * float(slope.abs().max()), rtol=0)
    assert rounded.dtype == torch.float32
    assert torch.backends.mkldnn.matmul.fp32_precision != "bf16", "the setting ends with the block"


@pytest.mark.parametrize(("discount", "trace"), [(1.0, 0.95), (0.9, 0.8), (1.0, 0.0), (1.0, 1.0)])
def test_gae_equals_a_slow_loop(random: torch.Generator, discount: float, trace: float) -> None:
    mask = ragged_mask()
    rewards = torch.randn(mask.shape, generator=random) * mask
    values = torch.randn(mask.shape, generator=random)
    advantages, returns = generalized_advantages(rewards, values, mask, discount, trace)
    for row in range(len(mask)):
        steps = [t for t in range(mask.shape[1]) if mask[row, t]]
        for place, t in enumerate(steps):
            expected = 0.0
            for distance, later in enumerate(steps[place:]):
                following = steps[place + distance + 1] if place + distance + 1 < len(steps) else None
                next_value = values[row, following].item() if following is not None else 0.0
                delta = rewards[row, later].item() + discount * next_value - values[row, later].item()
                expected += (discount * trace) ** distance * delta
            assert advantages[row, t].item() == pytest.approx(expected, abs=1e-5)
            assert returns[row, t].item() == pytest.approx(expected + values[row, t].item(), abs=1e-5)
    assert not (advantages * (1 - mask)).any()
    assert not (returns * (1 - mask)).any()


def test_the_score_is_paid_at_the_last_completion_token_and_kl_at_every_token(random: torch.Generator) -> None:
    mask = ragged_mask()
    log_probs, reference = torch.randn(2, *mask.shape, generator=random)
    scores = torch.tensor([1.0, 0.5, 0.25])
    rewards = kl_shaped_rewards(scores, log_probs, reference, mask, 0.1)
    assert last_token(mask).tolist() == [3, 3, 5]
    for row in range(3):
        for t in range(mask.shape[1]):
            kl = 0.1 * (log_probs[row, t] - reference[row, t]).item() * mask[row, t].item()
            paid = scores[row].item() if t == last_token(mask)[row] else 0.0
            assert rewards[row, t].item() == pytest.approx(paid - kl, abs=1e-6)


def test_the_policy_gradient_depends_on_the_reference(random: torch.Generator) -> None:
    mask = ragged_mask()[:2]
    log_probs = torch.randn(mask.shape, generator=random)
    gradients = []
    for seed in (1, 2):
        reference = torch.randn(mask.shape, generator=torch.Generator().manual_seed(seed))
        shaped = kl_shaped_rewards(torch.zeros(2), log_probs, reference, mask, 0.1)
        advantages, _ = generalized_advantages(shaped, torch.zeros_like(mask), mask)
        current = log_probs.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(policy_loss(current, log_probs, advantages, mask, 0.2).loss, current)
        gradients.append(gradient)
    assert not torch.allclose(gradients[0], gradients[1])


def test_the_kl_penalty_pulls_a_drifted_token_back_to_the_reference() -> None:
    mask, reference = torch.ones(2, 1), torch.full((2, 1), -1.0)
    drifted = torch.tensor([[-0.2], [-1.0]])  # the first token became likelier than under the reference
    advantages = leave_one_out_advantages(kl_shaped_rewards(torch.zeros(2), drifted, reference, mask, 0.1), mask, 2)
    current = drifted.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(policy_loss(current, drifted, advantages, mask, 0.2).loss, current)
    assert gradient[0, 0] > 0  # descent lowers its probability


def test_leave_one_out_subtracts_the_mean_of_the_other_samples() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 1, 1]], dtype=torch.float)
    rewards = torch.tensor([[0.0, 1.0, 9.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.2], [7.0, 0.0, 0.4]])
    advantages = leave_one_out_advantages(rewards, mask, 2)
    expected = torch.tensor([[0.5, 0.5, 0.0], [-0.5, 0, 0], [-0.2, -0.2, -0.2], [0, 0.2, 0.2]])
    torch.testing.assert_close(advantages, expected)


def test_leave_one_out_refuses_rows_that_make_no_groups() -> None:
    with pytest.raises(ValueError, match="cannot split 3 rows into groups of 2"):
        leave_one_out_advantages(torch.zeros(3, 2), torch.ones(3, 2), 2)
    with pytest.raises(ValueError, match="cannot split 3 rows into groups of 1"):
        leave_one_out_advantages(torch.zeros(3, 2), torch.ones(3, 2), 1)


def test_the_ratio_is_one_and_nothing_is_clipped_before_the_first_step(random: torch.Generator) -> None:
    mask = ragged_mask()
    log_probs = torch.randn(mask.shape, generator=random)
    result = policy_loss(log_probs, log_probs.clone(), torch.randn(mask.shape, generator=random), mask, 0.2)
    assert result.ratio_mean == 1
    assert result.ratio_max_error == 0
    assert result.clip_fraction == 0
    assert result.approximate_kl == 0


def test_the_clipped_loss_equals_a_slow_loop_over_tokens(random: torch.Generator) -> None:
    mask = ragged_mask()
    log_probs, old, advantages = torch.randn(3, *mask.shape, generator=random)
    losses = []
    for row in range(len(mask)):
        for t in range(mask.shape[1]):
            if mask[row, t]:
                ratio = (log_probs[row, t] - old[row, t]).exp().item()
                clipped = min(max(ratio, 0.8), 1.2)
                advantage = advantages[row, t].item()
                losses.append(-min(ratio * advantage, clipped * advantage))
    result = policy_loss(log_probs, old, advantages, mask, 0.2)
    assert result.loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_a_good_token_beyond_the_clip_range_gets_no_gradient_and_a_bad_one_does() -> None:
    mask, old = torch.ones(1, 2), torch.zeros(1, 2)
    log_probs = torch.tensor([[0.5, 0.5]], requires_grad=True)  # both ratios are 1.65
    loss = policy_loss(log_probs, old, torch.tensor([[1.0, -1.0]]), mask, 0.2).loss
    (gradient,) = torch.autograd.grad(loss, log_probs)
    assert gradient[0, 0] == 0
    assert gradient[0, 1] > 0


def test_the_value_loss_equals_a_slow_loop_over_tokens(random: torch.Generator) -> None:
    mask = ragged_mask()
    values, old, returns = torch.randn(3, *mask.shape, generator=random)
    losses, clipped_worse = [], 0
    for row, column in mask.nonzero().tolist():
        value, before, goal = (float(tensor[row, column]) for tensor in (values, old, returns))
        near = min(max(value, before - 0.2), before + 0.2)
        losses.append(0.5 * max((value - goal) ** 2, (near - goal) ** 2))
        clipped_worse += (near - goal) ** 2 > (value - goal) ** 2
    loss, clip_fraction = value_loss(values, old, returns, mask, 0.2)
    assert loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert clip_fraction.item() == pytest.approx(clipped_worse / len(losses))
    assert 0 < clipped_worse < len(losses)


def test_explained_variance_is_that_of_the_masked_tokens(random: torch.Generator) -> None:
    mask = ragged_mask()
    values, returns = torch.randn(2, *mask.shape, generator=random) + 3
    inside = mask > 0
    left, whole = (returns - values)[inside].var(correction=0), returns[inside].var(correction=0)
    assert explained_variance(values, returns, mask).item() == pytest.approx(1 - float(left / whole), rel=1e-4)
    assert explained_variance(returns, returns, mask).item() == pytest.approx(1)


def test_a_running_mean_square_is_a_weighted_mean_of_what_was_measured() -> None:
    state: dict[str, float] = {}
    measured = (4.0, 1.0, 9.0)
    for count in (1, 2, 3):
        found = running_mean_square(state, "x", torch.tensor(measured[count - 1]), memory=0.5)
        weights = [0.5 ** (count - 1 - place) for place in range(count)]
        expected = sum(w * m for w, m in zip(weights, measured, strict=False)) / sum(weights)
        assert found == pytest.approx(expected)
    assert running_mean_square(state, "y", torch.tensor(1.0)) == pytest.approx(1.0)


def test_a_completion_without_tokens_is_paid_nothing() -> None:
    mask = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    shaped = kl_shaped_rewards(torch.ones(2), torch.zeros(2, 2), torch.zeros(2, 2), mask, 0.1)
    assert shaped.tolist() == [[1, 0], [0, 0]]


def test_the_diagnostics_of_a_step_equal_slow_sums(random: torch.Generator) -> None:
    mask = ragged_mask()
    log_probs, old, advantages = torch.randn(3, *mask.shape, generator=random)
    ratios = [(log_probs - old)[row, column].exp().item() for row, column in mask.nonzero().tolist()]
    found = policy_loss(log_probs, old, advantages, mask, 0.2)
    count = len(ratios)
    assert found.ratio_mean.item() == pytest.approx(sum(ratios) / count, rel=1e-5)
    assert found.ratio_square.item() == pytest.approx(sum(ratio**2 for ratio in ratios) / count, rel=1e-5)
    assert found.ratio_max_error.item() == pytest.approx(max(abs(ratio - 1) for ratio in ratios), rel=1e-5)
    assert found.clip_fraction.item() == pytest.approx(sum(abs(ratio - 1) > 0.2 for ratio in ratios) / count)
    k3 = [ratio - 1 - math.log(ratio) for ratio in ratios]
    assert found.approximate_kl.item() == pytest.approx(sum(k3) / count, rel=1e-4)


def test_leave_one_out_equals_a_slow_loop_over_groups(random: torch.Generator) -> None:
    mask = torch.cat([ragged_mask(), ragged_mask()])
    rewards = torch.randn(mask.shape, generator=random)
    found = leave_one_out_advantages(rewards, mask, 3)
    totals = (rewards * mask).sum(1).tolist()
    for row in range(6):
        others = [totals[other] for other in range(row // 3 * 3, row // 3 * 3 + 3) if other != row]
        expected = totals[row] - sum(others) / 2
        torch.testing.assert_close(found[row], expected * mask[row])


@pytest.mark.parametrize("size", [2, 5])
def test_batch_advantages_equal_a_slow_loop(random: torch.Generator, size: int) -> None:
    mask = torch.ones(size, 4)
    mask[0, 2:] = 0
    scores, penalties = torch.rand(size, generator=random), torch.randn(size, 4, generator=random)
    found = batch_advantages(scores, penalties, mask)
    mean = sum(scores.tolist()) / size
    spread = math.sqrt(sum((score - mean) ** 2 for score in scores.tolist()) / size)
    for row in range(size):
        for t in range(4):
            remaining = sum(float(penalties[row, later] * mask[row, later]) for later in range(t, 4))
            expected = ((float(scores[row]) - mean) / spread + remaining) * float(mask[row, t])
            assert found[row, t].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("scores", [(0.40, 0.42), (0.0, 1.0), (0.64, 0.90)])
def test_a_batch_of_two_that_is_divided_by_its_spread_keeps_the_order_alone(scores: tuple[float, float]) -> None:
    found = batch_advantages(torch.tensor(scores), torch.zeros(2, 3), torch.ones(2, 3))
    torch.testing.assert_close(found, torch.tensor([[-1.0], [1.0]]).expand(2, 3))


@pytest.mark.parametrize("score", [0.0, 0.4, 1 / 3])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_equal_scores_of_a_batch_leave_the_kl_penalty_alone(score: float, size: int) -> None:
    mask, penalties = torch.ones(size, 2), torch.tensor([[-0.01, 0.02]]).expand(size, 2)
    found = batch_advantages(torch.full((size,), score), penalties, mask)
    torch.testing.assert_close(found, torch.tensor([[0.01, 0.02]]).expand(size, 2))


def test_equal_values_are_whitened_to_zeros() -> None:
    assert whiten(torch.full((2, 3), 0.4), torch.ones(2, 3)).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_whitening_gives_mean_zero_and_unit_variance_inside_the_mask_only(random: torch.Generator) -> None:
    mask = ragged_mask()
    values = torch.randn(mask.shape, generator=random) * 3 + 2
    white = whiten(values, mask)
    assert masked_mean(white, mask).item() == pytest.approx(0, abs=1e-6)
    assert masked_mean(white**2, mask).item() == pytest.approx(1, abs=1e-4)
    assert not (white * (1 - mask)).any()
    scaled = whiten(values, mask, center=False)
    assert torch.equal(scaled.sign(), (values * mask).sign())


@pytest.mark.parametrize("extra", [1, 4])
def test_padding_changes_nothing(random: torch.Generator, extra: int) -> None:
    mask = ragged_mask()
    scores = torch.randn(3, generator=random)
    log_probs, old, reference, values = torch.randn(4, *mask.shape, generator=random)

    def losses(width: int) -> tuple[float, float, float]:
        def padded(tensor: Tensor) -> Tensor:
            filler = 500 * torch.randn(len(mask), width, generator=random)  # ratios that overflow
            return torch.cat([tensor, filler], 1)

        wide = torch.cat([mask, torch.zeros(len(mask), width)], 1)
        new, before, ref, value = (padded(tensor) for tensor in (log_probs, old, reference, values))
        shaped = kl_shaped_rewards(scores, before, ref, wide, 0.1)
        advantages, returns = generalized_advantages(shaped, value, wide)
        surrogate = policy_loss(new, before, whiten(advantages, wide), wide, 0.2).loss
        grouped = leave_one_out_advantages(shaped, wide, 3)
        return (
            surrogate.item(),
            value_loss(value + 0.1, value, returns, wide, 0.2)[0].item(),
            policy_loss(new, before, grouped, wide, 0.2).loss.item(),
        )

    assert losses(extra) == pytest.approx(losses(0), rel=1e-5)
