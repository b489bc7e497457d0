"""One export from start to end: write under a temporary name, verify, rename, describe in a manifest."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from securecoderl_edge.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from securecoderl_edge.architecture import read_architecture
from securecoderl_edge.errors import MissingExtra, UsageError
from securecoderl_edge.export.adapter import write_adapter
from securecoderl_edge.export.agreement import Agreement
from securecoderl_edge.export.gguf import OWN_TYPES, GgufSummary, OutOfRangeError, write_gguf
from securecoderl_edge.export.merge import COMPANION_FILES, write_merged
from securecoderl_edge.export.quantise import LLAMA_CPP_TYPES, quantise, tensor_types
from securecoderl_edge.export.verify import reference_of, verify_gguf
from securecoderl_edge.files import sha256_of, temporary_beside, write_atomically
from securecoderl_edge.weight_files import weight_files

# Part of what makes two exports the same: raise it when the files we write change.
FORMAT_VERSION = 2
QUANTS = (*OWN_TYPES, *LLAMA_CPP_TYPES)
ADAPTER_TYPES = ("f16", "f32")
# Up to so many weights a base is written in f32 to try an adapter on.
_SMALL_MODEL = 200_000_000

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
    normaliser: str | None
    sources: dict[str, str]
    agreement: Agreement
    versions: dict[str, str]


@dataclass(frozen=True)
class AdapterManifest:
    """What an exported adapter is; as `Manifest`, but it needs the base that ``sources`` names by its hashes.

    Attributes:
        agreement: of a float file of the base with the adapter applied by llama.cpp.
    """

    format_version: int
    file: str
    sha256: str
    bytes: int
    quant: str
    prompt_style: str | None
    rank: int
    tensors: int
    parameters: int
    sources: dict[str, str]
    agreement: Agreement
    versions: dict[str, str]


@dataclass(frozen=True)
class ExportResult:
    """A verified file; ``reused`` when an earlier export of the same sources was already there."""

    path: Path
    manifest: Manifest | AdapterManifest
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
        earlier = _find_earlier(out, quant, sources, prompt_style)
        if earlier:
            return ExportResult(out, earlier, reused=True)
        if not force:
            raise UsageError(f"{out} exists and is not this export; replace it with --force or choose another --out")
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
            versions=_versions(),
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
            versions=_versions(),
        )
    with write_atomically(manifest_path(out)) as text:
        json.dump(asdict(manifest), text, indent=2)
    return ExportResult(out, manifest, reused=False)


class Workbench:
    """What several exports of one source share: what the source says, and the float file that llama.cpp quantises.

    Use it as a context manager; what was made is deleted at the end.
    """

    def __init__(
        self,
        base: Path,
        adapter: Path | None,
        prompt_style: str | None = None,
        log: Callable[[str], None] = lambda message: None,
        pre_tokenizer: str | None = None,
    ) -> None:
        self._base, self._adapter, self._log = base, adapter, log
        self._prompt_style, self._pre_tokenizer = prompt_style, pre_tokenizer
        self._stack = ExitStack()
        self._reference: Path | None = None
        self._float: tuple[Path, GgufSummary] | None = None

    def __enter__(self) -> Workbench:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def reference(self) -> Path:
        """See `reference_of`; made once."""
        if self._reference is None:
            self._reference = self._stack.enter_context(reference_of(self._base, self._adapter))
        return self._reference

    def write(self, quant: str, path: Path, out: Path) -> GgufSummary:
        """Write one file at ``path``, which will be called ``out``; what is in it."""
        if quant in OWN_TYPES:
            self._log(f"writing {quant} ...")
            return self._write(quant, path, out)
        source, summary = self._float_file(out)
        self._log(f"writing {quant} ...")
        quantise(source, path, quant)
        types, data_bytes = tensor_types(path)
        bits = round(8 * data_bytes / summary.parameters, 3)
        return replace(summary, tensor_types=types, bits_per_weight=bits)

    def use_float_file(self, path: Path, summary: GgufSummary) -> None:
        """Quantise from ``path``, a verified float file, instead of one made for it."""
        if self._float is None:
            self._float = path, summary

    def base_file(self, out: Path) -> tuple[Path, str]:
        """A float file of the base without the adapter, to try the adapter on, and its type: f32 if that is small."""
        parameters = sum(math.prod(sizes) for sizes in read_architecture(self._base).tensors().values())
        kind = "f32" if parameters <= _SMALL_MODEL else "f16"
        path = self._folder(out) / "base.gguf"
        self._log("writing the base that it is tried on ...")
        write_gguf(self._base, None, kind, path, out.stem, None, self._pre_tokenizer)
        return path, kind

    def _folder(self, out: Path) -> Path:
        """A folder for what is deleted at the end, on the disk where ``out`` will be."""
        out.parent.mkdir(parents=True, exist_ok=True)
        name = f".{out.stem[:40]}.tmp-{os.getpid()}-"
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix=name, dir=out.parent)))

    def _write(self, kind: str, path: Path, out: Path) -> GgufSummary:
        return write_gguf(self._base, self._adapter, kind, path, out.stem, self._prompt_style, self._pre_tokenizer)

    def _float_file(self, out: Path) -> tuple[Path, GgufSummary]:
        """A verified float file to quantise, on the disk where ``out`` will be; in f32 where f16 cannot hold it."""
        if self._float is None:
            path = self._folder(out) / "float.gguf"
            kind = "f16"
            self._log("writing the float file that is quantised ...")
            try:
                summary = self._write(kind, path, out)
            except OutOfRangeError:
                kind = "f32"
                summary = self._write(kind, path, out)
            verify_gguf(path, self._base, kind, self.reference())
            self._float = path, summary
        return self._float


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
