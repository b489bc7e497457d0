"""The flags of commands that draw from a model."""

from __future__ import annotations

from dataclasses import dataclass

from securecoderl_edge.config import MAX_SEED, setting
from securecoderl_edge.runtimes.protocol import Sampling


@dataclass(frozen=True)
class SamplingSettings:
    """`Sampling` as flags; what they mean is said there."""

    temperature: float = setting(0.7, "Randomness of sampling; 0 is greedy.", minimum=0, metavar="X")
    top_k: int = setting(0, "Draw from the K likeliest tokens alone; 0 is all.", minimum=0, metavar="K")
    top_p: float = setting(
        1.0, "Draw from the likeliest tokens that make up this share alone.", minimum=1e-6, maximum=1, metavar="P"
    )
    min_p: float = setting(
        0.0, "Draw from tokens alone that are this likely beside the likeliest.", minimum=0, maximum=1, metavar="P"
    )
    max_tokens: int = setting(256, "Longest completion.", minimum=1, metavar="N")
    seed: int = setting(42, "Seed of the sampling.", minimum=0, maximum=MAX_SEED, metavar="N")

    def sampling(self, stop: tuple[str, ...] = ()) -> Sampling:
        """The settings, with texts that end an answer."""
        return Sampling(self.temperature, self.max_tokens, self.seed, self.top_k, self.top_p, self.min_p, stop)
