"""The learning rate and the mixture of rewards over the updates of a run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.schedules import peak_rate, rate_share
from securecoderl_edge.training.settings import ScheduledSettings
from securecoderl_edge.training.update.rewards import partial_weight, running_pass_rate


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


def test_a_phase_may_have_a_learning_rate_of_its_own() -> None:
    settings = resolve("starter", ("partial.learning_rate=1e-5",), {})
    assert peak_rate(settings, "partial") == 1e-5
    assert peak_rate(settings, "binary") == settings.ppo.learning_rate
    assert peak_rate(settings, "sft") == settings.sft.learning_rate


def test_a_linear_mixture_goes_from_binary_to_partial_over_the_phase() -> None:
    table = ScheduledSettings(steps=5)
    assert [partial_weight(table, "scheduled", step, 0.0) for step in range(1, 6)] == [0, 0.25, 0.5, 0.75, 1]


def test_a_stepped_mixture_switches_once() -> None:
    table = ScheduledSettings(steps=4, mixture="step", switch_at=0.5)
    assert [partial_weight(table, "scheduled", step, 0.9) for step in range(1, 5)] == [0, 0, 1, 1]


def test_a_mixture_by_pass_rate_follows_the_rate_up_to_its_goal() -> None:
    table = ScheduledSettings(mixture="pass-rate", full_pass_rate=0.5)
    assert [partial_weight(table, "scheduled", 1, rate) for rate in (0.0, 0.1, 0.5, 0.9)] == [0, 0.2, 1, 1]


@pytest.mark.parametrize(("phase", "weight"), [("binary", 0.0), ("partial", 1.0)])
def test_plain_phases_do_not_mix(phase: str, weight: float) -> None:
    assert partial_weight(ScheduledSettings(mixture="pass-rate"), phase, 3, 0.25) == weight


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_the_running_pass_rate_stays_within_what_was_measured(measured: list[float]) -> None:
    rate = None
    for each in measured:
        rate = running_pass_rate(rate, each)
    assert rate is not None
    assert min(measured) - 1e-12 <= rate <= max(measured) + 1e-12
