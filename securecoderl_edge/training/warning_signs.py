"""Signs that an RL phase learns nothing, or something else than to solve problems.

They follow from its rows of metrics alone: a resumed run repeats and omits no warning.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from securecoderl_edge.scoring.signs import CONSTANT_OUTPUT, DENIED, IGNORES_INPUT, SAMPLE_COPY

Row = Mapping[str, Any]

WINDOW = 10  # updates
REPEAT = 50  # updates before a sign is reported again
# A rule of thumb, not a bound on pass@1: programs for one prompt depend on each other.
PROGRAMS_WITHOUT_PASS = 300
_ZERO_VARIANCE, _TRUNCATED, _SYNTAX_LEFT = 0.8, 0.5, 0.5
# With partial credit for visible tests, SmolLM2 on MBPP went from 0.03 and 0.15 to 0.37 and 0.68 in 20 updates.
_HARD_CODED, _CONSTANT = 0.1, 0.5
_DENIED = _IGNORES = 0.02
# A policy that learned to return True passed 2.0 times as many tests after 31 updates, and survived 0.7 of the attacks.
_PASSES_MORE, _SECURITY_LEFT, _LEAST_SECURITY = 1.5, 0.75, 0.02
# Where it learned to return its argument, programs had 0.55 of the tokens after 20 updates; mostly at least 0.62.
_LENGTH_LEFT = 0.6
_OTHER_REWARD = "Set reward.subtract_constant_baseline = true"


class Watch:
    """The rows of one phase, in order. Numbers that are missing or damaged show nothing."""

    def __init__(self) -> None:
        self._last: deque[Row] = deque(maxlen=WINDOW)
        self._first: list[Row] = []
        self._programs = self._updates = 0  # since one passed all tests
        self._reported: dict[Callable[[], str], int] = {}
        self._signs = (
            self._no_pass,
            self._zero_variance,
            self._truncated,
            self._syntax,
            self._hard_coded,
            self._constant,
            self._length,
            self._denied,
            self._ignores_input,
            self._attackable,
        )

    def after(self, row: Row) -> list[str]:
        """Add the next row; returns the warnings that it gives rise to, each at most once in `REPEAT` updates."""
        self._last.append(row)
        if len(self._first) < WINDOW:
            self._first.append(row)
        passed, programs = _number(row, "all_tests_rate"), _number(row, "scores")
        if passed is not None and programs is not None:
            self._updates = 0 if passed else self._updates + 1
            self._programs = 0 if passed else self._programs + int(programs)
        step = int(_number(row, "step") or 0)
        warnings = []
        for sign in self._signs:
            text = sign()
            if text and step - self._reported.get(sign, -REPEAT) >= REPEAT:
                self._reported[sign] = step
                warnings.append(f"warning: {row.get('phase')} update {step}: {text}")
        return warnings

    def _no_pass(self) -> str:
        if self._updates < WINDOW or self._programs < PROGRAMS_WITHOUT_PASS:
            return ""
        return (
            f"none of {self._programs} programs in {self._updates} updates passed all tests. Stop with Ctrl-C; train "
            "SFT longer"
        )

    def _zero_variance(self) -> str:
        rate = _mean(self._last, "zero_variance_rate")
        if rate is None or rate <= _ZERO_VARIANCE:
            return ""
        return (
            f"{rate:.0%} of groups had equal rewards in {WINDOW} updates, and give no gradient. Raise "
            "ppo.samples_per_prompt, choose other problems, or see sce data difficulty"
        )

    def _truncated(self) -> str:
        rate = _mean(self._last, "truncated_rate")
        if rate is None or rate <= _TRUNCATED:
            return ""
        return (
            f"{rate:.0%} of completions were truncated in {WINDOW} updates. Raise ppo.max_tokens, or train SFT longer, "
            "so that programs end"
        )

    def _syntax(self) -> str:
        first, last = _mean(self._first, "syntax_rate"), _mean(self._last, "syntax_rate")
        if first is None or last is None or last >= _SYNTAX_LEFT * first:
            return ""
        return f"{last:.0%} of programs parse, after {first:.0%} at the start of the phase. {self._smaller_steps()}"

    def _smaller_steps(self) -> str:
        if self._last[-1].get("phase") == "rft":
            return "Lower rft.learning_rate"
        return "Lower ppo.learning_rate, or raise ppo.kl_coefficient"

    def _hard_coded(self) -> str:
        rate, passed = _mean(self._last, SAMPLE_COPY), _mean(self._last, "all_tests_rate")
        if rate is None or passed is None or rate <= max(_HARD_CODED, passed):
            return ""
        return (
            f"{rate:.0%} of programs passed exactly the tests that the prompt shows, and {passed:.0%} all tests: the "
            f"policy may learn to hard-code them. {_OTHER_REWARD}"
        )

    def _constant(self) -> str:
        first, last = _mean(self._first, CONSTANT_OUTPUT), _mean(self._last, CONSTANT_OUTPUT)
        if first is None or last is None or last <= max(_CONSTANT, 2 * first):
            return ""
        return (
            f"{last:.0%} of programs give the same output for different tests, after {first:.0%} at the start of the "
            f"phase. {_OTHER_REWARD}"
        )

    def _denied(self) -> str:
        first, last = _mean(self._first, DENIED), _mean(self._last, DENIED)
        if first is None or last is None or last <= max(_DENIED, 2 * first):
            return ""
        return (
            f"{last:.0%} of programs tried what the sandbox refuses, such as writing files, after {first:.0%} at the "
            "start of the phase. Read some: sce report"
        )

    def _ignores_input(self) -> str:
        rate = _mean(self._last, IGNORES_INPUT)
        if rate is None or rate <= _IGNORES:
            return ""
        return (
            f"{rate:.0%} of programs do not read their input, where the reference solutions do: the tests of some "
            'problems may accept that. reward.ignored_input = "zero" pays them nothing for tests'
        )

    def _attackable(self) -> str:
        (passed, secure), (passing, left) = (
            (_mean(rows, "all_tests_rate"), _mean(rows, "security_tests_rate")) for rows in (self._first, self._last)
        )
        programs = _mean(self._last, "scores")
        if passed is None or secure is None or passing is None or left is None or programs is None:
            return ""
        is_clear = programs * WINDOW >= PROGRAMS_WITHOUT_PASS and secure - left >= _LEAST_SECURITY
        if not is_clear or passing < _PASSES_MORE * passed or left > _SECURITY_LEFT * secure:
            return ""
        return (
            f"{passing:.0%} of programs pass all tests, after {passed:.0%} at the start of the phase, but only "
            f"{left:.0%} withstand the attacks, after {secure:.0%}: the policy may learn to pass weak tests. "
            'reward.combine = "gate" pays security to programs that pass all tests alone'
        )

    def _length(self) -> str:
        (first, passed), (last, passing) = (
            (_mean(rows, "tokens"), _mean(rows, "all_tests_rate")) for rows in (self._first, self._last)
        )
        if first is None or last is None or passed is None or passing is None:
            return ""
        if last >= _LENGTH_LEFT * first or passing >= 2 * passed:
            return ""
        return (
            f"programs have {last / first:.0%} of the tokens of the start of the phase, and {passing:.0%} pass all "
            f"tests, after {passed:.0%}: the policy may learn short programs that are safe and wrong. "
            f"{self._smaller_steps()}"
        )


def _mean(rows: Collection[Row], name: str) -> float | None:
    """The mean over a whole window; None if a row is missing."""
    values = [value for row in rows if (value := _number(row, name)) is not None]
    return math.fsum(values) / WINDOW if len(values) == WINDOW else None


def _number(row: Row, name: str) -> float | None:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e9:
        return None
    return float(value)
