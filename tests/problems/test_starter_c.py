"""The built-in problems in C: the same problems as in Python, with solutions in C that print the same."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import c_programs
import pytest

pytest.importorskip("torch", reason="needs the train extra")

from securecoderl_edge.languages.language import C
from securecoderl_edge.languages.targets import NO_BUDGET
from securecoderl_edge.problems.near_duplicates import SIMILARITY, jaccard, word_pairs
from securecoderl_edge.problems.problem import Problem, same_output
from securecoderl_edge.problems.records import problem_from_record, problem_to_record
from securecoderl_edge.problems.starter.families.catalogue import FIRMWARE, GENERAL
from securecoderl_edge.problems.starter.family import Family, is_held_out
from securecoderl_edge.problems.starter.generate import build_problem, compositions, run_reference
from securecoderl_edge.problems.starter.splits import EVAL_SIZE, FIRMWARE_BUDGET, load_split
from securecoderl_edge.scoring.scorer import Scorer, Submission
from securecoderl_edge.training.pretrain import NO_SHARE, Pretraining, write_documents

WITH_C = tuple(family for family in (*GENERAL, *FIRMWARE) if family.has_c)
MORE_INPUTS = 20
PARTS = 6


def place_of(problem: Problem) -> tuple[str, str]:
    """Family and composition, which are the same in all languages."""
    _, family, composition = problem.id.partition("#")[0].split("/", 2)
    return family, composition


def check(folder: Path, chosen: list[tuple[Family, str]]) -> None:
    """All solutions in C of these compositions print what the reference in Python does."""
    programs, inputs, expected = [], [], []
    for family, key in chosen:
        problem = build_problem(family, key, language=C.name)
        rng = random.Random(key)
        draft = family.draft(key, rng, 0.0)
        drawn = [draft.draw_input(rng) for _ in range(MORE_INPUTS)]
        given = [*(test.input for test in problem.tests), *drawn]
        printed = [
            *(test.output for test in problem.tests),
            *(run_reference(draft.solutions[0], text) for text in drawn),
        ]
        for program in problem.solutions:
            programs.append(program)
            inputs.append(given)
            expected.append(printed)
    for program, texts, wanted, found in zip(
        programs, inputs, expected, c_programs.outputs(folder, programs, inputs), strict=True
    ):
        for text, output, actual in zip(texts, wanted, found, strict=True):
            assert same_output(actual, output), f"{program}\nprints {actual!r}, not {output!r}, for {text!r}"


def sample(family: Family, size: int) -> list[tuple[Family, str]]:
    keys = random.Random(family.name).sample(family.compositions, min(size, len(family.compositions)))
    return [(family, key) for key in keys]


@c_programs.needs_gcc
@pytest.mark.parametrize("part", range(PARTS))
def test_solutions_in_c_print_what_the_reference_in_python_prints(part: int, tmp_path: Path) -> None:
    check(tmp_path, [pair for family in WITH_C[part::PARTS] for pair in sample(family, 1)])


@pytest.mark.slow
@c_programs.needs_gcc
@pytest.mark.parametrize("family", WITH_C, ids=lambda family: family.name)
def test_many_more_solutions_in_c_print_what_the_reference_in_python_prints(family: Family, tmp_path: Path) -> None:
    check(tmp_path, sample(family, 12))


@c_programs.needs_gcc
def test_a_warning_a_crash_and_undefined_behavior_of_a_program_are_found(tmp_path: Path) -> None:
    begin = "#include <stdio.h>\n\nint main(void)\n{\n    int x = 0;\n"
    end = '    printf("%d\\n", x);\n    return 0;\n}\n'
    read = '    if (scanf("%d", &x) != 1)\n        return 1;\n'
    assert c_programs.outputs(tmp_path, [begin + read + end], [["7\n"]]) == [["7\n"]]
    faults = ("    int unused;\n", f"{read}    return x;\n", f"{read}    x += 2147483647;\n")
    for fault in faults:
        with pytest.raises(AssertionError):
            c_programs.outputs(tmp_path, [begin + fault + end], [["7\n"]])


def test_at_least_40_general_families_and_12_for_firmware_have_solutions_in_c() -> None:
    assert sum(family.has_c for family in GENERAL) >= 40
    assert len(FIRMWARE) >= 12
    assert all(family.has_c and len(family.compositions) >= 10 for family in FIRMWARE)
    names = [family.name for family in (*GENERAL, *FIRMWARE)]
    assert len(set(names)) == len(names)


def test_a_problem_in_c_is_the_one_in_python_with_other_solutions() -> None:
    for family in WITH_C:
        key = family.compositions[1]
        one, other = build_problem(family, key), build_problem(family, key, language=C.name)
        assert other.id == one.id.replace("starter/", "starter-c/", 1)
        assert replace(one, id=other.id, language=C.name, solutions=other.solutions) == other
        assert len(set(other.solutions)) >= 2
        assert not set(one.solutions) & set(other.solutions)


def test_the_sets_in_c_have_their_sizes_and_survive_a_file() -> None:
    train, asked = load_split("c-train"), load_split("c-eval")
    assert len(asked) == EVAL_SIZE
    assert len(train) > 2500
    for problems in (train, asked):
        assert len({problem.id for problem in problems}) == len(problems)
        assert {problem.language for problem in problems} == {"c"}
        assert all(problem_from_record(problem_to_record(problem)) == problem for problem in problems)
        assert not any("python" in problem.statement.lower() for problem in problems)
        firmware = {problem.tags[0] for problem in problems if "firmware" in problem.tags}
        assert firmware == {family.name for family in FIRMWARE}


@pytest.mark.parametrize(("split", "whole"), [("firmware", "c-eval"), ("firmware-train", "c-train")])
def test_firmware_splits_are_those_problems_for_a_microcontroller(split: str, whole: str) -> None:
    about_firmware = [problem for problem in load_split(whole) if "firmware" in problem.tags]
    problems = load_split(split)
    assert [replace(each, target="", budget=NO_BUDGET) for each in problems] == about_firmware
    assert {(each.target, each.budget) for each in problems} == {("cortex-m3", FIRMWARE_BUDGET)}
    assert all(problem_from_record(problem_to_record(each)) == each for each in problems)


def test_references_are_within_the_budget_on_the_board(cortex_m3: None) -> None:
    problems = load_split("firmware")
    sample = [Submission(problem, problem.solutions[number % 2]) for number, problem in enumerate(problems[::4])]
    assert {each.problem.tags[0] for each in sample} <= {family.name for family in FIRMWARE}
    with Scorer(1) as scorer:
        assert [score.id for score in scorer.score_all(sample) if score.reward < 1] == []


def test_a_composition_is_held_out_in_c_where_it_is_in_python() -> None:
    assert all(is_held_out(*place_of(problem)) for problem in load_split("c-eval"))
    assert not any(is_held_out(*place_of(problem)) for problem in load_split("c-train"))
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


def test_what_c_eval_asks_about_is_in_c_train() -> None:
    taught: dict[str, set[tuple[int, str]]] = {}
    for family, key in map(place_of, load_split("c-train")):
        taught.setdefault(family, set()).update(enumerate(key.split("/")))
    for family, key in map(place_of, load_split("c-eval")):
        assert set(enumerate(key.split("/"))) <= taught[family], f"{family}/{key}"


def test_firmware_programs_keep_to_the_habits_of_firmware() -> None:
    for family, key in compositions(FIRMWARE, held_out=False):
        for program in family.draft(key, random.Random(key), 0.0).c_solutions():
            assert "int32_t" in program
            assert not any(word in program for word in ("malloc", "calloc", "free(", "float", "double ", "goto"))


def test_documents_in_c_are_training_problems_with_programs_in_c() -> None:
    documents = write_documents(Pretraining(C.name, documents=60, seed=3, security_share=NO_SHARE))
    asked = {problem.statement for problem in load_split("c-eval")}
    assert all("int main(void)" in program for _, program in documents)
    assert not any(statement in prompt for prompt, _ in documents for statement in asked)
