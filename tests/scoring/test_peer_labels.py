"""Programs that CodeRL generated and people wrote for two APPS problems, against the results recorded for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from places import SHARED
from quick import few

from securecoderl_edge.problems.datasets.importing import import_problems
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.scoring.scorer import Scorer, Submission

APPS = SHARED / "apps"
pytestmark = pytest.mark.skipif(not APPS.exists(), reason="needs ../shared/data/apps")
NAMES = ("0001", "4184")
names = pytest.mark.parametrize("name", few(NAMES, "0001"))


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(limits=Limits(cpu_seconds=4)) as opened:  # as CodeRL gave them
        yield opened


@pytest.fixture(scope="module")
def hasty() -> Iterator[Scorer]:
    with Scorer(limits=Limits(cpu_seconds=0.5)) as opened:
        yield opened


@pytest.fixture(scope="module")
def problems() -> dict[str, Problem]:
    found = {problem.id.rpartition("/")[2]: problem for problem in import_problems(APPS, "apps").problems}
    return {name: found[name] for name in NAMES}


def read(name: str, file: str) -> Any:
    return json.loads((APPS / "train" / name / file).read_text())


def as_recorded(score: Score) -> object:
    """Our verdicts in the words of CodeRL: the worst of all tests counts."""
    if not score.parses:
        return -2
    if set(score.verdicts) - {"pass", "wrong", "silent"}:
        return -1
    return set(score.verdicts) == {"pass"}


@names
def test_every_program_that_people_wrote_passes(name: str, problems: dict[str, Problem], scorer: Scorer) -> None:
    programs = read(name, "solutions.json")
    scores = scorer.score_all(Submission(problems[name], program) for program in programs)
    assert [score.stage for score in scores] == [4] * len(programs)


@names
def test_generated_programs_get_the_results_that_coderl_recorded(
    name: str, problems: dict[str, Problem], hasty: Scorer
) -> None:
    generated = read(name, "gen_solutions.json")
    scores = hasty.score_all(Submission(problems[name], each["code"]) for each in generated)
    differing = [
        (each["result"], each["error_type"], as_recorded(score))
        for each, score in zip(generated, scores, strict=True)
        if each["result"] != as_recorded(score)
    ]
    # CodeRL imports a program to compile it, so a NameError at module level is "does not compile" there. Here the
    # function is still called, and gives a wrong answer.
    explained = {"0001": [], "4184": [(-2, "nameerror", False)]}
    assert differing == explained[name]
