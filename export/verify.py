"""An exported file against its source, in a fresh process: a file that loads may still talk gibberish.

Covers what goes wrong in practice: a missing q/k permutation, rope scaling or theta that was dropped, a wrong
pre-tokenizer, a merge that went wrong, damaged weights. It does not measure the quality of the model itself.
"""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from securecoderl_edge.errors import SceError
from securecoderl_edge.prompts import format_statement
from securecoderl_edge.runtimes.child import child_environment, module_command

NEW_TOKENS = 24

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


@dataclass(frozen=True)
class Agreement:
    """How far a file agrees with its source, over all positions of all prompts and greedy continuations.

    Attributes:
        tokenised_equal: texts of the probe corpus whose token ids are equal, of ``texts``.
        max_abs_difference: of logits.
        mean_kl: Kullback-Leibler divergence of the file's distribution from the source's, in nats, mean over
            positions.
        top1: share of positions where both prefer the same token.
        greedy_equal: prompts whose greedy continuations are equal token by token, ties within 1e-3 apart.
    """

    texts: int
    tokenised_equal: int
    prompts: int
    positions: int
    max_abs_difference: float
    mean_kl: float
    top1: float
    greedy_equal: int


@dataclass(frozen=True)
class Bounds:
    """What a file must reach: no more than these differences, at least this top-1 agreement."""

    max_abs_difference: float
    mean_kl: float
    top1: float
    all_greedy_equal: bool


# Logits and their differences grow with the model, so f16 and q8_0 are bounded by their distributions. Errors
# of the conversion are far beyond: on random weights, no permutation gives top-1 0.27, a wrong theta 0.73.
BOUNDS = {
    "f32": Bounds(1e-3, 1e-5, 0.99, all_greedy_equal=True),
    "f16": Bounds(0.5, 1e-3, 0.95, all_greedy_equal=False),
    "q8_0": Bounds(5.0, 0.02, 0.80, all_greedy_equal=False),
}


def verify_gguf(path: Path, base: Path, adapter: Path | None, quant: str) -> Agreement:
    """Compare ``path`` with ``base`` plus ``adapter``.

    Raises:
        SceError: they disagree beyond `BOUNDS`, or the file crashes llama.cpp; the message has the figures.
    """
    agreement = _measure_in_child(path, base, adapter)
    check_bounds(agreement, quant)
    return agreement


def check_bounds(agreement: Agreement, quant: str) -> None:
    """Hold an agreement against the bounds of its quantisation.

    Raises:
        SceError: a bound is missed; the message has the figures.
    """
    bounds = BOUNDS[quant]
    failures = []
    if agreement.tokenised_equal < agreement.texts:
        failures.append(
            f"{agreement.texts - agreement.tokenised_equal} of {agreement.texts} texts tokenise differently"
        )
    if agreement.max_abs_difference >= bounds.max_abs_difference:
        failures.append(f"logits differ by {agreement.max_abs_difference:.3g} (bound {bounds.max_abs_difference:g})")
    if agreement.mean_kl >= bounds.mean_kl:
        failures.append(f"KL is {agreement.mean_kl:.3g} (bound {bounds.mean_kl:g})")
    if agreement.top1 < bounds.top1:
        failures.append(f"top-1 agreement is {agreement.top1:.3f} (bound {bounds.top1:g})")
    if bounds.all_greedy_equal and agreement.greedy_equal < agreement.prompts:
        different = agreement.prompts - agreement.greedy_equal
        failures.append(f"greedy text differs on {different} of {agreement.prompts} prompts")
    if failures:
        raise SceError(f"the {quant} export does not agree with its source: {'; '.join(failures)}; nothing was written")


def probe_texts(base: Path) -> list[str]:
    """Texts that must tokenise equally: the prompts, some of Python's own library, the special tokens."""
    import json.decoder
    import textwrap

    modules = [Path(str(module.__file__)).read_text(encoding="utf-8") for module in (textwrap, json.decoder)]
    document = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))
    added = [token["content"] for token in document.get("added_tokens", [])]
    return [*PROMPTS, *modules, "x = 1\n".join(["", *added, ""])]


def _measure_in_child(path: Path, base: Path, adapter: Path | None) -> Agreement:
    request = {
        "path": str(path.resolve()),
        "base": str(base.resolve()),
        "adapter": str(adapter.resolve()) if adapter else None,
        "prompts": PROMPTS,
        "texts": probe_texts(base),
        "new_tokens": NEW_TOKENS,
    }
    ended = subprocess.run(
        module_command("securecoderl_edge.export.verify_worker"),
        input=json.dumps(request),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        env={**child_environment(), "HF_HUB_OFFLINE": "1"},
    )
    if ended.returncode != 0 or not ended.stdout:
        how = f"signal {signal.Signals(-ended.returncode).name}" if ended.returncode < 0 else "an error"
        last = ended.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise SceError(f"verification of the export ended by {how}: {last[0][:300]}; nothing was written")
    answer = json.loads(ended.stdout)
    if "error" in answer:
        raise SceError(f"the export cannot be verified: {answer['error']}; nothing was written")
    return Agreement(**answer)
