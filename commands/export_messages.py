"""What ``sce export`` says of a file, and what it writes next to it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from securecoderl_edge.commands.console import say
from securecoderl_edge.export.agreement import Agreement
from securecoderl_edge.export.manifest import AdapterManifest, GgufManifest, OnnxManifest, types_in_words
from securecoderl_edge.export.run import ExportResult
from securecoderl_edge.languages.language import LANGUAGES
from securecoderl_edge.models.files import gguf_file
from securecoderl_edge.runs import latest_run
from securecoderl_edge.runtimes.spec import ModelSpec


def say_result(result: ExportResult) -> None:
    """Say what was written, and how far it agrees with the original."""
    manifest, agreement = result.manifest, result.manifest.agreement
    if result.reused:
        say(f"{result.path}: reused, the same export already exists")
    if isinstance(manifest, AdapterManifest):
        say(f"{result.path}: {manifest.bytes / 1e6:.1f} MB, LoRA of rank {manifest.rank}, {manifest.tensors} tensors")
    elif isinstance(manifest, GgufManifest | OnnxManifest):
        types = f" ({types_in_words(manifest)})" if isinstance(manifest, GgufManifest) else ""
        say(f"{result.path}: {manifest.bytes / 1e6:.1f} MB, {manifest.bits_per_weight:.2f} bits per weight{types}")
    runtime = "onnxruntime" if isinstance(manifest, OnnxManifest) else "llama.cpp"
    say(
        f"  verified in {runtime} against the original: "
        f"{agreement.tokenised_equal}/{agreement.texts} texts tokenize identically, "
        f"logits differ by at most {agreement.max_abs_difference:.2g}, KL {agreement.mean_kl:.2g}, "
        f"top-1 agreement {agreement.top1:.1%}, "
        f"greedy text identical for {agreement.greedy_equal}/{agreement.prompts} prompts"
    )


def write_sidecars(result: ExportResult, spec: ModelSpec, base: Path) -> None:
    """Write card and Modelfile, and say how to run the file."""
    from securecoderl_edge.export.card import how_to_run, write_card, write_modelfile

    card = write_card(result, spec, base)
    modelfile = write_modelfile(result, LANGUAGES[spec.language()])
    shown = f"{card.parent.name}/{card.name}" if result.path.is_dir() else card.name
    ollama = f", Ollama: {modelfile.name}" if modelfile else ""
    # Without a model's name `sce bench` evaluates the exports of the latest run.
    run = latest_run()
    is_found = run is not None and result.path.parent.resolve() == run.exports.resolve()
    arguments = [] if is_found else [os.path.relpath(result.path)]
    bench = "" if isinstance(result.manifest, AdapterManifest) else f" {shlex.join(['sce', 'bench', *arguments])}, or"
    say(f"  card: {shown}{ollama}; next:{bench}")
    gguf_base = gguf_file(spec.source)
    for line in how_to_run(result, spec.language(), result.path.parent, str(gguf_base) if gguf_base else None):
        say(f"    {line}")


def say_verified(file: Path, agreement: Agreement | None) -> None:
    """Say what a second verification found."""
    if agreement is None:
        say(f"{file}: matches its manifest. To compare it with the original too, run: sce export SOURCE --verify FILE")
        return
    say(
        f"{file}: matches its manifest and agrees with the original: KL {agreement.mean_kl:.2g}, "
        f"top-1 agreement {agreement.top1:.1%}, "
        f"{agreement.tokenised_equal}/{agreement.texts} texts tokenize identically"
    )
