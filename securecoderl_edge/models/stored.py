"""The user's folder of models: pulled GGUF files, and aliases, which are links to files elsewhere."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.catalog import NAMED, ORIGINS, Origin
from securecoderl_edge.models.gguf.folder import converted_folder
from securecoderl_edge.models.gguf.header import is_adapter, read_header
from securecoderl_edge.system.files import sha256_of
from securecoderl_edge.system.folders import cache_folder

_SECOND = 10**9  # in nanoseconds
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
        SceError: the model is not pulled yet, its file was changed, or the file of the alias is missing.
    """
    if not _NAME.fullmatch(name):
        return None
    path = stored_path(name)
    if path.is_file():
        if name in ORIGINS and not is_as_published(path, ORIGINS[name]):
            raise SceError(f"{path}: cut or changed; get it again with: sce models pull {name}")
        return path.resolve()
    if name in ORIGINS:
        raise SceError(f"{name} is not on this machine yet; get it with: sce models pull {name}")
    if path.is_symlink():
        raise SceError(f"the file of the alias {name} is missing: {os.readlink(path)}. Remove it: sce models rm {name}")
    return None


def is_as_published(path: Path, origin: Origin) -> bool:
    """Whether a file has the SHA-256 of its origin, which is computed only if the file may have changed since."""
    status = path.stat()
    if status.st_size != origin.bytes:
        return False
    if status.st_mtime_ns % _SECOND == _mark(origin):
        return True
    if sha256_of(path) != origin.sha256:
        return False
    mark_as_published(path, origin)
    return True


def mark_as_published(path: Path, origin: Origin) -> None:
    """Note that a file has the SHA-256 of its origin: by a part of it, in the nanoseconds of the file's time.

    Hashing 0.5 GB takes half a second at each start, and who writes to the file sets another time.
    """
    status = path.stat()
    with suppress(OSError):  # somebody else's file
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns // _SECOND * _SECOND + _mark(origin)))


def _mark(origin: Origin) -> int:
    return int(origin.sha256[:16], 16) % _SECOND


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
