"""`sce export`: a trained policy, or a base model, as verified files."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securecoderl_edge.commands.console import say
from securecoderl_edge.commands.options import ModelName, options_from
from securecoderl_edge.config import setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.export.dispatch import DEFAULTS, HF_DTYPES, check_type, export_as, find_source, target_of
from securecoderl_edge.export.manifest import AdapterManifest, GgufManifest, OnnxManifest, types_in_words
from securecoderl_edge.export.run import ONNX_TYPES, PORTABLE_TYPES, QUANTS, ExportResult, export_merged
from securecoderl_edge.export.workbench import Workbench
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.runs import latest_run, run_of
from securecoderl_edge.runtimes.spec import ModelSpec

if TYPE_CHECKING:
    from securecoderl_edge.problems.problem import Problem

_PAPERS = (".modelfile", ".md", ".json")


@dataclass(frozen=True)
class ExportConfig:
    """Flags of `sce export`."""

    format: str = setting(
        "gguf",
        "gguf: a file for llama.cpp; onnx: a folder for onnxruntime; adapter: the LoRA alone, for llama.cpp's --lora; "
        "hf: a merged folder.",
        choices=("gguf", "onnx", "adapter", "hf"),
    )
    quant: tuple[str, ...] = setting(
        (),
        f"Types of the weights, comma-separated: {', '.join(QUANTS)}; {', '.join(ONNX_TYPES)} for onnx "
        f"({', '.join(PORTABLE_TYPES)} with --portable).  "
        "[default: q8_0; int8 for onnx, f16 for adapter, f32 for hf and --portable]",
        choices=tuple(dict.fromkeys((*QUANTS, *ONNX_TYPES))),
    )
    portable: bool = setting(
        False, "With --format onnx: standard operators alone (set 23), for other runtimes than onnxruntime too; slower."
    )
    out: str | None = setting(None, "Where to write.  [default: RUN/exports/NAME-QUANT.gguf]", metavar="PATH")
    force: bool = setting(False, "Replace an existing target.")
    pre_tokenizer: str | None = setting(
        None, "llama.cpp's name of the pre-tokenizer, for one that is not recognised.", metavar="NAME"
    )
    bench: bool = setting(False, "Measure each file on problems, and what quantisation costs.")
    problems: str = setting("starter:eval", "With --bench: built-in set or file.", metavar="SET|FILE")
    limit: int | None = setting(None, "With --bench: only the first N problems.", minimum=1, metavar="N")
    verify: str | None = setting(None, "Check a file once more, against its manifest and its source.", metavar="FILE")
    json: bool = setting(False, "Print the manifests as JSON on stdout.")


@click.command()
@click.argument("source", type=ModelName(), required=False, metavar="[RUN|HF_DIR]")
@options_from(ExportConfig)
def export(source: str | None, config: ExportConfig) -> None:
    """Write a trained policy as verified files for a laptop CPU.

    Without an argument it is the latest training run. A Hugging Face folder, or nano, is exported as it is.

    Before a file gets its name it is run by llama.cpp or onnxruntime and compared with its source (tokenisation,
    logits, greedy text). A file that does not agree is not kept. A merged Hugging Face folder is not compared.
    Beside each file stand its manifest, a card and an Ollama Modelfile.
    """
    if config.verify is not None:
        others = {**asdict(config), "verify": None, "json": False, "pre_tokenizer": None}
        if others != asdict(ExportConfig()):
            raise UsageError("--verify takes a file as it is; of the other flags --pre-tokenizer and --json go with it")
        _verify(Path(config.verify), source, config)
        return
    spec = find_source(source)
    base = base_folder(spec.source)
    if config.portable and config.format != "onnx":
        raise UsageError("--portable is a kind of ONNX; add --format onnx, or leave it out")
    kind = "portable" if config.portable else config.format
    quants = config.quant or (DEFAULTS[kind],)
    for quant in quants:
        check_type(kind, quant)
    if config.out is not None and Path(config.out).suffix.lower() in _PAPERS:
        raise UsageError(f"--out {config.out}: files of that ending are written beside an export; choose another name")
    if config.format == "hf" and len(quants) > 1:
        raise UsageError("--format hf writes one folder; export one --quant at a time, with --out")
    if config.out is not None and len(quants) > 1:
        raise UsageError("--out names one file; leave it out, or export one --quant at a time")
    if config.bench and config.format not in ("gguf", "onnx"):
        raise UsageError("--bench measures whole models; leave it out, or export with --format gguf or onnx")
    if not config.bench and (config.problems != ExportConfig().problems or config.limit is not None):
        raise UsageError("--problems and --limit say what --bench measures on; add --bench, or leave them out")
    if config.pre_tokenizer is not None and config.format not in ("gguf", "adapter"):
        raise UsageError("--pre-tokenizer is llama.cpp's; leave it out, or export with --format gguf or adapter")
    if config.format == "hf":
        _export_folder(spec, base, quants, config)
        return
    problems = _problems(config) if config.bench else []
    results, failed = _export_files(spec, base, kind, quants, config)
    for result in results:
        _add_papers(result, spec, base)
    if config.bench and results:
        _bench(spec, base, results, problems)
    if config.json:
        manifests = [asdict(result.manifest) for result in results]
        click.echo(json.dumps(manifests[0] if len(quants) == 1 else manifests, indent=2))
    if failed:
        raise SceError(f"{failed} of {len(quants)} files were not written")


def _export_files(
    spec: ModelSpec, base: Path, kind: str, quants: tuple[str, ...], config: ExportConfig
) -> tuple[list[ExportResult], int]:
    """What was written, and how many others failed."""
    results, failed = [], 0
    out = Path()

    def log(message: str) -> None:
        say(f"{out}: {message}")

    with Workbench(base, spec.adapter, spec.prompt_style, log, config.pre_tokenizer) as workbench:
        for quant in quants:
            out = target_of(spec, kind, quant, config.out)
            try:
                result = export_as(workbench, kind, quant, out, config.force)
            except SceError as error:
                # One type that is not good enough must not cost the others.
                if len(quants) == 1:
                    raise
                failed += 1
                say(f"sce: {out}: {error}")
                continue
            results.append(result)
            _report(result)
    return results, failed


def _export_folder(spec: ModelSpec, base: Path, quants: tuple[str, ...], config: ExportConfig) -> None:
    for quant in quants:
        target = target_of(spec, "hf", quant, config.out)
        folder = export_merged(base, spec.adapter, HF_DTYPES[quant], target, config.force, spec.prompt_style)
        say(f"{folder}: merged Hugging Face folder, {quant}")
        if config.json:
            click.echo(json.dumps({"path": str(folder), "quant": quant}))


def _report(result: ExportResult) -> None:
    manifest, agreement = result.manifest, result.manifest.agreement
    if result.reused:
        say(f"{result.path}: this export of the same model is already there")
    if isinstance(manifest, AdapterManifest):
        say(f"{result.path}: {manifest.bytes / 1e6:.1f} MB, LoRA of rank {manifest.rank}, {manifest.tensors} factors")
    elif isinstance(manifest, GgufManifest | OnnxManifest):
        types = f" ({types_in_words(manifest)})" if isinstance(manifest, GgufManifest) else ""
        say(f"{result.path}: {manifest.bytes / 1e6:.1f} MB, {manifest.bits_per_weight:.2f} bits per weight{types}")
    runtime = "onnxruntime" if isinstance(manifest, OnnxManifest) else "llama.cpp"
    say(
        f"  verified in {runtime} against its source: "
        f"{agreement.tokenised_equal}/{agreement.texts} texts tokenise equally, "
        f"logits within {agreement.max_abs_difference:.2g}, KL {agreement.mean_kl:.2g}, top-1 {agreement.top1:.1%}, "
        f"greedy text equal on {agreement.greedy_equal}/{agreement.prompts} prompts"
    )


def _problems(config: ExportConfig) -> list[Problem]:
    """What is measured on: found before minutes are spent on exports."""
    from securecoderl_edge.evaluation.bench import BenchSettings, bench_problems

    return bench_problems(BenchSettings(problems=config.problems, limit=config.limit), say)


def _bench(spec: ModelSpec, base: Path, results: list[ExportResult], problems: list[Problem]) -> None:
    from securecoderl_edge.commands.bench import calibrated
    from securecoderl_edge.commands.tables import show_losses
    from securecoderl_edge.export.card import write_card
    from securecoderl_edge.export.losses import measure_losses
    from securecoderl_edge.scoring.scorer import Scorer

    def tell(result: ExportResult) -> None:
        say(f"{result.path.name}: measuring on {len(problems)} problems")

    with Scorer(time_factor=calibrated()) as scorer:
        losses = measure_losses(spec, results, problems, scorer, tell)
    show_losses(losses)
    for result in results:
        write_card(result, spec, base, losses.to_markdown())


def _add_papers(result: ExportResult, spec: ModelSpec, base: Path) -> None:
    from securecoderl_edge.export.card import how_to_run, write_card, write_modelfile

    card = write_card(result, spec, base)
    modelfile = write_modelfile(result)
    shown = f"{card.parent.name}/{card.name}" if result.path.is_dir() else card.name
    ollama = f", {modelfile.name} is for Ollama" if modelfile else ""
    # Without a model's name it measures the exports of the latest run.
    run = latest_run()
    is_found = run is not None and result.path.parent.resolve() == run.exports.resolve()
    found = [] if is_found else [os.path.relpath(result.path)]
    bench = "" if isinstance(result.manifest, AdapterManifest) else f" {shlex.join(['sce', 'bench', *found])}, or"
    say(f"  {shown} says what it is{ollama}; next:{bench}")
    for line in how_to_run(result, result.path.parent):
        say(f"    {line}")


def _verify(file: Path, source: str | None, config: ExportConfig) -> None:
    from securecoderl_edge.export.recheck import recheck

    spec = None
    if source is not None:
        spec = find_source(source)
    elif (run := run_of(file)) is not None:
        spec = find_source(str(run.path))
    found = recheck(
        file, base_folder(spec.source) if spec else None, spec.adapter if spec else None, config.pre_tokenizer
    )
    if config.json:
        click.echo(json.dumps(found.to_record()))
    if found.agreement is None:
        say(f"{file}: is what its manifest says; to have it compared, name its source: sce export SOURCE --verify FILE")
        return
    say(
        f"{file}: is what its manifest says and agrees with its source: KL {found.agreement.mean_kl:.2g}, "
        f"top-1 {found.agreement.top1:.1%}, {found.agreement.tokenised_equal}/{found.agreement.texts} texts "
        "tokenise equally"
    )
