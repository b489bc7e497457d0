"""What a visitor is shown: five prompts with all answers, and demos whose commands exist."""

from __future__ import annotations

import click
import pytest
from places import ROOT


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


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
    assert names[-4:] == ["train", "export", "bench", "generate"]
    assert set(names[:-4]) <= {"models"}
