"""The built-in problems: enough of them, varied, solvable, and split by composition."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest

pytest.importorskip("torch", reason="needs the train extra")


from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.leakage import is_visible
from securecoderl_edge.problems.near_duplicates import SIMILARITY, jaccard, word_pairs
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.records import MAX_TESTS
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.problems.splits import find_leaks
from securecoderl_edge.problems.starter.apart import Apart
from securecoderl_edge.problems.starter.families._compose import compose, piece
from securecoderl_edge.problems.starter.families.catalogue import GENERAL, HARD, SECURITY
from securecoderl_edge.problems.starter.family import Family, choose_wording, is_held_out
from securecoderl_edge.problems.starter.generate import MIN_DISTINCT_OUTPUTS, build_problem, compositions, run_reference
from securecoderl_edge.problems.starter.splits import (
    EVAL_SIZE,
    SPLITS,
    WORDINGS,
    build_for_training,
    built_in,
    load_split,
)
from securecoderl_edge.scoring.scorer import Scorer, Submission
from securecoderl_edge.training.pretrain import Pretraining, write_documents


def composition(problem: Problem) -> str:
    return problem.id.partition("#")[0]


def task(problem: Problem) -> str:
    return " ".join(problem.statement.partition("\n\nExample input")[0].lower().split())


def test_there_are_at_least_60_families_and_3000_compositions_to_learn_from() -> None:
    assert len({family.name for family in GENERAL}) >= 60
    assert len({composition(problem) for problem in load_split("train")}) >= 3000
    assert len({task(problem) for problem in load_split("train")}) >= 3000
    assert len({family.name for family in SECURITY}) >= 12


def test_family_names_and_composition_keys_are_unique() -> None:
    families = GENERAL + HARD + SECURITY
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert len(set(family.compositions)) == len(family.compositions)


def test_splits_share_no_composition_and_no_task_text() -> None:
    for first, second in [("train", "eval"), ("train", "security"), ("hard-train", "hard"), ("train", "hard")]:
        one, other = load_split(first), load_split(second)
        assert not {composition(problem) for problem in one} & {composition(problem) for problem in other}
        assert not {task(problem) for problem in one} & {task(problem) for problem in other}


_TRAINING = ("train", "hard-train")
_EVALUATION = ("eval", "hard", "security")


@pytest.mark.parametrize("training", _TRAINING)
@pytest.mark.parametrize("evaluation", _EVALUATION)
def test_no_evaluation_problem_has_a_near_duplicate_or_its_solution_in_training(evaluation: str, training: str) -> None:
    known, asked = load_split(training), load_split(evaluation)
    assert not find_leaks(asked, known)
    solutions = {program for problem in known for program in problem.solutions}
    assert all(solutions.isdisjoint(problem.solutions) for problem in asked)


def test_no_two_evaluation_splits_share_a_near_duplicate() -> None:
    for first, second in combinations(_EVALUATION, 2):
        assert not find_leaks(load_split(first), load_split(second))


def test_few_compositions_are_left_out_to_keep_the_splits_apart() -> None:
    for split, families in (("train", GENERAL + SECURITY), ("hard-train", HARD)):
        known = len(list(compositions(families, held_out=False)))
        assert 0.9 * known < len(load_split(split)) < known  # and some are, so that the rule is at work


def test_apart_compares_every_pair_as_a_slow_loop_does() -> None:
    evaluation = load_split("hard")
    apart = Apart(evaluation)
    families = [family for family in (*HARD, *GENERAL[:20]) for _ in range(3)]
    tried = [build_problem(family, family.compositions[7], variant) for variant, family in enumerate(families)]
    tried += [replace(evaluation[0], solutions=("print()\n",)), replace(tried[-1], solutions=evaluation[1].solutions)]
    expected = [
        all(
            jaccard(word_pairs(problem), word_pairs(other)) < SIMILARITY
            and not {*problem.solutions} & {*other.solutions}
            for other in evaluation
        )
        for problem in tried
    ]
    assert [apart.allows(problem) for problem in tried] == expected
    assert 10 < sum(expected) < len(expected) - 10
    assert expected[-2:] == [False, False]


def test_the_training_problems_are_the_general_ones_with_the_plain_lists_and_those_of_security() -> None:
    everything, general, plain, security = (
        {problem.id for problem in load_split(split)}
        for split in ("train", "general-train", "plain-train", "security-train")
    )
    assert plain < general
    assert general | security == everything
    assert not general & security


def test_eval_has_200_held_out_problems_of_most_families() -> None:
    problems = load_split("eval")
    held_out = {f"starter/{family.name}/{key}" for family, key in compositions(GENERAL, held_out=True)}
    assert len(problems) == EVAL_SIZE
    assert {composition(problem) for problem in problems} <= held_out
    assert len({problem.tags[0] for problem in problems}) > 90


@pytest.mark.parametrize("families", [GENERAL, HARD, SECURITY], ids=["general", "hard", "security"])
def test_what_evaluation_asks_about_is_in_training(families: tuple[Family, ...]) -> None:
    for family in families:
        taught = [
            set(enumerate(key.split("/")))
            for _, key in compositions((family,), held_out=False)
            if build_for_training(family, key, range(WORDINGS))
        ]
        for _, key in compositions((family,), held_out=True):
            assert set(enumerate(key.split("/"))) <= set().union(*taught), f"{family.name}: {key}"


def test_a_family_that_keeps_a_part_of_its_combinations_uses_its_pieces_evenly() -> None:
    tables = {name: {f"{name}{number}": piece("do it") for number in range(6)} for name in "abc"}

    def rare(first: str, second: str, third: str) -> bool:
        return first == "a0" and (second, third) != ("b0", "c0") and second in ("b0", "b1")

    family = compose("even", tables, ("Do.",), ("print()\n",), lambda rng: "\n", skip=rare, size=60)
    assert len(family.compositions) == 60
    uses = Counter(place for key in family.compositions for place in enumerate(key.split("/")))
    assert 7 <= min(uses.values()) <= max(uses.values()) <= 13  # a piece's even share is 10


def test_the_training_text_of_nano_is_apart_from_every_evaluation_split() -> None:
    documents = write_documents(Pretraining(documents=2000, seed=5, hard_share=Fraction(1, 5)))
    statements = [prompt.removeprefix("### Problem\n").partition("\n\n### ")[0] for prompt, _ in documents]
    read = [
        Problem(f"document/{number}", statement, (Test("", "0"),), (program,))
        for number, (statement, (_, program)) in enumerate(zip(statements, documents, strict=True))
    ]
    assert all(built_in().allows(document) for document in read)
    assert find_leaks(read, load_split("train")), "the comparison itself must work"


def test_the_training_text_of_nano_holds_no_task_of_an_evaluation_split() -> None:
    prompts = [prompt for prompt, _ in write_documents(Pretraining(documents=2000, seed=5))]
    written = {
        " ".join(prompt.partition("\n\nExample input")[0].removeprefix("### Problem\n").lower().split())
        for prompt in prompts
    }
    assert written & {task(problem) for problem in load_split("train")}, "the comparison itself must work"
    for split in ("eval", "hard", "hard-train", "security"):
        assert not written & {task(problem) for problem in load_split(split)}


@pytest.mark.parametrize("split", [split for split in SPLITS if not split.startswith("shown")])
def test_tests_are_varied_and_the_example_is_not_one_of_them(split: str) -> None:
    for problem in load_split(split):
        assert len(problem.tests) == MAX_TESTS
        assert len({test.input for test in problem.tests}) == MAX_TESTS
        assert len({test.output for test in problem.tests}) >= MIN_DISTINCT_OUTPUTS
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


@pytest.mark.parametrize("split", [split for split in SPLITS if not split.startswith(("half-train", "c-", "firmware"))])
def test_at_least_two_different_reference_solutions_solve_every_test(split: str) -> None:
    for problem in load_split(split):
        assert len(set(problem.solutions)) >= 2
        for solution in problem.solutions:
            for test in problem.tests:
                assert run_reference(solution, test.input) == test.output, problem.id


def test_references_pass_in_the_sandbox_with_full_reward() -> None:
    problems = load_split("eval")[::10] + load_split("hard")[::20]
    with Scorer() as scorer:
        for score in scorer.score_all(Submission(problem, problem.solutions[0]) for problem in problems):
            assert (score.passed, score.reward) == (MAX_TESTS, 1.0), score.id


def test_security_problems_have_an_unsafe_and_a_clean_solution_that_only_r_sec_tells_apart() -> None:
    problems = load_split("security")
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
    assert set(attacked) == {family.name for family in SECURITY}
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


def test_wordings_vary_between_variants_of_a_composition() -> None:
    shared = Counter[str]()
    for family in GENERAL:
        key = family.compositions[0]
        shared[family.name] = len({task(build_problem(family, key, variant)) for variant in range(6)})
    assert sum(count > 1 for count in shared.values()) / len(shared) > 0.9


@pytest.mark.parametrize(("rarity", "shares"), [(0.0, (0.25, 0.25, 0.25, 0.25)), (1.0, (0.48, 0.24, 0.16, 0.12))])
def test_later_wordings_are_rarer_by_the_power_law_that_is_asked_for(rarity: float, shares: tuple[float, ...]) -> None:
    rng = random.Random(0)
    drawn = Counter(choose_wording("abcd", rng, rarity) for _ in range(20_000))
    assert [drawn[letter] / 20_000 for letter in "abcd"] == pytest.approx(shares, abs=0.02)


def test_building_a_problem_twice_gives_the_same_problem() -> None:
    family = GENERAL[0]
    assert build_problem(family, family.compositions[3], 2) == build_problem(family, family.compositions[3], 2)
    assert is_held_out("a", "b") == is_held_out("a", "b")


def test_an_unknown_split_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="hard-train"):
        load_problems("starter:evil")


def test_starter_alone_means_the_training_split() -> None:
    assert load_problems("starter") == load_split("train")


def test_the_number_of_tests_is_bounded_as_in_a_file() -> None:
    assert {len(problem.tests) for problem in load_problems("starter:eval", max_tests=2)} == {2}
