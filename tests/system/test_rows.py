"""Rows of metrics."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from securecoderl_edge.errors import SceError
from securecoderl_edge.system import rows
from securecoderl_edge.system.rows import RowFile, read_jsonl


def test_rows_come_back_and_numbers_that_json_lacks_are_null(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "new" / "rows.jsonl")
    assert file.read() == []
    file.append(
        [{"phase": "a", "step": 1, "x": float("nan"), "y": {"z": [float("inf")]}}, {"phase": "b", "step": 2, "x": 0.5}]
    )
    assert file.read() == [
        {"phase": "a", "step": 1, "x": None, "y": {"z": [None]}},
        {"phase": "b", "step": 2, "x": 0.5},
    ]


def test_rewinding_drops_later_rows_of_one_phase_and_a_line_cut_short(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.jsonl")
    file.append([{"phase": "a", "step": step} for step in (1, 2, 3)] + [{"phase": "b", "step": 9}])
    with file.path.open("a") as out:
        out.write("[" * 100_000 + "\n")
        out.write('{"phase": "b", "st')
    file.rewind("a", 1)
    assert [(row["phase"], row["step"]) for row in file.read()] == [("a", 1), ("b", 9)]


def test_a_line_without_an_end_is_an_error_and_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LONGEST_LINE", 1 << 10)
    path = tmp_path / "x.jsonl"
    path.write_text("1\n" + "2" * 5000 + "\n3\n")
    broken: list[int] = []
    assert [value for _, value in read_jsonl(path, broken.append)] == [1, 3]
    assert broken == [2]
    with pytest.raises(SceError, match=r"x\.jsonl:2: a line of more than"):
        list(read_jsonl(path))


def test_of_a_line_that_does_not_end_little_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "x.jsonl"
    path.touch()
    os.truncate(path, 1 << 34)
    with pytest.raises(SceError, match=r"x\.jsonl:1: a line of more than"):
        list(read_jsonl(path))
    with pytest.raises(SceError, match=r"x\.jsonl: a line of more than"):
        list(read_jsonl(path, lambda number: None))
    with open(path, "rb", buffering=0) as file:
        for _ in rows.bounded_lines(file):
            assert file.tell() == rows.LONGEST_LINE
            break


def test_a_line_that_is_no_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("[1]\n")
    with pytest.raises(SceError, match=r"rows\.jsonl:1: not a JSON object"):
        RowFile(tmp_path / "rows.jsonl").read()


def test_a_bomb_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_BLANK", 100)
    monkeypatch.setattr(rows, "_MOST_CONTAINERS", 100)
    path = tmp_path / "rows.jsonl.gz"
    for content, message in (
        (b"\n" * 101, "more than 100 blank lines"),
        (b"[" * 101, "more than 100 objects and lists"),
    ):
        path.write_bytes(gzip.compress(content))
        with pytest.raises(SceError, match=rf"rows.jsonl.gz:?1?: {message}"):
            list(rows.read_jsonl(path))
    path.write_bytes(gzip.compress(b"\n" * 99 + b"{}\n" + b"\n" * 99))
    assert len(list(rows.read_jsonl(path))) == 1
