"""`sce export`: verified GGUF, ONNX, adapter and Hugging Face exports of a policy or base model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import say, track
from securecoderl_edge.commands.export_messages import say_result, say_verified, write_sidecars
from securecoderl_edge.commands.measuring import measure_exports
from securecoderl_edge.commands.names import MODEL
from securecoderl_edge.commands.options import examples, options_from
from securecoderl_edge.config import setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export.dispatch import (
    DEFAULTS,
    HF_DTYPES,
    TYPES,
    check_format,
    check_type,
    export_as,
    find_source,
    target_of,
)
from securecoderl_edge.export.run import QUANTS, ExportResult, export_merged, require_packages
from securecoderl_edge.export.workbench import Workbench
from securecoderl_edge.models.files import gguf_file
from securecoderl_edge.models.gpus import device_setting
from securecoderl_edge.runs import run_of
from securecoderl_edge.runtimes.placement import check_childs_device
from securecoderl_edge.runtimes.spec import ModelSpec

if TYPE_CHECKING:
    from securecoderl_edge.problems.problem import Problem

_SIDECAR_ENDINGS = (".modelfile", ".md", ".json")


@dataclass(frozen=True)
class ExportConfig:
    """Flags of `sce export`."""

    format: str = setting(
        "gguf",
        "gguf: a file for llama.cpp. onnx: a folder for onnxruntime. adapter: only the LoRA adapter, for --lora of "
        "llama.cpp. hf: a merged Hugging Face folder.",
        choices=("gguf", "onnx", "adapter", "hf"),
    )
    quant: tuple[str, ...] = setting(
        (),
        f"Weight types, comma-separated. gguf: {', '.join(QUANTS)}; onnx: {', '.join(TYPES['onnx'])} "
        f"(--portable: {', '.join(TYPES['portable'])}); adapter and hf: f16, f32.  "
        "[default: q8_0; onnx: int8; adapter: f16; hf and --portable: f32]",
        choices=tuple(dict.fromkeys((*QUANTS, *TYPES["onnx"]))),
    )
    portable: bool = setting(
        False, "With --format onnx: use only standard operators (opset 23), for any ONNX runtime. Slower."
    )
    out: str | None = setting(None, "File or folder to write.  [default: RUN/exports/NAME-QUANT.gguf]", metavar="PATH")
    force: bool = setting(False, "Replace an existing file or folder.")
    pre_tokenizer: str | None = setting(
        None, "Name of the pre-tokenizer in llama.cpp, if sce does not recognize it.", metavar="NAME"
    )
    bench: bool = setting(False, "Evaluate each file on problems, and compare it with the float model.")
    problems: str | None = setting(
        None,
        "With --bench: built-in set or file of problems.  [default: starter:eval; starter:c-eval for models of C]",
        metavar="SET|FILE",
    )
    limit: int | None = setting(None, "With --bench: only the first N problems.", minimum=1, metavar="N")
    verify: str | None = setting(
        None, "Check an exported file again, against its manifest and the original model.", metavar="FILE"
    )
    device: str = device_setting()
    json: bool = setting(False, "Print the manifest as JSON on stdout; a list of them for several types.")


@click.command(
    epilog=examples(
        "sce export",
        "sce export runs/starter --quant q8_0,q4_k_m",
        "sce export runs/starter --format onnx --quant int8",
        "sce export --verify runs/starter/exports/starter-q8_0.gguf",
    )
)
@click.argument("source", type=MODEL, required=False, metavar="[RUN|MODEL]")
@options_from(ExportConfig)
def export(source: str | None, config: ExportConfig) -> None:
    """Export a model to GGUF or ONNX files, verified against the original.

    RUN is a training run or one of its phases (default: the latest run). MODEL is a Hugging Face folder, a
    GGUF file or a name, such as nano.

    llama.cpp or onnxruntime loads each file. Its tokens, logits and greedy text are compared with the original model in
    transformers, and the file is deleted if they disagree. Merged Hugging Face folders are not compared.

    A manifest, a model card and (for GGUF) an Ollama Modelfile are written next to each file.
    """
    if config.verify is not None:
        others = {**asdict(config), "verify": None, "json": False, "pre_tokenizer": None, "device": "auto"}
        if others != asdict(ExportConfig()):
            raise UsageError("--verify can only be combined with --pre-tokenizer, --device and --json.")
        _verify(Path(config.verify), source, config)
        return
    spec = find_source(source)
    require_packages(config.format)
    check_childs_device(config.device)
    base = spec.folder()
    if config.portable and config.format != "onnx":
        raise UsageError("--portable needs --format onnx. Add it, or leave out --portable.")
    kind = "portable" if config.portable else config.format
    quants = config.quant or (DEFAULTS[kind],)
    for quant in quants:
        check_type(kind, quant)
    check_format(spec, base, kind)
    if config.out is not None and Path(config.out).suffix.lower() in _SIDECAR_ENDINGS:
        raise UsageError(f"--out {config.out}: reserved ending of cards, manifests and Modelfiles. Choose another.")
    if config.format == "hf" and config.device != "auto":
        raise UsageError("--device has no effect with --format hf, which compares nothing. Leave it out.")
    if config.format == "hf" and len(quants) > 1:
        raise UsageError("--format hf writes one folder. Export one --quant at a time, with --out.")
    if config.out is not None and len(quants) > 1:
        raise UsageError("--out is one file. Leave it out, or export one --quant at a time.")
    if config.bench and config.format not in ("gguf", "onnx"):
        raise UsageError("--bench needs --format gguf or onnx. Leave out --bench, or change the format.")
    if not config.bench and (config.problems is not None or config.limit is not None):
        raise UsageError("--problems and --limit need --bench. Add --bench, or leave them out.")
    if config.pre_tokenizer is not None and config.format not in ("gguf", "adapter"):
        raise UsageError("--pre-tokenizer needs --format gguf or adapter. Leave it out, or change the format.")
    if config.format == "hf":
        _export_folder(spec, base, quants[0], config)
        return
    problems = _problems(spec, config) if config.bench else []
    results, failed = _export_files(spec, base, kind, quants, config)
    for result in results:
        write_sidecars(result, spec, base)
    if config.bench and results:
        measure_exports(spec, base, results, problems)
    if config.json:
        manifests = [asdict(result.manifest) for result in results]
        click.echo(json.dumps(manifests[0] if len(quants) == 1 else manifests, indent=2))
    if failed:
        raise SceError(f"{failed} of {len(quants)} files were not written")


def _export_files(
    spec: ModelSpec, base: Path, kind: str, quants: tuple[str, ...], config: ExportConfig
) -> tuple[list[ExportResult], int]:
    """Export each type; return the results, and how many types failed."""
    results, failed = [], 0
    out = Path()

    stage = ""

    def log(message: str) -> None:
        nonlocal stage
        stage = message.removesuffix(" ...")
        say(f"{out}: {message}")
        progress.show_stage(stage, 0, 0, "")

    def wrote(done: int, total: int) -> None:
        progress.show_stage(stage, done, total, "tensors")

    source = gguf_file(spec.source)
    with (
        track(len(quants), "exporting", lines=False) as progress,
        Workbench(
            base, spec.adapter, spec.prompt_style, log, config.pre_tokenizer, source, config.device, wrote
        ) as workbench,
    ):
        for number, quant in enumerate(quants):
            progress.reach(number)
            out = target_of(spec, kind, quant, config.out)
            try:
                result = export_as(workbench, kind, quant, out, config.force)
            except SceError as error:
                # A failed type must not stop the others.
                if len(quants) == 1:
                    raise
                failed += 1
                say(f"sce: {out}: {error}")
                continue
            results.append(result)
            say_result(result)
    return results, failed


def _export_folder(spec: ModelSpec, base: Path, quant: str, config: ExportConfig) -> None:
    target = target_of(spec, "hf", quant, config.out)
    folder = export_merged(base, spec.adapter, HF_DTYPES[quant], target, config.force, spec.prompt_style)
    say(f"{folder}: merged Hugging Face folder, {quant}")
    if config.json:
        click.echo(json.dumps({"path": str(folder), "quant": quant}))


def _problems(spec: ModelSpec, config: ExportConfig) -> list[Problem]:
    """Problems of --bench, loaded before the slow exports begin."""
    from securecoderl_edge.evaluation.bench import BenchSettings, bench_problems, default_problems

    return bench_problems(BenchSettings(problems=config.problems or default_problems([spec]), limit=config.limit), say)


def _verify(file: Path, source: str | None, config: ExportConfig) -> None:
    from securecoderl_edge.export.run import recheck

    if source is None and (run := run_of(file)) is not None:
        source = str(run.path)
    spec = None if source is None else find_source(source)
    if spec is not None:
        check_childs_device(config.device)
    base, gguf_base = (spec.folder(), gguf_file(spec.source)) if spec else (None, None)
    result = recheck(file, base, spec.adapter if spec else None, config.pre_tokenizer, gguf_base, config.device)
    if config.json:
        click.echo(json.dumps(asdict(result)))
    say_verified(file, result.agreement)
