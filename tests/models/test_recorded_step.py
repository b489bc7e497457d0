"""Steps that are recorded, on a CPU: a recording is computed again where a GPU would start it. See also tests/cuda."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from decoded import sampled, served
from once import Once
from quick import few
from tiny_families import build_family

from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.recorded_step import DecodingStep
from securecoderl_edge.models.sampling import Sampler, sample
from securecoderl_edge.models.sizes import CPU_PACE, GPU_PACE, Pace

FAMILIES = ["llama", "mistral", "gemma3"]  # with and without windows


class Recording:
    """Stands in for a CUDA graph: computes from the tensors that it was recorded with, wherever they are used now."""

    def __init__(self, step: DecodingStep) -> None:
        self._step = step

    def replay(self) -> None:
        logits = self._step._compute()
        if not hasattr(self._step, "_logits"):  # recording computes nothing
            self._step._logits = torch.empty_like(logits)
        self._step._logits.copy_(logits)


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[DecodingStep]:
    """The steps that were recorded."""
    recorded: list[DecodingStep] = []

    def record(step: DecodingStep) -> None:
        recorded.append(step)
        step._graph = Recording(step)

    monkeypatch.setattr(DecodingStep, "_record", record)
    return recorded


@pytest.fixture(params=few(FAMILIES, "llama", "gemma3"))
def decoder(request: pytest.FixtureRequest, once: Once) -> Decoder:
    folder = once(f"family-{request.param}", lambda folder: build_family(folder, request.param))
    return Decoder(load_base(folder), torch.float32)


@pytest.mark.parametrize("draw", [sampled, lambda decoder: sampled(decoder, parallel=5), served])
@pytest.mark.parametrize("pace", [CPU_PACE, GPU_PACE])
def test_recorded_steps_draw_what_eager_ones_draw(
    decoder: Decoder, draw: Callable[[Decoder], object], pace: Pace, recordings: list[DecodingStep]
) -> None:
    decoder.pace, decoder.on_card = pace, pace is GPU_PACE
    eager = draw(decoder)
    assert recordings == []
    decoder.records_steps = True
    assert draw(decoder) == eager
    assert recordings


def test_a_recorded_step_draws_unless_the_user_truncates(decoder: Decoder, recordings: list[DecodingStep]) -> None:
    """What a user's function looks at cannot be recorded; the host calls it behind each step."""
    uniforms = torch.rand(2, 20, generator=torch.Generator().manual_seed(1))
    how = Sampler(1.0, 20, frozenset(), uniforms)
    for truncate in (None, lambda scores: scores.clamp_min(float(scores.min()))):  # changes nothing
        found = []
        for decoder.records_steps in (False, True):
            decoder.pace = GPU_PACE
            found.append(sample(decoder, [[5, 6, 7], [8, 9]], 1, replace(how, truncate=truncate)))
        assert found[0] == found[1]
        assert (recordings[-1]._draw is None) == (truncate is not None)


def test_a_finished_row_may_outlast_the_context(tmp_path: Path, recordings: list[DecodingStep]) -> None:
    """It stays in the batch until others end too; its next tokens count for nothing."""
    context, longest, samples = 128, 50, 40
    folder = build_family(tmp_path, "llama", max_position_embeddings=context)
    prompts = [list(range(5, 5 + context - longest))] * samples
    model = load_base(folder)
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        uniforms = torch.rand(samples, longest, generator=generator)
        limits = torch.randint(5, longest + 1, (samples,), generator=generator).tolist()
        how = Sampler(1.0, longest, frozenset(), uniforms, limits=tuple(limits))
        eager, decoder = Decoder(model, torch.float32), Decoder(model, torch.float32)
        decoder.records_steps = True
        expected = sample(eager, prompts, 1, how, parallel=12)
        assert sample(decoder, prompts, 1, how, parallel=12) == expected
    assert max(int(step._positions.max()) for step in recordings) > context + 1, "no row outlasts it"


def test_a_recording_that_runs_out_of_memory_is_tried_again_without_cached_memory(
    tiny_model: Path, recordings: list[DecodingStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    record, emptied = DecodingStep._record, []

    def fail_first(step: DecodingStep) -> None:
        if not emptied:
            raise torch.OutOfMemoryError
        record(step)

    decoder = Decoder(load_base(tiny_model), torch.float32)
    expected, decoder.records_steps = sampled(decoder), True
    monkeypatch.setattr(DecodingStep, "_record", fail_first)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    assert sampled(decoder) == expected
    assert len(emptied) == 1
