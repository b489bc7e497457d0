"""Files of records: forms, breaks, wrong formats, the hub's Parquet."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dataset_files import HUMANEVAL_RECORD, MBPP_RECORD, consume, write_lines

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.datasets.importing import detect_format, import_problems
from securecoderl_edge.problems.datasets.record_files import read_records
from securecoderl_edge.problems.datasets.records import Unreadable
from securecoderl_edge.problems.sources import load_problems, open_problems

OURS = {"id": "a", "statement": "s", "tests": [{"input": "", "output": "1"}]}
SANITISED = {
    "source_file": "Benchmark Questions Verification V2.ipynb", "task_id": 2, "prompt": "Add two numbers.",
    "code": "def add(a, b):\n  return a + b", "test_imports": ["import math"], "test_list": ["assert add(1, 2) == 3"],
}  # fmt: skip


def test_sanitized_mbpp_is_an_array_with_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "sanitized-mbpp.json"
    path.write_text(json.dumps([SANITISED, {**SANITISED, "task_id": 11}]), encoding="utf-8")
    problems = list(import_problems(path).problems)
    assert [problem.id for problem in problems] == ["mbpp/2", "mbpp/11"]
    assert [problem.tags for problem in problems] == [("mbpp-prompt",), ("mbpp-test",)]
    assert problems[0].statement.startswith("Add two numbers.")
    assert problems[0].assertions == ("import math\nassert add(1, 2) == 3",)


@pytest.mark.parametrize(
    ("format", "record", "looks_like"),
    [
        ("mbpp", HUMANEVAL_RECORD, "humaneval"),
        ("humaneval", MBPP_RECORD, "mbpp"),
        ("jsonl", MBPP_RECORD, "mbpp"),
        ("apps-plus", OURS, "jsonl"),
        ("code-contests", HUMANEVAL_RECORD, "humaneval"),
        ("securecoderl", OURS, "jsonl"),
        ("mbpp", {"question": "q", "inputs": ["1"], "outputs": ["1"]}, "apps-plus"),
    ],
)
def test_a_file_of_another_format_is_said_to_look_like_that(
    tmp_path: Path, format: str, record: dict[str, object], looks_like: str
) -> None:
    path = write_lines(tmp_path / "x.jsonl", [record] * 3)
    with pytest.raises(UsageError, match=f"no {format} records; it looks like {looks_like}"):
        list(import_problems(path, format).problems)


def test_a_problem_file_that_is_none_is_said_to_be_another_format_where_it_is_loaded(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.jsonl", [MBPP_RECORD])
    with pytest.raises(SceError, match=r"looks like mbpp.* sce data import"):
        load_problems(str(path))
    array = tmp_path / "x.json"
    array.write_text(json.dumps([{"question": "q", "inputs": ["1"], "outputs": ["1"]}], indent=1))
    with pytest.raises(SceError, match=r"looks like apps-plus.* sce data import"):
        load_problems(str(array))


def test_a_file_in_any_format_is_opened_as_problems(tmp_path: Path) -> None:
    for record, name in ((MBPP_RECORD, "mbpp/7"), (HUMANEVAL_RECORD, "humaneval/9"), (OURS, "a")):
        assert [each.id for each in open_problems(str(write_lines(tmp_path / "x.jsonl", [record])))] == [name]
    with pytest.raises(SceError, match=r"no usable mbpp problem: 1 no tests"):
        open_problems(str(write_lines(tmp_path / "x.jsonl", [{**MBPP_RECORD, "test_list": []}])))
    told: list[str] = []
    open_problems(str(write_lines(tmp_path / "x.jsonl", [MBPP_RECORD, {}])), tell=told.append)
    assert len(told) == 1
    assert '1 unusable records: 1 "task_id" or "test_list" is missing (first: x.jsonl:2)' in told[0]


def test_our_own_records_are_opened_in_any_outer_form(tmp_path: Path) -> None:
    records = [OURS, {**OURS, "id": "b"}]
    array, packed = tmp_path / "ours.json", tmp_path / "ours.json.gz"
    array.write_text(json.dumps(records, indent=1))
    packed.write_bytes(gzip.compress(json.dumps(records).encode()))
    for path in (array, packed):
        assert [each.id for each in open_problems(str(path))] == ["a", "b"]


def test_a_file_in_the_format_that_another_was_named_for_is_recognized(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.jsonl", [{**MBPP_RECORD, "task_id": 1}, {**MBPP_RECORD, "task_id": 2}])
    with pytest.raises(UsageError, match="no humaneval records; it looks like mbpp, so use --format mbpp"):
        list(import_problems(path, "humaneval").problems)
    path = write_lines(tmp_path / "x.jsonl", [HUMANEVAL_RECORD, MBPP_RECORD])
    problems, dropped, _ = consume(import_problems(path, "humaneval"))
    assert (len(problems), sum(dropped.values())) == (1, 1)


def test_parts_of_a_data_set_are_read_one_after_the_other(tmp_path: Path) -> None:
    parts = [write_lines(tmp_path / f"{n}.jsonl", [{**MBPP_RECORD, "task_id": n}, MBPP_RECORD]) for n in (1, 2)]
    problems, dropped, _ = consume(import_problems(parts))
    assert [problem.id for problem in problems] == ["mbpp/1", "mbpp/7", "mbpp/2"]
    assert dropped == {"duplicate id": 1}


def test_parquet_is_read_like_jsonl(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    records = [{**MBPP_RECORD, "task_id": number} for number in range(200)]
    for record in records:
        record.pop("challenge_test_list", None)
    path = tmp_path / "test-00000-of-00001.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(records), path)
    problems, dropped, _ = consume(import_problems(path))
    assert problems == list(import_problems(write_lines(tmp_path / "x.jsonl", records)).problems)
    assert dropped == {}
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(SceError, match="damaged Parquet file"):
        list(import_problems(path, "mbpp").problems)


# Other compressions, Arrow, CSV, folders


@pytest.mark.parametrize(("ending", "compress"), [("bz2", bz2.compress), ("xz", lzma.compress)])
def test_other_compressions_are_read_and_their_damages_reported(
    tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    lines = "".join(json.dumps({**OURS, "id": f"{number}"}) + "\n" for number in range(3000)).encode()
    path = tmp_path / f"x.jsonl.{ending}"
    path.write_bytes(compress(lines))
    assert len(open_problems(str(path))) == 3000
    path.write_bytes(compress(lines) + compress(lines)[:-20])  # a second part, which is cut
    _, dropped, _ = consume(import_problems(path, "jsonl"))
    assert dropped["the file is truncated"] == 1
    path.write_bytes(b"not compressed at all")
    with pytest.raises(SceError, match=r"x\.jsonl"):
        import_problems(path)


def test_zstandard_is_named_with_the_command_that_helps(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd rest")
    with pytest.raises(SceError, match="Decompress it with: zstd -d"):
        import_problems(path)


def write_arrow(path: Path, records: list[dict[str, Any]], *, is_file: bool) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    ipc = pytest.importorskip("pyarrow.ipc")
    table = pyarrow.Table.from_pylist(records)
    with (ipc.new_file if is_file else ipc.new_stream)(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return path


@pytest.mark.parametrize("is_file", [True, False])
def test_arrow_files_and_streams_are_read(tmp_path: Path, is_file: bool) -> None:
    records = [{**OURS, "id": f"{number}"} for number in range(20)]
    path = write_arrow(tmp_path / "data-00000-of-00001.arrow", records, is_file=is_file)
    assert [each.id for each in open_problems(str(path))] == [record["id"] for record in records]
    path.write_bytes(path.read_bytes()[:-300])
    if is_file:  # its table of contents is at the end
        with pytest.raises(SceError, match="damaged Arrow file"):
            list(import_problems(path, "jsonl").problems)
    else:
        problems, dropped, _ = consume(import_problems(path, "jsonl"))
        assert (0 < len(problems) < 20, dropped) == (True, {"the file is damaged from here on": 1})


def test_cells_of_a_csv_file_are_texts_and_json_lists_and_objects(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "statement", "tests", "difficulty", "solutions"])
        writer.writerow(["a", "[not JSON", json.dumps(OURS["tests"]), "", json.dumps(["print(1)\nprint(2)"])])
        writer.writerow(["b", "two\nlines", json.dumps(OURS["tests"])])
        writer.writerow(["c", "s", "[]", "", "", "more", "cells"])
    problems, dropped, _ = consume(import_problems(path))
    assert [(each.id, each.statement) for each in problems] == [("a", "[not JSON"), ("b", "two\nlines")]
    assert problems[0].solutions == ("print(1)\nprint(2)",)
    assert dropped == {"no tests": 1}


def test_a_damaged_csv_file_costs_what_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"id,statement\na,\xff\xfe\nb,good\n")
    values = [record.value for record in read_records(path)]
    assert values == [Unreadable("not UTF-8 text"), {"id": "b", "statement": "good"}]


def test_a_csv_file_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with path.open("w") as out:
        out.write("id,statement\n")
        out.writelines(f"{number},{'s' * 2000}\n" for number in range(5000))
    tracemalloc.start()
    count = sum(1 for _ in read_records(path))
    assert (count, tracemalloc.get_traced_memory()[1] < 2 << 20) == (5000, True)
    tracemalloc.stop()


def test_a_row_of_many_lines_does_not_take_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securecoderl_edge.problems.datasets.record_files._LONGEST_VALUE", 200_000)
    path = tmp_path / "x.csv"
    with path.open("w") as out:
        out.write('id,statement\na,"two\nlines"\n')
        out.writelines(['"' + "s" * 100_000 + '\n",'] * 200)
    tracemalloc.start()
    try:
        values = [record.value for record in read_records(path)]
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()
    assert values == [{"id": "a", "statement": "two\nlines"}, Unreadable("the file is damaged from here on")]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_a_folder_of_shards_is_one_set(tmp_path: Path, kind: str) -> None:
    for shard in range(3):
        record = {**OURS, "id": f"{shard}"}
        path = tmp_path / "data" / f"train-0000{shard}-of-00003.{kind}"
        path.parent.mkdir(exist_ok=True)
        if kind == "jsonl":
            write_lines(path, [record])
        elif kind == "arrow":
            write_arrow(path, [record], is_file=False)
        else:
            pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            parquet.write_table(pyarrow.Table.from_pylist([record]), path)
    (tmp_path / "state.json").write_text("{}")  # as `save_to_disk` writes it
    (tmp_path / "dataset_info.json").write_text("{}")
    assert detect_format(tmp_path) == "jsonl"
    assert [each.id for each in open_problems(str(tmp_path))] == ["0", "1", "2"]


def test_a_folder_with_several_sets_needs_a_pattern(tmp_path: Path) -> None:
    for name in ("train.jsonl", "test.jsonl"):
        write_lines(tmp_path / name, [OURS])
    with pytest.raises(UsageError, match=r"several data files; choose with --files PATTERN: test\.jsonl, train\.jsonl"):
        import_problems(tmp_path)
