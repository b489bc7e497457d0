"""Reference outputs of the original model: tokens and logits in a folder, shared by all exports of it.

PEFT combines base and adapter, and transformers runs the model in float32. Neither uses our merging or our layers, so
that errors in those are found, too. This module runs as a child process, because it needs much memory for a short time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from securecoderl_edge.errors import SceError
from securecoderl_edge.export.agreement import Trace
from securecoderl_edge.models.adapters import peft_config
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.gguf.folder import LINK
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.packages import hidden_bitsandbytes, require_torch
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.system.processes import serve_once

# Batch size of llama.cpp; longer prompts are cut to one batch.
LONGEST = 512
_TOKENS = "tokens.json"


def write_reference(
    base: Path, adapter: Path | None, prompts: Sequence[str], new_tokens: int, folder: Path, device: str = "cpu"
) -> None:
    """Run each prompt and its greedy continuation of ``new_tokens`` through the original; see `read_reference`.

    Args:
        device: ``cpu`` or ``cuda``.
    """
    import torch

    tokenizer, source = read_tokenizer(base), _load_source(base, adapter).to(device)
    torch.set_float32_matmul_precision("highest")  # no TF32: the bounds are those of float32
    longest = min(LONGEST, read_architecture(base).context)
    new_tokens = min(new_tokens, longest // 2)
    budget = longest - new_tokens
    encoded = [tokenizer.encode_prompt(prompt)[: max(1, budget)] for prompt in prompts]
    prompts_of = [ids for ids in encoded if ids]

    def traces() -> Iterator[tuple[int, list[int], list[Any]]]:
        with torch.inference_mode():
            for prompt, tokens in zip(prompts_of, _continued(source, prompts_of, new_tokens), strict=True):
                logits = source(torch.tensor([tokens], device=device)).logits[0].float().cpu().numpy()
                yield len(prompt), tokens, [logits]

    save_reference(traces(), folder)


def save_reference(traces: Iterable[tuple[int, list[int], list[Any]]], folder: Path) -> None:
    """Write what `read_reference` reads: of each prompt its length, all tokens, and parts of their logits."""
    rows = []
    for number, (length, tokens, logits) in enumerate(traces):
        np.save(folder / f"{number}.npy", np.concatenate(logits))
        rows.append({"tokens": tokens, "prompt_length": length})
    (folder / _TOKENS).write_text(json.dumps(rows), encoding="utf-8")


def read_reference(folder: Path) -> Iterator[Trace]:
    """Read the output of `write_reference`, one prompt in memory at a time."""
    for number, row in enumerate(json.loads((folder / _TOKENS).read_text(encoding="utf-8"))):
        yield Trace(row["tokens"], row["prompt_length"], np.load(folder / f"{number}.npy", allow_pickle=False))


def write_reference_where_it_fits(
    base: Path, adapter: Path | None, prompts: Sequence[str], new_tokens: int, folder: Path, device: str
) -> list[str]:
    """`write_reference` on ``auto``, ``cpu`` or ``cuda``; returns lines about a GPU that ``auto`` passed over.

    Raises:
        SceError: the GPU that was asked for cannot be used, or is too small for the model.
    """
    import torch

    from securecoderl_edge.models.device import choose_device

    notes: list[str] = []
    try:
        write_reference(base, adapter, prompts, new_tokens, folder, choose_device(device, notes.append))
        return notes
    except torch.OutOfMemoryError:
        if device != "auto":
            raise SceError("in float32 it does not fit into the free memory of the GPU; use --device cpu") from None
    # After the handler, which held the tensors of the failed attempt.
    notes.append("the original is computed on the CPU: in float32 it does not fit into the free memory of the GPU")
    write_reference(base, adapter, prompts, new_tokens, folder, "cpu")
    return notes


def _continued(source: Any, prompts: Sequence[list[int]], new_tokens: int) -> list[list[int]]:
    """Each prompt with its greedy continuation.

    Prompts of about the same length are continued together: a step reads all weights, for however many.
    """
    import torch

    done: dict[int, list[int]] = {}
    order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
    for _, group in groupby(order, key=lambda number: len(prompts[number]).bit_length()):
        members = list(group)
        width = max(len(prompts[number]) for number in members)
        lengths = torch.tensor([len(prompts[number]) for number in members], device=source.device)
        mask = (torch.arange(width, device=source.device) >= width - lengths[:, None]).long()
        padded = [[0] * (width - len(prompts[number])) + prompts[number] for number in members]
        fed, past, new = torch.tensor(padded, device=source.device), None, []
        positions = (mask.cumsum(1) - 1).clamp_min(0)
        for _ in range(new_tokens):
            answer = source(
                fed, attention_mask=mask, position_ids=positions, past_key_values=past, use_cache=True, logits_to_keep=1
            )
            past, fed = answer.past_key_values, answer.logits[:, -1:].argmax(-1)
            new.append(fed[:, 0].tolist())
            mask = torch.cat([mask, torch.ones_like(fed)], dim=1)
            positions = positions[:, -1:] + 1
        for row, number in enumerate(members):
            done[number] = [*prompts[number], *(tokens[row] for tokens in new)]
    return [done[number] for number in range(len(prompts))]


def _load_source(base: Path, adapter: Path | None) -> Any:
    require_torch()
    import torch
    from transformers import AutoModelForCausalLM

    if (base / LINK).is_symlink():  # transformers cannot read such a folder
        model = load_base(base)
    else:
        model = AutoModelForCausalLM.from_pretrained(
            base, dtype=torch.float32, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    if adapter:
        from peft import PeftModel

        with hidden_bitsandbytes():
            model = PeftModel.from_pretrained(model, str(adapter), config=peft_config(adapter))
    return model.eval()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    notes = write_reference_where_it_fits(
        Path(request["base"]),
        Path(request["adapter"]) if request["adapter"] else None,
        request["prompts"],
        request["new_tokens"],
        Path(request["folder"]),
        request["device"],
    )
    return {"notes": notes}


if __name__ == "__main__":
    serve_once(_answer)
