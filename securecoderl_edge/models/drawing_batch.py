"""A batch that draws its own tokens, several for each row before the host reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.running_batch import RunningBatch

# Called with logits (B, V) and random numbers (B,): the tokens and their log-probabilities, see `drawing.draw_tokens`.
Draw = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class DrawingBatch(RunningBatch):
    """A `RunningBatch` that draws in rounds: one token for each row.

    What a round needs and gives is on the device until it is read: random numbers, tokens and log-probabilities of some
    rounds, and the number of the round. The tokens of the last round are not in the cache yet, for rows that have ended
    need no step.

    Args:
        records_draw: draw as a part of a recorded step; not if ``draw`` calls a function that may look at numbers.
    """

    _round: int | Tensor  # on the device where steps are recorded, which count there

    def __init__(self, decoder: Decoder, draw: Draw, *, records_draw: bool = True) -> None:
        super().__init__(decoder)
        self._draw_from, self._records_draw = draw, records_draw
        self._are_drawn = False  # whether the rows have tokens that are not in the cache yet

    def admit(self, owners: list[int], prompts: Sequence[Sequence[int]]) -> None:
        """See `RunningBatch.admit`; the tokens of rows that are there enter the cache first."""
        was_drawn, self._are_drawn = self._are_drawn, False
        if self.owners and was_drawn:
            self._decoding_step = None  # a step that would draw, too
            self.step(self._tokens)
        super().admit(owners, prompts)

    def decode(self, left: Sequence[int], uniforms: Callable[[int], Tensor]) -> list[list[list[float]]]:
        """Tokens of some rounds and their log-probabilities, (rounds, 2, rows), which the host reads at once.

        Args:
            left: how many tokens each row may still get, 0 if it has ended.
            uniforms: called with the number of rounds; (rounds, rows) numbers from [0, 1).
        """
        pace = self._decoder.pace
        if self._are_drawn and self.is_full:
            self._grow(min(pace.growth, self._needed(left)) if self._decoder.on_card else pace.growth)
        room = self._bias.shape[1] - self._end + (not self._are_drawn)
        rounds = min(pace.rounds, max(left), room)
        self._uniforms[:rounds].copy_(uniforms(rounds))
        if isinstance(self._round, Tensor):
            self._round.zero_()
        else:
            self._round = 0
        for _ in range(rounds):
            if self._are_drawn:
                self._append()
            if not self._are_drawn or not self._records_draw:
                self._draw_round(self.logits)
                self._are_drawn = True
        read: list[list[list[float]]] = self._drawn[:rounds].tolist()
        return read

    def _needed(self, left: Sequence[int]) -> int:
        """Entries until the row that begins first ends: then it can be dropped, and the cache need not grow."""
        going = [(start, -tokens) for start, tokens in zip(self._starts, left, strict=True) if tokens]
        return -min(going)[1]

    def _draw(self) -> Callable[[Tensor], object] | None:
        return self._draw_round if self._are_drawn and self._records_draw else None

    def _draw_round(self, logits: Tensor) -> None:
        place = self._round
        tokens, log_probs = self._draw_from(logits, self._uniforms[place].reshape(-1))
        self._tokens.copy_(tokens)
        # Read as one tensor; float32 holds token ids exactly.
        self._drawn[place] = torch.stack([tokens.float(), log_probs])
        self._round += 1

    def _set_tokens(self, tokens: Tensor) -> None:
        super()._set_tokens(tokens)
        shape, device = (self._decoder.pace.rounds, len(tokens)), tokens.device
        self._uniforms = torch.empty(shape, device=device)
        self._drawn = torch.empty((shape[0], 2, shape[1]), device=device)
        self._round = torch.zeros(1, dtype=torch.long, device=device) if self._decoder.records_steps else 0
