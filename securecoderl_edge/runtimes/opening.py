"""A model as a command was asked to use it: the settings, the checks before anything slow, and the open model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from securecoderl_edge.config import setting
from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.gpus import device_setting
from securecoderl_edge.prompts.styles import STYLES, PromptFormat, choose_format
from securecoderl_edge.runtimes import open_runtime
from securecoderl_edge.runtimes.placement import check_device
from securecoderl_edge.runtimes.protocol import BASE_PRECISIONS, MAX_THREADS, Runtime
from securecoderl_edge.runtimes.spec import ModelSpec
from securecoderl_edge.sandbox.levels import sandbox_setting


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
        tell: see `check_device`.

    Raises:
        UsageError: a setting has no effect on any of them, or a model cannot be on that device.
        MissingExtra: a runtime's packages are not installed.
    """
    if settings.base_precision != "auto" and all(spec.kind != "hf" for spec in specs):
        raise UsageError(
            "--base-precision has no effect on GGUF and ONNX files. Leave it out, or export another --quant."
        )
    check_device(specs, settings.device, settings.gpu_layers, tell)


@contextlib.contextmanager
def opened(
    spec: ModelSpec,
    settings: RuntimeSettings,
    *,
    thinking: bool = False,
    parallel: int | None = None,
    reuses_prefixes: bool = False,
) -> Iterator[tuple[Runtime, PromptFormat]]:
    """A model, and the format of its prompts.

    Args:
        thinking: see `ChatTemplate.thinks`. parallel, reuses_prefixes, and errors: as in `open_runtime`.
    """
    runtime = open_runtime(
        spec,
        threads=settings.threads,
        parallel=parallel,
        device=settings.device,
        base_precision=settings.base_precision,
        reuses_prefixes=reuses_prefixes,
        gpu_layers=settings.gpu_layers,
    )
    with contextlib.closing(runtime):
        trained = spec.prompt_style or runtime.prompt_style
        yield runtime, choose_format(settings.prompt_style, trained, runtime.chat_template, thinking)
