"""The one door to a model: the settings, the checks before anything slow, and the open model or its tokenizer alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from securecoderl_edge.config import setting
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.gguf.header import lacks_pre_tokenizer
from securecoderl_edge.models.gpus import device_setting
from securecoderl_edge.models.other import OtherArchitecture, find_architecture
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.statistics import Lengths, spread
from securecoderl_edge.prompts.chat import read_chat_template
from securecoderl_edge.prompts.styles import STYLES, PromptFormat, choose_format
from securecoderl_edge.runtimes.bases import check_base, note_on_base
from securecoderl_edge.runtimes.manifests import check_unchanged
from securecoderl_edge.runtimes.placement import Placement, check_device, choose_placement
from securecoderl_edge.runtimes.protocol import BASE_PRECISIONS, MAX_THREADS, Runtime
from securecoderl_edge.runtimes.spec import ModelSpec
from securecoderl_edge.sandbox.levels import sandbox_setting
from securecoderl_edge.system.files import read_json
from securecoderl_edge.text import replace_surrogates

# Sequences decoded in parallel; more do not raise the speed on two to eight cores.
DEFAULT_PARALLEL = {"gguf": 32, "onnx": 32, "hf": 64}


@dataclass(frozen=True)
class RuntimeSettings:
    """How a model is computed and asked, and how its programs are isolated."""

    device: str = device_setting()
    gpu_layers: int | None = setting(
        None, "Layers of GGUF files that the GPU computes, the CPU the others.  [default: all]", minimum=0, metavar="N"
    )
    base_precision: str = setting(
        "auto",
        "Weights of models that torch computes: runs, folders, nano. auto: on a GPU bf16, or fp16 if it is older; "
        "on a CPU bf16 where that is faster, else fp32. int8: least memory, slower.",
        choices=BASE_PRECISIONS,
    )
    threads: int | None = setting(
        None, "CPU threads.  [default: all cores]", minimum=1, maximum=MAX_THREADS, metavar="N"
    )
    prompt_style: str = setting(
        "auto",
        "Prompt format. auto: the style that sce trained the model with; else chat for models trained to chat, code "
        "for others.",
        choices=("auto", *STYLES),
    )
    sandbox: str = sandbox_setting()


def check_runtime(
    specs: Sequence[ModelSpec], settings: RuntimeSettings, tell: Callable[[str], None] = lambda line: None
) -> None:
    """Check, before anything slow begins, that all models can be computed as the settings ask.

    Args:
        tell: see `check_device`; and one line for a file that does not name a pre-tokenizer, or an adapter whose base
            is unknown.

    Raises:
        UsageError: a setting has no effect on any of them, or a model cannot be on that device.
        MissingExtra: a runtime's packages are not installed.
    """
    if settings.base_precision != "auto" and all(spec.kind != "hf" for spec in specs):
        raise UsageError(
            "--base-precision has no effect on GGUF and ONNX files. Leave it out, or export another --quant."
        )
    check_device(specs, settings.device, settings.gpu_layers, tell)
    for spec in specs:
        if spec.kind == "gguf" and lacks_pre_tokenizer(Path(spec.source)):
            tell(f"{spec.source}: does not name a pre-tokenizer, so a default rule splits texts; answers may be worse")
        if note := note_on_base(spec):
            tell(note)


def open_runtime(
    spec: ModelSpec,
    settings: RuntimeSettings = RuntimeSettings(device="cpu"),
    *,
    parallel: int | None = None,
    reuses_prefixes: bool = False,
) -> Runtime:
    """Load a model.

    Args:
        parallel: sequences decoded in parallel; None means `DEFAULT_PARALLEL`.
        reuses_prefixes: see `GgufRuntime`; other runtimes process every prompt from its start.

    Raises:
        UsageError: a device that the model cannot use, or an adapter of another base.
        MissingExtra: the runtime's packages are not installed.
        SceError: the files are damaged or of a kind that the runtime cannot read.
    """
    placement = choose_placement(spec, settings.device, settings.gpu_layers)
    width, threads = parallel or DEFAULT_PARALLEL[spec.kind], settings.threads
    if spec.kind != "hf":
        return _open_exported(spec, threads, width, reuses_prefixes, placement)
    from securecoderl_edge.runtimes.hf import HfRuntime

    spec.folder()  # is there, or is downloaded if the user named it
    precision = settings.base_precision
    return HfRuntime(spec.source, spec.adapter, threads, width, spec.prompt_style, precision, placement.device)


@contextmanager
def opened(
    spec: ModelSpec,
    settings: RuntimeSettings,
    *,
    thinking: bool = False,
    parallel: int | None = None,
    reuses_prefixes: bool = False,
) -> Iterator[tuple[Runtime, PromptFormat]]:
    """A model of `open_runtime`, until the end of the block, and the format of its prompts.

    Args:
        thinking: see `ChatTemplate.thinks`.
    """
    with closing(open_runtime(spec, settings=settings, parallel=parallel, reuses_prefixes=reuses_prefixes)) as runtime:
        trained = spec.prompt_style or runtime.prompt_style
        yield runtime, choose_format(settings.prompt_style, trained, runtime.chat_template, thinking)


def precision_of(spec: ModelSpec, precision: str, device: str = "cpu") -> str | None:
    """The format of the weights of a model that torch computes, ``auto`` resolved; None for other files.

    Args:
        device: ``cpu`` or ``cuda``.

    Raises:
        SceError: as in `open_runtime`.
    """
    if spec.kind != "hf":
        return None
    from securecoderl_edge.models.packages import require_torch
    from securecoderl_edge.runtimes.hf import choose_precision

    require_torch()
    return choose_precision(precision, find_architecture(spec.folder()), device)


def note_on(spec: ModelSpec) -> str | None:
    """What a user should know before a model is used, one line.

    Raises:
        SceError: as in `open_runtime`.
    """
    shape = find_architecture(spec.folder()) if spec.kind == "hf" else None
    return shape.note if isinstance(shape, OtherArchitecture) else None


@dataclass(frozen=True)
class Reader:
    """The prompt format, tokenizer and context of a model.

    Attributes:
        count: tokens of a prompt, start token included.
        context: maximum number of tokens; None if its files do not give it.
    """

    format: PromptFormat
    count: Callable[[str], int]
    context: int | None

    def lengths(self, problems: Sequence[Problem]) -> Lengths:
        """Lengths of the prompts and of the shortest solutions of ``problems`` in tokens."""
        prompts = [self.count(self.format.prompt(problem)) for problem in problems]
        shortest = [(min(each.solutions, key=len), each.language) for each in problems if each.solutions]
        solutions = [self.count(replace_surrogates(self.format.answer(*pair))) for pair in shortest]
        return Lengths(
            style=self.format.style,
            prompts=spread(prompts),
            solutions=spread(solutions) if solutions else None,
            context=self.context,
            too_long=sum(self.context is not None and count >= self.context for count in prompts),
        )


@contextmanager
def open_reader(spec: ModelSpec, style: str = "auto") -> Iterator[Reader]:
    """The tokenizer of a model and the format of its prompts.

    Args:
        style: as in `choose_format`.

    Raises:
        UsageError: unknown style, or one that the model does not offer.
        SceError: the tokenizer is missing or damaged.
        MissingExtra: the package that reads it is not installed.
    """
    if spec.kind == "gguf":
        with closing(open_runtime(spec, parallel=1)) as runtime:
            format = choose_format(style, spec.prompt_style or runtime.prompt_style, runtime.chat_template)
            yield Reader(format, runtime.count_tokens, runtime.context)
        return
    folder = spec.folder()
    tokenizer = read_tokenizer(folder)
    chat = read_chat_template(folder)

    def count(text: str) -> int:
        return len(tokenizer.encode_prompt(text))

    context = read_json(folder / "config.json").get("max_position_embeddings")
    yield Reader(choose_format(style, spec.prompt_style, chat), count, context if isinstance(context, int) else None)


def _open_exported(
    spec: ModelSpec, threads: int | None, parallel: int, reuses_prefixes: bool, placement: Placement
) -> Runtime:
    """Load a file, and its adapter, while a thread checks them: the sum of a large file takes a second."""
    path = Path(spec.source)
    with ThreadPoolExecutor(1) as checker:
        check = checker.submit(_check_files, path, spec.adapter)
        try:
            if spec.kind == "gguf":
                from securecoderl_edge.runtimes.gguf.runtime import GgufRuntime

                runtime: Runtime = GgufRuntime(
                    path, threads, parallel, reuses_prefixes, spec.adapter, placement.gpu_layers
                )
            else:
                from securecoderl_edge.runtimes.onnx.runtime import OnnxRuntime

                runtime = OnnxRuntime(path, threads=threads, parallel=parallel, device=placement.device)
        except SceError:
            # A changed file explains the failure better than the error of the loader.
            check.result()
            raise
        try:
            check.result()
        except SceError:
            runtime.close()
            raise
        return runtime


def _check_files(path: Path, adapter: Path | None) -> None:
    check_unchanged(path)
    if adapter is not None:
        check_unchanged(adapter)
        check_base(path, adapter)
