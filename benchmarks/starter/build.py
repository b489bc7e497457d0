"""Writes the data of the built-in problem set: generated, seeded, split by composition.

    python benchmarks/starter/build.py [--out DIR]

`securecoderl_edge.problems.starter.splits` describes the splits, which it makes of these files. No training problem is
a near-duplicate of a problem for evaluation or shares a solution with one (`Apart`): it has the first wording of which
that holds, and a composition without such a wording is left out. Those of ``c-train`` are apart from ``c-eval`` too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

from families._compose import balanced
from families.catalogue import FIRMWARE, GENERAL, HARD, OTHERS, PLAIN_LISTS, SECURITY
from family import Family
from generate import begin_problem, build_problem, compositions

from securecoderl_edge.languages.language import PYTHON, C
from securecoderl_edge.problems.near_duplicates import SimilarSets, word_pairs
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import problem_to_record
from securecoderl_edge.problems.starter.splits import FOLDER
from securecoderl_edge.system.files import temporary_beside

EVAL_SEED = 42
EVAL_SIZE = 200
C_FAMILY_SIZE = 30  # of ``c-train``, the most of one family
# Wordings of a composition that are tried; nearly all compositions have one that is far from all evaluation problems.
WORDINGS = 12
# The files whose problems have, as their first test, the example in their statement; readers drop it or the last one.
WITH_EXAMPLE = ("hard", "hard-train")
_TRAINING = {"plain-train": PLAIN_LISTS, "other-train": OTHERS, "security-train": SECURITY, "hard-train": HARD}
_EVALUATION = {"eval": GENERAL, "hard": HARD, "security": SECURITY}
FILES = (*_TRAINING, *_EVALUATION, "c-train", "c-eval")


class Apart:
    """Tells whether a problem may be trained on, given the problems for evaluation."""

    def __init__(self, evaluation: Sequence[Problem]) -> None:
        self._statements = SimilarSets(map(word_pairs, evaluation))
        self._solutions = {program for problem in evaluation for program in problem.solutions}

    def allows(self, problem: Problem) -> bool:
        """Whether it is no near-duplicate of a problem for evaluation and has none of their solutions."""
        is_near = bool(self._statements.similar_to(word_pairs(problem)))
        return self._solutions.isdisjoint(problem.solutions) and not is_near


def text_of(file: str) -> bytes:
    """The text of one of `FILES`, a record on each line."""
    return "".join(json.dumps(problem_to_record(problem)) + "\n" for problem in problems_of(file)).encode()


@lru_cache(maxsize=len(FILES))
def problems_of(file: str) -> tuple[Problem, ...]:
    """The problems of one of `FILES`, the same on every machine."""
    shows_example = file in WITH_EXAMPLE
    if file in _EVALUATION:
        drawn = _drawn(_EVALUATION[file], EVAL_SIZE)
        return tuple(build_problem(family, key, shows_example=shows_example) for family, key in drawn)
    if file in _TRAINING:
        known = compositions(_TRAINING[file], held_out=False)
        built = (build_for_training(*pair, range(WORDINGS), shows_example=shows_example) for pair in known)
        return tuple(problem for problem in built if problem)
    if file == "c-train":
        return tuple(_c_training((*GENERAL, *FIRMWARE)))
    firmware = _drawn(FIRMWARE, EVAL_SIZE)
    general = [(family, key) for family, key in _drawn(GENERAL, EVAL_SIZE) if family.has_c]
    pairs = general[: EVAL_SIZE - len(firmware)] + firmware
    return tuple(build_problem(family, key, language=C.name) for family, key in pairs)


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


@lru_cache(maxsize=2)
def built_in(language: str = PYTHON.name) -> Apart:
    """`Apart` from all problems for evaluation; in C, from those in C too."""
    files = (*_EVALUATION, *(("c-eval",) if language == C.name else ()))
    return Apart(list(chain.from_iterable(map(problems_of, files))))


def build_for_training(
    family: Family,
    composition: str,
    variants: Iterable[int],
    wording_rarity: float = 0.0,
    shows_example: bool = False,
    language: str = PYTHON.name,
) -> Problem | None:
    """`build_problem` with the first of the variants that may be trained on; None if there is none."""
    for variant in variants:
        untested, complete = begin_problem(family, composition, variant, wording_rarity, shows_example, language)
        if built_in(language).allows(untested):
            return complete()
    return None


def main() -> None:
    """Parse the command line and write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="instead of the package's own folder")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        with temporary_beside(folder / f"{file}.jsonl.gz") as temporary:
            # Neither time nor file name in the header: the same text gives the same bytes.
            temporary.write_bytes(gzip.compress(text_of(file), 9, mtime=0))


if __name__ == "__main__":
    main()
