"""An exported file once more: is it still what its manifest says, and does it still say what its source says?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export.agreement import BOUNDS, Agreement
from securecoderl_edge.export.manifest import hash_sources, manifest_path
from securecoderl_edge.export.onnx import MODEL
from securecoderl_edge.export.onnx_weights import DATA
from securecoderl_edge.export.verify import verify_gguf, verify_onnx
from securecoderl_edge.export.workbench import Workbench
from securecoderl_edge.files import read_json, sha256_of


@dataclass(frozen=True)
class Recheck:
    """What was found; ``agreement`` is None where the source was not at hand."""

    file: str
    sha256: str
    agreement: Agreement | None

    def to_record(self) -> dict[str, Any]:
        """The JSON document of ``sce export --verify --json``."""
        return asdict(self)


def recheck(file: Path, base: Path | None, adapter: Path | None, pre_tokenizer: str | None = None) -> Recheck:
    """Check a file against its manifest and, if there is one, its source.

    Args:
        base: the folder that it was made from; None checks the manifest alone.
        pre_tokenizer: llama.cpp's name of one that is not recognised, to try an adapter on its base.

    Raises:
        UsageError: no such file, or no manifest beside it.
        SceError: its content, its source or what it says is not what the manifest says.
    """
    if not file.exists():
        raise UsageError(f"{file}: no such file or folder")
    if not manifest_path(file).is_file():
        raise UsageError(f"{manifest_path(file)}: no such file; sce export writes it beside what it exports")
    manifest = read_json(manifest_path(file))
    found = _check_hashes(file, manifest)
    if base is None:
        return Recheck(file.name, found, None)
    sources, kind = manifest.get("sources"), manifest.get("quant")
    if not isinstance(sources, dict) or not isinstance(kind, str) or kind not in BOUNDS:
        raise SceError(f"{manifest_path(file)}: is no manifest of an export; export again")
    given = hash_sources(base, adapter)
    if sources != given:
        changed = sorted(name for name in {*given, *sources} if given.get(name) != sources.get(name))
        raise SceError(f"{file} was made from something else: {', '.join(changed[:4])} differ")
    with Workbench(base, adapter, pre_tokenizer=pre_tokenizer) as workbench:
        if file.is_dir():
            return Recheck(file.name, found, verify_onnx(file, base, kind, workbench.reference()))
        if adapter is None or "rank" not in manifest:
            return Recheck(file.name, found, verify_gguf(file, base, kind, workbench.reference()))
        base_file, base_kind = workbench.base_file(file)
        agreement = verify_gguf(base_file, base, min(kind, base_kind), workbench.reference(), file)
        return Recheck(file.name, found, agreement)


def _check_hashes(file: Path, manifest: dict[str, Any]) -> str:
    """The hash of the file, of the weights of a folder; each file is held against the manifest."""
    files = {file: manifest.get("sha256")}
    if file.is_dir():
        listed = manifest.get("files")
        names = list(listed) if isinstance(listed, dict) else []
        # A name in a manifest must not lead out of the folder.
        if not {MODEL, DATA} <= {*names} or any(Path(name).name != name or "\0" in name for name in names):
            raise SceError(f"{manifest_path(file)}: is no manifest of an export; export again")
        files = {file / name: listed[name] for name in names} if isinstance(listed, dict) else {}
        extra = {path.name for path in file.iterdir()} - {*names, manifest_path(file).name}
        if not files or extra:
            raise SceError(
                f"{file} is not what was exported: {', '.join(sorted(extra)) or 'its manifest lists nothing'}"
            )
    found = ""
    for path, expected in files.items():
        found = sha256_of(path)
        if found != expected:
            raise SceError(
                f"{path} is not what was exported (sha256 {found[:16]}, its manifest says otherwise); export again"
            )
    return found
