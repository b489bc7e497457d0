"""Splits: disjoint under near-duplication, the same everywhere."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from dataset_files import needs_shared
from places import SHARED

from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.datasets.importing import import_problems
from securecoderl_edge.problems.near_duplicates import SIMILARITY, jaccard, word_pairs
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.train_eval_split import TrainEvalSplit, find_leaks, split_problems

WORDS = ["".join(random.Random(number).choices("abcdefghij", k=5)) for number in range(400)]


def story(number: int) -> str:
    """Forty words that no other number's story has in this order."""
    return " ".join(random.Random(number).choices(WORDS, k=40))


def paraphrase(text: str, number: int) -> str:
    """The same story: other numbers, other names for a few things, other typography."""
    words = text.split()
    for place in random.Random(number).sample(range(len(words)), 4):
        words[place] = f"Thing{chr(97 + number % 26)}"
    return " ".join(words).upper().replace("1", "17")


def problem(name: str, text: str, *tags: str) -> Problem:
    return Problem(name, text, tests=(Test("1", "1"),), tags=tags)


def with_paraphrases(count: int, paraphrases: int) -> list[Problem]:
    return [
        problem(f"{number}/{copy}", paraphrase(story(number), copy) if copy else story(number))
        for number in range(count)
        for copy in range(1 + (paraphrases if number % 3 == 0 else 0))
    ]


def test_near_duplicates_fall_on_one_side() -> None:
    problems = with_paraphrases(60, 4)
    parts = split_problems(problems, 20, seed=42)
    families = [{problems[place].id.split("/")[0] for place in part} for part in (parts.train, parts.evaluation)]
    assert not families[0] & families[1]
    assert len(families[1]) == len(parts.evaluation) == 20
    pairs = [word_pairs(each) for each in problems]
    for measured in parts.evaluation:
        assert all(jaccard(pairs[measured], pairs[trained]) < SIMILARITY for trained in parts.train)


def test_every_problem_is_in_one_part_and_only_near_duplicates_are_withheld() -> None:
    problems = with_paraphrases(30, 2)
    parts = split_problems(problems, 10, seed=1)
    assert sorted((*parts.train, *parts.evaluation, *parts.withheld)) == list(range(len(problems)))
    measured = {problems[place].id.split("/")[0] for place in parts.evaluation}
    assert {problems[place].id.split("/")[0] for place in parts.withheld} <= measured
    assert parts.groups == 30


def test_the_draw_does_not_depend_on_the_order_of_the_file() -> None:
    problems = with_paraphrases(50, 2)
    shuffled = random.Random(3).sample(problems, len(problems))
    drawn = [{part[place].id for place in split_problems(part, 15, 42).evaluation} for part in (problems, shuffled)]
    assert drawn[0] == drawn[1]


def test_more_problems_move_few_of_those_that_were_drawn() -> None:
    problems = with_paraphrases(100, 0)
    before = {problems[place].id for place in split_problems(problems[:90], 30, 42).evaluation}
    after = {problems[place].id for place in split_problems(problems, 30, 42).evaluation}
    assert len(before & after) >= 24


def test_another_seed_draws_others() -> None:
    problems = with_paraphrases(100, 0)
    drawn = [set(split_problems(problems, 20, seed).evaluation) for seed in (1, 2)]
    assert len(drawn[0] & drawn[1]) < 15


def test_the_draw_is_the_one_that_was_recorded() -> None:
    problems = [
        problem(str(number), f"Story number {chr(97 + number)} of {'xyz'[number % 3] * 3}") for number in range(12)
    ]
    assert split_problems(problems, 4, seed=42) == TrainEvalSplit((0, 1, 2, 7, 8, 9, 10, 11), (3, 4, 5, 6), (), 12)


def test_the_draw_is_the_same_in_another_process_with_another_hash_seed(tmp_path: Path) -> None:
    write_problems(tmp_path / "p.jsonl", with_paraphrases(40, 2))
    printed = []
    for seed in ("1", "2"):
        command = [
            sys.executable,
            "-m",
            "securecoderl_edge",
            "data",
            "split",
            "p.jsonl",
            "--eval",
            "9",
            "--json",
            "--force",
        ]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        printed.append(json.loads(done.stdout))
    assert printed[0] == printed[1]
    assert len(printed[0]["evaluation"]) == 9


def test_a_group_of_a_large_part_of_the_problems_is_trained_on() -> None:
    copies = [problem(f"copy/{number}", paraphrase(story(0), number)) for number in range(20)]
    parts = split_problems([*copies, *with_paraphrases(80, 0)[1:]], 40, seed=42)
    assert set(range(20)) <= set(parts.train)


def test_problems_with_a_tag_can_be_measured_on_instead() -> None:
    problems = [problem("a", story(1), "mine"), problem("b", paraphrase(story(1), 1)), problem("c", story(2))]
    assert split_problems(problems, 100, 42, tags=["mine"]) == TrainEvalSplit((2,), (0,), (1,), 2)
    with pytest.raises(UsageError, match="unknown tag 'other'; choose from mine"):
        split_problems(problems, 100, 42, tags=["mine", "other"])


def test_several_tags_hold_out_the_problems_with_any_of_them() -> None:
    problems = [problem(name, story(number), name) for number, name in enumerate("abc")]
    assert split_problems(problems, 100, 42, tags=["c", "a"]) == TrainEvalSplit((1,), (0, 2), (), 3)


def test_too_few_different_problems_are_an_error_that_counts_them() -> None:
    with pytest.raises(UsageError, match="the 9 problems form only 3 groups of near-duplicates"):
        split_problems([problem(f"{n}/{copy}", story(n)) for n in range(3) for copy in range(3)], 3, 42)
    with pytest.raises(UsageError, match="the training split is empty"):
        split_problems([problem("a", story(1), "t"), problem("b", story(2), "t")], 1, 42, tags=["t"])


def test_leaks_are_found_word_by_word_and_nearly() -> None:
    train = [problem("same", story(1)), problem("near", paraphrase(story(2), 1)), problem("new", story(3))]
    measured = [problem("one", story(1)), problem("two", story(2)), problem("four", story(4))]
    leaks = {leak.id: (leak.other_id, leak.similarity) for leak in find_leaks(train, measured)}
    assert leaks.keys() == {"same", "near"}
    assert leaks["same"] == ("one", 1.0)
    assert leaks["near"][0] == "two"
    assert SIMILARITY <= leaks["near"][1] < 1


@needs_shared
def test_a_split_of_mbpp_has_no_leaks() -> None:
    problems = list(import_problems(SHARED / "mbpp.jsonl").problems)
    parts = split_problems(problems, 100, 42)
    sides = [[problems[place] for place in part] for part in (parts.train, parts.evaluation)]
    assert find_leaks(*sides) == []
    assert find_leaks([problems[place] for place in parts.withheld], sides[1]) != []
