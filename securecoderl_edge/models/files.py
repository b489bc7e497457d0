"""Where a base model's folder is, which of its files make up the model, and which of them hold the weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.system.files import read_json, sha256_of
from securecoderl_edge.system.hub import download_model, is_hub_id

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
# They decide what a model answers; notes and caches beside them do not.
MODEL_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "vocab.txt", "merges.txt")

NANO = "nano"  # the built-in model


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, in the order of their names.

    Raises:
        UsageError: there are none, or one that the index names is missing.
    """
    names = [WEIGHTS]
    if (folder / WEIGHTS_INDEX).is_file():
        places = read_json(folder / WEIGHTS_INDEX).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
            raise UsageError(f"{folder / WEIGHTS_INDEX} is damaged (no weight_map)")
        names = sorted(set(places.values()))
    for name in names:
        # The names come from a file, so they must not lead out of the folder.
        if Path(name).name != name or not (folder / name).is_file():
            raise UsageError(f"{folder} has no {name}; a base model must be there as safetensors files")
    return [folder / name for name in names]


def base_folder(name: str, *, download: bool = True) -> Path:
    """The local folder of a base model: ``nano``, a folder, or a hub id (downloaded when named).

    Args:
        download: otherwise a hub id must have been downloaded before.

    Raises:
        UsageError: no such folder, it holds no model, or a hub id is not on this disk.
        SceError: a hub id that cannot be had.
    """
    if name == NANO:
        return Path(__file__).parent / "nano"
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"{folder} holds no model (no config.json)")
        return folder
    if not is_hub_id(name):
        raise UsageError(f"no model {name!r}: it is neither {NANO!r}, nor a folder, nor a hub id (owner/name)")
    return download_model(name, MODEL_FILES, download)


def lasting_name(name: str) -> str:
    """What finds the base model ``name`` again from any working folder: a folder's whole path, else ``name``."""
    return str(Path(name).resolve()) if name != NANO and Path(name).is_dir() else name


def sha256_of_folder(folder: Path) -> str:
    """One digest over all that decides what a model folder answers, so that a run knows its base again."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in MODEL_FILES for path in folder.glob(pattern)}):
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()
