"""The noise scale of gradients, from simulated batches whose true one is known."""

from __future__ import annotations

import torch
from gradient_noise import noise_scale

SAMPLES, TRUE = 64, 400


def batches(generator: torch.Generator, signal: float = 1.0) -> list[torch.Tensor]:
    """Gradients whose noise scale is `TRUE`: |mean|^2 = 1, and the variance of one sample adds up to `TRUE`."""
    size = 500
    mean = torch.full((size,), signal / size**0.5)
    deviation = (TRUE / SAMPLES / size) ** 0.5
    return [mean + deviation * torch.randn(size, generator=generator) for _ in range(16)]


def test_the_interval_of_the_noise_scale_covers_the_truth() -> None:
    generator, covered, values = torch.Generator().manual_seed(1), 0, []
    for _ in range(200):
        found = noise_scale(batches(generator), SAMPLES)
        assert found["low"] is not None
        covered += found["low"] <= TRUE <= (found["high"] or float("inf"))
        values.append(found["value"] or float("inf"))
    assert covered >= 0.91 * 200
    assert 0.8 * TRUE < sorted(values)[100] < 1.25 * TRUE


def test_a_signal_that_drowns_has_no_upper_bound() -> None:
    found = noise_scale(batches(torch.Generator().manual_seed(2), signal=0.0), SAMPLES)
    assert found["high"] is None
