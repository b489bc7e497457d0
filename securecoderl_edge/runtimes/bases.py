"""Whether a LoRA adapter is on the base that it was trained on."""

from __future__ import annotations

from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.catalog import ORIGINS
from securecoderl_edge.models.files import lasting_name
from securecoderl_edge.models.gguf.header import BASE_KEY, header_strings
from securecoderl_edge.runs import run_of
from securecoderl_edge.runtimes.manifests import sources_of
from securecoderl_edge.runtimes.spec import ModelSpec, base_of_adapter
from securecoderl_edge.system.files import known_sha256

_SHOWN = 16  # digits of a sum


def trained_on(adapter: Path) -> str | None:
    """SHA-256 of the GGUF file that a GGUF adapter was trained on, by its header or the record of its run; None if
    neither has it."""
    if digest := header_strings(adapter).get(BASE_KEY):
        return digest
    run = run_of(adapter)
    return run.base_gguf_sha256 if run else None


def named_model(digest: str | None) -> str | None:
    """The model to pull whose file has this SHA-256, if any."""
    return next((name for name, origin in ORIGINS.items() if origin.sha256 == digest), None)


def check_base(file: Path, adapter: Path) -> None:
    """Check that a GGUF adapter was trained on the model in ``file``, as far as known.

    The sum of the file decides. Another file passes if both manifests name the same weights: it has them in another
    type.

    Raises:
        UsageError: it was trained on another model, or the file contains an adapter already.
        SceError: a manifest is damaged, or the file cannot be read.
    """
    digest = trained_on(adapter)
    if digest is not None and known_sha256(file) == digest:
        return
    base, update = sources_of(file), sources_of(adapter)
    if base is not None and any(name.startswith("adapter/") for name in base):
        raise UsageError(f"{file}: an adapter is merged into this file. Give the base without it.")
    if base is not None and update is not None:
        if _weights(base) != _weights(update):
            raise UsageError(f"{adapter}: an adapter of another base than {file} (by their manifests)")
    elif digest is not None:
        name = named_model(digest)
        advice = f"Get its base with: sce models pull {name}" if name else "Give the base of its training."
        raise UsageError(
            f"{adapter}: an adapter of {name or 'another file'} (SHA-256 {digest[:_SHOWN]}), not of {file} "
            f"(SHA-256 {known_sha256(file)[:_SHOWN]}). {advice}"
        )


def note_on_base(spec: ModelSpec) -> str | None:
    """One line if it is unknown whether the adapter of a model was trained on its base; None if it is known.

    Raises:
        SceError: a manifest is damaged.
    """
    if spec.adapter is None:
        return None
    if spec.kind != "gguf":
        run = spec.run() or run_of(spec.adapter)
        is_of_run = run is not None and (run.base_sha256 or run.base_model == lasting_name(spec.source))
        is_known = bool(is_of_run) or _names(spec.adapter, spec.source)
    elif trained_on(spec.adapter) is None:
        is_known = None not in (sources_of(Path(spec.source)), sources_of(spec.adapter))
    else:
        is_known = True
    return None if is_known else f"{spec.adapter}: its base is unknown; only architecture and sizes are compared"


def _names(adapter: Path, source: str) -> bool:
    """Whether an adapter's folder names a model as its base."""
    try:
        return base_of_adapter(adapter) == source
    except SceError:  # a model that is not here
        return False


def _weights(sources: dict[str, str]) -> dict[str, str]:
    return {
        name: digest for name, digest in sources.items() if name.startswith("base/") and name.endswith(".safetensors")
    }
