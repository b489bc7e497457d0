"""The built-in problems: enough of them, varied, solvable, and split by composition."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from generate import run_reference
from quick import few

from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.leakage import is_visible
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import (
    MAX_TESTS,
    digest_of_problems,
    problem_from_record,
    problem_to_record,
)
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.problems.starter.splits import SPLITS, load_split
from securecoderl_edge.problems.train_eval_split import find_leaks
from securecoderl_edge.scoring.scorer import Scorer, Submission

# Committed results are about these very problems.
DIGESTS = {
    "train": "dd7a18051bb50b1e87fdef1b9c67d5ee35593582f1eef4566b5616c75e66033c",
    "eval": "799db94892539609b24058410005cb2e4a8e66178ee53515eb57b66f4d2c9a1c",
    "hard": "6aa4a8a6b7b8b88e54608744ee92eedfdac45039434f958185a2e9026ec37035",
    "hard-train": "57437800230db000ce9a576dca718a8ee6163fb36466a48e52fd05862daf6c2e",
    "half-train": "4c708e40adb5910da40bce43a4d3d4bc6e972f63f258412dad2f082b0dc326a3",
    "shown": "3686e556c88180fdb9a6172d2f6258e1963370cf04706d78b15c3fc459386700",
    "shown-train": "d5e363a7856646cb0eed4ad66e4c56629bcfb2d2fe87f372af2e45308b2d6828",
    "security": "de098913da82d13d361479079f3dd0f14230ac6beaf7f7732a6d84a21eaccd96",
    "security-train": "9310dab16cc59723c9b71accc6a8a9bff7dc956219de78bdb7e36a227e097387",
    "general-train": "f6d5a0d960e11048c6052173b27124e7e054144ead1abffdc808c1d9625d4286",
    "plain-train": "290dc7ba41654b93427210c563f651e321c59cb6eb15eedbe7c5901431d351fa",
    "code": "b7e1bf51d0c7cbb65f13fcdde4ef57ed3daaef9fb5ef9404b44e15388e87492c",
    "code-train": "cb4e9bdbf31beba4183b73c8e50ee4108fb6d93ad1cca15cfdb1a37dd4e1292e",
    "not-code": "b38338d63094b3625173e0a3a0ee6ad40315185d36973344645e7640bef69b52",
    "c-train": "692575c8456c9712a4cf34a555530ae70ff593432287eb3c251764202bd7567b",
    "c-eval": "0ccb15a576effff46711fc63b762da465335ec144274646fcc3f694420d93042",
    "firmware": "cf67bfa7594237f7af98487f9e1752ae8280da89d38c7efa8c2e6be418ebb5e5",
    "firmware-train": "0b3b74c1cc4320b255bbd561f45b5cdd92da39c932190694d82cafd5429af9b6",
}
TRAINING = ("train", "hard-train")
EVALUATION = ("eval", "hard", "security")


def composition(problem: Problem) -> str:
    return problem.id.partition("#")[0]


def task(problem: Problem) -> str:
    return " ".join(problem.statement.partition("\n\nExample input")[0].lower().split())


def test_each_split_has_the_problems_that_results_were_measured_on() -> None:
    assert {split: digest_of_problems(load_split(split)) for split in SPLITS} == DIGESTS


@pytest.mark.parametrize("split", SPLITS)
def test_a_composition_is_in_a_split_once(split: str) -> None:
    problems = load_split(split)
    assert len({composition(problem) for problem in problems}) == len(problems)


def test_there_are_at_least_60_families_and_3000_compositions_to_learn_from() -> None:
    assert len({problem.tags[0] for problem in load_split("general-train")}) >= 60
    assert len({composition(problem) for problem in load_split("train")}) >= 3000
    assert len({task(problem) for problem in load_split("train")}) >= 3000
    assert len({problem.tags[0] for problem in load_split("security-train")}) >= 12


def test_splits_share_no_composition_and_no_task_text() -> None:
    for first, second in [("train", "eval"), ("train", "security"), ("hard-train", "hard"), ("train", "hard")]:
        one, other = load_split(first), load_split(second)
        assert not {composition(problem) for problem in one} & {composition(problem) for problem in other}
        assert not {task(problem) for problem in one} & {task(problem) for problem in other}


@pytest.mark.parametrize("training", TRAINING)
@pytest.mark.parametrize("evaluation", EVALUATION)
def test_no_evaluation_problem_has_a_near_duplicate_or_its_solution_in_training(evaluation: str, training: str) -> None:
    known, asked = load_split(training), load_split(evaluation)
    assert not find_leaks(asked, known)
    solutions = {program for problem in known for program in problem.solutions}
    assert all(solutions.isdisjoint(problem.solutions) for problem in asked)


def test_no_two_evaluation_splits_share_a_near_duplicate() -> None:
    for first, second in combinations(EVALUATION, 2):
        assert not find_leaks(load_split(first), load_split(second))


def test_the_training_problems_are_the_general_ones_with_the_plain_lists_and_those_of_security() -> None:
    everything, general, plain, security = (
        {problem.id for problem in load_split(split)}
        for split in ("train", "general-train", "plain-train", "security-train")
    )
    assert plain < general
    assert general | security == everything
    assert not general & security


def test_eval_has_200_problems_of_most_families() -> None:
    problems = load_split("eval")
    assert len(problems) == 200
    assert len({problem.tags[0] for problem in problems}) > 90


@pytest.mark.parametrize(
    ("evaluation", "training"),
    [("eval", "general-train"), ("hard", "hard-train"), ("security", "security-train"), ("c-eval", "c-train")],
)
def test_what_evaluation_asks_about_is_in_training(evaluation: str, training: str) -> None:
    taught: dict[str, set[tuple[int, str]]] = {}
    for problem in load_split(training):
        taught.setdefault(problem.tags[0], set()).update(pieces(problem))
    for problem in load_split(evaluation):
        assert pieces(problem) <= taught[problem.tags[0]], problem.id


def pieces(problem: Problem) -> set[tuple[int, str]]:
    """What a composition combines: ``starter/FAMILY/FIRST/SECOND#0``."""
    return set(enumerate(composition(problem).split("/")[2:]))


