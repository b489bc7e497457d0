"""A GGUF file as a Hugging Face folder in the user's cache: its configuration and tokenizer, and a link to the file.

The weights stay in the file; `GgufWeights` reads them. No text of the file becomes a path.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.architecture import Architecture, architecture_of, read_architecture
from securecoderl_edge.models.gguf.config import config_of
from securecoderl_edge.models.gguf.header import ROPE_DIVISORS, GgufHeader, read_header
from securecoderl_edge.models.gguf.layout import gguf_package
from securecoderl_edge.models.gguf.tokenizer_files import tokenizer_files_of
from securecoderl_edge.models.gguf.weights import GgufWeights
from securecoderl_edge.system.files import known_sha256, read_json, remove_abandoned, temporary_beside
from securecoderl_edge.system.folders import cache_folder

# In config.json: the GGUF file that a folder was made from.
SOURCE_KEY = "gguf_source"
# Part of config.json, and so of the digest of a folder in runs and manifests.
_VERSION = 1
_F32 = 0  # ggml's number of this type
# The link to the file, and the SHA-256 of its weights, see `GgufWeights.sha256`.
LINK, _DIGEST = "model.gguf", "model.safetensors.sha256"


def folder_of_gguf(path: Path, tell: Callable[[str], None] = lambda line: None) -> Path:
    """The Hugging Face folder of a GGUF file, in the user's cache under the file's hash; made once.

    Args:
        tell: called with one line before all weights are read, to check them.

    Raises:
        UsageError: an adapter, or a model that the folder cannot express (named).
        SceError: the file is damaged, or the cache folder cannot be written.
        MissingExtra: gguf or tokenizers is not installed.
    """
    target = converted_folder() / known_sha256(path)
    remove_abandoned(target)
    if _is_whole(target):
        _link(target, path)
        return target
    tell(f"{path} ({path.stat().st_size / 1e9:.2f} GB) is read once, to check it")
    shutil.rmtree(target, ignore_errors=True)  # earlier versions wrote all weights there
    try:
        # A whole folder is never replaced: another process may be reading it.
        with temporary_beside(target) as temporary:
            temporary.mkdir()
            _convert(path, temporary, target.name)
            _link(temporary, path)
    except SceError as error:
        if _is_whole(target):  # another process was faster
            return target
        if isinstance(error.__cause__, OSError):
            raise SceError(f"{error}. Set XDG_CACHE_HOME to another folder to keep converted models in.") from None
        raise
    return target


def converted_folder() -> Path:
    """Where the folders of GGUF files are."""
    return cache_folder() / "gguf"


def converted_weights() -> list[Path]:
    """The weights that earlier versions converted. Nothing reads them now."""
    return sorted(converted_folder().glob("*/model.safetensors"))


def remove_converted() -> int:
    """Delete `converted_weights` with their folders; returns freed bytes."""
    found = converted_weights()
    freed = sum(path.stat().st_size for path in found)
    for path in found:
        shutil.rmtree(path.parent)
    return freed


def architecture_of_gguf(header: GgufHeader, path: Path) -> Architecture:
    """The architecture of a GGUF file, from its ``header``; nothing is converted, and most weights are not read.

    Raises:
        UsageError, SceError: as `folder_of_gguf`.
    """
    _require_model(header, path)
    return architecture_of(config_of(header, _divisors(header, path), path), str(path))


def gguf_source(folder: Path) -> dict[str, Any] | None:
    """The note of a folder that was made from a GGUF file: its name, ``sha256`` and number of tensors by type."""
    note = read_json(folder / "config.json").get(SOURCE_KEY)
    return note if isinstance(note, dict) and isinstance(note.get("tensor_types"), dict) else None


def gguf_weights(folder: Path) -> GgufWeights | None:
    """The weights of a folder that was made from a GGUF file; None for other folders.

    Raises:
        SceError: the file is missing, or another one now.
    """
    if not (folder / LINK).is_symlink():
        return None
    path, note = (folder / LINK).resolve(), gguf_source(folder)
    if note is None or not path.is_file() or known_sha256(path) != note["sha256"]:
        raise SceError(f"{path}: the GGUF file of this model is missing or was changed. Give the original file.")
    return GgufWeights(path, read_header(path), read_architecture(folder))


def gguf_weights_sha256(folder: Path) -> str | None:
    """`GgufWeights.sha256` of a folder that was made from a GGUF file; None for other folders."""
    return (folder / _DIGEST).read_text(encoding="ascii").strip() if (folder / LINK).is_symlink() else None


def _link(folder: Path, path: Path) -> None:
    """Make the link of a folder one to ``path``, unless its file is there: another process may be reading it."""
    link = folder / LINK
    if link.is_file() and known_sha256(link.resolve()) == known_sha256(path):
        return
    with temporary_beside(link) as temporary:
        temporary.symlink_to(path.resolve())


def _is_whole(folder: Path) -> bool:
    if not (folder / "config.json").is_file() or not (folder / _DIGEST).is_file():
        return False
    return (gguf_source(folder) or {}).get("version") == _VERSION


def _convert(path: Path, folder: Path, digest: str) -> None:
    gguf_package()
    header = read_header(path, with_lists=True)
    _require_model(header, path)
    config = config_of(header, _divisors(header, path), path)
    shape = architecture_of(config, str(path))
    source = GgufWeights(path, header, shape)
    weights = source.weights
    vocabulary = tokenizer_files_of(header, shape.vocabulary, path)
    matrices = [weight.dtype for weight in weights if weight.rows > 1]
    config |= {"dtype": {"F16": "float16", "BF16": "bfloat16"}[matrices[0]] if "F32" not in matrices else "float32"}
    config |= vocabulary.ids
    types = Counter(weight.kind.lower() for weight in weights)
    config[SOURCE_KEY] = {
        "name": header.values.get("general.name"),
        "sha256": digest,
        "tensor_types": dict(sorted(types.items())),
        "version": _VERSION,
    }
    license = header.values.get("general.license")
    if isinstance(license, str) and license.isprintable():
        (folder / "README.md").write_text(f"---\nlicense: {license}\n---\n", encoding="utf-8")
    for name, content in vocabulary.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / _DIGEST).write_text(f"{source.sha256()}\n", encoding="ascii")
    (folder / "generation_config.json").write_text(json.dumps(vocabulary.ids), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def _require_model(header: GgufHeader, path: Path) -> None:
    if header.values.get("general.type", "model") != "model":
        raise UsageError(f"{path}: not a model but of type {header.values['general.type']!r}. Give its base model.")
    parts = header.values.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise UsageError(f"{path}: one of {parts} parts. Join them with: llama-gguf-split --merge")


def _divisors(header: GgufHeader, path: Path) -> list[float]:
    """The content of `ROPE_DIVISORS`, if the file has it."""
    import numpy as np

    tensor = next((tensor for tensor in header.tensors if tensor.name == ROPE_DIVISORS), None)
    if tensor is None:
        return []
    if tensor.type != _F32 or len(tensor.sizes) != 1 or tensor.start + 4 * tensor.sizes[0] > path.stat().st_size:
        raise SceError(f"{path}: damaged at tensor {ROPE_DIVISORS}; download it again")
    divisors: list[float] = np.fromfile(path, np.float32, tensor.sizes[0], offset=tensor.start).tolist()
    return divisors
