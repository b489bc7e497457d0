"""The built-in problem set: generated, seeded, split by composition.

| split | holds | compositions |
|---|---|---|
| ``train`` | one problem for each training composition, general and security | never in another split |
| ``eval`` | 200 of the held-out problems, sampled uniformly with seed 42 | held out |
| ``hard`` | longer compositions, where an all-tests reward is sparse | held out of ``hard-train`` |
| ``hard-train`` | longer compositions for training | |
| ``half-train`` | ``hard-train``, about half of it without solutions | |
| ``shown``, ``shown-train`` | ``hard`` and ``hard-train`` with the example of a statement as a test | |
| ``security`` | families whose short obvious solution has a Bandit finding | held out of ``train`` |
| ``security-train`` | the security part of ``train`` | |
| ``code``, ``code-train`` | the parts of ``security`` and ``security-train`` about code injection | |
| ``not-code`` | the rest of ``security`` | |
| ``general-train`` | the rest of ``train`` | |
| ``plain-train`` | the part of ``train`` that keeps, changes and folds numbers of the input or of one expression | |
| ``c-eval`` | problems of ``eval`` with solutions in C, and firmware problems | held out |
| ``c-train`` | general and firmware problems with solutions in C, as many of each family as its pieces need | |
| ``firmware``, ``firmware-train`` | the firmware problems of ``c-eval`` and ``c-train``, for a microcontroller | |

No training problem is a near-duplicate of a problem for evaluation or shares a solution with one (`apart`): it has the
first wording of which that holds, and a composition without such a wording is left out. Those of ``c-train`` are apart
from ``c-eval`` too.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from securecoderl_edge.errors import UsageError
from securecoderl_edge.languages.language import PYTHON, C
from securecoderl_edge.languages.targets import CORTEX_M3, TargetBudget
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.starter.apart import Apart
from securecoderl_edge.problems.starter.families._compose import balanced
from securecoderl_edge.problems.starter.families._firmware import TAG as FIRMWARE_TAG
from securecoderl_edge.problems.starter.family import Family
from securecoderl_edge.problems.starter.generate import begin_problem, build_problem, compositions

EVAL_SEED = 42
EVAL_SIZE = 200
C_FAMILY_SIZE = 30  # of ``c-train``, the most of one family
# Wordings of a composition that are tried; nearly all compositions have one that is far from all evaluation problems.
WORDINGS = 12
SPLITS = (
    *("train", "eval", "hard", "hard-train", "half-train", "shown", "shown-train", "security", "security-train"),
    *("general-train", "plain-train", "code", "code-train", "not-code", "c-train", "c-eval"),
    *("firmware", "firmware-train"),
)
# The largest reference solution has 241 bytes of code and 40 of stack (gcc 12.2), so there is a third to spare.
FIRMWARE_BUDGET = TargetBudget(code_bytes=320, stack_bytes=64, heap=False, float=False, recursion=False)
_CODE_INJECTION = {94, 95}


def load_split(split: str) -> list[Problem]:
    """The problems of one split, the same on every machine.

    Raises:
        UsageError: unknown split.
    """
    if split not in SPLITS:
        raise UsageError(f"unknown built-in problem set starter:{split}; choose from {', '.join(SPLITS)}")
    return list(_build(split))


@lru_cache(maxsize=len(SPLITS))
def _build(split: str) -> tuple[Problem, ...]:
    from securecoderl_edge.problems.starter.families.catalogue import FIRMWARE, GENERAL, HARD, PLAIN_LISTS, SECURITY

    if split == "train":
        return _build("general-train") + _build("security-train")
    if split in ("code", "code-train", "not-code"):
        whole = _build("security-train" if split == "code-train" else "security")
        return tuple(problem for problem in whole if _is_about_code(problem) == (split != "not-code"))
    if split == "half-train":
        whole = _build("hard-train")
        return tuple(problem if _has_solutions(problem) else replace(problem, solutions=()) for problem in whole)
    if split in ("firmware", "firmware-train"):
        whole = _build("c-eval" if split == "firmware" else "c-train")
        about_firmware = [problem for problem in whole if FIRMWARE_TAG in problem.tags]
        return tuple(replace(each, target=CORTEX_M3.name, budget=FIRMWARE_BUDGET) for each in about_firmware)
    if split == "c-train":
        return tuple(_c_training((*GENERAL, *FIRMWARE)))
    if split == "c-eval":
        firmware = _drawn(FIRMWARE, EVAL_SIZE)
        general = [(family, key) for family, key in _drawn(GENERAL, EVAL_SIZE) if family.has_c]
        pairs = general[: EVAL_SIZE - len(firmware)] + firmware
        return tuple(build_problem(family, key, language=C.name) for family, key in pairs)
    training = {
        "general-train": GENERAL,
        "security-train": SECURITY,
        "plain-train": PLAIN_LISTS,
        "hard-train": HARD,
        "shown-train": HARD,
    }
    shows_a_test = split.startswith("shown")
    if split in training:
        known = compositions(training[split], held_out=False)
        built = (build_for_training(family, key, range(WORDINGS), shows_a_test=shows_a_test) for family, key in known)
        return tuple(problem for problem in built if problem)
    families = {"eval": GENERAL, "hard": HARD, "shown": HARD, "security": SECURITY}[split]
    drawn = _drawn(families, EVAL_SIZE)
    return tuple(build_problem(family, key, shows_a_test=shows_a_test) for family, key in drawn)


def _drawn(families: tuple[Family, ...], size: int) -> list[tuple[Family, str]]:
    """A uniform sample of the held-out compositions."""
    held_out = list(compositions(families, held_out=True))
    return random.Random(EVAL_SEED).sample(held_out, min(size, len(held_out)))


def _c_training(families: tuple[Family, ...]) -> Iterator[Problem]:
    for family in families:
        keys = [key for _, key in compositions((family,), held_out=False) if family.has_c]
        built = {key: build_for_training(family, key, range(WORDINGS), language=C.name) for key in keys}
        allowed = {key: problem for key, problem in built.items() if problem}
        chosen = set(balanced(list(allowed), C_FAMILY_SIZE))
        yield from (problem for key, problem in allowed.items() if key in chosen)


def _is_about_code(problem: Problem) -> bool:
    return {test.cwe for test in problem.security_tests} <= _CODE_INJECTION


def _has_solutions(problem: Problem) -> bool:
    """Whether ``half-train`` has them: a property of the problem's name alone."""
    return hashlib.sha256(problem.id.encode()).digest()[0] % 2 == 0


@lru_cache(maxsize=2)
def built_in(language: str = PYTHON.name) -> Apart:
    """`Apart` from ``starter:eval``, ``starter:hard`` and ``starter:security``; in C, from ``starter:c-eval`` too."""
    splits = ("eval", "hard", "security", *(("c-eval",) if language == C.name else ()))
    return Apart([problem for split in splits for problem in _build(split)])


def build_for_training(
    family: Family,
    composition: str,
    variants: Iterable[int],
    wording_rarity: float = 0.0,
    shows_a_test: bool = False,
    language: str = PYTHON.name,
) -> Problem | None:
    """`build_problem` with the first of the variants that may be trained on; None if there is none."""
    for variant in variants:
        untested, complete = begin_problem(family, composition, variant, wording_rarity, shows_a_test, language)
        if built_in(language).allows(untested):
            return complete()
    return None
