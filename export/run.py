"""One export from start to end: write under a temporary name, verify, rename, describe in a manifest."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from securecoderl_edge.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from securecoderl_edge.errors import MissingExtra, UsageError
from securecoderl_edge.export.gguf import QUANTS, write_gguf
from securecoderl_edge.export.merge import COMPANION_FILES, write_merged
from securecoderl_edge.export.verify import Agreement, verify_gguf
from securecoderl_edge.files import sha256_of, temporary_beside, write_atomically
from securecoderl_edge.weight_files import weight_files

# Part of what makes two exports the same: raise it when the files we write change.
FORMAT_VERSION = 2

_PACKAGES = ("securecoderl-edge", "gguf", "llama-cpp-python", "torch", "transformers", "peft")


@dataclass(frozen=True)
class Manifest:
    """What an exported file is, where it came from, and how far it agrees with that.

    Attributes:
        prompt_style: the style of prompts that the model was trained with here; None if that is not known.
        sources: sha256 of every file of the base and of the adapter that went into it.
    """

    format_version: int
    file: str
    sha256: str
    bytes: int
    quant: str
    prompt_style: str | None
    parameters: int
    bits_per_weight: float
    tensor_types: dict[str, int]
    tokenizer_pre: str
    tokenizer_fingerprint: str
    sources: dict[str, str]
    agreement: Agreement
    versions: dict[str, str]


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
) -> ExportResult:
    """Write ``base`` with ``adapter`` merged in as the GGUF file ``out``, verified before it gets that name.

    Args:
        quant: one of `QUANTS`.
        force: replace a file that is not this same export.
        log: told what is being done.
        prompt_style: the style of prompts that the model was trained with here; the file will say so.

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
        earlier = _find_earlier(out, quant, sources, prompt_style)
        if earlier:
            return ExportResult(out, earlier, reused=True)
        if not force:
            raise UsageError(f"{out} exists and is not this export; replace it with --force or choose another --out")
    with temporary_beside(out) as temporary:
        log(f"writing {quant} ...")
        summary = write_gguf(base, adapter, quant, temporary, out.stem, prompt_style)
        log("verifying against the source ...")
        agreement = verify_gguf(temporary, base, adapter, quant)
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
            versions=_versions(),
        )
    with write_atomically(manifest_path(out)) as text:
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
    with temporary_beside(out) as temporary:
        write_merged(base, adapter, temporary, dtype, prompt_style)
        replaced = temporary.with_name(f"{temporary.name}-replaced")
        if out.exists():
            out.rename(replaced)
    shutil.rmtree(replaced, ignore_errors=True)
    return out


def manifest_path(file: Path) -> Path:
    """Where the manifest of an exported file stands."""
    return file.with_name(f"{file.name}.manifest.json")


def hash_sources(base: Path, adapter: Path | None) -> dict[str, str]:
    """sha256 of each file that an export is made from.

    Raises:
        UsageError: the base has no safetensors files.
        SceError: a file cannot be read.
    """
    paths = {f"base/{path.name}": path for path in weight_files(base)}
    paths |= {f"base/{name}": base / name for name in ("config.json", *COMPANION_FILES)}
    if adapter:
        paths |= {f"adapter/{name}": adapter / name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}
    return {name: sha256_of(path) for name, path in paths.items() if path.is_file()}


def _find_earlier(out: Path, quant: str, sources: dict[str, str], prompt_style: str | None) -> Manifest | None:
    """The manifest beside ``out`` if it describes this very file and this very export."""
    try:
        record: dict[str, Any] = json.loads(manifest_path(out).read_text(encoding="utf-8"))
        manifest = Manifest(**{**record, "agreement": Agreement(**record["agreement"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    wanted = (FORMAT_VERSION, quant, sources, prompt_style)
    same = (manifest.format_version, manifest.quant, manifest.sources, manifest.prompt_style) == wanted
    return manifest if same and sha256_of(out) == manifest.sha256 else None


def _require_packages() -> None:
    """Say what is missing before minutes are spent on writing."""
    needed = {"gguf": "gguf", "llama_cpp": "gguf", "torch": "train", "transformers": "train", "peft": "train"}
    for package, extra in needed.items():
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, extra)


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
