"""Sidecar files of an export: a model card and an Ollama Modelfile."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path

from securecoderl_edge.config import read_toml
from securecoderl_edge.errors import SceError
from securecoderl_edge.export.agreement import BOUNDS
from securecoderl_edge.export.llama_cpp import bounds_of
from securecoderl_edge.export.manifest import (
    CARD,
    AdapterManifest,
    GgufManifest,
    Manifest,
    OnnxManifest,
    types_in_words,
)
from securecoderl_edge.export.run import ExportResult
from securecoderl_edge.languages.language import LANGUAGES, PYTHON, Language
from securecoderl_edge.models.files import gguf_file
from securecoderl_edge.models.gguf.folder import gguf_source
from securecoderl_edge.prompts.styles import (
    CHAT_STYLES,
    INSTRUCTION_HEADING,
    PROBLEM_HEADING,
    RESPONSE_HEADING,
    format_statement,
)
from securecoderl_edge.runs import ENVIRONMENT, EVALUATIONS, Run, phase_of, run_of
from securecoderl_edge.runtimes.spec import ModelSpec
from securecoderl_edge.scoring.cluster_intervals import labels_of, mean_over_groups
from securecoderl_edge.system.files import read_json, write_atomically
from securecoderl_edge.system.rows import RowFile

_PROMPT = "{{ .Prompt }}"  # in Ollama's template language
_STOPS = {"stdin": PROBLEM_HEADING, "paper": INSTRUCTION_HEADING}
# In each sidecar file, so that a file from elsewhere is not replaced.
_WRITER = "# Written by sce export"
_MARK = f"{_WRITER}; each export overwrites it."
_HEAD_BYTES = 4096
_FRONT_MATTER_LICENSE = re.compile(r"^license:[ \t]*(\S.*)$", re.MULTILINE)


def write_card(result: ExportResult, spec: ModelSpec, base: Path, bench: str = "") -> Path:
    """Write ``NAME.card.md`` next to an exported file, or ``README.md`` into an ONNX folder.

    Args:
        spec: the exported model.
        base: the folder of its base model.
        bench: evaluation tables of the file, as Markdown.

    Raises:
        SceError: it cannot be written.
    """
    path = _card_of(result.path)
    with write_atomically(path) as out:
        library = "onnx" if isinstance(result.manifest, OnnxManifest) else "gguf"
        out.write("\n".join([*_front_matter(library, spec, base), *_sections(result, spec, base, bench)]))
    return path


def write_modelfile(result: ExportResult, language: Language) -> Path | None:
    """Write ``NAME.Modelfile`` next to an exported file, for ``ollama create``; None for ONNX, which Ollama cannot run.

    Args:
        language: of the model's programs.

    Raises:
        SceError: it cannot be written.
    """
    manifest, name = result.manifest, result.path.name
    if isinstance(manifest, OnnxManifest):
        return None
    if isinstance(manifest, AdapterManifest):
        lines = [_MARK, "# Put the base model here, as a GGUF file.", "FROM ./base.gguf", f"ADAPTER ./{name}"]
    else:
        # Ollama reads the rest of the line as the name, with blanks and quotes.
        lines = [_MARK, f"FROM ./{name}"]
    style = manifest.prompt_style or ""
    if style in _STOPS:
        lines += [f'TEMPLATE """{_template(style, _PROMPT, language)}"""', f'PARAMETER stop "{_STOPS[style]}"']
    lines += ["PARAMETER temperature 0.7", "PARAMETER top_k 0", "PARAMETER top_p 1", ""]
    path = _modelfile_of(result.path)
    with write_atomically(path) as out:
        out.write("\n".join(lines))
    return path


def license_of(base: Path) -> str:
    """The license of a model folder, from its files; a sentence if it is unknown."""
    for name in ("README.md", "MODEL_CARD.md"):
        file = base / name
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        if text.startswith("---") and (match := _FRONT_MATTER_LICENSE.search(text.partition("\n---")[0])):
            return match[1].strip()
    if (base / "LICENSE").is_file():
        first = (base / "LICENSE").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"{first[0].strip()} (see the LICENSE file of the base)" if first else "see the LICENSE file of the base"
    return "unknown: not in the base model's folder. Look it up before you share this file"


def _front_matter(library: str, spec: ModelSpec, base: Path) -> list[str]:
    lines = ["---", f"library_name: {library}", "pipeline_tag: text-generation", f"tags: [code, {spec.language()}]"]
    if "/" in spec.source and not Path(spec.source).exists():
        lines.append(f"base_model: {spec.source}")
    license = license_of(base)
    if " " not in license:
        lines.append(f"license: {license}")
    return [*lines, _MARK, "---", ""]


def _sections(result: ExportResult, spec: ModelSpec, base: Path, bench: str) -> list[str]:
    manifest, agreement = result.manifest, result.manifest.agreement
    original = gguf_file(spec.source)
    kind = "LoRA adapter" if isinstance(manifest, AdapterManifest) else "model"
    runtime = "onnxruntime" if isinstance(manifest, OnnxManifest) else "llama.cpp"
    language = LANGUAGES[spec.language()]
    lines = [
        f"# {result.path.name}",
        "",
        f"A {kind} that writes {language.noun} programs, exported by securecoderl-edge.",
        "",
        "## Model",
        "",
        f"* Base model: {Path(spec.source).name or spec.source}; license: {license_of(base)}",
        *(f"* {fact}" for fact in (*_quantized_base(base), *_facts(manifest, language))),
    ]
    run = run_of(spec.adapter) if spec.adapter else None
    if run is not None:
        lines += ["", "## Training", "", *_training(run)]
    lines += [
        "",
        "## Agreement with the original",
        "",
        f"Measured in {runtime} against the float32 model in transformers, on {agreement.prompts} prompts "
        f"({agreement.positions} tokens):",
        "",
        "| | measured | bound |",
        "|---|---|---|",
        *_agreement_rows(manifest, base),
    ]
    if bench:
        lines += ["", "## Evaluation", "", bench.strip()]
    lines += [
        "",
        "## Usage",
        "",
        "```",
        *how_to_run(result, spec.language(), gguf_base=original.name if original else None),
        "```",
        "",
        "## Limitations",
        "",
        *_limits(run),
    ]
    return [*lines, ""]


def foreign_sidecar(out: Path, is_folder: bool) -> Path | None:
    """Find a file from elsewhere at the path of a sidecar file of ``out``."""
    for path in (out / CARD,) if is_folder else (_card_of(out), _modelfile_of(out)):
        if path.is_symlink() or (path.exists() and not _is_ours(path)):
            return path
    return None


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _WRITER.encode() in file.read(_HEAD_BYTES)


def _card_of(out: Path) -> Path:
    return out / CARD if out.is_dir() else out.with_name(f"{out.name}.card.md")


def _modelfile_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.Modelfile")


def how_to_run(result: ExportResult, language: str, folder: Path = Path(), gguf_base: str | None = None) -> list[str]:
    """Shell commands that run the file in ``folder``, for programs in a language.

    Those of an adapter name ``gguf_base``, the GGUF file of its base, or begin with the export of its base.
    """
    path = folder / result.path.name
    name, modelfile = shlex.quote(str(path)), shlex.quote(str(_modelfile_of(path)))
    flag = "" if language == PYTHON.name else f"--language {language} "
    generate = f"sce generate --model {name} {flag}'...'"
    # A dot in a name may be part of a version.
    ollama = re.sub(r"[^\w.-]+", "-", path.name.removesuffix(".gguf"))
    if isinstance(result.manifest, OnnxManifest):
        return [generate]
    if isinstance(result.manifest, AdapterManifest):
        base = gguf_base or "base.gguf"
        # llama-cli applies a chat template unless it is told not to.
        single = "" if result.manifest.prompt_style in CHAT_STYLES else "-no-cnv "
        call = f'Llama({json.dumps(base)}, lora_path={json.dumps(str(path))})("...")'
        export = "sce export BASE --quant f16 --out base.gguf  # BASE: the base model of the adapter"
        program = f"from llama_cpp import Llama; print({call})"
        return [
            *([] if gguf_base else [export]),
            f"llama-cli {single}-m {shlex.quote(base)} --lora {name} -p '...'",
            f"ollama create {ollama} -f {modelfile} && ollama run {ollama}",
            f"python -c {shlex.quote(program)}",
        ]
    return [
        f"llama-cli -no-cnv -m {name} -p '{PROBLEM_HEADING} ...'"
        if result.manifest.prompt_style == "stdin"
        else f"llama-cli -m {name} -p '...'",
        f"ollama create {ollama} -f {modelfile} && ollama run {ollama}",
        generate,
    ]


def _template(style: str, task: str, language: Language) -> str:
    if style == "paper":
        return f"{INSTRUCTION_HEADING}\nComplete the following code:\n\n{task}\n\n{RESPONSE_HEADING}\n"
    return format_statement(task, language=language)


def _facts(manifest: Manifest, language: Language) -> list[str]:
    facts = []
    if isinstance(manifest, OnnxManifest):
        hashes = ", ".join(f"{name} sha256 {digest}" for name, digest in manifest.files.items() if "onnx" in name)
        facts += [
            f"{manifest.bytes / 1e6:.1f} MB: {hashes}",
            f"Weights: {manifest.quant}, {manifest.bits_per_weight:.2f} bits per weight on average",
            "Operators: standard ONNX, opset 23, for any runtime that supports it"
            if manifest.portable
            else "Operators: some are custom ones of onnxruntime, the only runtime for this file",
        ]
    if isinstance(manifest, GgufManifest | AdapterManifest):
        facts.append(f"{manifest.bytes / 1e6:.1f} MB, sha256 {manifest.sha256}")
    if isinstance(manifest, GgufManifest):
        facts.append(
            f"Weights: {manifest.quant}, {manifest.bits_per_weight:.2f} bits per weight on average "
            f"({types_in_words(manifest)})"
        )
        if manifest.normalizer:
            facts.append(
                f"Its tokenizer expects text in Unicode normal form {manifest.normalizer}. sce converts text to it; "
                "llama.cpp and Ollama do not, which matters for accents that are separate characters"
            )
    if isinstance(manifest, AdapterManifest):
        facts.append(f"LoRA of rank {manifest.rank}, {manifest.tensors} tensors in {manifest.quant}")
    if manifest.prompt_style:
        facts.append(f"Prompt style: {manifest.prompt_style}; other prompt formats give worse results")
    if manifest.prompt_style in _STOPS:
        facts.append(f"Prompt, with escapes: `{json.dumps(_template(manifest.prompt_style, 'TASK', language))}`")
    return facts


def _quantized_base(base: Path) -> list[str]:
    """A sentence about a base that was converted from a quantized GGUF file."""
    source = gguf_source(base)
    types = source["tensor_types"] if source else {}
    if source is None or {*types} <= {"f32", "f16", "bf16"}:
        return []
    counts = ", ".join(f"{count} {kind}" for kind, count in types.items())
    return [
        f"The base was quantized: its weights come from a GGUF file (sha256 {source['sha256']}; {counts}) and are no "
        "more precise than there"
    ]


def _agreement_rows(manifest: Manifest, base: Path) -> list[str]:
    agreement, kind = manifest.agreement, manifest.bounds if isinstance(manifest, AdapterManifest) else manifest.quant
    bounds = BOUNDS[kind if isinstance(manifest, OnnxManifest) else bounds_of(kind, base)]
    return [
        f"| largest logit difference | {agreement.max_abs_difference:.3g} | {bounds.max_abs_difference:g} |",
        f"| KL divergence, nats per token | {agreement.mean_kl:.3g} | {bounds.mean_kl:g} |",
        f"| top-1 agreement | {agreement.top1:.1%} | {bounds.top1:.0%} |",
        f"| greedy text identical | {agreement.greedy_equal} of {agreement.prompts} | |",
        f"| texts tokenized identically | {agreement.tokenised_equal} of {agreement.texts} | all |",
    ]


def _training(run: Run) -> list[str]:
    try:
        settings, record = read_toml(run.path / "config.toml"), read_json(run.path / ENVIRONMENT)
        phases, cpu = ", ".join(settings.get("phases", [])), dict(record.get("machine", {})).get("cpu", "?")
    except (SceError, TypeError, ValueError):
        return ["* The training record is missing or damaged."]
    lines = [
        f"* Problems: {settings.get('problems')} (sha256 {str(record.get('problems_sha256'))[:16]})",
        f"* Phases: {phases}; seed {settings.get('seed')}; on {cpu}",
    ]
    for phase, facts in run.outcomes():
        score = _held_out(run, phase, facts)
        lines.append(f"* {phase}: selected update {facts.get('chosen_step')} of {facts.get('steps')}{score}")
    return lines


def _held_out(run: Run, phase: str, facts: dict[str, object]) -> str:
    """The validation reward of the selected update, with its interval over groups of problems."""
    folder = next((folder for folder in run.phase_folders() if phase_of(folder) == phase), None)
    if folder is None or not (folder / EVALUATIONS).is_file():
        return ""
    try:
        rows = RowFile(folder / EVALUATIONS).read()
        rows = [row for row in rows if row.get("step") == facts.get("chosen_step")]
        rewards = [float(reward) for reward in rows[-1]["rewards"]]
        samples = int(read_toml(run.path / "config.toml").get("selection", {}).get("samples", 1))
        of_problems = [rewards[start : start + samples] for start in range(0, len(rewards), samples)]
        groups = labels_of(rows[-1], len(of_problems))
        interval = mean_over_groups(of_problems, groups)
    except (IndexError, KeyError, TypeError, ValueError, SceError):
        return ""
    count = len(set(groups))
    in_groups = f" in {count} group{'s'[: count > 1]}" if count < len(groups) else ""
    bounds = "" if math.isnan(interval.low) else f" [{interval.low:.3f}, {interval.high:.3f}] (95 % CI)"
    return f"; reward on {len(of_problems)} held-out problems{in_groups} {interval.value:.3f}{bounds}"


def _limits(run: Run | None) -> list[str]:
    lines = [
        "* Generated programs may be wrong or unsafe. Run them in a sandbox. `sce generate` does, and scans them.",
        "* Agreement with the original does not mean that the original is good.",
    ]
    if run is not None:
        lines.append("* It was trained on the problems named above. On others it may be no better than its base model.")
    return lines
