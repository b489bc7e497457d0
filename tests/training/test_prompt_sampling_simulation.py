"""The simulated policy of benchmarks/prompt_sampling.py, whose results the pages report."""

from __future__ import annotations

import json

import prompt_sampling as simulated
import pytest
from places import ROOT


def test_with_one_policy_adaptive_sampling_finds_twice_the_groups_with_variance_of_uniform_ones() -> None:
    found = simulated.same_policy(6)
    assert found["adaptive"] >= 2 * found["uniform"]
    assert found["oracle"] > found["adaptive"]


def test_uniform_sampling_trains_the_simulated_policy_as_the_real_training_that_it_is_fitted_to() -> None:
    result = simulated.run(290, simulated.Strategy("uniform"), 3)
    for first, last, rate, flat in simulated.PILOT:
        window = result["updates"][f"{first}-{last}"]
        assert window["sampled_rate"] == pytest.approx(rate, abs=0.06)
        assert window["zero_variance_rate"] == pytest.approx(flat, abs=0.12)
    assert result["gain_on_new_problems"] == pytest.approx(0.128, abs=0.02)


def test_a_simulation_is_deterministic_and_resampling_keeps_its_bound() -> None:
    chosen = simulated.Strategy("adaptive", 5, measured=True)
    one, two = (simulated.Simulation(60, chosen, 3) for _ in range(2))
    updates = [one.update() for _ in range(30)]
    assert updates == [two.update() for _ in range(30)]
    assert {update.groups for update in updates} <= set(range(16, 22))
    assert all(update.groups == 21 or update.varied == 16 for update in updates)


def test_the_committed_results_are_those_of_this_simulation() -> None:
    stored = json.loads((ROOT / "benchmarks/results/prompt-sampling.json").read_text())
    assert stored["model"] == {
        "mean": simulated.MEAN,
        "deviation": simulated.DEVIATION,
        "own": simulated.OWN,
        "shared": simulated.SHARED,
    }
    assert stored["same_policy"] == simulated.same_policy(stored["seeds"])
    assert stored["same_policy_ratio"] >= 2
