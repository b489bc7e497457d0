"""A base model as the headers of its files describe it: nothing is loaded, converted or hashed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from securecoderl_edge.errors import MissingExtra, SceError
from securecoderl_edge.models.architecture import Architecture, architecture_of
from securecoderl_edge.models.catalog import ORIGINS
from securecoderl_edge.models.files import base_folder, gguf_file
from securecoderl_edge.models.gguf.folder import architecture_of_gguf
from securecoderl_edge.models.gguf.header import GgufHeader, read_header
from securecoderl_edge.models.other import OtherArchitecture, find_architecture
from securecoderl_edge.prompts.chat import ChatTemplate, read_chat_template

_SHAPES = Path(__file__).parent / "recipes" / "shapes.json"
# The parameters at which `learning_rate` is 1e-4: those of Qwen2.5-Coder-0.5B.
_AT_1E_4 = 494e6


@dataclass(frozen=True)
class BaseModel:
    """What is known of a base model.

    Attributes:
        is_chat: whether it was trained to answer in its chat template; None if only its sizes are known.
        missing: why only its sizes are known, one sentence; else empty.
    """

    architecture: Architecture | OtherArchitecture
    is_chat: bool | None
    missing: str = ""

    @property
    def size(self) -> int:
        """Parameters, a separate output projection left out: files of one model differ in whether they have it."""
        shape = self.architecture
        if isinstance(shape, OtherArchitecture) or shape.tied:
            return shape.parameters()
        return shape.parameters() - shape.vocabulary * shape.hidden


def learning_rate(size: int) -> float:
    """The learning rate of RL with LoRA on all linear layers for a model of ``size`` parameters, at most 1e-3.

    It falls with the root of the size. It is 1e-4 at 0.5 B, at which Qwen2.5-Coder-0.5B improved. Published runs with
    4 B have 4e-5 (thinking-machines-lab/tinker-cookbook, code_rl), our studies of SmolLM2-135M 4e-4, after SFT.
    """
    return float(f"{min(1e-3, 1e-4 * (_AT_1E_4 / size) ** 0.5):.2g}")


def known_shapes() -> dict[str, dict[str, object]]:
    """The config.json of the models that the built-in recipes and their pages name, by repo id."""
    shapes: dict[str, dict[str, object]] = json.loads(_SHAPES.read_text(encoding="utf-8"))
    return shapes


def describe_base(name: str, *, download: bool = False) -> BaseModel:
    """What is known of the base model ``name``, see `base_folder`.

    Args:
        download: whether to download a repo of the hub.

    Raises:
        UsageError, SceError, MissingExtra: as `base_folder`, unless its sizes are known without it.
    """
    try:
        file = gguf_file(name)
        return _of_file(file) if file else _of_folder(base_folder(name, download=download))
    except (SceError, MissingExtra) as error:
        origin = ORIGINS.get(name)
        repo = origin.repo.removesuffix("-GGUF") if origin else name
        if repo not in known_shapes() or Path(name).exists():
            raise
        shape = architecture_of(known_shapes()[repo], repo)
        how = str(error) if origin else f"{name} is not downloaded yet; sce train downloads it"
        return BaseModel(shape, None, how)


def _of_folder(folder: Path) -> BaseModel:
    return BaseModel(find_architecture(folder), _is_chat(read_chat_template(folder)))


def _of_file(path: Path) -> BaseModel:
    header = _header(path, path.stat().st_mtime_ns)
    shape = architecture_of_gguf(header, path)
    return BaseModel(shape, _is_chat(_template_of(header, path)))


@lru_cache(maxsize=1)
def _header(path: Path, _changed: int) -> GgufHeader:
    """Read once for several questions, since vocabularies are large; ``_changed`` tells versions of a file apart."""
    return read_header(path, with_lists=True)


def _is_chat(template: ChatTemplate | None) -> bool:
    return template is not None and template.ends_answers()


def _template_of(header: GgufHeader, path: Path) -> ChatTemplate | None:
    source, tokens = header.values.get("tokenizer.chat_template"), header.lists.get("tokenizer.ggml.tokens", ())
    if not isinstance(source, str) or not source:
        return None
    ids = {f"{name}_token": header.values.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    texts = {name: str(tokens[number]) for name, number in ids.items() if number in range(len(tokens))}  # type: ignore[index]
    return ChatTemplate(source, texts, str(path))
