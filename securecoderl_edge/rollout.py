"""Batched sampling with a KV cache, on a merged copy of the policy.

`Decoder` holds plain tensors: LoRA merged into the weights, the q, k, v and the gate, up projections fused. That saves
most of the Python and adapter overhead of a small model's decoding step. `sample` draws by temperature alone, so that
the distribution sampled from is the one whose log-probabilities PPO computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Rows of finished sequences are dropped from the batch once they make up this share of it: dropping copies the cache.
_COMPACT_SHARE = 0.25
# The cache grows by so many tokens at a time. Products of whole tensors need no copy of the cache at each token.
_GROWTH = 32


@dataclass(frozen=True)
class Sampled:
    """One completion as token ids.

    Attributes:
        prompt: index of the prompt it continues.
        sample: index among the samples of that prompt.
        token_ids: with the end-of-sequence token when it was drawn.
        log_probs: at temperature 1; PPO recomputes its own, these serve ranking and reports. Empty where the sampler
            does not tell them.
        finished: False when the length limit cut it off.
    """

    prompt: int
    sample: int
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finished: bool


class Decoder:
    """A Llama decoder over merged weights; `refresh` takes them from the (possibly adapted) model again."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self._model = model
        base = model.get_base_model() if hasattr(model, "peft_config") else model
        self._trunk, self._causal = base.model, base
        config = base.config
        self.dtype = dtype
        self.device = base.device
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.head_size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.context = config.max_position_embeddings
        self._epsilon = config.rms_norm_eps
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Merge the current adapter into fresh copies of the weights."""

        def prepared(weight: Tensor) -> Tensor:
            return weight.to(self.dtype).contiguous()

        self.embedding = prepared(self._trunk.embed_tokens.weight)
        tied = self._causal.lm_head.weight is self._trunk.embed_tokens.weight
        self.head = self.embedding if tied else prepared(self._causal.lm_head.weight)
        self.final_norm = prepared(self._trunk.norm.weight)
        self.layers = []
        for layer in self._trunk.layers:
            attention, mlp = layer.self_attn, layer.mlp
            fused = [merged_weight(linear) for linear in (attention.q_proj, attention.k_proj, attention.v_proj)]
            gate_up = [merged_weight(linear) for linear in (mlp.gate_proj, mlp.up_proj)]
            self.layers.append(
                (
                    prepared(layer.input_layernorm.weight),
                    prepared(torch.cat(fused)),
                    prepared(merged_weight(attention.o_proj)),
                    prepared(layer.post_attention_layernorm.weight),
                    prepared(torch.cat(gate_up)),
                    prepared(merged_weight(mlp.down_proj)),
                )
            )

    def new_cache(self, rows: int, length: int) -> list[tuple[Tensor, Tensor]]:
        """Zeroed keys and values, (rows, kv heads, length, head size) for each layer."""
        shape = (rows, self.kv_heads, length, self.head_size)
        return [
            (
                torch.zeros(shape, dtype=self.dtype, device=self.device),
                torch.zeros(shape, dtype=self.dtype, device=self.device),
            )
            for _ in self.layers
        ]

    def forward(
        self, tokens: Tensor, positions: Tensor, visible: Tensor, start: int, cache: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Logits of the last position, (B, V), after writing ``tokens`` (B, T) into the cache at ``start``.

        ``visible`` (B, 1, T, length of the cache) says which of its entries each token may see.
        """
        rows, width = tokens.shape
        hidden = self.embedding[tokens]
        cosine, sine = self._trunk.rotary_emb(hidden, positions)
        cosine, sine = cosine[:, None].to(self.dtype), sine[:, None].to(self.dtype)
        for (norm_in, qkv, out, norm_mlp, gate_up, down), (keys, values) in zip(self.layers, cache, strict=True):
            projected = functional.linear(self._normed(hidden, norm_in), qkv)
            heads = projected.view(rows, width, self.heads + 2 * self.kv_heads, self.head_size).transpose(1, 2)
            turning, value = heads.split([self.heads + self.kv_heads, self.kv_heads], dim=1)
            query, key = _rotated(turning, cosine, sine).split([self.heads, self.kv_heads], dim=1)
            keys[:, :, start : start + width] = key
            values[:, :, start : start + width] = value
            mixed = attended(query, keys, values, visible)
            hidden = hidden + functional.linear(mixed.transpose(1, 2).reshape(rows, width, -1), out)
            gate, up = functional.linear(self._normed(hidden, norm_mlp), gate_up).chunk(2, -1)
            hidden = hidden + functional.linear(functional.silu(gate) * up, down)
        return functional.linear(self._normed(hidden[:, -1], self.final_norm), self.head)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden, (hidden.shape[-1],), weight, self._epsilon)


