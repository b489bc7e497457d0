"""One export from start to end: write under a temporary name, verify, rename, describe in a manifest."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from securecoderl_edge.errors import MissingExtra, UsageError
from securecoderl_edge.export import onnx
from securecoderl_edge.export.adapter import write_adapter
from securecoderl_edge.export.gguf import OWN_TYPES
from securecoderl_edge.export.manifest import (
    FORMAT_VERSION,
    AdapterManifest,
    Manifest,
    OnnxManifest,
    find_earlier,
    hash_sources,
    manifest_path,
    versions,
)
from securecoderl_edge.export.merge import copy_companions, write_merged
from securecoderl_edge.export.onnx_weights import DATA
from securecoderl_edge.export.quantise import LLAMA_CPP_TYPES
from securecoderl_edge.export.verify import verify_gguf, verify_onnx
from securecoderl_edge.export.workbench import Workbench
from securecoderl_edge.files import remove_abandoned, sha256_of, temporary_beside, write_atomically

QUANTS = (*OWN_TYPES, *LLAMA_CPP_TYPES)
ADAPTER_TYPES = ("f16", "f32")
ONNX_TYPES, PORTABLE_TYPES = tuple(onnx.BITS), onnx.PORTABLE_TYPES


@dataclass(frozen=True)
class ExportResult:
    """A verified file; ``reused`` when an earlier export of the same sources was already there."""

    path: Path
    manifest: Manifest | AdapterManifest | OnnxManifest
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
    sources = hash_sources(base, adapter)
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is no regular file; choose another --out")
    if out.exists():
        earlier = find_earlier(out, quant, sources, prompt_style)
        if earlier:
            return ExportResult(out, earlier, reused=True)
        if not force:
            raise UsageError(f"{out} exists and is not this export; replace it with --force or choose another --out")
    remove_abandoned(out)
    with ExitStack() as stack:
        shared = workbench or stack.enter_context(Workbench(base, adapter, prompt_style, log))
        temporary = stack.enter_context(temporary_beside(out))
        summary = shared.write(quant, temporary, out)
        log("verifying against the source ...")
        agreement = verify_gguf(temporary, base, quant, shared.reference())
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            file=out.name,
            sha256=sha256_of(temporary),
            bytes=temporary.stat().st_size,
            quant=quant,
            prompt_style=prompt_style,
            **asdict(summary),
            sources=sources,
            agreement=agreement,
            versions=versions(),
        )
    with write_atomically(manifest_path(out)) as text:
        json.dump(asdict(manifest), text, indent=2)
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
    sources = hash_sources(base, adapter)
    if out.exists() and not force:
        raise UsageError(f"{out} exists; replace it with --force or choose another --out")
    remove_abandoned(out)
    with ExitStack() as stack:
        shared = workbench or stack.enter_context(Workbench(base, adapter, prompt_style, log))
        temporary = stack.enter_context(temporary_beside(out))
        log("writing the adapter ...")
        summary = write_adapter(base, adapter, quant, temporary, out.stem, prompt_style)
        base_file, base_quant = shared.base_file(out)
        log("verifying it on the base ...")
        agreement = verify_gguf(base_file, base, min(quant, base_quant), shared.reference(), temporary)
        manifest = AdapterManifest(
            format_version=FORMAT_VERSION,
            file=out.name,
            sha256=sha256_of(temporary),
            bytes=temporary.stat().st_size,
            quant=quant,
            prompt_style=prompt_style,
            **asdict(summary),
            sources=sources,
            agreement=agreement,
            versions=versions(),
        )
    with write_atomically(manifest_path(out)) as text:
        json.dump(asdict(manifest), text, indent=2)
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
    sources = hash_sources(base, adapter)
    if out.exists() and not force:
        raise UsageError(f"{out} exists; replace it with --force or choose another --out")
    if out.exists() and not (out / onnx.MODEL).is_file():
        raise UsageError(f"{out} is no ONNX folder, so --force does not replace it; choose another --out")
    remove_abandoned(out)
    with ExitStack() as stack:
        shared = workbench or stack.enter_context(Workbench(base, adapter, prompt_style, log))
        temporary = stack.enter_context(temporary_beside(out, replace_folder=True))
        temporary.mkdir()
        log(f"writing {quant} ...")
        summary = onnx.write_onnx(base, adapter, quant, temporary, portable)
        copy_companions(base, temporary, prompt_style)
        log("verifying against the source ...")
        agreement = verify_onnx(temporary, base, quant, shared.reference())
        manifest = OnnxManifest(
            format_version=FORMAT_VERSION,
            files={path.name: sha256_of(path) for path in sorted(temporary.iterdir())},
            bytes=sum((temporary / name).stat().st_size for name in (onnx.MODEL, DATA)),
            quant=quant,
            portable=portable,
            prompt_style=prompt_style,
            **asdict(summary),
            sources=sources,
            agreement=agreement,
            versions=versions(),
        )
        with write_atomically(manifest_path(temporary)) as text:
            json.dump(asdict(manifest), text, indent=2)
    return ExportResult(out, manifest, reused=False)


def export_merged(
    base: Path, adapter: Path | None, dtype: str, out: Path, force: bool, prompt_style: str | None = None
) -> Path:
    """Write a merged Hugging Face folder; it gets its name when it is whole. Its config.json names ``prompt_style``.

    Raises:
        UsageError: ``out`` exists, or the adapter cannot be merged.
        SceError: a file cannot be read or written.
    """
    if out.exists() and not force:
        raise UsageError(f"{out} exists; replace it with --force or choose another --out")
    if out.exists() and not (out / "config.json").is_file():
        raise UsageError(f"{out} is not a model folder, so --force does not replace it; choose another --out")
    remove_abandoned(out)
    with temporary_beside(out, replace_folder=True) as temporary:
        write_merged(base, adapter, temporary, dtype, prompt_style)
    return out


def _require_packages(packages: tuple[str, ...] = ("gguf", "llama_cpp"), extra: str = "gguf") -> None:
    """Say what is missing before minutes are spent on writing."""
    needed = dict.fromkeys(packages, extra) | dict.fromkeys(("torch", "transformers", "peft"), "train")
    for package, missing in needed.items():
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, missing)
