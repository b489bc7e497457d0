"""Exports of one file each, for tests that need no workbench of their own."""

from __future__ import annotations

from pathlib import Path

from securecoderl_edge.export import run
from securecoderl_edge.export.run import ExportResult
from securecoderl_edge.export.workbench import Workbench


def export_gguf(
    base: Path, adapter: Path | None, quant: str, out: Path, force: bool = False, prompt_style: str | None = None
) -> ExportResult:
    """See `run.export_gguf`."""
    with Workbench(base, adapter, prompt_style) as workbench:
        return run.export_gguf(workbench, quant, out, force)


def export_onnx(
    base: Path, adapter: Path | None, quant: str, out: Path, force: bool = False, prompt_style: str | None = None
) -> ExportResult:
    """See `run.export_onnx`."""
    with Workbench(base, adapter, prompt_style) as workbench:
        return run.export_onnx(workbench, quant, out, force)


def export_adapter(
    base: Path, adapter: Path, quant: str, out: Path, force: bool = False, prompt_style: str | None = None
) -> ExportResult:
    """See `run.export_adapter`."""
    with Workbench(base, adapter, prompt_style) as workbench:
        return run.export_adapter(workbench, quant, out, force)
