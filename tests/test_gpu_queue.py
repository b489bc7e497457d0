"""The queue for a GPU: packed, sent in pieces, run, cut, resumed, brought back; here with small sizes on a CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

pytest.importorskip("torch", reason="needs the train extra")

from small_runs import write_additions

SCRIPTS = ROOT / "benchmarks" / "gpu_queue"
MIB = 2**20
SETTINGS = """["sft.steps=2", "sft.batch_size=2", "ppo.batch_size=4", "ppo.samples_per_prompt=2", "ppo.max_tokens=12",
    "readiness_problems=0", "selection.problems=0", "phases=['sft', 'binary']", "checkpoint_every=1"]"""
QUEUE = f"""
[evaluation.few]
problems = "starter:eval"
limit = 2
max-tokens = 8

[[job]]
name = "small"
model = "nano"
recipe = "starter"
problems = "problems.jsonl"
max_steps = 2
minutes = 1
memory_gib = 1
seeds = [1, 2]
settings = {SETTINGS}
evaluations = ["few"]

[[job]]
name = "base"
model = "nano"
minutes = 0.5
memory_gib = 1
evaluations = ["few"]
"""


def run(script: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import pieces

    return pieces


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Pieces


FILES: dict[str, bytes] = {"b/large": os.urandom(3 * MIB // 2), "a": b"", "c/d/small": b"x", "exact": bytes(MIB // 4)}


def test_pieces_in_any_order_and_twice_give_the_files_again(write: Any, tmp_path: Path) -> None:
    sent = write.write_pieces(FILES.items(), tmp_path / "packed", 0.25)
    assert len(sent) > 6
    assert max(piece.path.stat().st_size for piece in sent) == MIB // 4
    for count, piece in enumerate([*reversed(sent[1:]), sent[3], sent[0]], start=1):
        shutil.rmtree(tmp_path / "arrived", ignore_errors=True)
        (tmp_path / "arrived").mkdir()
        shutil.copy(piece.path, tmp_path / "arrived")
        assert not (tmp_path / "there" / "tree").exists()
        said = write.collect(tmp_path / "arrived", tmp_path / "there")
        if count == 2:
            assert said.startswith(f"2 of {len(sent)} pieces are here; missing: 1, 2, ")
    assert said.startswith(f"all {len(sent)} pieces are unpacked in ")
    assert files_in(tmp_path / "there" / "tree") == FILES


def test_the_same_files_give_the_same_pieces_and_others_replace_them(write: Any, tmp_path: Path) -> None:
    def names(files: dict[str, bytes]) -> list[str]:
        write.write_pieces(files.items(), tmp_path, 1)
        return sorted(path.name for path in tmp_path.iterdir())

    first = names(FILES)
    assert first == names(dict(reversed(FILES.items())))
    second = names({**FILES, "a": b"y"})
    assert len(second) == len(first)
    assert not set(first) & set(second)


@pytest.mark.parametrize("change", ["flip", "cut", "longer"])
def test_a_damaged_piece_is_refused_and_can_be_sent_again(write: Any, tmp_path: Path, change: str) -> None:
    sent = write.write_pieces(FILES.items(), tmp_path / "packed", 1)
    right = sent[0].path.read_bytes()
    wrong = {"flip": right[:99] + bytes([right[99] ^ 1]) + right[100:], "cut": right[:-1], "longer": right + b"0"}
    sent[0].path.write_bytes(wrong[change])
    for part in (write.collect, lambda source, into: write.unpack(write.pieces_in(source), into)):
        with pytest.raises(write.Damaged, match="damaged on its way; send it again"):
            part(tmp_path / "packed", tmp_path / "there")
    sent[0].path.write_bytes(right)
    assert "are unpacked" in write.collect(tmp_path / "packed", tmp_path / "there")


def test_pieces_of_an_earlier_archive_do_not_count(write: Any, tmp_path: Path) -> None:
    first = write.write_pieces(FILES.items(), tmp_path / "one", 0.5)
    second = write.write_pieces({"a": os.urandom(MIB)}.items(), tmp_path / "two", 0.5)
    (tmp_path / "mixed").mkdir()
    for piece in (first[0], second[0]):
        shutil.copy(piece.path, tmp_path / "mixed")
    with pytest.raises(write.Damaged, match="pieces of 2 archives"):
        write.collect(tmp_path / "mixed", tmp_path / "there")
    first[1].path.unlink()
    write.collect(tmp_path / "one", tmp_path / "there")
    assert "are unpacked" in write.collect(tmp_path / "two", tmp_path / "there")
    assert not list((tmp_path / "there" / "pieces").iterdir())


@pytest.mark.parametrize("name", ["../out", "a/../../out"])
def test_no_file_leaves_the_tree(write: Any, tmp_path: Path, name: str) -> None:
    write.write_pieces({name: b"x"}.items(), tmp_path / "packed", 1)
    with pytest.raises(write.Damaged, match="may be unpacked"):
        write.unpack(write.pieces_in(tmp_path / "packed"), tmp_path / "in" / "tree")
    assert not (tmp_path / "in" / "out").exists()


def test_results_that_do_not_fit_are_named_and_the_first_ones_kept(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import results

    files = {"states": b"s", "large": os.urandom(3 * MIB), "rows": os.urandom(MIB), "adapter": os.urandom(MIB)}
    said = results.write_results(files.items(), tmp_path / "work", tmp_path / "out", files=2, mib=1)
    assert [line.split(":")[0] for line in said] == ["large", "adapter"]
    sizes = [path.stat().st_size for path in (tmp_path / "out").iterdir()]
    assert len(sizes) <= 2
    assert max(sizes) <= MIB
    write.unpack(write.pieces_in(tmp_path / "out"), tmp_path / "tree")
    assert files_in(tmp_path / "tree") == {"states": files["states"], "rows": files["rows"]}


# The queue


def test_the_committed_queue_is_right_and_says_what_it_needs(write: Any) -> None:
    import jobs

    queue = jobs.read_queue(jobs.QUEUE)
    assert queue.jobs
    assert all(job.minutes <= 14 for job in queue.jobs)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[job]]\nname = 'a'\nmodel = 'nano'\n", "job a: .*'minutes'"),
        ("[[job]]\nname = 'a'\nmodel = 'nano'\nminutes = 1\nsteps = 3\n", "job a: .*'steps'"),
        ("[[job]]\nname = 'a'\nmodel = 'nano'\nminutes = 1\nevaluations = ['x']\n", r"no \[evaluation.x\]"),
        (2 * "[[job]]\nname = 'a'\nmodel = 'nano'\nminutes = 1\n", "two jobs are called a"),
    ],
)
def test_a_wrong_queue_is_refused_in_one_sentence(write: Any, tmp_path: Path, text: str, sentence: str) -> None:
    import jobs

    (tmp_path / "queue.toml").write_text(text)
    with pytest.raises(SystemExit, match=sentence):
        jobs.read_queue(tmp_path / "queue.toml")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_rehearsal(tmp_path: Path) -> None:
    """All of a day: pack, transfers, jobs side by side, one cut, resumed in the next call, unpacked, nothing left."""
    write_additions(tmp_path / "problems.jsonl")
    (tmp_path / "queue.toml").write_text(QUEUE)
    here = ["--results", str(tmp_path / "states"), "--runs", str(tmp_path / "runs")]
    queue = ["--queue", str(tmp_path / "queue.toml")]
    packed = run(SCRIPTS / "pack.py", *queue, *here, "--wheels", "--mib", "2.5", "--out", str(tmp_path / "packed"))
    assert packed.returncode == 0, packed.stderr
    pieces = sorted((tmp_path / "packed").iterdir())
    assert len(pieces) >= 8
    assert max(piece.stat().st_size for piece in pieces) <= 2.5 * MIB

    machine = tmp_path / "machine"
    for piece in pieces:
        (tmp_path / "sent").mkdir()
        shutil.move(piece, tmp_path / "sent")
        said = run(SCRIPTS / "pieces.py", "collect", str(tmp_path / "sent"), str(machine))
        assert said.returncode == 0, said.stderr
        shutil.rmtree(tmp_path / "sent")
    assert "are unpacked" in said.stdout

    tree = machine / "tree"
    paths = {"PYTHONPATH": f"{tree}{os.pathsep}{tree / 'site'}"}
    script, out = tree / "benchmarks" / "gpu_queue" / "run.py", tmp_path / "back"
    words = ["--device", "cpu", "--out", str(out), "--mib", "0.5", "--checkpoints"]

    # With seconds left a training starts, and is cut; the others wait.
    short = run(script, "--minutes", "0.36", *words, **paths)
    assert "small-1: cut" in short.stdout, short.stderr
    assert "small-2: not started" in short.stdout

    # A call that is killed in the middle of the trainings costs what had not ended, and nothing more.
    call = subprocess.Popen([sys.executable, str(script), "--minutes", "5", *words], env={**os.environ, **paths})
    while not list((tree / "runs" / "queue").glob("small-*/phases/1-sft/adapter")):
        assert call.poll() is None
        time.sleep(0.05)
    subprocess.run(["pkill", "-9", "-f", str(tree / "runs" / "queue")], check=False)
    call.wait(120)
    states = json.loads((tree / "benchmarks" / "results" / "gpu-queue" / "jobs.json").read_text())
    assert {state["state"] for state in states.values()} <= {"done", "failed"}  # nothing is "cut"

    done = run(script, "--minutes", "5", *words, **paths)
    assert done.returncode == 0, done.stderr
    assert "small-1: done" in done.stdout, done.stdout
    sizes = [path.stat().st_size for path in out.iterdir()]
    assert len(sizes) <= 8
    assert max(sizes) <= MIB / 2

    kept = run(SCRIPTS / "unpack.py", str(out), *here)
    assert kept.returncode == 0, kept.stderr
    results = tmp_path / "states"
    assert {
        name: state["state"] for name, state in json.loads((results / "jobs.json").read_text()).items()
    } == dict.fromkeys(("base", "small-1", "small-2"), "done")
    for name in ("small-1", "small-2"):
        assert {path.name for path in (results / name).iterdir()} == {
            "config.toml",
            "environment.json",
            "few-rows.jsonl.gz",
            "few.json",
            "log.txt",
            "metrics.jsonl.gz",
        }
        assert (tmp_path / "runs" / name / "adapter" / "adapter_model.safetensors").is_file()
    assert (results / "base" / "few.json").is_file()

    again = run(SCRIPTS / "pack.py", *queue, *here, "--wheels", "--mib", "60", "--out", str(tmp_path / "packed"))
    assert "in 1 pieces" in again.stdout  # without a model: nothing is left to do
