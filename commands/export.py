"""`sce export`: a trained policy, or a base model, as one verified file."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from securecoderl_edge.commands.options import options_from
from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.export.run import ExportResult, export_gguf, export_merged
from securecoderl_edge.model import base_folder
from securecoderl_edge.models import ModelSpec, resolve_model
from securecoderl_edge.prompts import OURS, PROBLEM_HEADING
from securecoderl_edge.runs import latest_run

_HF_DTYPES = {"f32": "float32", "f16": "float16"}


@dataclass(frozen=True)
class ExportConfig:
    """Flags of `sce export`."""

    format: str = setting("gguf", "gguf: one file for llama.cpp; hf: a merged folder.", choices=("gguf", "hf"))
    quant: str | None = setting(
        None, "Type of the weights.  [default: q8_0; f32 for hf]", choices=("f32", "f16", "q8_0")
    )
    out: str | None = setting(None, "Where to write.  [default: RUN/exports/NAME-QUANT.gguf]", metavar="PATH")
    force: bool = setting(False, "Replace an existing target.")
    json: bool = setting(False, "Print the manifest as JSON on stdout.")


@click.command()
@click.argument("source", required=False, metavar="[RUN|HF_DIR]")
@options_from(ExportConfig)
def export(source: str | None, config: ExportConfig) -> None:
    """Write a trained policy as one verified file for a laptop CPU.

    Without an argument it is the latest training run. A Hugging Face folder, or nano, is exported as it is.

    Before a GGUF file gets its name it is run through llama.cpp and compared with its source (tokenisation,
    logits, greedy text). A file that does not agree is not kept. A merged Hugging Face folder is not compared.
    """
    spec = _find_source(source)
    base = base_folder(spec.source)
    quant = config.quant or ("f32" if config.format == "hf" else "q8_0")
    if config.format == "hf":
        if quant not in _HF_DTYPES:
            raise UsageError(f"a Hugging Face folder is written as f32 or f16, not {quant}")
        target = _target(spec, config.out, "-hf")
        folder = export_merged(base, spec.adapter, _HF_DTYPES[quant], target, config.force, spec.prompt_style)
        click.echo(f"{folder}: merged Hugging Face folder, {quant}", err=True)
        if config.json:
            click.echo(json.dumps({"path": str(folder), "quant": quant}))
        return
    out = _target(spec, config.out, f"-{quant}.gguf")
    result = export_gguf(
        base,
        spec.adapter,
        quant,
        out,
        config.force,
        log=lambda message: click.echo(f"{out}: {message}", err=True),
        prompt_style=spec.prompt_style,
    )
    _report(result)
    if config.json:
        click.echo(json.dumps(asdict(result.manifest), indent=2))


def _find_source(source: str | None) -> ModelSpec:
    if source is None:
        run = latest_run()
        if run is None:
            raise UsageError("there is no training run here yet; run: sce train (or name a model: sce export nano)")
        source = str(run.path)
    spec = resolve_model(source)
    if spec.kind != "hf":
        raise UsageError(f"{source} is exported already; name a training run or a Hugging Face folder")
    return spec


def _target(spec: ModelSpec, out: str | None, suffix: str) -> Path:
    """Where the export goes: the exports of its run, or the current folder for a base model."""
    if out is not None:
        return Path(out)
    for folder in spec.adapter.parents if spec.adapter else ():
        if (folder / "environment.json").is_file():
            part = "" if spec.role == "policy" else f"-{spec.role}"
            return folder / "exports" / f"{folder.name}{part}{suffix}"
    name = Path(spec.source).resolve().name if Path(spec.source).is_dir() else spec.source.split("/")[-1]
    return Path(f"{name}{suffix}")


def _report(result: ExportResult) -> None:
    manifest, agreement = result.manifest, result.manifest.agreement
    if result.reused:
        click.echo(f"{result.path}: this export of the same model is already there", err=True)
    types = ", ".join(f"{count} {kind}" for kind, count in manifest.tensor_types.items())
    size = f"{manifest.bytes / 1e6:.1f} MB, {manifest.bits_per_weight:.2f} bits per weight ({types})"
    lines = [
        f"{result.path}: {size}",
        "  verified in llama.cpp against its source: "
        f"{agreement.tokenised_equal}/{agreement.texts} texts tokenise equally, "
        f"logits within {agreement.max_abs_difference:.2g}, KL {agreement.mean_kl:.2g}, "
        f"top-1 {agreement.top1:.1%}, "
        f"greedy text equal on {agreement.greedy_equal}/{agreement.prompts} prompts",
        "  next: sce bench",
    ]
    if manifest.prompt_style == OURS.style:
        command = f"llama-cli -no-cnv -m {shlex.quote(str(result.path))} -p '{PROBLEM_HEADING} ...'"
        lines.append(f"  in llama.cpp: {command}")
    click.echo("\n".join(lines), err=True)
