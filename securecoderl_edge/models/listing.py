"""What `sce models` lists: every named model and alias, with its size, and whether it is here and fits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.catalog import NAMED, Measured, NamedModel, memory_needed
from securecoderl_edge.models.files import BUILT_IN, SMOLLM2, SMOLLM2_RL, SMOLLM2_RL_ADAPTER, smollm2_file
from securecoderl_edge.models.stored import aliases, stored_file, stored_path
from securecoderl_edge.system.machine import available_memory_bytes


@dataclass(frozen=True)
class ListedModel:
    """A named model or an alias.

    Attributes:
        bytes: its size on disk, or of the file to download; None if that is not known here.
        memory_bytes: estimated memory that it needs; ``fits`` compares it with the free memory.
        path: its file or folder; None if it is not here.
    """

    name: str
    parameters: str
    license: str
    bytes: int | None
    memory_bytes: int | None
    fits: bool | None
    path: Path | None
    measured: Measured | None = None


def listed_models() -> list[ListedModel]:
    """All named models, then the user's aliases."""
    named = [_listed(model, _path_of(model)) for model in NAMED]
    links = {name: file if file.is_file() else None for name, file in aliases().items()}
    return named + [_listed(NamedModel(name, "", ""), file) for name, file in links.items()]


def path_of(name: str) -> Path:
    """The file or folder of a named model or alias.

    Raises:
        UsageError: no such name.
        SceError: it is not on this machine.
        MissingExtra: the package that brings it is not installed.
    """
    from securecoderl_edge.models.files import gguf_file

    if name in BUILT_IN:
        return BUILT_IN[name]
    if name == SMOLLM2_RL:
        return SMOLLM2_RL_ADAPTER
    file = gguf_file(name) if name == SMOLLM2 else stored_file(name)
    if file is None:
        raise UsageError(f"unknown model {name!r}. For a list: sce models")
    return file


def _path_of(model: NamedModel) -> Path | None:
    if model.name in BUILT_IN:
        return BUILT_IN[model.name]
    if model.name in (SMOLLM2, SMOLLM2_RL):
        return smollm2_file()
    path = stored_path(model.name)
    return path if path.is_file() else None


def _listed(model: NamedModel, path: Path | None) -> ListedModel:
    size = model.origin.bytes if model.origin else None
    if path is not None:
        size = sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else [path]) if file.is_file())
    needed = memory_needed(size) if size is not None else None
    fits = needed <= available_memory_bytes() if needed is not None else None
    return ListedModel(model.name, model.parameters, model.license, size, needed, fits, path, model.measured)
