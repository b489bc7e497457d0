"""Running pass rates of the problems of a phase, and the choice of those that teach most at present.

A group of completions teaches if their rewards differ. With pass rate p and the binary reward, n of them differ with
probability 1 - p^n - (1 - p)^n, which falls with the distance of p from one half, as p(1 - p) does. Rates are known
from few completions of an earlier policy, so each problem's is sampled from its Beta posterior (Thompson sampling,
Thompson 1933), and those closest to one half are chosen. Evidence loses weight with the updates since, as the policy
changes (discounted Thompson sampling, arXiv:1707.09727), and more with each draw of the problem, which trained the
policy on it. So a problem that was too hard or too easy comes back.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

# alpha and beta of the prior. Most problems are passed nearly always or never: 53 % of groups of 8 have no variance
# under it, as with a model of 0.5 B parameters on MBPP.
_PRIOR = 0.3
# Updates after which evidence counts half as much, and what is left of it after a draw. Chosen in the simulation of
# benchmarks/prompt_sampling.py, where their halves and doubles do about as well.
_HALF_LIFE = 60.0
_LEFT_AFTER_DRAW = 0.3


@dataclass(frozen=True)
class Evidence:
    """What is known of one problem.

    Attributes:
        passed, failed: completions, discounted up to update ``step``.
        draws: how often the problem was sampled, in the phase or before it.
    """

    passed: float = 0.0
    failed: float = 0.0
    draws: int = 0
    step: int = 0

    def posterior(self, step: int) -> tuple[float, float]:
        """alpha and beta of the pass rate's Beta distribution before update ``step``."""
        kept = 0.5 ** ((step - self.step) / _HALF_LIFE)
        return _PRIOR + kept * self.passed, _PRIOR + kept * self.failed

    def after(self, passed: int, failed: int, step: int) -> Evidence:
        """What is known after a group of update ``step``."""
        kept = _LEFT_AFTER_DRAW * 0.5 ** ((step - self.step) / _HALF_LIFE)
        return Evidence(kept * self.passed + passed, kept * self.failed + failed, self.draws + 1, step)


_NOTHING = Evidence()


@dataclass(frozen=True)
class PassRates:
    """The `Evidence` of problems by their ids; of those that are missing nothing is known. Never changed in place."""

    of: Mapping[str, Evidence] = field(default_factory=dict)

    def after(self, groups: Iterable[tuple[str, int, int]], step: int) -> PassRates:
        """The rates after the groups of update ``step``: problem id, completions that passed, those that failed."""
        known = dict(self.of)
        for name, passed, failed in groups:
            known[name] = known.get(name, _NOTHING).after(passed, failed, step)
        return PassRates(known)

    def choose(
        self, names: Sequence[str], count: int, step: int, rng: random.Random, without: Collection[str] = ()
    ) -> list[int]:
        """Indices of ``count`` problems for update ``step``, each as seldom as possible.

        No problem is drawn for the third time as long as another one was never drawn.

        Args:
            without: ids of problems that are chosen only if there are too few others.
        """
        seen = [self.of.get(name, _NOTHING) for name in names]
        has_new = any(not each.draws for each in seen)

        def rank(index: int) -> tuple[bool, bool, float]:
            waits = has_new and seen[index].draws > 1
            return names[index] in without, waits, abs(rng.betavariate(*seen[index].posterior(step)) - 0.5)

        ranked = sorted(range(len(names)), key=rank)
        return [ranked[place % len(ranked)] for place in range(count)]

    def to_record(self) -> dict[str, list[float]]:
        """The JSON object of a checkpoint."""
        return {name: list(astuple(evidence)) for name, evidence in self.of.items()}


def rates_before(passes: Mapping[str, tuple[int, int]]) -> PassRates:
    """The rates before a phase, from the samples and passes of problems that a model was asked before."""
    return PassRates({name: Evidence(passed, samples - passed, 1) for name, (samples, passed) in passes.items()})


def rates_from_record(record: Any) -> PassRates:
    """The `PassRates` that `PassRates.to_record` wrote.

    Raises:
        ValueError, TypeError, AttributeError: not such a record.
    """
    known = {}
    for name, (passed, failed, draws, step) in record.items():
        if not (0 <= passed < math.inf and 0 <= failed < math.inf and type(draws) is type(step) is int):
            raise ValueError("wrong pass rates")
        known[str(name)] = Evidence(passed, failed, draws, step)
    return PassRates(known)
