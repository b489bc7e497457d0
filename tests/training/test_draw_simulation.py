"""The simulated policy of benchmarks/draw.py, whose results the pages report."""

from __future__ import annotations

import json

import draw
import pytest
from places import ROOT


def test_with_one_policy_adaptive_draws_find_twice_the_groups_with_variance_of_uniform_ones() -> None:
    found = draw.same_policy(6)
    assert found["adaptive"] >= 2 * found["uniform"]
    assert found["oracle"] > found["adaptive"]


def test_uniform_draws_train_the_simulated_policy_as_the_real_training_that_it_is_fitted_to() -> None:
    result = draw.run(290, draw.Draw("uniform"), 3)
    for first, last, rate, flat in draw.PILOT:
        window = result["updates"][f"{first}-{last}"]
        assert window["sampled_rate"] == pytest.approx(rate, abs=0.06)
        assert window["zero_variance_rate"] == pytest.approx(flat, abs=0.12)
    assert result["gain_on_new_problems"] == pytest.approx(0.128, abs=0.02)


def test_a_simulation_is_deterministic_and_resampling_keeps_its_bound() -> None:
    chosen = draw.Draw("adaptive", 5, measured=True)
    one, two = (draw.Simulation(60, chosen, 3) for _ in range(2))
    updates = [one.update() for _ in range(30)]
    assert updates == [two.update() for _ in range(30)]
    assert {update.groups for update in updates} <= set(range(16, 22))
    assert all(update.groups == 21 or update.varied == 16 for update in updates)


def test_the_committed_results_are_those_of_this_simulation() -> None:
    stored = json.loads((ROOT / "benchmarks/results/draw.json").read_text())
    assert stored["model"] == {
        "mean": draw.MEAN,
        "deviation": draw.DEVIATION,
        "own": draw.OWN,
        "shared": draw.SHARED,
    }
    assert stored["same_policy"] == draw.same_policy(stored["seeds"])
    assert stored["same_policy_ratio"] >= 2
