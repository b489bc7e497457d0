"""A check of a LoRA adapter in a GGUF file against its base: llama.cpp would end the process, or apply it wrongly."""

from __future__ import annotations

from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.gguf.header import GgufHeader, GgufTensor, read_header

ARCHITECTURE = "general.architecture"
_FACTORS = (".lora_a", ".lora_b")
_INVOCATION = "adapter.alora.invocation_tokens"


def check_adapter(base: Path, adapter: Path) -> None:
    """Check that ``adapter`` is a LoRA adapter whose factors fit the tensors of ``base``.

    Raises:
        UsageError: it is not an adapter, one of a kind that is not applied here, or one of another base.
        SceError: a file is damaged.
    """
    model, update = read_header(base), read_header(adapter)
    if update.values.get("general.type") != "adapter" or update.values.get("adapter.type") != "lora":
        raise UsageError(f"{adapter}: not a LoRA adapter. Write one with: sce export --format adapter")
    is_plain = isinstance(update.values.get("adapter.lora.alpha"), float) and _INVOCATION not in update.lists
    # llama.cpp would multiply the transposed factors of embeddings by a tied output layer, too.
    if not is_plain or any(tensor.name.startswith("token_embd.") for tensor in update.tensors):
        raise UsageError(f"{adapter}: a kind of LoRA adapter that sce does not apply. Merge it into its base.")
    if reason := _mismatch(model, update):
        raise UsageError(
            f"{adapter}: an adapter of another base than {base} ({reason}). Give the base of its training."
        )


def _mismatch(model: GgufHeader, update: GgufHeader) -> str:
    """Why an adapter does not fit; empty if it does."""
    theirs, ours = (header.values.get(ARCHITECTURE) for header in (update, model))
    if theirs != ours:
        return f"architecture {theirs}, not {ours}"
    tensors = {tensor.name: tensor for tensor in model.tensors}
    factors = {tensor.name: tensor for tensor in update.tensors}
    if not factors:
        return "it has no tensors"
    for name in factors:
        weight = name[: -len(_FACTORS[0])]
        pair = [factors.get(f"{weight}{half}") for half in _FACTORS]
        if not name.endswith(_FACTORS) or None in pair or weight not in tensors:
            return f"{name} has no counterpart"
        if not _fits(tensors[weight], *pair):  # type: ignore[arg-type]  # neither is None
            return f"the sizes of {name} differ"
    return ""


def _fits(weight: GgufTensor, lower: GgufTensor, upper: GgufTensor) -> bool:
    """Whether ``upper @ lower`` has the shape of ``weight``; sizes are given the fastest first."""
    if not all(len(tensor.sizes) == 2 for tensor in (weight, lower, upper)):
        return False
    return (lower.sizes[0], *upper.sizes) == (weight.sizes[0], lower.sizes[1], weight.sizes[1])
