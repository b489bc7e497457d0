"""Progress for people: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from securecoderl_edge.commands import console
from securecoderl_edge.errors import SceError


def test_a_folder_that_is_not_writable_is_told_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "new" / "x.jsonl"
    console.refuse_to_overwrite(out, False)
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)  # root may write everywhere
    with pytest.raises(SceError, match="its folder is not writable"):
        console.refuse_to_overwrite(out, False)


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.24, "1.2 s"), (59.9, "59.9 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert console.duration(seconds) == text


def test_off_a_terminal_each_update_is_a_line_with_its_note(capsys: pytest.CaptureFixture[str]) -> None:
    with console.track(3, "training") as progress:
        progress.update(1, "reward [0.5]")
        progress.update(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "training 1/3  reward [0.5]"
    assert lines[1].startswith("training 2/3  ")
    assert lines[1].endswith(" left")


def test_the_last_line_has_no_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    with console.track(2, "training") as progress:
        progress.update(1)
        progress.update(1)
    assert capsys.readouterr().err.splitlines()[-1] == "training 2/2"


def test_a_tracker_without_lines_is_silent_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with console.track(2, "nano", lines=False) as progress:
        progress.update(1, "note")
    assert capsys.readouterr() == ("", "")


def test_the_bar_escapes_names_that_others_chose(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Console(stderr=True, force_terminal=True, color_system=None, width=100, markup=False)
    monkeypatch.setattr(console, "talk", terminal)
    with console.track(2, "model\x1b]0;owned\x07") as progress:
        progress.update(1, "note\x1b[2J")
    shown = capsys.readouterr().err
    assert "owned" in shown
    assert "\x1b]0" not in shown
    assert "\x1b[2J" not in shown


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("no_color", [False, True])
def test_on_a_terminal_a_second_bar_names_the_stage_and_counts_its_tokens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, no_color: bool
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    terminal = Console(stderr=True, force_terminal=True, color_system="standard", width=width, markup=False)
    monkeypatch.setattr(console, "talk", terminal)
    with console.track(6, "training") as progress:
        progress.show_stage("loading the model", 0, 0, "tokens")
        progress.show_stage("held-out evaluation: sampling", 0, 49_152, "tokens")
        progress.show_stage("held-out evaluation: sampling", 1_234, 49_152, "tokens")
        progress.reach(2, "sft 2/2")
    raw = capsys.readouterr().err
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", raw)) != no_color
    lines = re.split("[\r\n]", re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", raw))
    assert max(map(len, lines)) <= width
    (stage,) = {line.split("━")[0].strip() for line in lines if "1,234/49,152" in line}
    assert stage.startswith("held-out evaluation: sampling" if width == 80 else "held-out e")
    assert any("2/6" in line for line in lines)


def test_off_a_terminal_a_stage_is_named_if_nothing_else_was_printed_for_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with console.track(6, "training") as progress:
        progress.show_stage("sampling", 0, 100, "tokens")
        progress.show_stage("sampling", 50, 100, "tokens")
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(console, "QUIET_SECONDS", 0.0)
        progress.show_stage("sampling", 51, 100, "tokens")
    assert capsys.readouterr().err == "training 0/6  sampling 51/100 tokens\n"


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(console, "talk", Console(stderr=True, force_terminal=True, width=80, markup=False))
    with console.track(2, "training") as progress:
        progress.update(1)
    assert capsys.readouterr().err == "training 1/2\n"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_on_a_terminal_the_bar_keeps_to_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    terminal = Console(stderr=True, force_terminal=True, color_system=None, width=width, markup=False)
    monkeypatch.setattr(console, "talk", terminal)
    with console.track(120, "training") as progress:
        progress.update(12, "partial 12/120  reward 0.523  all tests 33%  syntax 91%  KL 0.02")
    shown = re.sub(r"\x1b\[[?0-9]*[a-zA-Z]", "", capsys.readouterr().err)
    assert "12/120" in shown
    assert max(len(line) for line in re.split("[\r\n]", shown)) <= width
    assert width < 80 or "all tests 33%" in shown
