"""Manifests of exported files, and checks of the files against them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.system.files import read_json, sha256_of

_MOST_BITS = 64


def manifest_path(file: Path) -> Path:
    """The path of the manifest of an exported file or folder."""
    return file / "manifest.json" if file.is_dir() else file.with_name(f"{file.name}.manifest.json")


def check_unchanged(file: Path) -> None:
    """Check that a file, or the files of a folder, are those that its manifest lists; without a manifest do nothing.

    Weights with a few changed bytes would load and generate without an error.

    Raises:
        SceError: a file has changed, or the manifest is damaged.
    """
    if not manifest_path(file).is_file():
        return
    manifest = read_json(manifest_path(file))
    listed = manifest.get("files") if file.is_dir() else {file.name: manifest.get("sha256")}
    if (
        not isinstance(listed, dict)
        or not listed
        or not all(isinstance(digest, str) and is_plain_name(name) for name, digest in listed.items())
    ):
        raise SceError(f"{manifest_path(file)}: the list of exported files is missing; export again, or remove it")
    folder = file if file.is_dir() else file.parent
    check_hashes({folder / name: digest for name, digest in listed.items()})


def sources_of(file: Path) -> dict[str, str] | None:
    """The hashes of the files that an export was made from; None without a manifest.

    Raises:
        SceError: the manifest is damaged.
    """
    path = manifest_path(file)
    if not path.is_file():
        return None
    sources = read_json(path).get("sources")
    if not isinstance(sources, dict):
        raise SceError(f"{path}: the list of sources is missing; export again, or remove it")
    return sources


def check_hashes(hashes: Mapping[Path, Any]) -> dict[Path, str]:
    """Check files against their sha256, which is returned.

    Raises:
        SceError: a hash differs, or a file cannot be read.
    """
    digests = {}
    for path, expected in hashes.items():
        digest = digests[path] = sha256_of(path)
        if digest != expected:
            raise SceError(
                f"{path} has changed since its export (sha256 {digest[:16]}, not as in its manifest); export again"
            )
    return digests


def bits_per_weight(file: Path) -> float | None:
    """Bits per weight of an exported model, from its manifest; None without a valid value."""
    path = manifest_path(file)
    bits = read_json(path).get("bits_per_weight") if path.is_file() else None
    if isinstance(bits, bool) or not isinstance(bits, int | float) or not 0 < bits <= _MOST_BITS:
        return None
    return float(bits)


def is_plain_name(name: str) -> bool:
    """Whether ``name`` is the name of a file in a folder, and does not lead out of it."""
    return name == Path(name).name and name not in ("", "..") and "\0" not in name
