"""Which files of a Hugging Face folder make up its model, and which of them hold the weights."""

from __future__ import annotations

from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.system.files import read_json

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
# They decide what a model answers; notes and caches beside them do not.
MODEL_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "vocab.txt", "merges.txt")


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
