"""Flags of the commands that open one model: generate, serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from securecoderl_edge.commands.options import ModelName
from securecoderl_edge.models.gpus import DEVICES
from securecoderl_edge.prompts.styles import STYLES
from securecoderl_edge.runtimes.protocol import BASE_PRECISIONS, MAX_THREADS
from securecoderl_edge.sandbox.levels import SANDBOX_CHOICES

F = TypeVar("F", bound=Callable[..., Any])

model_option = click.option(
    "--model",
    type=ModelName(),
    metavar="MODEL",
    help="Model to use: smollm2-rl, smollm2, nano, a run, a folder or a GGUF file (with a LoRA adapter: "
    "BASE.gguf+LORA.gguf).  [default: the latest run's export, else its policy, else nano]",
)
_RUNTIME_OPTIONS = (
    click.option(
        "--base-precision",
        type=click.Choice(BASE_PRECISIONS),
        default="auto",
        help="Weights of a run, a folder or nano. auto: on a GPU bf16 or fp16, on a CPU bf16 where that is faster, "
        "else fp32. int8: least memory, slower.  [default: auto]",
    ),
    click.option("--device", type=click.Choice(DEVICES), default="auto", help="Device to compute on.  [default: auto]"),
    click.option(
        "--gpu-layers",
        type=click.IntRange(0),
        metavar="N",
        help="Layers of a GGUF file that the GPU computes, the CPU the others.  [default: all]",
    ),
    click.option(
        "--threads", type=click.IntRange(1, MAX_THREADS), metavar="N", help="CPU threads.  [default: all cores]"
    ),
    click.option(
        "--sandbox",
        type=click.Choice(SANDBOX_CHOICES),
        default="auto",
        help="Isolation level; auto: the strictest available, off: none.  [default: auto]",
    ),
    click.option(
        "--prompt-style",
        type=click.Choice(("auto", *STYLES)),
        default="auto",
        help="Prompt format; auto: the one that the model was trained with.  [default: auto]",
    ),
)


def runtime_options(function: F) -> F:
    """Add the flags of how a model is opened and asked, and of the sandbox."""
    for option in reversed(_RUNTIME_OPTIONS):
        function = option(function)
    return function
