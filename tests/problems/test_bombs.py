"""Small files with enormous content: read, or refused with a sentence, in bounded memory and CPU time."""

from __future__ import annotations

import gzip
import json
import lzma
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dataset_files import MBPP_RECORD
from quick import few

MEBIBYTE = 1 << 20
MOST_MIB, MOST_CPU_SECONDS = 1500, 180  # a slow machine next to other work needs more than 60 for one of them
PROBLEM = {"id": "a", "statement": "Print one.", "tests": [{"input": "1", "output": "1"}]}
# As a first record it tells the format of what follows.
FIRST = {"problem": json.dumps(PROBLEM).encode() + b"\n", "mbpp": json.dumps(MBPP_RECORD).encode() + b"\n"}


def long(text: bytes, mebibytes: int = 60) -> bytes:
    return text * (mebibytes * MEBIBYTE // len(text))


def of_text(name: str, *pieces: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        content = b"".join(pieces)
        path.write_bytes(gzip.compress(content, 1) if name.endswith("gz") else lzma.compress(content, preset=0))
        return path

    return write


def of_table(name: str, make: Callable[[Any], Any]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        pyarrow = pytest.importorskip("pyarrow")
        path, table = folder / name, pyarrow.table({"task_id": make(pyarrow)})
        if name.endswith(".parquet"):
            pytest.importorskip("pyarrow.parquet").write_table(table, path, compression="zstd")
            return path
        options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
        with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema, options=options) as out:
            out.write_table(table)
        return path

    return write


def list_of_nulls(pyarrow: Any) -> Any:
    return pyarrow.ListArray.from_arrays(pyarrow.array([0, 1 << 30], pyarrow.int32()), pyarrow.nulls(1 << 30))


def same_text(pyarrow: Any) -> Any:
    text = pyarrow.array(["x" * (50 * MEBIBYTE)])
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 1000, pyarrow.int32()), text)


BOMBS: dict[str, Callable[[Path], Path]] = {
    "objects": of_text("a.jsonl.gz", b'{"a":[', long(b"{},"), b"{}]}\n"),
    "lists": of_text("a.jsonl.gz", FIRST["problem"], b'{"a":[', long(b"[],"), b"[]]}\n"),
    "nested lists": of_text("a.jsonl.gz", b'{"a":', long(b"["), b"\n"),
    "an array of lists": of_text("a.json.gz", b"[[", long(b"[],"), b"[]]]"),
    "an array with lists late": of_text("a.json.gz", b"[", FIRST["mbpp"], b",[", long(b"[],"), b"[]]]"),
    "an object of lists": of_text("a.json.gz", b'{"x":{"a":[', long(b"[],"), b"[]]}}"),
    "names": of_text("a.jsonl.gz", b"{", b"".join(b'"%x":0,' % n for n in range(5_000_000)), b'"z":0}\n'),
    "floats": of_text("a.jsonl.gz", b'{"a":[', long(b"1.5,"), b"1]}\n"),
    "wide text": of_text("a.jsonl.gz", '{"statement":"😀'.encode(), long(b"a"), b'"}\n'),
    "an assertion": of_text("a.jsonl.gz", FIRST["mbpp"], json.dumps({**MBPP_RECORD, "task_id": 77, "test_list": ["X"]})
                            .encode().replace(b'"X"', b'"assert f(1) == [' + long(b"1,", 7) + b'1]"'), b"\n"),
    "newlines": of_text("a.jsonl.gz", FIRST["mbpp"], long(b"\n", 10)),
    "a long line": of_text("a.jsonl.gz", FIRST["mbpp"], long(b" ", 200)),
    "small objects": of_text("a.jsonl.gz", FIRST["mbpp"], long(b"{}\n", 30)),
    "numbers": of_text("a.jsonl.gz", FIRST["mbpp"], long(b"1\n", 30)),
    "broken lines": of_text("a.jsonl.gz", FIRST["mbpp"], long(b"{\n", 30)),
    "the same problem": of_text("a.jsonl.gz", long(FIRST["mbpp"], 5)),
    "small values of an array": of_text("a.json.gz", b"[", FIRST["mbpp"], long(b",{}", 30), b"]"),
    "cells": of_text("a.csv.gz", b"task_id,text\n", long(b","), b"\n"),
    "columns": of_text("a.csv.gz", long(b","), b"\n1,2\n"),
    "rows": of_text("a.csv.gz", b"task_id,text,code,test_list\n", long(b"1,2\n", 30)),
    "objects, with xz": of_text("a.jsonl.xz", b'{"a":[', long(b"{},"), b"{}]}\n"),
    "a list of nulls": of_table("a.arrow", list_of_nulls),
    "the same text": of_table("a.arrow", same_text),
    "nulls": of_table("a.parquet", lambda pyarrow: pyarrow.nulls(20_000_000)),
    "nested lists in Parquet": of_table("a.parquet", lambda pyarrow: pyarrow.array([[[]] * 20_000_000])),
    "the same text in Parquet": of_table("a.parquet", same_text),
    "one number in Parquet": of_table("a.parquet", lambda pyarrow: pyarrow.array([0] * 100_000_000, pyarrow.int8())),
}  # fmt: skip
QUICK = ("objects", "small objects", "nested lists in Parquet")
COMMANDS = {
    "import": ("data", "import", "BOMB", "--out", "out.jsonl"),
    "import, of a format": ("data", "import", "BOMB", "--format", "mbpp", "--out", "out.jsonl"),
    "problems": ("score", "--problems", "BOMB", "--completions", "completions.jsonl", "--workers", "1"),
    "completions": ("score", "--problems", "problems.jsonl", "--completions", "BOMB", "--workers", "1"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bombs")
    (folder / "problems.jsonl").write_bytes(FIRST["problem"])
    (folder / "completions.jsonl").write_text(json.dumps({"id": "a", "completion": "print(1)"}) + "\n")
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", few(BOMBS, *QUICK))
def test_a_bomb_is_read_or_refused_in_bounded_memory(name: str, folder: Path, tmp_path: Path) -> None:
    bomb = BOMBS[name](tmp_path)
    for how, words in COMMANDS.items():
        said, code, mebibytes = run([str(bomb) if word == "BOMB" else word for word in words], folder)
        assert code in (0, 1, 2), (how, code, said)
        assert "Traceback" not in said, (how, said)
        assert "a bug in sce" not in said, (how, said)
        assert code == 0 or said, how
        assert 0 < mebibytes < MOST_MIB, (how, said)
        (folder / "out.jsonl").unlink(missing_ok=True)


# The most memory of a process that was forked is at first that of its parent; this is its own.
PROGRAM = """
import atexit, sys
atexit.register(lambda: sys.stderr.write("\\n" + next(each for each in open("/proc/self/status") if "VmHWM" in each)))
from securecoderl_edge.cli import main
main(sys.argv[1:])
"""


def run(words: list[str], folder: Path) -> tuple[str, int, int]:
    """What a command says on standard error, its exit code, and the MiB that it had at most."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM, *words],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Far more than it may have, so that no test takes the memory of the machine.
        preexec_fn=lambda: (
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)),
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_SECONDS, MOST_CPU_SECONDS)),
        ),
    )
    said, _, most = done.stderr.rpartition("VmHWM:")
    return said.strip(), done.returncode, int(most.split()[0]) >> 10 if most.strip() else 0
