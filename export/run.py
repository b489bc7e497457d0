"""One export from start to end: write under a temporary name, verify, rename, describe in a manifest."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from securecoderl_edge.errors import MissingExtra, SceError, UsageError
from securecoderl_edge.export import onnx
from securecoderl_edge.export.adapter import write_adapter
from securecoderl_edge.export.agreement import Agreement, wider
from securecoderl_edge.export.contents import check_content
from securecoderl_edge.export.gguf import OWN_TYPES
from securecoderl_edge.export.manifest import (
    FORMAT_VERSION,
    AdapterManifest,
    GgufManifest,
    Manifest,
    OnnxManifest,
    hash_sources,
    versions,
)
from securecoderl_edge.export.merge import copy_companions, write_merged
from securecoderl_edge.export.onnx_weights import DATA
from securecoderl_edge.export.quantise import LLAMA_CPP_TYPES
from securecoderl_edge.export.targets import check_file_target, check_folder_target
from securecoderl_edge.export.verify import verify_gguf, verify_onnx
from securecoderl_edge.export.workbench import Workbench
from securecoderl_edge.files import remove_abandoned, sha256_of, temporary_beside, write_atomically
from securecoderl_edge.manifests import manifest_path
from securecoderl_edge.runtimes.onnx_model import MODEL

QUANTS = (*OWN_TYPES, *LLAMA_CPP_TYPES)
ADAPTER_TYPES = ("f16", "f32")
ONNX_TYPES, PORTABLE_TYPES = tuple(onnx.BITS), onnx.PORTABLE_TYPES


M = TypeVar("M", bound=Manifest)


@dataclass(frozen=True)
class ExportResult:
    """A verified file; ``reused`` when an earlier export of the same sources was already there."""

    path: Path
    manifest: Manifest
    reused: bool


def export_gguf(
    base: Path,
    adapter: Path | None,
    quant: str,
    out: Path,
    force: bool,
    log: Callable[[str], None] = lambda message: None,
    prompt_style: str | None = None,
    workbench: Workbench | None = None,
) -> ExportResult:
    """Write ``base`` with ``adapter`` merged in as the GGUF file ``out``, verified before it gets that name.

    Args:
        quant: one of `QUANTS`.
        force: replace a file that is not this same export.
        log: told what is being done.
        prompt_style: the style of prompts that the model was trained with here; the file will say so.
        workbench: shared by several exports of the same source.

    Raises:
        UsageError: ``out`` exists, or the model is of a kind that export does not support (named).
        SceError: the written file does not agree with its source; no file is left under ``out``'s name.
        MissingExtra: a package that writing or verifying needs is not installed.
    """
    if quant not in QUANTS:
        raise UsageError(f"unknown quantisation {quant!r}; known: {', '.join(QUANTS)}")
    _require_packages()
    check_file_target(out, base, adapter)
    source = _Source(hash_sources(base, adapter), quant, prompt_style)
    if earlier := _find_earlier(out, GgufManifest, source, force):
        return ExportResult(out, earlier, reused=True)
    remove_abandoned(out)
    with ExitStack() as stack:
        shared = workbench or stack.enter_context(Workbench(base, adapter, prompt_style, log))
        temporary = stack.enter_context(temporary_beside(out))
        summary = shared.write(quant, temporary, out)
        log("verifying against the source ...")
        with _kept_only_if_right():
            agreement = verify_gguf(temporary, base, quant, shared.reference())
        manifest = GgufManifest(
            file=out.name,
            sha256=sha256_of(temporary),
            bytes=temporary.stat().st_size,
            **asdict(summary),
            **source.described(agreement),
        )
        _write_manifest(manifest, out)
    if workbench is not None and quant in ("f16", "f32"):
        workbench.use_float_file(out, summary)
    return ExportResult(out, manifest, reused=False)


def export_adapter(
    base: Path,
    adapter: Path,
    quant: str,
    out: Path,
    force: bool,
    log: Callable[[str], None] = lambda message: None,
    prompt_style: str | None = None,
    workbench: Workbench | None = None,
) -> ExportResult:
    """Write ``adapter`` alone as the GGUF file ``out``, verified on a float file of its base before it gets that name.

    Args:
        quant: ``f16`` or ``f32``. Others as in `export_gguf`, as are the errors.
    """
    _require_packages()
    check_file_target(out, base, adapter)
    source = _Source(hash_sources(base, adapter), quant, prompt_style)
    if earlier := _find_earlier(out, AdapterManifest, source, force):
        return ExportResult(out, earlier, reused=True)
    remove_abandoned(out)
    with ExitStack() as stack:
        shared = workbench or stack.enter_context(Workbench(base, adapter, prompt_style, log))
        temporary = stack.enter_context(temporary_beside(out))
        log("writing the adapter ...")
        summary = write_adapter(base, adapter, quant, temporary, out.stem, prompt_style)
        base_file, base_quant = shared.base_file(out)
        log("verifying it on the base ...")
        with _kept_only_if_right():
            agreement = verify_gguf(base_file, base, wider(quant, base_quant), shared.reference(), temporary)
        manifest = AdapterManifest(
            file=out.name,
            sha256=sha256_of(temporary),
            bytes=temporary.stat().st_size,
            **asdict(summary),
            **source.described(agreement),
        )
        _write_manifest(manifest, out)
    return ExportResult(out, manifest, reused=False)


def export_onnx(
    base: Path,
    adapter: Path | None,
    quant: str,
    out: Path,
    force: bool,
    log: Callable[[str], None] = lambda message: None,
    prompt_style: str | None = None,
    workbench: Workbench | None = None,
    portable: bool = False,
) -> ExportResult:
    """Write ``base`` with ``adapter`` merged in as the ONNX folder ``out``, verified before it gets that name.

    The folder has the graph, its weights, the tokenizer and what else belongs to the model, and its manifest.

    Args:
        quant: one of `ONNX_TYPES`, or of `PORTABLE_TYPES`. Others as in `export_gguf`, as are the errors.
        portable: in standard operators, for any runtime.
    """
    _require_packages(("onnx", "onnxruntime"), "onnx")
    check_folder_target(out, base, adapter, {MODEL, DATA}, "an ONNX folder")
    source = _Source(hash_sources(base, adapter), quant, prompt_style)
    earlier = _find_earlier(out, OnnxManifest, source, force, lambda manifest: manifest.portable == portable)
    if earlier:
        return ExportResult(out, earlier, reused=True)
    remove_abandoned(out)
    with ExitStack() as stack:
        shared = workbench or stack.enter_context(Workbench(base, adapter, prompt_style, log))
        temporary = stack.enter_context(temporary_beside(out, replace_folder=True))
        temporary.mkdir()
        log(f"writing {quant} ...")
        summary = onnx.write_onnx(base, adapter, quant, temporary, portable)
        copy_companions(base, temporary, prompt_style)
        log("verifying against the source ...")
        with _kept_only_if_right():
            agreement = verify_onnx(temporary, base, quant, shared.reference())
        manifest = OnnxManifest(
            files={path.name: sha256_of(path) for path in sorted(temporary.iterdir())},
            bytes=sum((temporary / name).stat().st_size for name in (MODEL, DATA)),
            portable=portable,
            **asdict(summary),
            **source.described(agreement),
        )
        _write_manifest(manifest, temporary)
    return ExportResult(out, manifest, reused=False)


def export_merged(
    base: Path, adapter: Path | None, dtype: str, out: Path, force: bool, prompt_style: str | None = None
) -> Path:
    """Write a merged Hugging Face folder; it gets its name when it is whole. Its config.json names ``prompt_style``.

    Raises:
        UsageError: ``out`` exists, or the adapter cannot be merged.
        SceError: a file cannot be read or written.
    """
    check_folder_target(out, base, adapter, {"config.json"}, "a model folder")
    if out.exists() and not force:
        raise UsageError(f"{out} exists; replace it with --force or choose another --out")
    remove_abandoned(out)
    with temporary_beside(out, replace_folder=True) as temporary:
        write_merged(base, adapter, temporary, dtype, prompt_style)
    return out


@dataclass(frozen=True)
class _Source:
    """What an export is made of, and as what: two of the same are the same export."""

    sources: dict[str, str]
    quant: str
    prompt_style: str | None

    def described(self, agreement: Agreement) -> dict[str, Any]:
        """The part of a manifest that all kinds have."""
        own = {"format_version": FORMAT_VERSION, "agreement": agreement, "versions": versions()}
        return {**vars(self), **own}

    def is_that_of(self, manifest: Manifest) -> bool:
        found = (manifest.format_version, _Source(manifest.sources, manifest.quant, manifest.prompt_style))
        return found == (FORMAT_VERSION, self)


@contextmanager
def _kept_only_if_right() -> Iterator[None]:
    """Say of what fails in here that nothing of it is left."""
    try:
        yield
    except UsageError:
        raise
    except SceError as error:
        raise SceError(f"{error}; nothing was written") from None


def _find_earlier(
    out: Path, kind: type[M], source: _Source, force: bool, is_alike: Callable[[M], bool] = lambda manifest: True
) -> M | None:
    """The manifest of ``out`` if it is this very export, whole.

    Raises:
        UsageError: it is something else, and not to be replaced.
    """
    if not out.exists():
        return None
    try:
        manifest, _ = check_content(out)
    except SceError:
        manifest = None
    if isinstance(manifest, kind) and source.is_that_of(manifest) and is_alike(manifest):
        return manifest
    if not force:
        raise UsageError(f"{out} exists and is not this export; replace it with --force or choose another --out")
    return None


def _write_manifest(manifest: Manifest, out: Path) -> None:
    """Write it before the export gets its name: a process that is killed leaves no export without its manifest."""
    with write_atomically(manifest_path(out)) as text:
        json.dump(asdict(manifest), text, indent=2)


def _require_packages(packages: tuple[str, ...] = ("gguf", "llama_cpp"), extra: str = "gguf") -> None:
    """Say what is missing before minutes are spent on writing."""
    needed = dict.fromkeys(packages, extra) | dict.fromkeys(("torch", "transformers", "peft"), "train")
    for package, missing in needed.items():
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, missing)
