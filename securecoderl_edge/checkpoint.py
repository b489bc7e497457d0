"""Checkpoints that are whole or absent, in safetensors and JSON.

    checkpoints/step-000020/
      adapter_model.safetensors adapter_config.json   the policy, PEFT format
      optimizer.safetensors                           moments of each trained tensor
      value_head.safetensors                          with GAE only
      state.json                                      step, settings, sha256 of every other file; written last

No random generator needs to be stored: every draw is seeded from (seed, phase, step), see `train.py`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from securecoderl_edge.errors import SceError
from securecoderl_edge.files import read_json, sha256_of, temporary_beside
from securecoderl_edge.model import load_adapter, save_adapter

STATE_FILE = "state.json"
KEEP = 2


def save_checkpoint(
    folder: Path,
    step: int,
    model: Any,
    base_name: str,
    optimizer: torch.optim.Optimizer,
    value_head: nn.Module | None,
    facts: Mapping[str, Any],
) -> Path:
    """Write ``folder/step-N`` under a temporary name, sync it, rename it, and drop all but the last `KEEP`.

    Args:
        facts: what identifies the phase (its name, the settings' hash); `load_latest` demands the same.

    Raises:
        SceError: the system cannot write it; earlier checkpoints stay.
    """
    final = folder / f"step-{step:06d}"
    try:
        with temporary_beside(final) as temporary:
            save_adapter(model, temporary, base_name)
            tensors, scalars = _flatten(optimizer)
            save_file(tensors, temporary / "optimizer.safetensors")
            if value_head is not None:
                save_file(value_head.state_dict(), temporary / "value_head.safetensors")
            hashes = {path.name: sha256_of(path) for path in sorted(temporary.iterdir())}
            state = {"step": step, "facts": dict(facts), "optimizer": scalars, "sha256": hashes}
            (temporary / STATE_FILE).write_text(json.dumps(state, indent=1), encoding="utf-8")
            shutil.rmtree(final, ignore_errors=True)
    except SafetensorError as error:
        raise SceError(f"cannot write {final}: {error}") from error
    for old in checkpoints(folder)[:-KEEP]:
        shutil.rmtree(old)
    return final


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints in ``folder``, oldest first."""
    return sorted(path for path in folder.glob("step-*") if (path / STATE_FILE).is_file())


def load_latest(
    folder: Path,
    model: Any,
    optimizer: torch.optim.Optimizer,
    value_head: nn.Module | None,
    facts: Mapping[str, Any],
) -> int:
    """Restore the newest checkpoint and return its step; 0 when there is none.

    Raises:
        SceError: it was made with other settings, or a file of it is damaged.
    """
    found = checkpoints(folder)
    if not found:
        return 0
    newest = found[-1]
    advice = "start again with --no-resume or give another --out"
    try:
        state = read_json(newest / STATE_FILE)
        stored, hashes, step, numbers = state["facts"], dict(state["sha256"]), int(state["step"]), state["optimizer"]
    except (SceError, KeyError, TypeError, ValueError) as error:
        raise SceError(f"{newest / STATE_FILE} is damaged ({error}); {advice}") from None
    if stored != dict(facts):
        raise SceError(f"{newest} was made with other settings; {advice}")
    for name, expected in hashes.items():
        if os.path.basename(name) != name or not (newest / name).is_file() or sha256_of(newest / name) != expected:
            older = f"; delete it to go on from {found[-2].name}" if len(found) > 1 else f"; {advice}"
            raise SceError(f"{newest}/{name} is damaged (wrong sha256){older}")
    load_adapter(model, newest)
    _unflatten(optimizer, load_file(newest / "optimizer.safetensors"), numbers)
    if value_head is not None:
        value_head.load_state_dict(load_file(newest / "value_head.safetensors"))
    return step


def _flatten(optimizer: torch.optim.Optimizer) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The optimizer's tensors under ``<parameter>.<name>`` keys, and its numbers."""
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, values in optimizer.state_dict()["state"].items():
        for name, value in values.items():
            (tensors if isinstance(value, torch.Tensor) else numbers)[f"{index}.{name}"] = value
    return tensors, numbers


def _unflatten(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, Any]
) -> None:
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **numbers}.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
