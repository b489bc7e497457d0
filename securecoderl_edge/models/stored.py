"""The user's folder of models: pulled GGUF files, and aliases, which are links to files elsewhere."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.catalog import NAMED, ORIGINS
from securecoderl_edge.models.gguf.folder import converted_folder
from securecoderl_edge.models.gguf.header import is_adapter, read_header
from securecoderl_edge.system.folders import cache_folder

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


def models_folder() -> Path:
    """The folder of pulled models and aliases."""
    return cache_folder() / "models"


def stored_path(name: str) -> Path:
    """The file in `models_folder` that a name is for, whether it exists or not."""
    return models_folder() / f"{name}.gguf"


def parts_folder(name: str) -> Path:
    """The folder in which `pull` collects a model."""
    return models_folder() / ".parts" / name


def stored_file(name: str) -> Path | None:
    """The file of a pulled model or alias; None if the name is neither.

    Raises:
        SceError: the model is not pulled yet, its file has another size, or the file of the alias is missing.
    """
    if not _NAME.fullmatch(name):
        return None
    path = stored_path(name)
    if path.is_file():
        origin, size = ORIGINS.get(name), path.stat().st_size
        if origin is not None and size != origin.bytes:
            sizes = f"{size} bytes instead of {origin.bytes}"
            raise SceError(f"{path}: cut or changed ({sizes}); get it again with: sce models pull {name}")
        return path.resolve()
    if name in ORIGINS:
        raise SceError(f"{name} is not on this machine yet; get it with: sce models pull {name}")
    if path.is_symlink():
        raise SceError(f"the file of the alias {name} is missing: {os.readlink(path)}. Remove it: sce models rm {name}")
    return None


def pulled() -> list[str]:
    """The names of the models that are pulled, smallest first."""
    names = [name for name in ORIGINS if stored_path(name).is_file()]
    return sorted(names, key=lambda name: ORIGINS[name].bytes)


def aliases() -> dict[str, Path]:
    """The user's aliases, and the file of each, which may be missing."""
    links = (path for path in sorted(models_folder().glob("*.gguf")) if path.is_symlink())
    return {path.name.removesuffix(".gguf"): Path(os.readlink(path)) for path in links}


def make_alias(name: str, file: Path) -> None:
    """Make ``name`` a name of a GGUF file, in place of an older alias.

    Raises:
        UsageError: the name is taken or cannot be one, or it is not a model.
        SceError: it is not a GGUF file, or damaged.
    """
    if name in {each.name for each in NAMED}:
        raise UsageError(f"{name} is the name of a model already. Choose another name")
    if not _NAME.fullmatch(name) or name.endswith(".gguf"):
        raise UsageError(f"{name!r} cannot be an alias. Use letters, digits, '-', '_' and '.', and no .gguf at the end")
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    read_header(file)
    if is_adapter(file):
        raise UsageError(f"{file}: a LoRA adapter, not a model. Give a whole model")
    link = stored_path(name)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(file.resolve())


def remove(name: str) -> int:
    """Delete a pulled model with what was made of it, or an alias, whose file stays; return freed bytes.

    Raises:
        UsageError: neither of these.
    """
    path, parts = stored_path(name), parts_folder(name)
    if not _NAME.fullmatch(name) or not (path.is_symlink() or path.is_file() or parts.is_dir()):
        raise UsageError(f"{name} is neither pulled nor an alias. For a list: sce models")
    files = [each for each in (path, *parts.rglob("*")) if each.is_file() and not each.is_symlink()]
    freed = sum(each.stat().st_size for each in files)
    path.unlink(missing_ok=True)
    shutil.rmtree(parts, ignore_errors=True)
    if name in ORIGINS:
        shutil.rmtree(converted_folder() / ORIGINS[name].sha256, ignore_errors=True)
    return freed
