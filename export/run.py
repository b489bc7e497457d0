"""Exports from start to end: write under a temporary name, verify, write a manifest, rename; and later checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from securecoderl_edge.errors import SceError, UsageError, check_extras
from securecoderl_edge.export import onnx
from securecoderl_edge.export.agreement import Agreement, check_as_recorded, wider
from securecoderl_edge.export.gguf import OWN_TYPES, write_adapter
from securecoderl_edge.export.manifest import (
    FORMAT_VERSION,
    PACKAGES,
    SOURCE_FILE,
    AdapterManifest,
    GgufManifest,
    Manifest,
    OnnxManifest,
    check_content,
    hash_sources,
)
from securecoderl_edge.export.merge import copy_companions, write_merged
from securecoderl_edge.export.onnx_weights import DATA
from securecoderl_edge.export.paths import check_output_file, check_output_folder
from securecoderl_edge.export.quantize import LLAMA_CPP_TYPES
from securecoderl_edge.export.verify import verify
from securecoderl_edge.export.workbench import Workbench
from securecoderl_edge.models.gguf.header import BASE_KEY, header_strings, read_header
from securecoderl_edge.models.packages import COMPUTED_BY
from securecoderl_edge.runtimes.manifests import manifest_path
from securecoderl_edge.runtimes.onnx.names import MODEL
from securecoderl_edge.system.files import (
    known_sha256,
    remove_abandoned,
    sha256_of,
    sync,
    temporary_beside,
    write_atomically,
)
from securecoderl_edge.system.machine import installed

QUANTS = (*OWN_TYPES, *LLAMA_CPP_TYPES)
# By format: an extra next to torch's, and packages of it.
_PACKAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "gguf": {"gguf": ("gguf", "llama_cpp")},
    "adapter": {"gguf": ("gguf", "llama_cpp")},
    "onnx": {"onnx": ("onnx", "onnxruntime")},
    "hf": {},
}


M = TypeVar("M", bound=Manifest)


@dataclass(frozen=True)
class ExportResult:
    """A verified file; ``reused`` if the same export already existed."""

    path: Path
    manifest: Manifest
    reused: bool


def export_gguf(workbench: Workbench, quant: str, out: Path, force: bool) -> ExportResult:
    """Write the workbench's model to the GGUF file ``out``, which appears only after verification.

    Args:
        quant: one of `QUANTS`.
        force: replace a file that is another export.

    Raises:
        UsageError: ``out`` exists, or export does not support the model (named).
        SceError: the file does not agree with the original; it is deleted.
        MissingExtra: a required package is not installed.
    """
    if quant not in QUANTS:
        raise UsageError(f"unknown quantization {quant!r}; choose from {', '.join(QUANTS)}")
    require_packages("gguf")
    check_output_file(out, workbench.base, workbench.adapter)
    identity = _ExportIdentity.of(workbench, quant, workbench.source_file)
    if earlier := _find_earlier(out, GgufManifest, identity, force, lambda _: _has_pre_tokenizer(out, workbench)):
        return ExportResult(out, earlier, reused=True)
    with _written_for(out) as temporary:
        summary = workbench.write(quant, temporary, out)
        workbench.log("verifying against the original ...")
        with _nothing_written():
            agreement = workbench.verify(temporary, quant)
        manifest = GgufManifest(**_facts_of(temporary, out), **asdict(summary), **identity.described(agreement))
        _write_manifest(manifest, out, temporary)
    if quant in ("f16", "f32") and workbench.source_file is None:
        workbench.use_float_file(out, summary)
    return ExportResult(out, manifest, reused=False)


def export_adapter(workbench: Workbench, quant: str, out: Path, force: bool) -> ExportResult:
    """Write only the adapter to the GGUF file ``out``, which appears after verification on a GGUF file of its base.

    Args:
        quant: ``f16`` or ``f32``; other arguments and errors as in `export_gguf`.

    Raises:
        UsageError: as in `export_gguf`, or the model is a base model without an adapter.
    """
    base, adapter = workbench.base, workbench.adapter
    if adapter is None:
        raise UsageError(f"{base.name} is a base model without an adapter. Export a training run or an adapter folder.")
    require_packages("gguf")
    check_output_file(out, base, adapter)
    identity = _ExportIdentity.of(workbench, quant)
    digest = known_sha256(workbench.gguf_base) if workbench.gguf_base else None
    if earlier := _find_earlier(out, AdapterManifest, identity, force, lambda _: _base_in(out) == digest):
        return ExportResult(out, earlier, reused=True)
    with _written_for(out) as temporary:
        workbench.log("writing the adapter ...")
        summary = write_adapter(base, adapter, quant, temporary, out.stem, workbench.prompt_style, digest)
        base_file, base_quant = workbench.base_file(out)
        workbench.log("verifying the adapter on the base ...")
        bounds = wider(quant, base_quant)
        agreement = _verified(workbench, base_file, bounds, temporary)
        facts = {**_facts_of(temporary, out), **asdict(summary), "bounds": bounds}
        manifest = AdapterManifest(**facts, **identity.described(agreement))
        _write_manifest(manifest, out, temporary)
    return ExportResult(out, manifest, reused=False)


def export_onnx(workbench: Workbench, quant: str, out: Path, force: bool, portable: bool = False) -> ExportResult:
    """Write the workbench's model to the ONNX folder ``out``, which appears only after verification.

    The folder has the graph, its weights, the tokenizer and other files of the model, and the manifest.

    Args:
        quant: one of `onnx.BITS` or `onnx.PORTABLE_TYPES`; other arguments and errors as in `export_gguf`.
        portable: use only standard operators, for any runtime.
    """
    base, adapter = workbench.base, workbench.adapter
    require_packages("onnx")
    check_output_folder(out, base, adapter, {MODEL, DATA}, "an ONNX folder")
    identity = _ExportIdentity.of(workbench, quant)
    earlier = _find_earlier(out, OnnxManifest, identity, force, lambda manifest: manifest.portable == portable)
    if earlier:
        return ExportResult(out, earlier, reused=True)
    with _written_for(out, is_folder=True) as temporary:
        temporary.mkdir()
        workbench.log(f"writing {quant} ...")
        summary = onnx.write_onnx(base, adapter, quant, temporary, portable)
        copy_companions(base, temporary, workbench.prompt_style)
        workbench.log("verifying against the original ...")
        agreement = _verified(workbench, temporary, quant)
        manifest = OnnxManifest(
            files={path.name: sha256_of(path) for path in sorted(temporary.iterdir())},
            bytes=sum((temporary / name).stat().st_size for name in (MODEL, DATA)),
            portable=portable,
            **asdict(summary),
            **identity.described(agreement),
        )
        _write_manifest(manifest, temporary)
    return ExportResult(out, manifest, reused=False)


def export_merged(
    base: Path, adapter: Path | None, dtype: str, out: Path, force: bool, prompt_style: str | None = None
) -> Path:
    """Write a merged Hugging Face folder atomically; its config.json has ``prompt_style``.

    Raises:
        UsageError: ``out`` exists, or the adapter cannot be merged.
        SceError: a file cannot be read or written.
    """
    check_output_folder(out, base, adapter, {"config.json"}, "a model folder")
    if out.exists() and not force:
        raise UsageError(f"{out} exists. Replace it with --force, or choose another --out.")
    with _written_for(out, is_folder=True) as temporary:
        write_merged(base, adapter, temporary, dtype, prompt_style)
    return out


@dataclass(frozen=True)
class _ExportIdentity:
    """Identity of an export: two with the same sources, type and prompt style are the same export."""

    sources: dict[str, str]
    quant: str
    prompt_style: str | None

    @classmethod
    def of(cls, workbench: Workbench, quant: str, file: Path | None = None) -> _ExportIdentity:
        return cls(hash_sources(workbench.base, workbench.adapter, file), quant, workbench.prompt_style)

    def described(self, agreement: Agreement) -> dict[str, Any]:
        """Build the fields that all kinds of manifests have."""
        own = {"format_version": FORMAT_VERSION, "agreement": agreement, "versions": installed(PACKAGES)}
        return {**vars(self), **own}

    def is_that_of(self, manifest: Manifest) -> bool:
        other = (manifest.format_version, _ExportIdentity(manifest.sources, manifest.quant, manifest.prompt_style))
        return other == (FORMAT_VERSION, self)


@contextmanager
def _written_for(out: Path, is_folder: bool = False) -> Iterator[Path]:
    """Provide a temporary path that becomes ``out`` on success; leftovers of killed exports are deleted.

    If the export of a file fails after its manifest was replaced, the manifest is restored.
    """
    remove_abandoned(out)
    path = manifest_path(out)
    before = path.read_bytes() if out.is_file() and path.is_file() else None
    try:
        with temporary_beside(out, replace_folder=is_folder) as temporary:
            yield temporary
    except BaseException:
        if before is not None and path.read_bytes() != before:
            with temporary_beside(path) as temporary:
                temporary.write_bytes(before)
        raise


def _facts_of(file: Path, out: Path) -> dict[str, Any]:
    """Build the fields of a manifest that depend on the bytes of a file, which will be renamed to ``out``."""
    return {"file": out.name, "sha256": sha256_of(file), "bytes": file.stat().st_size}


def _verified(workbench: Workbench, file: Path, quant: str, adapter: Path | None = None) -> Agreement:
    """`verify` against the workbench's reference; an error says that the file was not kept."""
    with _nothing_written():
        return verify(file, workbench.base, quant, workbench.reference(), adapter)


