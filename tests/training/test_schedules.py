"""The learning rate and the mixture of rewards over the updates of a run."""

from __future__ import annotations

import pytest

from securecoderl_edge.training.recipe import peak_rate, rate_share, resolve
from securecoderl_edge.training.update.rollout import partial_weight


def test_a_linear_rate_rises_in_every_phase_and_falls_once_over_reinforcement_learning() -> None:
    overrides = ("lr_schedule=linear", "warmup_steps=2", "sft.steps=4", "binary.steps=6", "partial.steps=4")
    settings = resolve("starter", overrides, {})
    shares = {
        phase: [rate_share(settings, phase, step) for step in range(1, steps + 1)]
        for phase, steps in (("sft", 4), ("binary", 6), ("partial", 4))
    }
    assert shares["sft"] == pytest.approx([0.5, 0.75, 0.5, 0.25])
    assert shares["binary"] == pytest.approx([0.5, 0.9, 0.8, 0.7, 0.6, 0.5])
    assert shares["partial"] == pytest.approx([0.4, 0.3, 0.2, 0.1])
    constant = resolve("starter", (*overrides, "lr_schedule=constant"), {})
    assert [rate_share(constant, "partial", step) for step in range(1, 5)] == [0.5, 1, 1, 1]


def test_a_round_of_rft_trains_at_the_rate_of_its_beginning() -> None:
    overrides = ("lr_schedule=linear", "warmup_steps=1", "rft.steps=4")
    one_each = resolve("starter", overrides, {"phases": ["rft"]})
    assert [rate_share(one_each, "rft", step) for step in range(1, 5)] == [1, 0.75, 0.5, 0.25]
    rounds = resolve("starter", (*overrides, "rft.updates_per_round=2"), {"phases": ["rft"]})
    assert [rate_share(rounds, "rft", step) for step in (2, 4)] == [1, 0.5]


def test_a_phase_may_have_a_learning_rate_of_its_own() -> None:
    settings = resolve("starter", ("partial.learning_rate=1e-5",), {})
    assert peak_rate(settings, "partial") == 1e-5
    assert peak_rate(settings, "binary") == settings.ppo.learning_rate
    assert peak_rate(settings, "sft") == settings.sft.learning_rate


def test_the_mixture_goes_from_binary_to_partial_over_the_phase() -> None:
    assert [partial_weight("scheduled", step, 5) for step in range(1, 6)] == [0, 0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize(("phase", "weight"), [("binary", 0.0), ("partial", 1.0)])
def test_plain_phases_do_not_mix(phase: str, weight: float) -> None:
    assert partial_weight(phase, 3, 5) == weight
