"""Sizes of dtypes, and chunk sizes of sampling and training; without torch, for estimates of memory."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30
# The lowest compute capabilities that multiply bfloat16, and int8 as LLM.int8 does.
HAS_BF16, HAS_INT8_UNITS = (8, 0), (7, 5)
BYTES = {"fp32": 4, "float32": 4, "fp16": 2, "float16": 2, "bf16": 2, "bfloat16": 2}

# Bytes of logits in memory at a time while log-probabilities are computed. A CPU is faster in what its cache holds.
_LOGITS_CHUNK_BYTES, _LOGITS_CHUNK_BYTES_ON_CPU = 128 << 20, 24 << 20
# Tokens by which a KV cache grows at a time, so that it is not copied at each token.
CACHE_GROWTH = 32
# Prompt tokens that are processed at a time.
PREFILL_TOKENS = 4096


@dataclass(frozen=True)
class Formats:
    """Bytes per number, by use; ``base`` is for linear layers, ``other`` for embedding and output.

    Attributes:
        is_bnb: linear layers are LLM.int8 of bitsandbytes.
    """

    device: str
    base: int
    other: int
    products: int
    rollout: int
    is_bnb: bool = False

    @classmethod
    def of(cls, device: str, base_precision: str, products: str, rollout: str) -> Formats:
        """From the names of the dtypes, as in `device.Compute`."""
        eight_bit = base_precision in ("int8", "int8-bnb")
        other = BYTES[products if eight_bit else base_precision]
        # See `loading.load_base`.
        base = 1 if eight_bit else min(other, BYTES[products])
        return cls(device, base, other, BYTES[products], BYTES[rollout], base_precision == "int8-bnb")


def logits_at_a_time(device: str, vocabulary: int) -> int:
    """Rows of float32 logits that are computed together."""
    size = _LOGITS_CHUNK_BYTES_ON_CPU if device == "cpu" else _LOGITS_CHUNK_BYTES
    return max(1, size // (4 * vocabulary))