@contextmanager
def _nothing_written() -> Iterator[None]:
    """Say in errors of a verification that the file was not kept."""
    try:
        yield
    except UsageError:
        raise
    except SceError as error:
        raise SceError(f"{error}; nothing was written") from None


def _find_earlier(
    out: Path,
    kind: type[M],
    identity: _ExportIdentity,
    force: bool,
    is_alike: Callable[[M], bool] = lambda manifest: True,
) -> M | None:
    """Find the manifest of ``out`` if it is this same export, complete.

    Raises:
        UsageError: it is another one, and ``force`` is not set.
    """
    if not out.exists():
        return None
    try:
        manifest, _ = check_content(out)
    except SceError:
        manifest = None
    if isinstance(manifest, kind) and identity.is_that_of(manifest) and is_alike(manifest):
        return manifest
    if not force:
        raise UsageError(f"{out} exists and is another export. Replace it with --force, or choose another --out.")
    return None


def _has_pre_tokenizer(file: Path, workbench: Workbench) -> bool:
    name = workbench.pre_tokenizer
    return name is None or read_header(file).values.get("tokenizer.ggml.pre") == name


def _write_manifest(manifest: Manifest, out: Path, written: Path | None = None) -> None:
    """Write a manifest before its export is renamed: a killed process leaves no export without a manifest.

    The manifest replaces that of an earlier export at once, so nothing slow may happen before the rename. Therefore the
    file ``written`` is synced to the disk first.
    """
    if written is not None:
        sync(written)
    with write_atomically(manifest_path(out)) as text:
        json.dump(asdict(manifest), text, indent=2)


