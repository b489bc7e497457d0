"""Agreement of an exported model with the original: measures, their bounds, and the comparison.

Both models get the same tokens: each prompt with the greedy continuation of the original. A conversion error shows in
the logits at once; a difference in greedy text shows where the exported model would have continued differently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from securecoderl_edge.errors import SceError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

# Two logits this close count as equal.
_TIE = 1e-3
# A recorded difference may grow by this factor in a later check: another CPU rounds differently.
_MARGIN = 1.5


@dataclass(frozen=True)
class Agreement:
    """Measures of agreement over all positions of all prompts and greedy continuations.

    Attributes:
        tokenised_equal: texts of the probe corpus with identical token ids, of ``texts``; named as in manifests.
        max_abs_difference: largest absolute difference of a logit.
        mean_kl: Kullback-Leibler divergence of the file's distribution from the original's, in nats per token.
        top1: fraction of positions where both have the same most likely token.
        greedy_equal: prompts with identical greedy continuations; logits within 1e-3 count as ties.
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
class AgreementBounds:
    """Bounds that a file must meet: at most these differences, at least this top-1 agreement."""

    max_abs_difference: float
    mean_kl: float
    top1: float
    all_greedy_equal: bool = False


@dataclass(frozen=True)
class Trace:
    """Output of the original model for one prompt.

    Attributes:
        tokens: the prompt and its greedy continuation.
        prompt_length: number of prompt tokens.
        logits: of the original at each position (T, vocabulary).
    """

    tokens: list[int]
    prompt_length: int
    logits: Array

    def cut(self, length: int) -> Trace:
        """The first ``length`` tokens, for a file with a shorter context than the original."""
        return Trace(self.tokens[:length], min(self.prompt_length, length), self.logits[:length])


# Logits and their differences grow with the model, so every type but f32 is bounded by its distributions. The bounds of
# quantized types are wide because small random models, whose distributions are nearly flat, must pass too. Conversion
# errors are caught earlier, by the bounds of the float file that is quantized: there, a missing permutation gives a
# top-1 agreement of 0.27, and a wrong theta 0.73.
_FOUR_BITS, _FIVE_BITS = AgreementBounds(50.0, 0.6, 0.15), AgreementBounds(30.0, 0.2, 0.4)
BOUNDS = {
    "f32": AgreementBounds(1e-3, 1e-5, 0.99, all_greedy_equal=True),
    # llama.cpp takes GELU from a table in f16, whatever the type of the weights.
    "f32 with GELU": AgreementBounds(0.05, 1e-5, 0.99),
    "f16": AgreementBounds(0.5, 1e-3, 0.95),
    "bf16": AgreementBounds(2.0, 0.01, 0.90),
    "q8_0": AgreementBounds(5.0, 0.02, 0.80),
    "int8": AgreementBounds(5.0, 0.03, 0.75),
    "int4": _FOUR_BITS,
    "q6_k": AgreementBounds(20.0, 0.08, 0.55),
    "q5_0": _FIVE_BITS,
    "q5_k_s": _FIVE_BITS,
    "q5_k_m": _FIVE_BITS,
    "q4_0": _FOUR_BITS,
    "q4_k_s": _FOUR_BITS,
    "q4_k_m": _FOUR_BITS,
    "iq4_nl": _FOUR_BITS,
    "iq4_xs": _FOUR_BITS,
    "q3_k_m": AgreementBounds(80.0, 1.5, 0.05),
}


def check_bounds(agreement: Agreement, kind: str) -> None:
    """Check an agreement against the bounds of a weight type.

    Raises:
        SceError: a bound is not met; the message has the numbers.
    """
    bounds = BOUNDS[kind]
    failures = []
    if agreement.tokenised_equal < agreement.texts:
        failures.append(
            f"{agreement.texts - agreement.tokenised_equal} of {agreement.texts} texts tokenize differently"
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
        raise SceError(f"the {kind} export does not agree with the original: {'; '.join(failures)}")


def wider(first: str, second: str) -> str:
    """Select the type with the wider bounds, for a file that is computed from both."""
    return max(first, second, key=lambda kind: BOUNDS[kind].mean_kl)


def check_as_recorded(agreement: Agreement, recorded: Agreement, file: Path) -> None:
    """Check a later comparison against the one at the time of the export.

    `BOUNDS` are wide enough for models that are hard to quantize; for other models, a few thousand damaged weights
    would meet them.

    Raises:
        SceError: the agreement is clearly worse now.
    """
    failures = [
        f"{name} is {now:.3g}, was {then:.3g}"
        for name, now, then, limit in (
            ("KL", agreement.mean_kl, recorded.mean_kl, _MARGIN * recorded.mean_kl + 1e-6),
            ("top-1 disagreement", 1 - agreement.top1, 1 - recorded.top1, _MARGIN * (1 - recorded.top1) + 0.01),
            (
                "largest logit difference",
                agreement.max_abs_difference,
                recorded.max_abs_difference,
                _MARGIN * recorded.max_abs_difference + 1e-4,
            ),
        )
        if now > limit
    ]
    if failures:
        raise SceError(
            f"{file} agrees less with the original than when it was exported: {'; '.join(failures)}. Export it again."
        )


def compare(
    traces: Iterable[Trace], logits_of: Callable[[list[int]], Array], texts: int, tokenised_equal: int
) -> Agreement:
    """Run the tokens of each trace through the exported model, and compare the logits.

    Args:
        logits_of: logits of the exported model at each position of a sequence of tokens (T, vocabulary).

    Raises:
        SceError: the vocabularies differ in size.
    """
    import numpy as np

    differences, divergences, agreements, greedy_equal = [], [], [], 0
    for trace in traces:
        original, logits = trace.logits, logits_of(trace.tokens)
        if original.shape != logits.shape:
            raise SceError(
                f"the file has a vocabulary of {logits.shape[1]} tokens, the original of {original.shape[1]}"
            )
        differences.append(float(np.abs(original - logits).max()))
        divergences.append(_divergence(original, logits))
        agreements.append(original.argmax(axis=1) == logits.argmax(axis=1))
        # Greedy texts are identical if each token of the original's continuation is the file's most likely one, too.
        continuation = trace.tokens[trace.prompt_length :]
        judged = logits[trace.prompt_length - 1 : -1]
        margins = judged.max(axis=1) - judged[np.arange(len(continuation)), continuation]
        greedy_equal += bool((margins < _TIE).all())
    worst = float(np.max(differences))  # NaN if one is
    return Agreement(
        texts=texts,
        tokenised_equal=tokenised_equal,
        prompts=len(differences),
        positions=sum(map(len, agreements)),
        # NaN means that nothing agrees; JSON and comparisons need a number.
        max_abs_difference=worst if math.isfinite(worst) else 1e30,
        mean_kl=float(np.nan_to_num(np.concatenate(divergences), nan=1e30, posinf=1e30).mean()),
        top1=float(np.concatenate(agreements).mean()),
        greedy_equal=greedy_equal,
    )


def _divergence(expected: Array, logits: Array) -> Array:
    """Compute KL(expected || found) of the distributions at each position."""
    import numpy as np

    left, right = _log_softmax(expected), _log_softmax(logits)
    divergence: Array = (np.exp(left) * (left - right)).sum(axis=1)
    return divergence


def _log_softmax(logits: Array) -> Array:
    import numpy as np

    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result
