"""The built-in problems in C: the same problems as in Python, with solutions in C that print the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import c_programs
import pytest
from quick import few

from securecoderl_edge.languages.targets import NO_BUDGET
from securecoderl_edge.problems.near_duplicates import SIMILARITY, jaccard, word_pairs
from securecoderl_edge.problems.starter.splits import FIRMWARE_BUDGET, load_split
from securecoderl_edge.scoring.scorer import Scorer, Submission


def test_at_least_40_general_families_and_12_for_firmware_have_solutions_in_c() -> None:
    families = {problem.tags[0]: "firmware" in problem.tags for problem in load_split("c-train")}
    assert sum(not is_firmware for is_firmware in families.values()) >= 40
    assert sum(families.values()) >= 12


def test_a_problem_in_c_is_the_one_in_python_with_other_solutions() -> None:
    for split, general in (("c-eval", "eval"), ("c-train", "general-train")):
        twins = {problem.id: problem for problem in load_split(general)}
        found = 0
        for problem in load_split(split):
            assert len(set(problem.solutions)) >= 2
            if one := twins.get(problem.id.replace("starter-c/", "starter/", 1)):
                assert replace(one, id=problem.id, language="c", solutions=problem.solutions) == problem
                assert not set(one.solutions) & set(problem.solutions)
                found += 1
        assert found > 0.7 * len(load_split(split))


@c_programs.needs_gcc
@pytest.mark.parametrize("every", few([10, 40], 40))
def test_solutions_in_c_pass_their_tests(every: int, tmp_path: Path) -> None:
    solved = [(problem, program) for problem in load_split("c-eval")[::every] for program in problem.solutions]
    inputs = [[test.input for test in problem.tests] for problem, _ in solved]
    outputs = [[test.output for test in problem.tests] for problem, _ in solved]
    c_programs.check(tmp_path, [program for _, program in solved], inputs, outputs)


def test_the_sets_in_c_have_their_sizes_and_firmware_families() -> None:
    train, asked = load_split("c-train"), load_split("c-eval")
    assert len(asked) == 200
    assert len(train) > 2500
    firmware = [{problem.tags[0] for problem in problems if "firmware" in problem.tags} for problems in (train, asked)]
    assert firmware[0] == firmware[1]
    for problems in (train, asked):
        assert {problem.language for problem in problems} == {"c"}
        assert not any("python" in problem.statement.lower() for problem in problems)


@pytest.mark.parametrize(("split", "whole"), [("firmware", "c-eval"), ("firmware-train", "c-train")])
def test_firmware_splits_are_those_problems_for_a_microcontroller(split: str, whole: str) -> None:
    about_firmware = [problem for problem in load_split(whole) if "firmware" in problem.tags]
    problems = load_split(split)
    assert [replace(each, target="", budget=NO_BUDGET) for each in problems] == about_firmware
    assert {(each.target, each.budget) for each in problems} == {("cortex-m3", FIRMWARE_BUDGET)}


def test_references_are_within_the_budget_on_the_board(cortex_m3: None) -> None:
    problems = load_split("firmware")
    sample = [Submission(problem, problem.solutions[number % 2]) for number, problem in enumerate(problems[::4])]
    with Scorer(1) as scorer:
        assert [score.id for score in scorer.score_all(sample) if score.reward < 1] == []


def test_general_problems_in_c_eval_are_those_of_eval() -> None:
    general = {problem.statement for problem in load_split("c-eval") if "firmware" not in problem.tags}
    assert general <= {problem.statement for problem in load_split("eval")}


def test_training_problems_in_c_are_apart_from_all_evaluation_problems() -> None:
    train = load_split("c-train")
    asked = [problem for split in ("eval", "hard", "security", "c-eval") for problem in load_split(split)]
    solutions = {program for problem in asked for program in problem.solutions}
    assert all(solutions.isdisjoint(problem.solutions) for problem in train)
    tried = [word_pairs(problem) for problem in asked]
    for problem in train[::10]:
        pairs = word_pairs(problem)
        assert all(jaccard(pairs, other) < SIMILARITY for other in tried), problem.id


def test_firmware_programs_keep_to_the_habits_of_firmware() -> None:
    for problem in (*load_split("firmware"), *load_split("firmware-train")):
        for program in problem.solutions:
            assert "int32_t" in program
            assert not any(word in program for word in ("malloc", "calloc", "free(", "float", "double ", "goto"))