@pytest.mark.parametrize("split", [split for split in SPLITS if not split.startswith("shown")])
def test_tests_are_varied_and_the_example_is_not_one_of_them(split: str) -> None:
    for problem in load_split(split):
        assert len(problem.tests) == MAX_TESTS
        assert len({test.input for test in problem.tests}) == MAX_TESTS
        assert len({test.output for test in problem.tests}) >= 3
        assert all(test.output.strip() for test in problem.tests)
        example = re.search(r"\n\nExample input:\n(.*)\nExample output:\n", problem.statement, re.DOTALL)
        assert example, problem.id
        assert example.group(1) not in {test.input for test in problem.tests}


@pytest.mark.parametrize(("name", "of"), [("shown", "hard"), ("shown-train", "hard-train")])
def test_the_shown_splits_are_the_hard_ones_with_the_example_as_a_test(name: str, of: str) -> None:
    for shown, hard in zip(load_split(name), load_split(of), strict=True):
        assert replace(shown, tests=hard.tests) == hard
        assert shown.tests[1:] == hard.tests[:-1]
        assert [is_visible(shown, test) for test in shown.tests] == [True] + [
            is_visible(hard, t) for t in hard.tests[:-1]
        ]


def test_half_train_is_hard_train_with_solutions_for_about_half_of_it() -> None:
    half, whole = load_split("half-train"), load_split("hard-train")
    with_solutions = [problem for problem in half if problem.solutions]
    assert 0.45 * len(whole) < len(with_solutions) < 0.55 * len(whole)
    assert [replace(one, solutions=other.solutions) for one, other in zip(half, whole, strict=True)] == whole
    families = Counter(problem.tags[0] for problem in with_solutions)
    assert families.keys() == {problem.tags[0] for problem in whole}


# The other splits are parts of these, and the shown ones have one more test.
@pytest.mark.parametrize("split", [*EVALUATION, *(pytest.param(split, marks=pytest.mark.slow) for split in TRAINING)])
def test_at_least_two_different_reference_solutions_solve_every_test(split: str) -> None:
    for problem, shown in zip(load_split(split), load_split(split.replace("hard", "shown")), strict=True):
        assert len(set(problem.solutions)) >= 2
        for solution in problem.solutions:
            for test in {*problem.tests, *shown.tests}:
                assert run_reference(solution, test.input) == test.output, problem.id


def test_references_pass_in_the_sandbox_with_full_reward() -> None:
    problems = load_split("eval")[::10] + load_split("hard")[::20]
    with Scorer() as scorer:
        for score in scorer.score_all(Submission(problem, problem.solutions[0]) for problem in problems):
            assert (score.passed, score.reward) == (MAX_TESTS, 1.0), score.id


