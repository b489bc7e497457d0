"""The memory that llama.cpp takes for a sequence, from the header of its file.

Attention layers keep keys and values of every token; recurrent layers (Mamba, RWKV, LFM2's convolutions) keep a state
of fixed size. Sources: llama-hparams.cpp and llama-kv-cache.cpp of llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from securecoderl_edge.models.gguf.header import GgufHeader

_STATE_BYTES = 4  # states are float32


@dataclass(frozen=True)
class CacheSize:
    """Bytes for each token of a sequence, and bytes for each sequence, however long."""

    per_token: int
    per_sequence: int


def cache_size(header: GgufHeader, float32: bool) -> CacheSize:
    """The size of a cache that keeps all tokens, in layers with a sliding window, too.

    Args:
        float32: whether keys and values have 32 bits instead of 16.
    """
    facts = _Facts(header)
    heads, is_local = facts.key_value_heads(), facts.each("attention.sliding_window_pattern", 0)
    keys, values = facts.head_sizes("key"), facts.head_sizes("value")
    # Without flash attention the values of all layers are as wide as the widest; latent attention keeps keys only.
    widths = [count * values[bool(local)] for count, local in zip(heads, is_local, strict=True)]
    widest = 0 if facts.number("attention.key_length_mla") else max(widths, default=0)
    per_token = sum(count * keys[bool(local)] + widest for count, local in zip(heads, is_local, strict=True) if count)
    return CacheSize(per_token * (4 if float32 else 2), facts.recurrent_layers() * facts.state() * _STATE_BYTES)


class _Facts:
    """The numbers of a header under the name of its architecture."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self._prefix = f"{header.values.get('general.architecture')}."
        self._layers = self.number("block_count") - self.number("nextn_predict_layers")

    def number(self, name: str, default: int = 0) -> int:
        value = self._header.values.get(f"{self._prefix}{name}")
        return value if isinstance(value, int) else default

    def each(self, name: str, default: int) -> list[int]:
        """A number of each layer; files have one for all, or a list."""
        entries = self._header.lists.get(f"{self._prefix}{name}", ())
        numbers = [int(value) for value in entries if not isinstance(value, str)]
        return (numbers or [self.number(name, default)] * self._layers)[: self._layers]

    def head_sizes(self, kind: str) -> tuple[int, int]:
        """Size of a head's ``key`` or ``value`` in layers with full attention, and in those with a window."""
        usual = self.number("embedding_length") // max([1, *self.each("attention.head_count", 1)])
        full = self.number(f"attention.{kind}_length", usual)
        return full, self.number(f"attention.{kind}_length_swa", full)

    def key_value_heads(self) -> list[int]:
        """Heads of each layer's keys and values; 0 for layers that keep none of their own."""
        counts = self.each("attention.head_count_kv", 0)
        if not any(counts):
            counts = self.each("attention.head_count", 0)
        interval = self.number("full_attention_interval")
        own = self._layers - self.number("attention.shared_kv_layers")
        return [
            count if layer < own and (not interval or (layer + 1) % interval == 0) else 0
            for layer, count in enumerate(counts)
        ]

    def recurrent_layers(self) -> int:
        """Layers with a state: those without keys and values, or all if each has both."""
        return self.key_value_heads().count(0) or self._layers

    def state(self) -> int:
        """Numbers in the state of one layer; 0 if no layer is recurrent."""
        width = self.number("embedding_length")
        if head := self.number("wkv.head_size"):
            return width * (self.number("token_shift_count", 2) + head)
        if kernel := self.number("shortconv.l_cache"):
            return width * (kernel - 1)
        inner, state = self.number("ssm.inner_size"), self.number("ssm.state_size")
        taps = max(0, self.number("ssm.conv_kernel") - 1)
        return taps * (inner + 2 * self.number("ssm.group_count") * state) + state * inner
