"""Bytes of number formats, and the sizes that sampling and learning work in; without torch, for those who plan."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30
# Compute capabilities from which a GPU multiplies bfloat16, and int8 as LLM.int8 does.
HAS_BF16, HAS_INT8_UNITS = (8, 0), (7, 5)
BYTES = {"fp32": 4, "float32": 4, "fp16": 2, "float16": 2, "bf16": 2, "bfloat16": 2}

# Logits of so many bytes are in memory at a time while log-probabilities are computed.
LOGITS_CHUNK_BYTES = 128 << 20
# A KV cache grows by so many tokens at a time: products of whole tensors need no copy of it at each token.
CACHE_GROWTH = 32
# Prompts of so many tokens are processed at a time.
PREFILL_TOKENS = 4096


@dataclass(frozen=True)
class Formats:
    """Bytes of a number, by use; ``base`` is that of linear layers, ``other`` that of embedding and output."""

    device: str
    base: int
    other: int
    products: int
    rollout: int

    @classmethod
    def of(cls, device: str, base_precision: str, products: str, rollout: str) -> Formats:
        """From the names of the formats, as `device.Compute` has them."""
        eight_bit = base_precision in ("int8", "int8-bnb")
        other = BYTES[products if eight_bit else base_precision]
        return cls(device, 1 if eight_bit else other, other, BYTES[products], BYTES[rollout])
