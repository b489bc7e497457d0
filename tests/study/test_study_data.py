"""The data of the two studies: which problems stay, how they are split, and what can be known without a policy."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from places import ROOT

from securecoderl_edge.problems.assertions import assertions_of
from securecoderl_edge.problems.leakage import is_visible
from securecoderl_edge.problems.problem import Problem, SecurityTest

SCRIPTS = ROOT / "benchmarks" / "study_data"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


def square(name: str, *tests: str, solution: str = "def square(n):\n    return n * n") -> Problem:
    return Problem(
        id=name,
        statement="Square n.\n\nWrite the function `square(n)`.",
        kind="call",
        entry_point="square",
        assertions=tests or ("assert square(3) == 9", "assert square(-4) == 16", "assert square(7) == 49"),
        solutions=(solution,),
    )


ZERO = "def square(n):\n    return 0 * n"
PROBLEMS = [
    square("good"),
    square("wrong", solution="def square(n):\n    return n + n"),
    square("constant", *(f"assert square({n}) == 0" for n in (3, 4, 5)), solution=ZERO),
    replace(square("bare"), solutions=()),
]


def test_only_strong_problems_stay_and_finished_chunks_are_not_looked_at_again(tmp_path: Path) -> None:
    import strengthen

    rule = strengthen.Rule(mutants=4)
    outcome = strengthen.strengthened(PROBLEMS, rule, tmp_path)
    (kept,) = outcome.problems
    assert kept.id == "good"
    assert outcome.finished
    assert outcome.counts.total() == len(PROBLEMS)
    # One example is shown, and none of at least five hidden tests is.
    assert kept.statement.endswith("For example:\nassert square(3) == 9")
    assert not any(is_visible(kept, test) for test in kept.assertions)
    assert kept.test_count >= 5
    assert len({each.expected for each in assertions_of(kept)[:5]}) >= 3
    again = strengthen.strengthened(PROBLEMS, rule, tmp_path, lambda: False)
    assert (again.problems, again.counts) == (outcome.problems, outcome.counts)
    other = strengthen.strengthened(PROBLEMS, replace(rule, hidden=6), tmp_path, lambda: False)
    assert (other.finished, other.problems) == (False, [])


def test_tests_come_in_an_order_in_which_outputs_vary_first() -> None:
    import strengthen

    tests = [f"assert square({n}) == {output}" for n, output in ((1, 1), (-1, 1), (2, 4), (-2, 4), (0, 0))]
    assert [each.expected for each in assertions_of(strengthen.varied(square("o", *tests)))] == [1, 4, 0, 1, 4]
    rule = strengthen.Rule(hidden=3)
    assert strengthen.fault_of(square("o", *tests[:2]), rule) == "fewer than 3 hidden tests"
    assert strengthen.fault_of(square("o", *tests[:4]), rule) == "fewer than 3 outputs"
    assert not strengthen.fault_of(square("o", *tests), rule)


def secure(name: str, group: str, cwe: int, words: str) -> Problem:
    attack = SecurityTest("attack", cwe, assertion="assert raises(square(None), ValueError)")
    return replace(square(name), statement=words, group=group, tags=(f"CWE-{cwe}",), security_tests=(attack,))


def test_no_group_and_no_near_duplicate_is_in_two_parts() -> None:
    import security

    letters = itertools.product("abcdefghijk", repeat=3)
    texts = [" ".join("".join(letters) for letters in itertools.islice(letters, 12)) for _ in range(60)]
    tasks = [
        secure(f"{place}/{variant}", f"g{place}", (79, 89, 94)[place % 3], f"{text} {variant}")
        for place, text in enumerate(texts)
        for variant in range(9)
    ]
    tasks.append(secure("stray", "alone", 79, texts[0]))  # a near-duplicate of a group
    parts = security.parts_of(tasks)
    groups = {part: {each.group for each in problems} for part, problems in parts.items()}
    assert all(len(each) >= 5 for each in groups.values())
    assert not any(one & other for one, other in itertools.combinations(groups.values(), 2))
    home = next(part for part, each in groups.items() if "g0" in each)
    assert "alone" not in set().union(*(each for part, each in groups.items() if part != home))
    assert all(set(security.by_weakness(problems)) == {"CWE-79", "CWE-89", "CWE-94"} for problems in parts.values())
    for part in ("dev", "test"):
        assert max(sum(each.group == group for each in parts[part]) for group in groups[part]) == security.MOST_MEASURED
    assert parts == security.parts_of(tasks)


@pytest.mark.parametrize(
    ("assertion", "statement", "known"),
    [
        ("assert raises(square(None), ValueError)", "Raises ValueError for others.", True),
        ("assert raises(square(None), ValueError)", "Square n.", False),
        ("assert square('<b>') == '&lt;b&gt;'", "Return the text as markup.", True),
        ("assert square('x') == 'Invalid input'", "Square n.", False),
        ("assert square('x') == 'Invalid input'", "Else return 'invalid input'.", True),
        ("assert square('x') == {'error': ['Denied']}", "Return the error.", False),
        ("assert square('x') == False", "Square n.", True),
        ("assert square('safe') == 'safe'", "Square n.", True),
    ],
)
def test_untold_attacks_expect_what_the_statement_says(assertion: str, statement: str, known: bool) -> None:
    import security

    task = replace(secure("t", "g", 79, "told"), security_tests=(SecurityTest("attack", 79, assertion=assertion),))
    found = security.untold(task, statement)
    assert (found is not None) is known
    assert found is None or (found.statement, found.id) == (statement, "t/untold")


def test_weaknesses_that_only_a_policy_explains_are_never_untold() -> None:
    import security

    assert security.untold(secure("t", "g", 862, "told"), "Raises ValueError.") is None


def test_parts_of_a_list_in_turns_have_all_groups() -> None:
    import security

    tasks = [secure(f"{group}{number}", group, 79, "x") for group in "ab" for number in range(3)]
    assert [each.id for each in security.in_turns(tasks)] == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_the_level_is_that_of_mbpp() -> None:
    import pools

    assert not pools.too_hard(square("q"))
    assert pools.too_hard(replace(square("q"), solutions=()))
    assert pools.too_hard(replace(square("q"), statement="x" * 2001))
    assert pools.too_hard(replace(square("q"), source="leetcode", difficulty="Hard"))
    long = "import os\ndef f(n):\n    '''About it.'''\n" + "    n += 1  # a line\n\n" * 29
    assert pools.code_lines(long) == 30
    assert not pools.too_hard(replace(square("q"), source="codeio", solutions=(long,)))
    assert pools.too_hard(replace(square("q"), source="codeio", solutions=(f"{long}    return n",)))
