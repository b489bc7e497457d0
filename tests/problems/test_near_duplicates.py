"""Near-duplicates: found whatever was reworded a little, equal to a slow comparison of all pairs."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from dataset_files import needs_shared
from places import SHARED

from securecoderl_edge.problems import near_duplicates
from securecoderl_edge.problems.datasets.importing import import_problems
from securecoderl_edge.problems.near_duplicates import (
    SIMILARITY,
    SimilarSets,
    clusters,
    jaccard,
    normalized_words,
    pairs_between,
    similar_pairs,
    statement_hash,
    without_near_duplicates,
    word_pairs,
)
from securecoderl_edge.problems.problem import Problem, Test

TEXT = (
    "Polycarp has n coins of 3 kinds. Every morning he puts one coin into his left pocket. Print the number of days "
    "after which the left pocket holds more coins than the right pocket, or -1 if that never happens."
)


def problem(text: str, name: str = "p", starter_code: str = "") -> Problem:
    return Problem(name, text, tests=(Test("1", "1"),), starter_code=starter_code)


@pytest.mark.parametrize(
    "other",
    [
        TEXT.upper(),
        TEXT.replace(" ", "\n  "),
        TEXT.replace("3", "1000"),
        TEXT.replace(",", ";").replace(".", " !"),
        TEXT.replace("n coins", "$n$ **coins**"),
        TEXT.replace("fi", "ﬁ"),
    ],
)
def test_case_space_punctuation_numbers_and_typography_do_not_count(other: str) -> None:
    assert statement_hash(problem(other)) == statement_hash(problem(TEXT))


def test_another_word_makes_another_hash_but_a_near_duplicate() -> None:
    other = problem(TEXT.replace("morning", "evening"))
    assert statement_hash(other) != statement_hash(problem(TEXT))
    assert list(similar_pairs([problem(TEXT), other])) == [
        (0, 1, jaccard(word_pairs(problem(TEXT)), word_pairs(other)))
    ]


def test_what_importers_add_to_a_statement_does_not_make_problems_alike() -> None:
    task = "\n\nWrite the function `f(a, b)`. For example:\nassert f(1, 2) == 3"
    assert normalized_words(problem(f"Add.{task}")) == ["add"]
    assert list(similar_pairs([problem(f"Add.{task}"), problem(f"Multiply.{task}")])) == []


def test_given_code_is_compared_too() -> None:
    task = "Complete the function `f(a)` of the given code, and write the whole program."
    first, second = (problem(task, starter_code=f'def f(a):\n    """{text}"""') for text in (TEXT, TEXT[::-1]))
    assert list(similar_pairs([first, second])) == []
    assert len(list(similar_pairs([first, first]))) == 1


def test_text_without_spaces_is_compared_by_characters() -> None:
    first = problem("整数の列が与えられます。最大の値を出力してください。")
    second = problem("整数の列が与えられます。最小の値を出力してください。")
    assert len(normalized_words(first)) > 20
    assert len(list(similar_pairs([first, second]))) == 1


def test_problems_without_words_are_no_near_duplicates_of_others() -> None:
    assert len(clusters([problem("!"), problem(TEXT), problem("?")])) == 2


def test_a_chain_of_near_duplicates_is_one_group_in_the_order_of_the_list() -> None:
    words = [f"word{chr(97 + number)}" for number in range(26)]
    chain = [problem(" ".join(words[start : start + 16])) for start in (0, 5, 10)]
    assert jaccard(word_pairs(chain[0]), word_pairs(chain[2])) < SIMILARITY
    assert clusters([problem("nothing like it"), *chain]) == [[0], [1, 2, 3]]


def test_statements_that_are_equal_but_for_numbers_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(first: frozenset[str], second: frozenset[str]) -> float:
        raise AssertionError

    monkeypatch.setattr(near_duplicates, "jaccard", compared)
    problems = [problem(f"Add {number} to a number.") for number in range(100)]
    assert clusters([*problems, problem("Another one.")]) == [list(range(100)), [100]]


def by_all_pairs(problems: list[Problem]) -> set[tuple[int, int]]:
    sets = [word_pairs(each) for each in problems]
    return {(a, b) for a, b in combinations(range(len(sets)), 2) if jaccard(sets[a], sets[b]) >= SIMILARITY}


def test_hashing_misses_no_pair_that_a_comparison_of_all_pairs_finds() -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefgh", k=5)) for _ in range(40)]
    base = [rng.choices(words, k=30) for _ in range(20)]
    texts = [[rng.choice(words) if rng.random() < share else word for word in text]
             for text in base for share in (0, 0.05, 0.1, 0.15, 0.2, 0.3)]  # fmt: skip
    problems = [problem(" ".join(text)) for text in texts]
    expected = by_all_pairs(problems)
    assert {pair[:2] for pair in similar_pairs(problems)} == expected
    assert len(expected) > 50


@needs_shared
def test_hashing_misses_no_pair_of_mbpp() -> None:
    problems = list(import_problems(SHARED / "mbpp.jsonl").problems)[:400]
    assert {pair[:2] for pair in similar_pairs(problems)} == by_all_pairs(problems)


def test_pairs_between_two_lists_are_those_of_one_list_that_cross() -> None:
    first, second = [problem(TEXT), problem("Add two numbers.")], [problem("Other."), problem(f"{TEXT} Good luck!")]
    assert [pair[:2] for pair in pairs_between(first, second)] == [(0, 1)]


def mixtures(count: int, seed: int = 2) -> list[frozenset[str]]:
    """Sets of different sizes of few pairs, of which some are in most."""
    rng = random.Random(seed)
    return [frozenset(f"p{int(30 * rng.random() ** 2)}" for _ in range(rng.randrange(40))) for _ in range(count)]


@pytest.mark.parametrize("known", [0, 30, 60])
def test_all_is_found_whichever_sets_were_known_before(known: int) -> None:
    """Pairs that no set had before have a place among the rarest too."""
    sets = mixtures(120)
    similar = SimilarSets(sets[:known])
    found: set[tuple[int, int]] = set()
    for index, pairs in enumerate(sets[known:], known):
        found |= {(other, index) for other, _ in similar.similar_to(pairs)}
        similar.add(pairs)
    both = combinations(range(len(sets)), 2)
    expected = {(a, b) for a, b in both if b >= known and jaccard(sets[a], sets[b]) >= SIMILARITY}
    assert found == expected
    assert len(expected) > 50


def test_statements_with_a_few_sentences_of_many_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than half of each statement is of twenty sentences, and the rest of it is its own."""
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefgh", k=5)) for _ in range(400)]
    sentences = [rng.choices(words, k=10) for _ in range(20)]
    texts = [sum(rng.choices(sentences, k=4), rng.choices(words, k=30)) for _ in range(200)]
    problems = [problem(" ".join(text)) for text in texts]
    problems.append(problem(f"{problems[0].statement} again"))
    calls = 0

    def counted(first: frozenset[str], second: frozenset[str]) -> float:
        nonlocal calls
        calls += 1
        return jaccard(first, second)

    monkeypatch.setattr(near_duplicates, "jaccard", counted)
    assert [pair[:2] for pair in similar_pairs(problems)] == [(0, 200)]
    assert without_near_duplicates(problems, problems[:1]) == problems[1:200]
    assert calls < 20
