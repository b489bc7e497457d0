"""Readiness report: how often a policy solves training problems before RL, and how soon RL sees a program that passes.

It changes nothing in the training: its samples have their own seeds, and no weight is touched.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.problems.groups import group_labels
from securecoderl_edge.runs import READINESS, Run
from securecoderl_edge.scoring.cluster_intervals import share_over_groups
from securecoderl_edge.scoring.intervals import Interval, pass_at_k
from securecoderl_edge.scoring.reward import STAGE_NAMES
from securecoderl_edge.system.files import read_json
from securecoderl_edge.training.phase_settings import OF_GROUPS, RL_PHASES, PpoSettings
from securecoderl_edge.training.settings import TrainSettings

if TYPE_CHECKING:
    from securecoderl_edge.problems.problem import Problem
    from securecoderl_edge.scoring.scorer import Scorer
    from securecoderl_edge.training.update.learner import Learner

_PASS_AT = (1, 8)
_MOST = 10_000  # completions of a problem, and prompts, in a file that another person may have written
# Bands of pass@1: where the next one begins, and their names.
_ENDS = (0.01, 0.05)
_BANDS = ("below 1 %", "from 1 to 5 %", "5 % or more")
_MOST_ZERO_VARIANCE = 0.8


@dataclass(frozen=True)
class Readiness:
    """Completions of some training problems, sampled before an RL phase as the phase samples them.

    Attributes:
        phase: the RL phase whose reward counts. start: the model that was sampled from, in words.
        key: identifies the inputs of the phase, see `reuse`; empty in a plan.
        completions: per problem. passed: by problem, those that pass all tests.
        levels: completions by reward level, from `STAGE_NAMES`. truncated: fraction that has the maximum length.
        zero_variance: fraction of groups whose rewards are equal; None if the baseline is not that of a group.
        prompts: of one update. group: completions per prompt in an update.
        seconds: that it took.
        groups: the label of each problem's group, see `problems.groups`; empty in reports from before it was kept.
    """

    phase: str
    start: str
    key: str
    completions: int
    passed: tuple[int, ...]
    levels: tuple[int, ...]
    truncated: float
    zero_variance: float | None
    prompts: int
    group: int
    seconds: float
    groups: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Completions of all problems."""
        return self.completions * len(self.passed)

    def pass_at(self, k: int) -> Interval:
        """pass@k, unbiased, for k up to the completions per problem."""
        shares = [pass_at_k(self.completions, passed, k) for passed in self.passed]
        return share_over_groups(shares, self.groups or range(len(shares)), self.total)

    def updates_to_pass(self) -> Interval:
        """The expected number of the first update with a program that passes all tests, without training.

        If no completion passed, only ``low`` is finite: by the rule of three, a group solves at most 3 / n of the
        problems (95 %), of n groups of problems.
        """
        if not any(self.passed):
            low = expected_updates(min(1.0, 3 / len(set(self.groups or range(len(self.passed))))), self.prompts)
            return Interval(math.inf, low, math.inf, self.total)
        rate = self.pass_at(self.group)
        value, low, high = (expected_updates(each, self.prompts) for each in (rate.value, rate.high, rate.low))
        return Interval(value, low, high, self.total)

    def advice(self) -> str:
        """What to do, by the band of pass@1, and whether its interval reaches into other bands."""
        rate = self.pass_at(1)
        low, band, high = (band_of(each) for each in (rate.low, rate.value, rate.high))
        text = f"pass@1 is {_BANDS[band]}: {self._advice_in(band)}"
        if low == high:
            return text
        span = f"The interval reaches from the band {_BANDS[low]!r} to {_BANDS[high]!r}"
        return f"{text}. {span}: more problems (--readiness-problems) narrow it"

    def _advice_in(self, band: int) -> str:
        if band == 0:
            return "RL would rarely see a program that passes: first train SFT longer (sft.steps)"
        if band == 1:
            return "use larger groups (ppo.samples_per_prompt)"
        if (self.zero_variance or 0.0) > _MOST_ZERO_VARIANCE:
            return "but most groups give no gradient: use harder problems, or a higher ppo.temperature"
        return "ready for RL"

    def facts(self) -> dict[str, str]:
        """The whole report as short texts by name, in order."""
        count = len(set(self.groups))
        variants = f" in {count} group{'s'[: count > 1]}" if count < len(self.groups) else ""
        facts = {"readiness": f"{len(self.passed)} problems{variants} x {self.completions} completions of {self.start}"}
        for k in _PASS_AT:
            rate = self.pass_at(k)
            facts[f"pass@{k}"] = f"{100 * rate.value:.1f} %, 95 % CI [{100 * rate.low:.1f}, {100 * rate.high:.1f}]"
        if self.zero_variance is not None:
            facts["zero variance"] = (
                f"{100 * self.zero_variance:.0f} % of groups of {self.group} have equal rewards in {self.phase}"
            )
        facts["first pass"] = self._first_pass()
        facts["levels"] = ", ".join(
            f"{name} {100 * count / self.total:.0f} %" for name, count in zip(STAGE_NAMES, self.levels, strict=True)
        )
        return {**facts, "truncated": f"{100 * self.truncated:.0f} % of completions", "advice": self.advice()}

    def _first_pass(self) -> str:
        first, batch = self.updates_to_pass(), f"of {self.prompts} x {self.group} completions"
        if math.isinf(first.value):
            return f"none of {self.total} completions passed: expect at least {first.low:.1f} updates {batch}"
        high = "no limit" if math.isinf(first.high) else f"{first.high:.1f}"
        return f"expected after {first.value:.1f} updates {batch}, 95 % CI [{first.low:.1f}, {high}]"


