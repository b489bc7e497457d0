"""Verification of an exported file against the original, in a new process: a file that loads may still be wrong.

It finds typical conversion errors: a missing q/k permutation, RoPE scaling or theta that was dropped, a wrong
pre-tokenizer, a wrong merge, damaged weights. It does not measure the quality of the model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.export.agreement import Agreement, check_bounds
from securecoderl_edge.export.llama_cpp import bounds_of
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.chat import read_chat_template
from securecoderl_edge.prompts.styles import CHAT_STYLES, STYLES, PromptFormat, format_statement
from securecoderl_edge.system.files import remove_abandoned, temporary_prefix
from securecoderl_edge.system.processes import ask

NEW_TOKENS = 24

# Digits after indentation: pre-tokenizers differ in the spaces before them.
_INDENTED_DIGITS = "x = [\n        1,\n        22.5,\n    ]\n"
_LONG = "\n".join(f"row {index}: {index * 37 % 101}, {index * index % 97}" for index in range(120))

PROMPTS: tuple[str, ...] = (
    format_statement("Read two integers and print their sum."),
    format_statement("Read a line of words and print the longest one; on a tie, the first."),
    format_statement("Read n, then n numbers. Print them sorted in descending order, separated by spaces."),
    format_statement("Print every prime up to n.", "def is_prime(n):\n    pass"),
    "def fibonacci(n):\n    ",
    "import sys\n\ndef main():\n    data = sys.stdin.read().split()\n    ",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "for i in range(10):\n\tif i % 2:\n\t\tprint(i)\n",
    "numbers = [3, 1, 4, 1, 5, 9, 2, 6]\nprint(max(",
    "# Read the input\nn = int(input())\n",
    "try:\n    value = int(text)\nexcept ValueError:\n",
    "a",
    " leading space and   runs  of    spaces",
    "\n\n\n",
    "x = {'key': \"value\", 'n': 0x1F, 'f': 1.5e-3}",
    "It's what we'd call a test, isn't it? I'LL say.",
    "Grüße, 世界! Привет, naïve café 🙂 e\u0301",
    "1234567890 12 345 6.78 ½ ²",
    "return sorted(words, key=lambda word: (-len(word), word))[:",
    _LONG,
)

_PROBLEMS = (
    Problem("probe/numbers", "Read n, then n numbers. Print the largest one, and how often it occurs."),
    Problem("probe/function", "Write the function `f(text: str) -> str` that reverses every word of a text."),
)


@contextmanager
def reference_of(
    base: Path, adapter: Path | None, device: str = "cpu", tell: Callable[[str], None] = lambda line: None
) -> Iterator[Path]:
    """Provide a folder with the outputs of ``base`` plus ``adapter``, to compare any number of files with.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``. The child process resolves ``auto``: this one would keep memory of a GPU.
        tell: called with one line if ``auto`` passes over a GPU.

    Raises:
        SceError: the model cannot be loaded or run.
    """
    with _reference_folder() as folder:
        request = {
            "base": str(base.resolve()),
            "adapter": str(adapter.resolve()) if adapter else None,
            "prompts": PROMPTS,
            "new_tokens": NEW_TOKENS,
            "folder": str(folder),
            "device": device,
        }
        for line in _ask_child("securecoderl_edge.export.reference", request)["notes"]:
            tell(line)
        yield folder


@contextmanager
def reference_of_file(path: Path) -> Iterator[Path]:
    """As `reference_of`, for a GGUF file that is the original itself, in llama.cpp.

    Only some prompts, and few new tokens: both files have the same metadata, and the order of their weights.

    Raises:
        SceError: llama.cpp cannot load it.
    """
    with _reference_folder() as folder:
        request = {"path": str(path.resolve()), "prompts": PROMPTS[:5], "new_tokens": 8, "folder": str(folder)}
        _ask_child("securecoderl_edge.export.verify_worker", request)
        yield folder


@contextmanager
def _reference_folder() -> Iterator[Path]:
    # Hundreds of megabytes for a large vocabulary: the next export deletes leftovers of a killed one.
    folder = Path(tempfile.gettempdir()) / "sce-reference"
    remove_abandoned(folder)
    with tempfile.TemporaryDirectory(prefix=temporary_prefix(folder)) as name:
        yield Path(name)


def verify(path: Path, base: Path, quant: str, reference: Path, adapter: Path | None = None) -> Agreement:
    """Compare a GGUF file, or an ONNX folder, with the original.

    Args:
        reference: outputs of the original, see `reference_of`.
        adapter: a GGUF file with a LoRA adapter to apply to ``path``.

    Raises:
        SceError: they disagree beyond `BOUNDS`, or the file crashes llama.cpp; the message has the numbers.
    """
    request = {
        "path": str(path.resolve()),
        "base": str(base.resolve()),
        "texts": probe_texts(base),
        "reference": str(reference),
        "adapter": str(adapter.resolve()) if adapter else None,
    }
    agreement = Agreement(**_ask_child("securecoderl_edge.export.verify_worker", request))
    check_bounds(agreement, quant if path.is_dir() else bounds_of(quant, base))
    return agreement


def probe_texts(base: Path) -> list[str]:
    """Texts that must tokenize identically: prompts in every style, parts of Python's library, the special tokens."""
    import json.decoder
    import textwrap

    modules = [Path(str(module.__file__)).read_text(encoding="utf-8") for module in (textwrap, json.decoder)]
    tokenizer, chat = read_tokenizer(base), read_chat_template(base)
    added = [token["content"] for token in tokenizer.document()["added_tokens"]]
    formats = [PromptFormat(style, chat) for style in STYLES if style not in CHAT_STYLES or chat]
    prompts = [format.prompt(problem) for format in formats for problem in _PROBLEMS]
    return [*PROMPTS, _INDENTED_DIGITS, *prompts, *modules, "x = 1\n".join(["", *added, ""])]


def _ask_child(module: str, request: dict[str, Any]) -> dict[str, Any]:
    """Run ``module`` in a new process and return its answer; a crash there is an error here."""
    answers = ask(module, request, HF_HUB_OFFLINE="1")
    if answers.death or not answers.messages:
        raise SceError(f"the verification of the export {answers.crash_report()}")
    answer = answers.messages[0]
    if "error" in answer:
        raise SceError(f"the export cannot be verified: {answer['error']}")
    return answer
