"""Importing torch, transformers and peft as this package needs them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from securecoderl_edge.errors import check_extras, needs

_PACKAGES = ("torch", "transformers", "peft", "safetensors")
# What computes a model, by the kind of its `ModelSpec`: an extra, and packages of it.
COMPUTED_BY: dict[str, dict[str, tuple[str, ...]]] = {
    "hf": {"train": _PACKAGES},
    "gguf": {"gguf": ("llama_cpp",)},
    "onnx": {"onnx": ("onnxruntime", "tokenizers")},
}


def find_torch(note: str = "") -> None:
    """Check, without importing them, that the packages of `require_torch` are there: a child process needs them.

    Args:
        note: ends the message.

    Raises:
        MissingExtra: a package of the ``train`` extra is not installed.
    """
    check_extras(COMPUTED_BY["hf"], note)


def require_torch() -> None:
    """Import the packages that training and Hugging Face models need.

    From here on transformers takes the package ``kernels`` for missing: a config.json could name code of the hub, which
    it would download and run, and for some architectures it does so unasked.

    Raises:
        MissingExtra: a package of the ``train`` extra is not installed.
        SceError: one is installed, but broken.
    """
    # Read when torch loads: waiting threads must sleep soon, since sandboxed programs need the same cores.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # oneDNN caches a compiled kernel per shape, a thousand by default. Batches rarely repeat a shape, so the cache
    # would hold half a gigabyte that is almost never used again.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    for package in _PACKAGES:
        with needs(package, "train"), hidden_bitsandbytes(), _hidden("kernels"):
            __import__(package)
    from transformers.utils import import_utils
    from transformers.utils import logging as transformers_logging

    import_utils.is_kernels_available.cache_clear()
    with _hidden("kernels"):
        import_utils.is_kernels_available()  # which remembers

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def require_bitsandbytes() -> None:
    """Import bitsandbytes, which 8-bit bases and optimizers of its kind need.

    Raises:
        MissingExtra: it is not installed.
        SceError: it is installed, but broken.
    """
    # It also warns at every product whose inputs are not float16.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    # If the package `kernels` is there, it would download a 4-bit kernel from the hub, and if not, warn. Nothing here
    # computes in 4 bits, and `sce` downloads only models and data that the user names.
    with needs("bitsandbytes", "train"), _hidden("kernels"):
        __import__("bitsandbytes")


@contextmanager
def hidden_bitsandbytes() -> Iterator[None]:
    """Within the block peft takes bitsandbytes for missing, unless it is imported: that takes seconds, few need it."""
    if "bitsandbytes" in sys.modules:
        yield
        return
    with _hidden("bitsandbytes"):
        _forget_what_peft_found()
        try:
            yield
        finally:
            _forget_what_peft_found()


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Within the block a package cannot be imported."""
    before = sys.modules.get(package)
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if before is None:
            del sys.modules[package]
        else:
            sys.modules[package] = before


def _forget_what_peft_found() -> None:
    if found := sys.modules.get("peft.import_utils"):
        found.is_bnb_available.cache_clear()
        found.is_bnb_4bit_available.cache_clear()
