"""Completions of a decoder, for comparisons: a batch that is decoded to its end, and one that tasks join and leave."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.sampling import Sampler, TokenCompletion, sample
from securecoderl_edge.models.sizes import CACHE_GROWTH
from securecoderl_edge.runtimes.hf_batch import HfBatch
from securecoderl_edge.runtimes.protocol import DecodingTask, Sampling
from securecoderl_edge.runtimes.text_writer import PartialCompletion, TextWriter, TokenText

PROMPTS = [[5, 6, 7, 8, 9], [11, 12], [13, 14, 15, 16, 17, 18, 19, 20]]


def sampled(decoder: Decoder, parallel: int | None = None) -> list[TokenCompletion]:
    """Of which some end early, some outlive several enlargements of the cache; with ``parallel``, some wait."""
    length, counts = 3 * CACHE_GROWTH, Counter[tuple[int, int]]()

    def ends(prompt: int, number: int, _token: int) -> bool:
        counts[prompt, number] += 1
        return counts[prompt, number] == 5 + 29 * (4 * prompt + number) % length

    uniforms = torch.rand(4 * len(PROMPTS), length, generator=torch.Generator().manual_seed(1))
    done = sample(decoder, PROMPTS, 4, Sampler(1.0, length, frozenset(), uniforms, on_token=ends), parallel)
    lengths = {len(each.token_ids) for each in done}
    assert min(lengths) < CACHE_GROWTH, "none ends early"
    assert max(lengths) > 2 * CACHE_GROWTH, "the cache grows once"
    return done


def served(decoder: Decoder) -> tuple[dict[int, tuple[int, ...]], int]:
    """Tokens of tasks of several settings that join one after the other, and the number of steps."""

    def write(task: DecodingTask, show: Any) -> PartialCompletion:
        pieces = TokenText(lambda ids: " ".join(map(str, ids)), {})
        return PartialCompletion(task.sampling, lambda token: False, pieces, TextWriter(show=show))

    decoder.refresh()
    settings = [
        Sampling(0.8, 12, seed=1),
        Sampling(0.0, 9),
        Sampling(1.0, 20, seed=2, top_k=5),
        Sampling(0.8, 7, top_p=0.9),
    ]
    tasks = [DecodingTask(key, str(key % 3), sampling) for key, sampling in enumerate(settings)]
    batch, found, steps = HfBatch(decoder, 3, lambda task: PROMPTS[int(task.prompt)], write), {}, 0
    while len(found) < len(tasks):
        if steps < len(tasks):
            batch.add(tasks[steps : steps + 1])
        if steps == 2:
            batch.drop([0])
            found[0] = ()
        for progress in batch.step():
            if progress.completion is not None:
                found[progress.key] = progress.completion.token_ids
        steps += 1
    return found, steps
