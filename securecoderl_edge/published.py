"""Finished adapters: a folder in PEFT's format that appears when it is whole, with its hash and history beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.adapters import ADAPTER_WEIGHTS, save_adapter
from securecoderl_edge.runs import DONE_FILE
from securecoderl_edge.system.files import read_json, sha256_of, temporary_beside


def publish(folder: Path, model: Any, base_name: str, facts: dict[str, Any]) -> None:
    """Save the policy adapter, with `DONE_FILE` beside it, as ``folder``, which appears when it is whole.

    Raises:
        SceError: the system cannot write it.
    """
    try:
        with temporary_beside(folder, replace_folder=True) as temporary:
            save_adapter(model, temporary, base_name)
            facts = {**facts, "sha256": sha256_of(temporary / ADAPTER_WEIGHTS)}
            (temporary / DONE_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    except SafetensorError as error:
        raise SceError(f"cannot write {folder}: {error}") from error


def check_published(folder: Path) -> None:
    """Make sure that an adapter is as `publish` left it.

    Raises:
        SceError: it is not.
    """
    if read_json(folder / DONE_FILE).get("sha256") != sha256_of(folder / ADAPTER_WEIGHTS):
        raise SceError(f"{folder / ADAPTER_WEIGHTS} is damaged (wrong sha256); delete {folder} to make it again")
