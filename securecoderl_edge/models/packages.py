"""Importing torch, transformers and peft as this package needs them."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys

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

    Raises:
        MissingExtra: a package of the ``train`` extra is not installed.
        SceError: one is installed, but broken.
    """
    # Read when torch loads: waiting threads must sleep soon, since sandboxed programs need the same cores.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # oneDNN caches a compiled kernel per shape, a thousand by default. Batches rarely repeat a shape, so the cache
    # would hold half a gigabyte that is almost never used again.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    _import_bitsandbytes()
    for package in _PACKAGES:
        with needs(package, "train"):
            __import__(package)
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def _import_bitsandbytes() -> None:
    """Import bitsandbytes, if it is installed, before peft does.

    Otherwise it downloads a 4-bit kernel from the hub if the package ``kernels`` is installed, and warns if not.
    Nothing here computes in 4 bits, and `sce` downloads only models and data that the user names.
    """
    # It also warns at every product whose inputs are not float16.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    if importlib.util.find_spec("bitsandbytes") is None or "bitsandbytes" in sys.modules:
        return
    before = sys.modules.get("kernels")
    sys.modules["kernels"] = None  # type: ignore[assignment]  # importing it then raises ImportError
    try:
        __import__("bitsandbytes")
    except Exception:  # a build that does not load here; `int8-bnb` and the 8-bit optimizers report it
        pass
    finally:
        if before is None:
            del sys.modules["kernels"]
        else:
            sys.modules["kernels"] = before
