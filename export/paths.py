"""Checks of the path of an export.

Even with --force an export never replaces its own source, a file without a manifest, or a folder with other files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.export.manifest import CARD
from securecoderl_edge.export.merge import COMPANION_FILES
from securecoderl_edge.export.onnx_weights import DATA
from securecoderl_edge.runtimes.manifests import manifest_path
from securecoderl_edge.runtimes.onnx.names import MODEL

_LONGEST_NAME = 255  # bytes, of most file systems
_LONGEST_ENDING = ".manifest.json"
_WRITTEN = {MODEL, DATA, "config.json", "manifest.json", "model.safetensors.index.json", *COMPANION_FILES}
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")


def check_output_file(out: Path, base: Path, adapter: Path | None) -> None:
    """Check a path that a file will be written to.

    Raises:
        UsageError: no file can or should have this name.
    """
    check_name(out)
    if out.exists() and not out.is_file():
        raise UsageError(f"{out}: not a regular file. Choose another --out.")
    if not out.exists():
        return
    for source in (base, adapter):
        if source is not None and any(out.samefile(file) for file in source.iterdir()):
            raise UsageError(f"{out} belongs to the model to export. Choose another --out.")
    # A damaged export still has its manifest.
    if not manifest_path(out).is_file():
        raise UsageError(
            f"{out} has no manifest of sce export, so --force does not replace it. Move it, or choose another --out."
        )


def check_output_folder(out: Path, base: Path, adapter: Path | None, signs: set[str], kind: str) -> None:
    """Check a path that a folder will be written to.

    Args:
        signs: files that every folder of this kind has.
        kind: name of the kind, for messages.

    Raises:
        UsageError: no folder can or should have this name, or an existing one has other files.
    """
    check_name(out)
    target = out.resolve()
    for source in (base, adapter):
        if source is not None and (target == source.resolve() or target in source.resolve().parents):
            raise UsageError(f"{out} contains the model to export. Choose another --out.")
    if not out.exists():
        return
    if not all((out / name).is_file() for name in signs):
        raise UsageError(f"{out} is not {kind}, so --force does not replace it. Choose another --out.")
    written = _WRITTEN | ({CARD} if MODEL in signs else set())
    others = sorted(
        path.name for path in out.iterdir() if path.name not in written and not _WEIGHTS.fullmatch(path.name)
    )
    if others:
        raise UsageError(
            f"{out} contains other files ({', '.join(others[:3])}), so --force does not replace it. Move them, or "
            "choose another --out."
        )


def check_name(out: Path) -> None:
    """Check the name, and that names of sidecar files are not too long.

    Raises:
        UsageError: it is empty, cannot be printed, or is too long.
    """
    if out.name in ("", "..") or not out.name.isprintable():
        raise UsageError(f"--out {str(out)!r}: not a valid file name. Choose another --out.")
    if len(os.fsencode(out.name)) + len(_LONGEST_ENDING) > _LONGEST_NAME:
        raise UsageError(f"--out {out.name[:40]}...: the name is too long. Choose another --out.")