def require_packages(format: str) -> None:
    """Check for missing packages, before the slow work begins.

    Raises:
        MissingExtra: one that a format of ``sce export`` needs is not installed.
    """
    check_extras({**_PACKAGES[format], **COMPUTED_BY["hf"]})


def _base_in(adapter: Path) -> str | None:
    """The base that an adapter's header names; earlier versions wrote none."""
    return header_strings(adapter).get(BASE_KEY)


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
    manifest, digest = check_content(file)
    if base is None:
        return Recheck(file.name, digest, None)
    sources, kind = manifest.sources, manifest.quant
    file_of = gguf_base if SOURCE_FILE in sources else None
    hashes = hash_sources(base, adapter, file_of)
    if sources != hashes:
        changed = sorted(name for name in {*hashes, *sources} if hashes.get(name) != sources.get(name))
        raise SceError(f"{file} was made from another model: {', '.join(changed[:4])} differ")
    named = file_of or (gguf_base if isinstance(manifest, AdapterManifest) else None)
    with Workbench(base, adapter, pre_tokenizer=pre_tokenizer, gguf_base=named, device=device) as workbench:
        if isinstance(manifest, AdapterManifest):
            base_file, base_kind = workbench.base_file(file)
            agreement = verify(base_file, base, wider(kind, base_kind), workbench.reference(), file)
        elif isinstance(manifest, GgufManifest):
            agreement = workbench.verify(file, kind)
        else:
            agreement = verify(file, base, kind, workbench.reference())
    check_as_recorded(agreement, manifest.agreement, file)
    return Recheck(file.name, digest, agreement)
