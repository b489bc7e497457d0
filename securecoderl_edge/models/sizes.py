"""Sizes of dtypes, and chunk sizes of sampling and training; without torch, for estimates of memory."""

from __future__ import annotations

from dataclasses import dataclass

from securecoderl_edge.errors import UsageError

GIB = 1 << 30
# The lowest compute capabilities that multiply bfloat16, and int8 as LLM.int8 does.
HAS_BF16, HAS_INT8_UNITS = (8, 0), (7, 5)
BYTES = {"fp32": 4, "float32": 4, "fp16": 2, "float16": 2, "bf16": 2, "bfloat16": 2}

# Bytes of logits in memory at a time while log-probabilities are computed. A CPU is faster in what its cache holds, and
# with many rows: it reads the output projection once for all of them.
_LOGITS_CHUNK_BYTES, _LOGITS_CHUNK_BYTES_ON_CPU, _LOGITS_ROWS_ON_CPU = 128 << 20, 24 << 20, 1024
# Bytes of a float32 number for each token of the vocabulary, of all rows that are drawn at a time.
_DRAWN_BYTES, _DRAWN_BYTES_ON_CPU = 256 << 20, 2 << 20
# Tokens by which a KV cache grows at a time, so that it is not copied at each token.
CACHE_GROWTH = 32
# The attention kernels of a GPU copy a mask whose length is no multiple of this.
ALIGNED = 8
# Prompt tokens that are processed at a time.
PREFILL_TOKENS = 4096


@dataclass(frozen=True)
class Pace:
    """How often the host looks at a batch that is decoded, and how often it changes the shapes of its tensors.

    Attributes:
        rounds: tokens that are drawn for each row between two reads; those behind the end of a row are dropped.
        growth: tokens by which the KV cache grows at a time.
        drop_at: part of the rows that must have ended before they are dropped, which copies the cache.
        refill_at: the same while other completions wait for their places.
    """

    rounds: int
    growth: int
    drop_at: float
    refill_at: float


CPU_PACE = Pace(rounds=1, growth=CACHE_GROWTH, drop_at=0.25, refill_at=0.25)
# Each new shape is a step that is started kernel by kernel, and one that is recorded: together as long as dozens of
# recorded steps. A read waits until the device has nothing left to do. Rows cost little next to the weights.
GPU_PACE = Pace(rounds=8, growth=256, drop_at=0.75, refill_at=0.5)


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


@dataclass(frozen=True)
class Precision:
    """The names of the dtypes of a run, as in `device.Compute`."""

    device: str
    base: str
    products: str
    rollout: str

    def formats(self) -> Formats:
        """The sizes of the dtypes."""
        return Formats.of(self.device, self.base, self.products, self.rollout)


def precision_on_cuda(capability: tuple[int, int], base: str) -> Precision:
    """Dtypes for a GPU of a compute capability; Volta (7.0) has no bfloat16 and no int8 units.

    A base in float32 is multiplied in float32, for models whose activations exceed the range of float16.

    Raises:
        UsageError: the GPU does not support ``base``.
    """
    number = "{}.{}".format(*capability)
    if base == "int8-bnb" and capability < HAS_INT8_UNITS:
        raise UsageError(
            f"int8-bnb (LLM.int8 of bitsandbytes) needs compute capability 7.5, this GPU has {number}; "
            "use --base-precision int8"
        )
    if base == "bf16" and capability < HAS_BF16:
        raise UsageError(f"bf16 needs compute capability 8.0, this GPU has {number}; use --base-precision fp16 or int8")
    half = "bfloat16" if capability >= HAS_BF16 else "float16"
    # A base in 16 or 32 bits is chosen for its range or its digits, so compute in the same dtype.
    products = {"fp16": "float16", "fp32": "float32"}.get(base, half)
    return Precision("cuda", "int8" if base == "auto" else base, products, products)


def precision_on_cpu(base: str, products_in_bf16: bool, sampling_in_bf16: bool) -> Precision:
    """Dtypes for a CPU.

    Raises:
        UsageError: for ``int8-bnb``, which gives other results on a CPU than on a GPU.
    """
    if base == "int8-bnb":
        raise UsageError("int8-bnb needs a CUDA GPU; on a CPU use --base-precision int8")
    products, rollout = ("bfloat16" if is_short else "float32" for is_short in (products_in_bf16, sampling_in_bf16))
    return Precision("cpu", "fp32" if base == "auto" else base, products, rollout)


def logits_at_a_time(device: str, vocabulary: int) -> tuple[int, int]:
    """Rows and tokens of the vocabulary of which float32 logits are computed together."""
    if device != "cpu":
        return max(1, _LOGITS_CHUNK_BYTES // (4 * vocabulary)), vocabulary
    tokens = min(vocabulary, _LOGITS_CHUNK_BYTES_ON_CPU // (4 * _LOGITS_ROWS_ON_CPU))
    return _LOGITS_CHUNK_BYTES_ON_CPU // (4 * tokens), tokens


def drawn_at_a_time(device: str, vocabulary: int) -> int:
    """Rows of logits from which tokens are drawn together."""
    return max(1, (_DRAWN_BYTES_ON_CPU if device == "cpu" else _DRAWN_BYTES) // (4 * vocabulary))
