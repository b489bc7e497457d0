"""Where an export may go, with --force or without: never over its own source, over a file without an export's manifest,
or over a folder with a file that no export writes.
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
from securecoderl_edge.runtimes.onnx.model import MODEL

_LONGEST_NAME = 255  # bytes, of most file systems
_LONGEST_ENDING = ".manifest.json"
_WRITTEN = {MODEL, DATA, "config.json", "manifest.json", "model.safetensors.index.json", *COMPANION_FILES}
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")


def check_file_target(out: Path, base: Path, adapter: Path | None) -> None:
    """Check a path that a file will be written to.

    Raises:
        UsageError: no file can or should have this name.
    """
    check_name(out)
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is no regular file; choose another --out")
    if not out.exists():
        return
    for source in (base, adapter):
        if source is not None and any(out.samefile(file) for file in source.iterdir()):
            raise UsageError(f"{out} is a file of the model that is exported; choose another --out")
    # What an export left there and something else has damaged still has its manifest.
    if not manifest_path(out).is_file():
        raise UsageError(
            f"{out} has no manifest of sce export beside it, so --force does not replace it; move it or choose another "
            "--out"
        )


def check_folder_target(out: Path, base: Path, adapter: Path | None, signs: set[str], kind: str) -> None:
    """Check a path that a folder will be written to.

    Args:
        signs: files by which a folder of this kind is known. kind: its name, for messages.

    Raises:
        UsageError: no folder can or should have this name, or one that has it holds what no export wrote.
    """
    check_name(out)
    target = out.resolve()
    for source in (base, adapter):
        if source is not None and (target == source.resolve() or target in source.resolve().parents):
            raise UsageError(f"{out} holds the model that is exported; choose another --out")
    if not out.exists():
        return
    if not all((out / name).is_file() for name in signs):
        raise UsageError(f"{out} is not {kind}, so --force does not replace it; choose another --out")
    written = _WRITTEN | ({CARD} if MODEL in signs else set())
    others = sorted(
        path.name for path in out.iterdir() if path.name not in written and not _WEIGHTS.fullmatch(path.name)
    )
    if others:
        raise UsageError(
            f"{out} holds files that sce export does not write ({', '.join(others[:3])}), so --force does not replace "
            "it; move them or choose another --out"
        )


def check_name(out: Path) -> None:
    """Check the name alone, and that of its papers.

    Raises:
        UsageError: it names nothing, cannot be printed, or is too long.
    """
    if out.name in ("", "..") or not out.name.isprintable():
        raise UsageError(f"--out {str(out)!r}: no file can sensibly have this name; choose another --out")
    if len(os.fsencode(out.name)) + len(_LONGEST_ENDING) > _LONGEST_NAME:
        raise UsageError(f"--out {out.name[:40]}...: the name is too long; choose another --out")
