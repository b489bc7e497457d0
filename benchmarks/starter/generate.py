"""Generation of problems from compositions: the split of every composition, and the sampling of tests."""

from __future__ import annotations

import contextlib
import io
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from types import CodeType

from family import MARKER, Attack, Draft, Family, is_held_out

from securecoderl_edge.languages.language import PYTHON, C
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test, contains
from securecoderl_edge.problems.problem_file import MAX_TESTS

MIN_DISTINCT_OUTPUTS = 3
_MAX_DRAWS = 2000
_PREFIXES = {PYTHON.name: "starter", C.name: "starter-c"}


def compositions(families: tuple[Family, ...], *, held_out: bool) -> Iterator[tuple[Family, str]]:
    """The ``(family, composition)`` pairs on one side of the split, in a fixed order."""
    for family in families:
        for composition in family.compositions:
            if is_held_out(family.name, composition) == held_out:
                yield family, composition


def build_problem(
    family: Family,
    composition: str,
    variant: int = 0,
    wording_rarity: float = 0.0,
    shows_example: bool = False,
    language: str = PYTHON.name,
) -> Problem:
    """The problem of one composition; ``variant`` changes wording, names, style and tests, never the meaning.

    All wordings are equally frequent unless ``wording_rarity`` is above 0 (see `choose_wording`). The tests have at
    least three different outputs. The example in the statement is not one of them, but precedes them with
    ``shows_example``. In another language it is the same problem with solutions in that language, so its tests are what
    the first solution in Python prints.

    Raises:
        ValueError: the family breaks its contract (solutions that disagree, outputs too uniform or blank).
    """
    return begin_problem(family, composition, variant, wording_rarity, shows_example, language)[1]()


def begin_problem(
    family: Family,
    composition: str,
    variant: int,
    wording_rarity: float,
    shows_example: bool,
    language: str,
) -> tuple[Problem, Callable[[], Problem]]:
    """The problem of `build_problem` without tests and insecure solutions, and a function that adds them.

    That takes longer, and the function can be called once. Both raise what `build_problem` does.
    """
    rng = random.Random(f"{family.name}/{composition}#{variant}")
    draft = family.draft(composition, rng, wording_rarity)
    tests = _draw_tests(draft, rng, f"{family.name}/{composition}")
    example = next(tests)
    statement = f"{draft.task}\n\nExample input:\n{example.input}\nExample output:\n{example.output}"
    untested = Problem(
        id=f"{_PREFIXES[language]}/{family.name}/{composition}#{variant}",
        statement=statement.rstrip("\n"),
        tests=(),
        language=language,
        solutions=draft.c_solutions() if language == C.name else draft.solutions,
        source="starter",
        tags=(family.name, *family.tags),
    )

    def complete() -> Problem:
        drawn = tuple(tests)
        attacks = _draw_attacks(draft, random.Random(f"{family.name}/{composition}#{variant}/attacks"))
        return replace(
            untested,
            tests=(example, *drawn) if shows_example else drawn,
            security_tests=attacks,
            insecure_solutions=draft.solutions[::2] if attacks else (),
        )

    return untested, complete


def _draw_tests(draft: Draft, rng: random.Random, name: str) -> Iterator[Test]:
    """One example and `MAX_TESTS` tests with different inputs, as `build_problem` describes them."""
    tests: list[Test] = []
    for _ in range(_MAX_DRAWS):
        stdin = draft.draw_input(rng)
        output = run_reference(draft.solutions[0], stdin)
        if not output.strip() or any(stdin == test.input for test in tests):
            continue
        outputs = [test.output for test in tests[1:]]  # the first one is the example
        repeats = len(outputs) - len(set(outputs))
        if output in outputs and repeats == MAX_TESTS - MIN_DISTINCT_OUTPUTS:
            continue
        tests.append(Test(stdin, output))
        yield tests[-1]
        if len(tests) == MAX_TESTS + 1:
            return
    raise ValueError(f"{name}: too few different tests in {_MAX_DRAWS} sampled inputs")


def _draw_attacks(draft: Draft, rng: random.Random) -> tuple[SecurityTest, ...]:
    """One security test of each attack; an input that two attacks share counts once."""
    tests: dict[str, SecurityTest] = {}
    for attack in draft.attacks:
        drawn = (_security_test(attack(rng), draft) for _ in range(_MAX_DRAWS))
        test = next(filter(None, drawn), None)
        if test is None:
            raise ValueError(f"no attack in {_MAX_DRAWS} sampled ones shows anything: {draft.task}")
        tests.setdefault(test.input, test)
    return tuple(tests.values())


def _security_test(attack: Attack, draft: Draft) -> SecurityTest | None:
    """The test of an attack; None if its input happens to show nothing."""
    if attack.judged == "marker":
        return SecurityTest(attack.name, attack.cwe, attack.input, forbidden=MARKER)
    outputs = {_output_under_attack(program, attack.shown_by or attack.input) for program in draft.solutions[::2]}
    harmless = [_output_under_attack(program, attack.input) for program in draft.solutions[1::2]]
    harmless += [_output_under_attack(program, text) for program in draft.solutions for text in attack.harmless]
    unsafe = outputs.pop()
    whole = f"\n{unsafe}\n"
    is_shown = unsafe and not outputs and not any(contains(each, whole) for each in (attack.input, *harmless))
    return SecurityTest(attack.name, attack.cwe, attack.input, forbidden=whole) if is_shown else None


def _output_under_attack(program: str, stdin: str) -> str:
    """What a reference program prints; nothing if it rejects the input with an error."""
    try:
        return run_reference(program, stdin).strip()
    except Exception:
        return ""


@lru_cache(maxsize=4096)
def _compiled(program: str) -> CodeType:
    return compile(program, "reference", "exec", dont_inherit=True)


def run_reference(program: str, stdin: str) -> str:
    """Run one of *our own* reference programs in this process and return what it prints.

    Only text written by this package's families may come here; model output runs in the sandbox.
    """
    output = io.StringIO()
    before = sys.stdin
    sys.stdin = io.StringIO(stdin)
    try:
        with contextlib.redirect_stdout(output):
            exec(_compiled(program), {"__name__": "__main__"})
    finally:
        sys.stdin = before
    return output.getvalue()