@torch.no_grad()
def sample(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    samples: int,
    temperature: float,
    max_tokens: int,
    end_tokens: frozenset[int],
    uniforms: Tensor,
    on_finished: Callable[[Sampled], None] | None = None,
    on_token: Callable[[int, int, int], None] | None = None,
) -> list[Sampled]:
    """Draw ``samples`` completions of each prompt; prompts are processed once and shared by their samples.

    Args:
        prompts: token ids; each must be non-empty and leave room for ``max_tokens`` in the context.
        temperature: 0 takes the most likely token.
        end_tokens: ids that finish a completion.
        uniforms: (prompts x samples, ``max_tokens``) numbers from [0, 1), the only source of randomness. Every
            completion has its own, so what is drawn does not depend on what else is in the batch.
        on_finished: called with each completion as soon as it ends, while the others are still being decoded.
        on_token: called with (prompt index, sample index, token id) for every token drawn.

    Returns:
        all completions, ordered by prompt, then by sample.
    """
    longest = max(len(prompt) for prompt in prompts)
    tokens = torch.zeros(len(prompts), longest, dtype=torch.long, device=decoder.device)
    present = torch.zeros(len(prompts), longest, dtype=torch.bool, device=decoder.device)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(list(prompt), device=decoder.device)
        present[row, longest - len(prompt) :] = True
    logits, cache = _prefill(decoder, tokens, present)

    # One row for each sample of each prompt.
    logits = logits.repeat_interleave(samples, 0)
    cache = [(k.repeat_interleave(samples, 0), v.repeat_interleave(samples, 0)) for k, v in cache]
    visible = present.repeat_interleave(samples, 0)
    next_position = visible.sum(1)
    owners = [(prompt, index) for prompt in range(len(prompts)) for index in range(samples)]
    drawn: list[list[int]] = [[] for _ in owners]
    log_probs: list[list[float]] = [[] for _ in owners]
    done: dict[tuple[int, int], Sampled] = {}
    live = list(range(len(owners)))  # which owner each row of the batch serves; -1 once it has finished
    uniforms = uniforms.to(decoder.device)

    for step in range(max_tokens):
        chosen, chosen_log_probs = draw_tokens(logits, temperature, uniforms[:, step])
        for row, (token, log_prob) in enumerate(zip(chosen.tolist(), chosen_log_probs.tolist(), strict=True)):
            owner = live[row]
            if owner < 0:
                continue
            drawn[owner].append(token)
            log_probs[owner].append(log_prob)
            if on_token:
                on_token(*owners[owner], token)
            if token in end_tokens or step == max_tokens - 1:
                key = owners[owner]
                done[key] = Sampled(*key, tuple(drawn[owner]), tuple(log_probs[owner]), token in end_tokens)
                live[row] = -1
                if on_finished:
                    on_finished(done[key])
        remaining = [row for row, owner in enumerate(live) if owner >= 0]
        if not remaining:
            break
        if len(remaining) <= len(live) * (1 - _COMPACT_SHARE):
            kept = torch.tensor(remaining, device=decoder.device)
            chosen, visible, next_position = chosen[kept], visible[kept], next_position[kept]
            uniforms = uniforms[kept]
            cache = [(keys[kept], values[kept]) for keys, values in cache]
            live = [live[row] for row in remaining]
        place = longest + step
        if place == visible.shape[1]:
            visible = functional.pad(visible, (0, _GROWTH))
            cache = [(functional.pad(k, (0, 0, 0, _GROWTH)), functional.pad(v, (0, 0, 0, _GROWTH))) for k, v in cache]
        visible[:, place] = True
        logits = decoder.forward(chosen[:, None], next_position[:, None], visible[:, None, None], place, cache)
        next_position = next_position + 1
    return [done[owner] for owner in owners]


def _prefill(decoder: Decoder, tokens: Tensor, present: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Process left-padded prompts; returns the next token's logits and the full cache."""
    width = tokens.shape[1]
    cache = decoder.new_cache(len(tokens), width)
    positions = (present.cumsum(1) - 1).clamp_min(0)
    causal = torch.ones(width, width, dtype=torch.bool, device=tokens.device).tril()
    # A padding row would see nothing and turn to NaN; letting it see itself is harmless, since nobody reads it.
    itself = torch.eye(width, dtype=torch.bool, device=tokens.device)
    visible = (causal & present[:, None, :]) | itself
    return decoder.forward(tokens, positions, visible[:, None], 0, cache), cache


def draw_tokens(logits: Tensor, temperature: float, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """One token for each row of ``logits`` (B, V), and its log-probability at temperature 1; 0 takes the likeliest.

    Args:
        uniforms: (B,) numbers from [0, 1).
    """
    logits = logits.float()
    if temperature == 0:
        chosen = logits.argmax(-1)
    else:
        # The inverse of the distribution function: one random number a row, where multinomial draws one a word.
        below = (logits / temperature).softmax(-1).cumsum(-1)
        chosen = (below <= uniforms[:, None] * below[:, -1:]).sum(-1).clamp_max(logits.shape[-1] - 1)
    log_probs = logits.gather(-1, chosen[:, None])[:, 0] - logits.logsumexp(-1)
    return chosen, log_probs


def merged_weight(linear: Any) -> Tensor:
    """(out, in) float32 weight of a linear layer with its active LoRA update, if any, added."""
    base = linear.base_layer if hasattr(linear, "base_layer") else linear
    weight: Tensor = base.dequantised() if hasattr(base, "dequantised") else base.weight.float()
    if base is not linear:
        weight = weight + linear.get_delta_weight(linear.active_adapters[0]).float()
    return weight


def attended(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """(B, heads, T, D) attention of ``query`` to ``keys`` and ``values`` (B, kv heads, L, D)."""
    rows, heads, width, size = query.shape
    if width > 1:
        return functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=visible, enable_gqa=heads != keys.shape[1]
        )
    # With one query, two products of matrices are several times faster on a CPU than the fused kernel, which is made
    # for long ones. The heads that share keys are its rows.
    scores = query.reshape(rows, keys.shape[1], -1, size) @ keys.transpose(-1, -2) * size**-0.5
    mixed: Tensor = scores.masked_fill(~visible, float("-inf")).softmax(-1) @ values
    return mixed.view(rows, heads, 1, size)


def _rotated(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = heads.shape[-1] // 2
    return heads * cosine + torch.cat([-heads[..., half:], heads[..., :half]], -1) * sine
