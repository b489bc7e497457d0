"""What a visitor is shown: five prompts with all answers, and demos whose commands exist."""

from __future__ import annotations

from typing import Any

import click
import pytest
from places import ROOT

from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.problems.train_eval_split import find_leaks
from securecoderl_edge.scoring.scorer import Submission
from securecoderl_edge.system.files import read_json


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def test_the_five_prompts_can_be_solved_and_are_in_no_benchmark(benchmarks: None, scorer: Any) -> None:
    import five_prompts

    problems = load_problems(str(five_prompts.PROMPTS))
    assert len(problems) == 5
    scores = scorer.score_all(Submission(each, each.solutions[0]) for each in problems)
    assert all(score.passes_all_tests for score in scores)
    for benchmark in ("mbpp:all", "humaneval"):
        assert find_leaks(load_problems(benchmark), problems) == []


def test_the_page_of_the_five_prompts_is_what_their_record_makes(benchmarks: None) -> None:
    import five_prompts

    result = read_json(five_prompts.RESULT)
    assert five_prompts.PAGE.read_text(encoding="utf-8") == five_prompts.page(result)
    for model in five_prompts.MODELS:
        rows = result["answers"][model]
        assert [row["id"] for row in rows] == [each.id for each in load_problems(str(five_prompts.PROMPTS))]
        assert result["right"][model] == sum(row["is_right"] for row in rows)


@pytest.mark.parametrize("target", ["demo", "demo-c", "demo-real"])
def test_the_commands_of_the_demos_can_be_parsed(benchmarks: None, target: str) -> None:
    from demo_cost import demo_commands

    from securecoderl_edge.cli import sce

    group, names = click.Context(sce, info_name="sce", **sce.context_settings), []
    for _, _, _, name, *words in demo_commands(target):
        command = sce.get_command(group, name)
        assert command is not None
        command.make_context(name, list(words), parent=group)
        names.append(name)
    assert names == ["train", "export", "bench", "generate"]