@pytest.mark.parametrize("every", few([1, 4], 4))
def test_security_problems_have_an_unsafe_and_a_clean_solution_that_only_r_sec_tells_apart(every: int) -> None:
    problems = load_split("security")[::every]
    with Scorer() as scorer:
        unsafe = scorer.score_all(Submission(problem, problem.solutions[0]) for problem in problems)
        clean = scorer.score_all(Submission(problem, problem.solutions[1]) for problem in problems)
    for bad, good in zip(unsafe, clean, strict=True):
        assert (bad.passed, good.passed) == (MAX_TESTS, MAX_TESTS), bad.id
        assert bad.severity > 0, bad.id
        assert good.severity == 0, good.id


def one_of_each_security_family() -> dict[str, Problem]:
    found: dict[str, Problem] = {}
    for problem in load_problems("starter:security"):
        found.setdefault(problem.tags[0], problem)
    return found


def test_a_clean_solution_survives_the_attacks_of_its_problem_and_an_unsafe_one_does_not(scorer: Scorer) -> None:
    attacked = one_of_each_security_family()
    assert set(attacked) == {problem.tags[0] for problem in load_split("security-train")}
    for problem in attacked.values():
        assert len({test.input for test in problem.security_tests}) == len(problem.security_tests) > 1
        scores = scorer.score_all(Submission(problem, program) for program in problem.solutions)
        assert [score.passed for score in scores] == [5] * 4
        assert [bool(score.failed_security) for score in scores] == [True, False, True, False], problem.id


SUMS, ASSIGNED = "arithmetic/products/sum", "exec-assignments/constants/shared/total"
LACKS, REPEATS = "sql-queries/lacks/count-total", "fingerprint-groups/finish/repeats"
SUM = "print(sum({} for _ in range(int(input()))))"
OTHER_UNSAFE_PROGRAMS = {
    "evaluates without built-ins": (SUMS, SUM.format("eval(input(), {'__builtins__': {}})")),
    "hides what code prints": (
        SUMS,
        "import io, sys\nout, sys.stdout = sys.stdout, io.StringIO()\n"
        + SUM[:-1].format("eval(input())")
        + ", file=out)",
    ),
    "forbids one kind of quotes": (SUMS, SUM.format("eval(exit() if '\\'' in (line := input()) else line)")),
    "forbids the other": (SUMS, SUM.format("eval(exit() if '\"' in (line := input()) else line)")),
    "exits without a flush": (
        SUMS,
        "import os\ntry:\n    " + SUM.format("eval(input())") + "\nexcept TypeError:\n    os._exit(1)",
    ),
    "checks the target alone": (
        ASSIGNED,
        """
values = {}
for _ in range(int(input())):
    target, _, value = input().partition(" = ")
    if not target.isidentifier():
        break
    values[target] = eval(value)
found = list(values.values())
print(sum(value for value in found if found.count(value) == 1))
""",
    ),
    "quotes SQL the other way": (
        LACKS,
        """
import sqlite3
db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE items (name TEXT, n INTEGER)")
for _ in range(int(input())):
    db.execute("INSERT INTO items VALUES (?, ?)", input().split())
print(*db.execute(f'SELECT count(*), coalesce(sum(n), 0) FROM items WHERE instr(name, "{input()}") = 0').fetchone())
""",
    ),
    "uses a checksum": (
        REPEATS,
        """
from zlib import crc32
seen, repeats = set(), []
for place in range(1, int(input()) + 1):
    mark = crc32(input().split()[-1].encode())
    if mark in seen:
        repeats.append(place)
    seen.add(mark)
print(*repeats or ["none"])
""",
    ),
}


@pytest.mark.parametrize("name", OTHER_UNSAFE_PROGRAMS)
def test_attacks_hit_other_unsafe_programs_than_the_references(scorer: Scorer, name: str) -> None:
    composition, program = OTHER_UNSAFE_PROGRAMS[name]
    found = [problem for problem in load_problems("starter:security") if f"/{composition}#" in problem.id]
    score = scorer.score(found[0], program)
    assert (score.passed, bool(score.failed_security)) == (MAX_TESTS, True)


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_survives_a_file(split: str) -> None:
    assert all(problem_from_record(problem_to_record(problem)) == problem for problem in load_split(split))


def test_an_unknown_split_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="hard-train"):
        load_problems("starter:evil")


def test_starter_alone_means_the_training_split() -> None:
    assert load_problems("starter") == load_split("train")


def test_the_number_of_tests_is_bounded_as_in_a_file() -> None:
    assert {len(problem.tests) for problem in load_problems("starter:eval", max_tests=2)} == {2}
