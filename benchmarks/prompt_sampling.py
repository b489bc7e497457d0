"""Do prompts chosen by pass rates have more groups with variance than uniform ones? A simulated policy.

    python benchmarks/prompt_sampling.py --json benchmarks/results/prompt-sampling.json

The policy is one number per problem, the logit of its pass rate. They start normally distributed. After each update a
problem's logit rises by ``own`` w / sqrt(sum of w^2), where w = 4 p (1 - p) of the sampled group: to first order a
gradient with the leave-one-out baseline, in steps of equal length, as Adam takes them. All problems rise by ``shared``
times the sum of w, over the same root. The four numbers were fitted by hand to a training of
Qwen2.5-Coder-0.5B-Instruct on the 290 problems of mbpp:clean with uniform sampling (149 updates of 16 x 8 completions,
one seed): the pass rate and the groups without variance of the sampled problems, and 12.8 points gained on others.

The choice is that of `sce train`. ``oracle`` knows every pass rate: nothing finds more at that moment. Nothing is
forgotten here, no problem is wrong, and all problems are alike but for their start.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import publish

from securecoderl_edge.training.update.pass_rates import PassRates, rates_before

GROUP, PROMPTS, UPDATES = 8, 16, 149
MEAN, DEVIATION, OWN, SHARED = -1.9, 3.2, 2.7, 0.004
# Of the training that the numbers are fitted to: first update, last one, pass rate, groups without variance.
PILOT = ((1, 10, 0.327, 0.537), (41, 50, 0.489, 0.588), (71, 80, 0.602, 0.750), (130, 149, 0.713, 0.847))


@dataclass(frozen=True)
class Strategy:
    """How the prompts of an update are chosen.

    Attributes:
        method: uniform, adaptive, weight (proportional to p (1 - p) of the mean rate), or oracle.
        resample: most further prompts per update. measured: whether eight completions of each problem are known before.
    """

    method: str
    resample: int = 0
    measured: bool = False

    @property
    def title(self) -> str:
        """The strategy in words."""
        parts = [self.method, f"resample {self.resample}" if self.resample else "", "measured" if self.measured else ""]
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class Updated:
    """One update: groups, those with variance, pass rate of the completions, mean pass rate of all problems."""

    groups: int
    varied: int
    sampled_rate: float
    true_rate: float


class Simulation:
    """A policy on some problems, and the strategy that chooses what trains it."""

    def __init__(self, problems: int, strategy: Strategy, seed: int) -> None:
        self.strategy, self._rng, self._noise = strategy, random.Random(seed), random.Random(seed + 1_000_003)
        self.names = [str(number) for number in range(problems)]
        start = random.Random(seed + 2_000_003)
        self.logits = [start.gauss(MEAN, DEVIATION) for _ in self.names]
        self.known, self.gained, self._step = PassRates(), 0.0, 0
        if strategy.measured:
            self.known = rates_before({name: (GROUP, self.sample(index)) for index, name in enumerate(self.names)})
        self._order: list[int] = []

    def rate(self, index: int) -> float:
        """The pass rate of a problem."""
        return 1 / (1 + math.exp(-self.logits[index]))

    def sample(self, index: int) -> int:
        """How many completions of a group pass."""
        return sum(self._noise.random() < self.rate(index) for _ in range(GROUP))

    def choose(self, count: int, gone: Sequence[str], method: str) -> list[int]:
        """The next problems."""
        free = [index for index, name in enumerate(self.names) if name not in gone]
        if method == "adaptive":
            return self.known.choose(self.names, count, self._step, self._rng, gone)
        if method == "oracle":
            return sorted(free, key=lambda index: abs(self.rate(index) - 0.5))[:count]
        if method == "weight":
            # Without replacement, by the exponential race (Efraimidis and Spirakis 2006).
            return sorted(free, key=lambda index: self._rng.expovariate(1) / self._weight(index))[:count]
        while len(self._order) < count:
            self._order = self._rng.sample(range(len(self.names)), len(self.names)) + self._order
        return [self._order.pop() for _ in range(count)]

    def _weight(self, index: int) -> float:
        evidence = self.known.of.get(self.names[index])
        alpha, beta = evidence.posterior(self._step) if evidence else (1.0, 1.0)
        return alpha * beta / (alpha + beta) ** 2

    def groups(self, method: str, resample: int) -> list[tuple[int, int]]:
        """Problems and their numbers of passes, of one update."""
        found: list[tuple[int, int]] = []
        wanted, left = PROMPTS, resample
        while wanted:
            chosen = self.choose(wanted, [self.names[index] for index, _ in found], method)
            new = [(index, self.sample(index)) for index in chosen]
            found += new
            wanted = min(left, sum(passed in (0, GROUP) for _, passed in new))
            left -= wanted
        return found

    def update(self) -> Updated:
        """Sample, and learn."""
        self._step += 1
        groups = self.groups(self.strategy.method, self.strategy.resample)
        self.known = self.known.after(
            ((self.names[index], passed, GROUP - passed) for index, passed in groups), self._step
        )
        weights = [4 * passed * (GROUP - passed) / GROUP**2 for _, passed in groups]
        length = math.sqrt(sum(weight**2 for weight in weights)) or 1.0
        for (index, _), weight in zip(groups, weights, strict=True):
            self.logits[index] += OWN * weight / length
        rise = SHARED * sum(weights) / length
        self.gained += rise
        self.logits = [logit + rise for logit in self.logits]
        rate = sum(passed for _, passed in groups) / GROUP / len(groups)
        every = statistics.fmean(map(self.rate, range(len(self.logits))))
        return Updated(len(groups), sum(weight > 0 for weight in weights), rate, every)


def new_problems_gain(rise: float) -> float:
    """By how much the mean pass rate of problems that were never trained on grows."""
    rng = random.Random(7)
    starts = [rng.gauss(MEAN, DEVIATION) for _ in range(20_000)]
    return statistics.fmean(1 / (1 + math.exp(-start - rise)) - 1 / (1 + math.exp(-start)) for start in starts)


def run(
    problems: int, strategy: Strategy, seeds: int, say: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """One strategy on one number of problems: means over seeds."""
    every, rises = [], []
    for seed in range(seeds):
        simulation = Simulation(problems, strategy, seed)
        every.append([simulation.update() for _ in range(UPDATES)])
        rises.append(simulation.gained)

    def mean(value: Callable[[Updated], float], first: int, last: int) -> float:
        return statistics.fmean(value(update) for run in every for update in run[first - 1 : last])

    windows = {
        f"{first}-{last}": {
            "varied": round(mean(lambda update: update.varied, first, last), 2),
            "zero_variance_rate": round(mean(lambda update: 1 - update.varied / update.groups, first, last), 3),
            "sampled_rate": round(mean(lambda update: update.sampled_rate, first, last), 3),
        }
        for first, last, _, _ in PILOT
    }
    result = {
        "problems": problems,
        "strategy": strategy.title,
        "updates": windows,
        "groups": round(UPDATES * mean(lambda update: update.groups, 1, UPDATES)),
        "varied_groups": round(UPDATES * mean(lambda update: update.varied, 1, UPDATES)),
        "final_rate": round(mean(lambda update: update.true_rate, UPDATES, UPDATES), 3),
        "gain_on_new_problems": round(statistics.fmean(map(new_problems_gain, rises)), 3),
    }
    say(
        f"{problems:5d} {strategy.title:32s} "
        + " ".join(f"{window['varied']:5.1f}" for window in windows.values())
        + f"  {result['varied_groups']:5d} of {result['groups']:5d}  {result['final_rate']:.3f}"
        + f"  {result['gain_on_new_problems']:+.3f}"
    )
    return result


def same_policy(seeds: int, problems: int = 290, samples: int = 20) -> dict[str, float]:
    """Groups with variance that each strategy finds of 16, with the policy that uniform sampling ends with.

    The adaptive strategy knows what the uniform one has found.
    """
    found: dict[str, list[int]] = {"uniform": [], "adaptive": [], "oracle": []}
    for seed in range(seeds):
        simulation = Simulation(problems, Strategy("uniform"), seed)
        for _ in range(UPDATES):
            simulation.update()
        for _ in range(samples):
            for method, numbers in found.items():
                numbers.append(sum(0 < passed < GROUP for _, passed in simulation.groups(method, 0)))
    return {method: round(statistics.fmean(numbers), 2) for method, numbers in found.items()}


def measure(seeds: int, sizes: Sequence[int], say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """All results."""
    strategies = [
        Strategy("uniform"), Strategy("uniform", 8), Strategy("weight"), Strategy("adaptive"), Strategy("adaptive", 8),
        Strategy("adaptive", measured=True), Strategy("adaptive", 8, measured=True), Strategy("oracle"),
    ]  # fmt: skip
    same = same_policy(seeds)
    say(f"same policy, the one that uniform sampling ends with: {same} groups with variance of {PROMPTS}")
    say("problems, strategy; groups with variance per update: start, twice between, end; in all; final rates")
    return {
        "model": {"mean": MEAN, "deviation": DEVIATION, "own": OWN, "shared": SHARED},
        "pilot": [dict(zip(("first", "last", "pass_rate", "zero_variance_rate"), each, strict=True)) for each in PILOT],
        "updates": UPDATES,
        "prompts": PROMPTS,
        "group": GROUP,
        "seeds": seeds,
        "same_policy": same,
        "same_policy_ratio": round(same["adaptive"] / same["uniform"], 2),
        "trainings": [run(size, each, seeds, say) for size in sizes for each in strategies],
    }


def main() -> None:
    """Parse the command line, simulate, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--problems", type=int, nargs="+", default=[290, 1000])
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    results = measure(arguments.seeds, arguments.problems, lambda line: print(line, file=sys.stderr, flush=True))
    publish(results, arguments.json)


if __name__ == "__main__":
    main()
