"""What stands beside an exported file, for those who run it: its manifest, and whether the file is still that one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.files import read_json, sha256_of


def manifest_path(file: Path) -> Path:
    """Where the manifest of an exported file or folder stands."""
    return file / "manifest.json" if file.is_dir() else file.with_name(f"{file.name}.manifest.json")


def check_unchanged(file: Path) -> None:
    """Check that a file, or the files of a folder, are those that its manifest lists; nothing is known without one.

    Weights with a few changed bytes load and generate without a word.

    Raises:
        SceError: they are not, or the manifest is damaged.
    """
    manifest = _read_manifest(file)
    if file.is_dir():
        listed = manifest.get("files")
        hashes = {file / Path(name).name: digest for name, digest in listed.items()} if isinstance(listed, dict) else {}
    else:
        hashes = {file: manifest["sha256"]} if "sha256" in manifest else {}
    check_hashes(hashes)


def check_hashes(hashes: Mapping[Path, Any]) -> dict[Path, str]:
    """Check files against their sha256, which is returned.

    Raises:
        SceError: one of them has another, or cannot be read.
    """
    found = {}
    for path, expected in hashes.items():
        found[path] = sha256_of(path)
        if found[path] != expected:
            raise SceError(
                f"{path} is not what was exported (sha256 {found[path][:16]}, its manifest says otherwise); "
                "export again"
            )
    return found


def bits_per_weight(file: Path) -> float | None:
    """Of an exported model, as its manifest says; None without one."""
    bits = _read_manifest(file).get("bits_per_weight")
    return float(bits) if isinstance(bits, int | float) else None


def _read_manifest(file: Path) -> dict[str, Any]:
    path = manifest_path(file)
    return read_json(path) if path.is_file() else {}