def band_of(rate: float) -> int:
    """The band of a pass@1: 0 below 1 %, 1 below 5 %, else 2."""
    return bisect_right(_ENDS, rate)


def expected_updates(rate: float, prompts: int) -> float:
    """Expected number of updates until one of ``prompts`` groups has a program that passes.

    Args:
        rate: the mean, over problems, of the probability that a group of a problem has one.
    """
    chance = 1 - (1 - rate) ** prompts
    return 1 / chance if chance else math.inf


def zero_variance_rate(rewards: Sequence[Sequence[float]], group: int) -> float:
    """The probability that ``group`` of a problem's completions have equal rewards.

    Args:
        rewards: of each problem, at least ``group``.
    """
    equal = [
        sum(math.comb(count, group) for count in Counter(each).values()) / math.comb(len(each), group)
        for each in rewards
    ]
    return math.fsum(equal) / len(equal)


def first_rl_phase(settings: TrainSettings) -> str | None:
    """The phase that a readiness report is made for."""
    return next((name for name in settings.phases if name in RL_PHASES), None)


def start_in_words(settings: TrainSettings, trained: Sequence[str]) -> str:
    """The model that is sampled from, after the phases ``trained``; it may lack some that come before RL."""
    if trained:
        return f"the policy after {trained[-1]}"
    start = "the base model" if settings.init is None else f"the policy of {settings.init}"
    return start if settings.phases[0] == first_rl_phase(settings) else f"{start}, before {settings.phases[0]}"


def completions_per_problem(ppo: PpoSettings) -> int:
    """At least a whole group, and enough for pass@8."""
    return max(*_PASS_AT, ppo.samples_per_prompt)


def measure_readiness(
    learner: Learner,
    scorer: Scorer,
    problems: Sequence[Problem],
    settings: TrainSettings,
    phase: str,
    start: str,
    key: str = "",
    say: Callable[[str], None] = lambda message: None,
) -> Readiness:
    """Sample and score completions of ``settings.readiness_problems`` of the problems with the current policy.

    Args:
        start: the policy in words.
    """
    from securecoderl_edge.training.update.learner import seed_of, shuffled
    from securecoderl_edge.training.update.rollout import collect, partial_weight

    ppo, began = settings.ppo, time.monotonic()
    order = shuffled(len(problems), seed_of(settings.seed, "readiness"))
    chosen = [problems[number] for number in order[: settings.readiness_problems]]
    completions = completions_per_problem(ppo)
    amount = f"{len(chosen)} problems x {completions} completions"
    say(f"readiness: sampling {amount} before {phase} (off with --readiness-problems 0)")
    # As many of a prompt at once as the memory was planned for.
    at_once = max(
        count
        for count in range(1, completions + 1)
        if completions % count == 0 and count <= max(ppo.rollout_sequences, ppo.samples_per_prompt)
    )
    repeated = [problem for problem in chosen for _ in range(completions // at_once)]
    with learner.meter.within("readiness"):
        rollout = collect(learner, scorer, repeated, at_once, ppo, settings.seed, phase, "readiness")
    rewards = rollout.rewards(partial_weight(phase, 1, 1), settings.reward)
    starts = range(0, len(rewards), completions)
    passes = [score.passes_all_tests for score in rollout.scores]
    levels = Counter(score.stage for score in rollout.scores)
    zero_variance = None
    if ppo.advantage in OF_GROUPS:
        groups = [rewards[first : first + completions] for first in starts]
        zero_variance = zero_variance_rate(groups, ppo.samples_per_prompt)
    return Readiness(
        phase=phase,
        start=start,
        key=key,
        completions=completions,
        passed=tuple(sum(passes[first : first + completions]) for first in starts),
        levels=tuple(levels[level] for level in range(len(STAGE_NAMES))),
        truncated=sum(not done.finished for done in rollout.completions) / len(rewards),
        zero_variance=zero_variance,
        prompts=ppo.batch_size // ppo.samples_per_prompt,
        group=ppo.samples_per_prompt,
        seconds=time.monotonic() - began,
        groups=tuple(group_labels(chosen)),
    )


def read_readiness(run: Run) -> Readiness | None:
    """The report in a run folder; None if there is none that can be read."""
    try:
        return _from_record(read_json(run.path / READINESS))
    except (SceError, KeyError, TypeError, ValueError):
        return None


def _from_record(record: Mapping[str, Any]) -> Readiness:
    """The `Readiness` whose ``asdict`` was saved as JSON.

    Raises:
        KeyError, TypeError, ValueError: not such a record.
    """
    lists = {name: tuple(record.get(name, ())) for name in ("passed", "levels", "groups")}
    report = Readiness(**{**record, **lists})
    counts = (report.completions, report.prompts, report.group, *report.passed, *report.levels)
    rates = (report.truncated, 0.0 if report.zero_variance is None else report.zero_variance)
    is_one = (
        all(type(count) is int for count in counts)
        and all(isinstance(rate, float) and 0 <= rate <= 1 for rate in rates)
        and all(isinstance(text, str) for text in (report.phase, report.start, report.key, *report.groups))
        and len(report.groups) in (0, len(report.passed))
        and max(_PASS_AT) <= report.completions <= _MOST
        and 1 <= report.group <= report.completions
        and 1 <= report.prompts <= _MOST
        and all(0 <= passed <= report.completions for passed in report.passed)
        and all(count >= 0 for count in report.levels)
        and len(report.levels) == len(STAGE_NAMES)
        and 0 < report.total == sum(report.levels)
    )
    if not is_one:
        raise ValueError("not a readiness report")
    return report
