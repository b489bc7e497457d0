"""The generator of the built-in problems: its families, and the data that it writes."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from dataclasses import replace

import pytest
from build import FILES, Apart, text_of
from families._compose import compose, piece
from families.catalogue import GENERAL, HARD, SECURITY
from family import choose_wording, is_held_out
from generate import build_problem, compositions

from securecoderl_edge.problems.near_duplicates import SIMILARITY, jaccard, word_pairs
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.starter.splits import FOLDER, load_split


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_the_generator_writes_the_packaged_data_again(file: str) -> None:
    assert text_of(file) == gzip.decompress((FOLDER / f"{file}.jsonl.gz").read_bytes())


def test_the_packaged_files_are_those_of_the_generator_without_times_and_names() -> None:
    assert {path.name for path in FOLDER.glob("*.gz")} == {f"{file}.jsonl.gz" for file in FILES}
    for path in FOLDER.glob("*.gz"):
        flags_and_time = path.read_bytes()[3:8]
        assert flags_and_time == bytes(5), path


def test_family_names_and_composition_keys_are_unique() -> None:
    families = GENERAL + HARD + SECURITY
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert len(set(family.compositions)) == len(family.compositions)


def place_of(problem: Problem) -> tuple[str, str]:
    """Family and composition, which are the same in all languages."""
    _, family, composition = problem.id.partition("#")[0].split("/", 2)
    return family, composition


def test_a_composition_is_held_out_by_its_name_in_all_languages() -> None:
    for split in ("eval", "hard", "security", "c-eval"):
        assert all(is_held_out(*place_of(problem)) for problem in load_split(split))
    for split in ("train", "hard-train", "c-train"):
        assert not any(is_held_out(*place_of(problem)) for problem in load_split(split))


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


def test_a_family_that_keeps_a_part_of_its_combinations_uses_its_pieces_evenly() -> None:
    tables = {name: {f"{name}{number}": piece("do it") for number in range(6)} for name in "abc"}

    def rare(first: str, second: str, third: str) -> bool:
        return first == "a0" and (second, third) != ("b0", "c0") and second in ("b0", "b1")

    family = compose("even", tables, ("Do.",), ("print()\n",), lambda rng: "\n", skip=rare, size=60)
    assert len(family.compositions) == 60
    uses = Counter(place for key in family.compositions for place in enumerate(key.split("/")))
    assert 7 <= min(uses.values()) <= max(uses.values()) <= 13  # a piece's even share is 10


def test_wordings_vary_between_variants_of_a_composition() -> None:
    varied = 0
    for family in GENERAL:
        statements = [build_problem(family, family.compositions[0], variant).statement for variant in range(6)]
        varied += len({statement.partition("\n\nExample input")[0] for statement in statements}) > 1
    assert varied / len(GENERAL) > 0.9


@pytest.mark.parametrize(("rarity", "shares"), [(0.0, (0.25, 0.25, 0.25, 0.25)), (1.0, (0.48, 0.24, 0.16, 0.12))])
def test_later_wordings_are_rarer_by_the_power_law_that_is_asked_for(rarity: float, shares: tuple[float, ...]) -> None:
    rng = random.Random(0)
    drawn = Counter(choose_wording("abcd", rng, rarity) for _ in range(20_000))
    assert [drawn[letter] / 20_000 for letter in "abcd"] == pytest.approx(shares, abs=0.02)
