"""Repeated verification of an exported file, against its manifest and the original model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export.agreement import Agreement, check_as_recorded, wider
from securecoderl_edge.export.contents import check_content
from securecoderl_edge.export.manifest import AdapterManifest, hash_sources
from securecoderl_edge.export.verify import verify
from securecoderl_edge.export.workbench import Workbench
from securecoderl_edge.runtimes.manifests import manifest_path


@dataclass(frozen=True)
class Recheck:
    """Result of a repeated verification; ``agreement`` is None without the original model."""

    file: str
    sha256: str
    agreement: Agreement | None


def recheck(
    file: Path,
    base: Path | None,
    adapter: Path | None,
    pre_tokenizer: str | None = None,
    gguf_base: Path | None = None,
    device: str = "cpu",
) -> Recheck:
    """Check a file against its manifest and, if given, the original model.

    Args:
        base: folder of the base model; None checks only the manifest.
        pre_tokenizer: llama.cpp's name of an unrecognized pre-tokenizer, to verify an adapter on its base.
        gguf_base, device: see `Workbench`.

    Raises:
        UsageError: the file or its manifest is missing.
        SceError: content, type, sources or agreement differ from the manifest.
    """
    if not file.exists():
        raise UsageError(f"{file}: no such file or folder")
    if not manifest_path(file).is_file():
        raise UsageError(f"{manifest_path(file)}: no such file. sce export writes it next to each export.")
    manifest, found = check_content(file)
    if base is None:
        return Recheck(file.name, found, None)
    given, sources, kind = hash_sources(base, adapter), manifest.sources, manifest.quant
    if sources != given:
        changed = sorted(name for name in {*given, *sources} if given.get(name) != sources.get(name))
        raise SceError(f"{file} was made from another model: {', '.join(changed[:4])} differ")
    with Workbench(base, adapter, pre_tokenizer=pre_tokenizer, gguf_base=gguf_base, device=device) as workbench:
        if isinstance(manifest, AdapterManifest):
            base_file, base_kind = workbench.base_file(file)
            agreement = verify(base_file, base, wider(kind, base_kind), workbench.reference(), file)
        else:
            agreement = verify(file, base, kind, workbench.reference())
    check_as_recorded(agreement, manifest.agreement, file)
    return Recheck(file.name, found, agreement)
