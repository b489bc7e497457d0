"""Cache that several exports of one model share: reference outputs and float file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from securecoderl_edge.export.agreement import Agreement, wider
from securecoderl_edge.export.gguf import OWN_TYPES, GgufSummary, OutOfRangeError, write_gguf
from securecoderl_edge.export.manifest import tensor_types
from securecoderl_edge.export.quantize import quantize
from securecoderl_edge.export.verify import reference_of, reference_of_file, verify
from securecoderl_edge.export.vocabulary import read_vocabulary
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.gguf.header import read_header
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.system.files import temporary_prefix
from securecoderl_edge.text import NORMALIZER_KEY

# A base of at most this many parameters is written in f32 to verify an adapter.
_SMALL_MODEL = 200_000_000


class Workbench:
    """Cache that several exports of one model share: reference outputs, and the float file that llama.cpp quantizes.

    It is a context manager, and deletes its files at the end.

    Args:
        adapter: a LoRA adapter on ``base``, merged into the exports; None exports the base itself.
        prompt_style: prompt style that the model was trained with; it is written to the exports.
        log: called with progress messages.
        pre_tokenizer: llama.cpp's name of an unrecognized pre-tokenizer.
        gguf_base: the GGUF file that ``base`` was converted from; an adapter is verified on it.
        device: of the original model, see `reference_of`.
        on_tensor: see `write_gguf`.
    """

    def __init__(
        self,
        base: Path,
        adapter: Path | None,
        prompt_style: str | None = None,
        log: Callable[[str], None] = lambda message: None,
        pre_tokenizer: str | None = None,
        gguf_base: Path | None = None,
        device: str = "cpu",
        on_tensor: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._device, self._on_tensor = device, on_tensor
        self.gguf_base = gguf_base
        self.base, self.adapter, self.log = base, adapter, log
        self.prompt_style, self.pre_tokenizer = prompt_style, pre_tokenizer
        self._stack = ExitStack()
        self._reference: Path | None = None
        self._float: tuple[Path, GgufSummary] | None = None

    def __enter__(self) -> Workbench:
        read_tokenizer(self.base)  # minutes of work would be lost for a tokenizer that cannot be used
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def reference(self) -> Path:
        """Compute the reference outputs once; see `reference_of`."""
        if self._reference is None:
            reference = reference_of(self.base, self.adapter, self._device, self.log)
            self._reference = self._stack.enter_context(reference)
        return self._reference

    def verify(self, file: Path, quant: str) -> Agreement:
        """`verify` a GGUF file of ``quant`` against the original: in transformers, or the `source_file` in llama.cpp.

        Raises:
            SceError: see `verify`.
        """
        if self.source_file is None:
            return verify(file, self.base, quant, self.reference())
        if self._reference is None:
            self._reference = self._stack.enter_context(reference_of_file(self.source_file))
        return verify(file, self.base, wider(quant, _kind_of(self.source_file)), self._reference)

    @property
    def source_file(self) -> Path | None:
        """The GGUF file that exports only write in another type: its metadata stay. None if weights are merged."""
        return self.gguf_base if self.adapter is None else None

    def write(self, quant: str, path: Path, out: Path) -> GgufSummary:
        """Write one file at ``path``, which will be renamed to ``out``, and return its summary."""
        if (file := self.source_file) is not None:
            self.log(f"writing {quant} ...")
            shape = read_architecture(self.base)
            vocabulary = read_vocabulary(self.base, shape.vocabulary, self.pre_tokenizer)
            quantize(file, path, quant, self._on_tensor, self.pre_tokenizer)
            types, data_bytes = tensor_types(path)
            values, parameters = read_header(path).values, shape.parameters()
            pre, normalizer = (values.get(key) for key in ("tokenizer.ggml.pre", NORMALIZER_KEY))
            return GgufSummary(
                tensor_types=types,
                parameters=parameters,
                bits_per_weight=round(8 * data_bytes / parameters, 3),
                tokenizer_pre=str(pre),
                tokenizer_fingerprint=vocabulary.fingerprint,
                normalizer=None if normalizer is None else str(normalizer),
            )
        if quant in OWN_TYPES:
            self.log(f"writing {quant} ...")
            return self._write(quant, path, out)
        source, summary = self._float_file(out)
        self.log(f"writing {quant} ...")
        quantize(source, path, quant, self._on_tensor)
        types, data_bytes = tensor_types(path)
        bits = round(8 * data_bytes / summary.parameters, 3)
        return replace(summary, tensor_types=types, bits_per_weight=bits)

    def use_float_file(self, path: Path, summary: GgufSummary) -> None:
        """Quantize from ``path``, a verified float file, instead of writing one."""
        if self._float is None:
            self._float = path, summary

    def base_file(self, out: Path) -> tuple[Path, str]:
        """The file of the base to verify the adapter on, and the type whose bounds then apply.

        It is the GGUF file that the base was converted from, else a float file that is written here: f32 for a small
        model.
        """
        if self.gguf_base is not None:
            return self.gguf_base, _kind_of(self.gguf_base)
        kind = "f32" if read_architecture(self.base).parameters() <= _SMALL_MODEL else "f16"
        path = self._folder(out) / "base.gguf"
        self.log("writing the base model, to verify the adapter ...")
        write_gguf(self.base, None, kind, path, out.stem, None, self.pre_tokenizer, self._on_tensor)
        return path, kind

    def _folder(self, out: Path) -> Path:
        """Create a folder for temporary files, on the disk of ``out``."""
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=temporary_prefix(out), dir=out.parent)
        return Path(self._stack.enter_context(folder))

    def _write(self, kind: str, path: Path, out: Path) -> GgufSummary:
        style, pre_tokenizer = self.prompt_style, self.pre_tokenizer
        return write_gguf(self.base, self.adapter, kind, path, out.stem, style, pre_tokenizer, self._on_tensor)

    def _float_file(self, out: Path) -> tuple[Path, GgufSummary]:
        """Write a verified float file to quantize, on the disk of ``out``; f32 if a weight exceeds f16."""
        if self._float is None:
            path = self._folder(out) / "float.gguf"
            kind = "f16"
            self.log("writing a float file to quantize ...")
            try:
                summary = self._write(kind, path, out)
            except OutOfRangeError:
                kind = "f32"
                summary = self._write(kind, path, out)
            verify(path, self.base, kind, self.reference())
            self._float = path, summary
        return self._float


def _kind_of(file: Path) -> str:
    """The type whose bounds apply to what llama.cpp computes with a file."""
    types, _ = tensor_types(file)
    # It also rounds what goes into quantized layers, to 8 bits.
    return next((kind for kind in ("f16", "bf16") if {*types} <= {"f32", kind}), "q8_0")
