"""The queue for a GPU: packed, sent in pieces, run, cut, resumed, brought back; here with small sizes on a CPU."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

pytest.importorskip("torch", reason="needs the train extra")

from small_runs import equal, untimed, write_additions

from securecoderl_edge.errors import SceError
from securecoderl_edge.runs import Run

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
    for part in (write.collect, lambda source, into: write.unpack(write.pieces_in(source), into)):
        with pytest.raises(write.Damaged, match=r"pieces of 2 archives .* delete those of the earlier one"):
            part(tmp_path / "mixed", tmp_path / "there")
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
    # What is not committed is made by one script, which has these names.
    made = (ROOT / "benchmarks" / "study_data" / "make.py").read_text()
    named = {Path(name) for name in [*queue.missing(), *(job.problems for job in queue.jobs)] if name.endswith("l")}
    assert {str(name.parent) for name in named} == {"problems"}
    for name in named:
        assert f'"{name.stem}"' in made or f'"{name.stem.rpartition("-")[0]}"' in made
    assert not [name for name in queue.missing() if name.endswith(".toml")]


def test_the_recipes_of_the_queue_can_be_read_and_arms_sample_equally_many_tokens(write: Any) -> None:
    import jobs

    from securecoderl_edge.training.recipe import resolve

    queue = jobs.read_queue(jobs.QUEUE)
    tokens: dict[str, set[int]] = {}
    for job in queue.jobs:
        if job.recipe.endswith(".toml"):
            settings = resolve(queue.path_of(job.recipe), job.settings, {"model": "nano", "problems": "mbpp:clean"})
            each = [getattr(settings, phase).max_tokens_sampled for phase in settings.phases]
            tokens.setdefault(job.recipe, set()).add(sum(each))
            assert settings.ppo.samples_per_prompt >= 8
    assert tokens
    assert all(len(counts) == 1 for counts in tokens.values())


def test_a_queue_without_its_problem_files_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "queue.toml").write_text(QUEUE)
    done = run(SCRIPTS / "pack.py", "--queue", str(tmp_path / "queue.toml"), "--wheels", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert done.stderr.endswith("problems.jsonl is missing; see README.md for how problem files are made\n")
    assert not (tmp_path / "out").exists()


JOB = "[[job]]\nname = 'a'\nmodel = 'nano'\nminutes = 1\n"
EVALUATED = JOB + "evaluations = ['e']\n[evaluation.e]\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"no \[\[job\]\]"),
        ("[[jobs]]\nname = 'a'\n", "unknown table 'jobs'"),
        ("[job]\nname = 'a'\n", "jobs are tables"),
        ("evaluation = 3\n" + JOB, "evaluations tables"),
        ("evaluation.e = 3\n" + JOB, "evaluations tables"),
        ("[[job]\n", "queue.toml"),
        ("\0", "queue.toml"),
        (EVALUATED.replace("minutes = 1\n", ""), "job a: minutes is missing"),
        (EVALUATED.replace("minutes = 1", "minutes = 'x'"), "minutes must be"),
        (EVALUATED.replace("minutes = 1", "minutes = -1"), "minutes must be"),
        (EVALUATED.replace("minutes = 1", "minutes = 1\nsteps = 3"), "unknown setting 'steps'"),
        (EVALUATED.replace("minutes = 1", "minutes = 1\nsettings = 'a=b'"), "settings must be"),
        (EVALUATED.replace("minutes = 1", "minutes = 1\nseeds = 3"), "seeds must be"),
        (EVALUATED.replace("'e'", "'x'"), r"no \[evaluation.x\]"),
        (EVALUATED.replace("name = 'a'\n", ""), "without a name"),
        (EVALUATED.replace("'a'", "'../a'"), "a name has letters"),
        (EVALUATED.replace("minutes = 1", "minutes = 1\nrecipe = '/etc/x.toml'"), "next to the queue file"),
        (EVALUATED + "problems = '../x.jsonl'\n", "next to the queue file"),
        (JOB, "nothing to do"),
        (JOB + EVALUATED, "job a: there are two of that name"),
    ],
)
def test_a_wrong_queue_is_refused_in_one_sentence(write: Any, tmp_path: Path, text: str, sentence: str) -> None:
    import jobs

    (tmp_path / "queue.toml").write_text(text)
    with pytest.raises(SceError, match=sentence):
        jobs.read_queue(tmp_path / "queue.toml")


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 3}', '{"../a": {"state": "done"}}', '{"a": {}}'])
def test_damaged_states_are_refused_in_one_sentence(write: Any, tmp_path: Path, text: str) -> None:
    import jobs

    (tmp_path / "jobs.json").write_text(text)
    with pytest.raises(SceError, match=r"jobs\.json"):
        jobs.read_states(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ("run.py", "--minutes", "1", "--queue", "missing.toml", "--device", "cpu"),
        ("run.py", "--minutes", "0.1", "--device", "cpu"),
        ("run.py", "--minutes", "nan", "--device", "cpu"),
        ("run.py", "--minutes", "1", "--mib", "0", "--device", "cpu"),
        ("run.py", "--minutes", "1", "--files", "0", "--device", "cpu"),
        ("run.py", "--minutes", "1", "--out", "/proc/x", "--device", "cpu"),
        ("pack.py", "--queue", "missing.toml"),
        ("pack.py", "--mib", "0"),
        ("unpack.py", "missing"),
        ("pieces.py", "collect", "missing", "/proc/x"),
    ],
)
def test_a_wrong_command_is_one_sentence(words: tuple[str, ...], tmp_path: Path) -> None:
    name, *others = words
    given = ["--work", str(tmp_path / "work"), "--results", str(tmp_path / "states")] if name == "run.py" else []
    done = run(SCRIPTS / name, *given, *others)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()[-1:]) == 1


def test_a_job_that_cannot_be_planned_or_fails_costs_no_other(tmp_path: Path) -> None:
    """And none of it is lost if the call is ended."""
    few = "limit = 1\nmax-tokens = 4\nproblems = 'starter:eval'\n"
    bad = "[[job]]\nname = 'bad'\nmodel = 'no-such'\nminutes = 0.1\nrecipe = 'starter'\n"
    fails = bad.replace("bad", "fails").replace("recipe = 'starter'", "memory_gib = 0.1\nevaluations = ['e']")
    good = fails.replace("fails", "good").replace("no-such", "nano")
    (tmp_path / "queue.toml").write_text(f"{bad}{fails}{good}[evaluation.e]\n{few}")
    places = ["--work", str(tmp_path / "work"), "--results", str(tmp_path / "states"), "--out", str(tmp_path / "out")]
    done = run(
        SCRIPTS / "run.py", "--minutes", "3", "--device", "cpu", "--queue", str(tmp_path / "queue.toml"), *places
    )
    states = json.loads((tmp_path / "states" / "jobs.json").read_text())
    assert {name: state["state"] for name, state in states.items()} == {
        "bad": "failed",
        "fails": "failed",
        "good": "done",
    }
    assert "unknown model 'no-such'" in states["bad"]["why"]
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(("jobs", "memory", "together"), [(2, 100, 2), (9, 5, 2), (9, 100, 5), (1, 100, 1)])
def test_no_more_jobs_run_at_once_than_are_asked_for_and_than_the_memory_holds(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, memory: float, together: int
) -> None:
    """Even if there is memory for all: their minutes are planned for a few, and of too many none would end in time."""
    import run as queue_run

    (tmp_path / "queue.toml").write_text(
        EVALUATED.replace("minutes = 1", "minutes = 1\nmemory_gib = 2\nseeds = [1, 2, 3, 4, 5]")
    )
    places = ["--work", str(tmp_path / "work"), "--results", str(tmp_path / "states"), "--out", str(tmp_path / "out")]
    words = ["--minutes", "3", "--device", "cpu", "--queue", str(tmp_path / "queue.toml"), "--jobs", str(jobs), *places]
    monkeypatch.setattr(sys, "argv", ["run.py", *words])
    monkeypatch.setattr(queue_run, "memory_of_device", lambda device: memory)
    now, most, all_in = 0, 0, threading.Condition()

    def do(day: Any, job: Any, memory_gib: float) -> dict[str, Any]:
        nonlocal now, most
        with all_in:
            now, most = now + 1, max(most, now + 1)
            all_in.notify_all()
            all_in.wait_for(lambda: most >= together, timeout=60)
            all_in.wait_for(lambda: most > together, timeout=0.2)  # one too many has time to come
            now -= 1
        return {"state": "done"}

    monkeypatch.setattr(queue_run.Day, "do", do)
    day = queue_run.Day(queue_run.parse())
    day.run()
    assert most == together
    assert len(day.ran) == 5


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_call_that_is_ended_ends_its_trainings_and_writes_what_there_is(number: int, tmp_path: Path) -> None:
    write_additions(tmp_path / "problems.jsonl")
    (tmp_path / "queue.toml").write_text(QUEUE.replace("max_steps = 2", "max_steps = 500"))
    places = ["--work", str(tmp_path / "work"), "--results", str(tmp_path / "states"), "--out", str(tmp_path / "out")]
    words = ["--minutes", "5", "--device", "cpu", "--queue", str(tmp_path / "queue.toml"), *places]
    call = subprocess.Popen([sys.executable, str(SCRIPTS / "run.py"), *words], stdout=subprocess.PIPE, text=True)
    while not list((tmp_path / "work").glob("small-1/metrics.jsonl")):
        assert call.poll() is None
        time.sleep(0.05)
    call.send_signal(number)
    call.communicate(timeout=120)
    assert call.returncode == 128 + number
    states = json.loads((tmp_path / "states" / "jobs.json").read_text())
    assert states["small-1"]["state"] == "cut"
    assert list((tmp_path / "out").iterdir())
    left = subprocess.run(["pgrep", "-f", str(tmp_path / "work")], capture_output=True, text=True)
    assert left.stdout == ""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_that_was_cut_goes_on_elsewhere_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Its checkpoint comes back with the results, and goes out with the next pieces, into another folder."""
    write_additions(tmp_path / "problems.jsonl")
    queue = tmp_path / "queue.toml"
    queue.write_text(QUEUE.replace("[1, 2]", "[1]").replace("max_steps = 2", "max_steps = 6"))

    def words(name: str) -> list[str]:
        places = [("--work", "work"), ("--results", "states"), ("--out", "out")]
        given = [word for option, folder in places for word in (option, str(tmp_path / name / folder))]
        return ["--minutes", "5", "--device", "cpu", "--queue", str(queue), *given]

    assert run(SCRIPTS / "run.py", *words("whole")).returncode == 0

    call = subprocess.Popen([sys.executable, str(SCRIPTS / "run.py"), *words("cut"), "--checkpoints"])
    while not list((tmp_path / "cut").glob("work/small-1/phases/2-binary/checkpoints/step-*")):
        assert call.poll() is None
        time.sleep(0.01)
    call.terminate()
    call.wait(120)
    here = ["--results", str(tmp_path / "here"), "--runs", str(tmp_path / "runs")]
    kept = run(SCRIPTS / "unpack.py", str(tmp_path / "cut" / "out"), *here)
    assert "small-1: cut, its checkpoint came along" in kept.stdout, kept.stderr

    shutil.rmtree(tmp_path / "cut")
    packed = ["--queue", str(queue), *here, "--wheels", "--out", str(tmp_path / "packed")]
    assert run(SCRIPTS / "pack.py", *packed).returncode == 0
    assert run(SCRIPTS / "pieces.py", "collect", str(tmp_path / "packed"), str(tmp_path / "there")).returncode == 0
    tree = tmp_path / "there" / "tree"
    there = ["--minutes", "5", "--device", "cpu", "--out", str(tmp_path / "back")]
    done = run(tree / "benchmarks" / "gpu_queue" / "run.py", *there, PYTHONPATH=str(tree))
    assert "small-1: done" in done.stdout, (done.stdout, (tree / "runs" / "queue" / "small-1.log").read_text())

    whole, moved = tmp_path / "whole" / "work" / "small-1", tree / "runs" / "queue" / "small-1"
    assert len(json.loads((moved / "environment.json").read_text())["sessions"]) == 2
    assert untimed(Run(moved)) == untimed(Run(whole))
    assert equal(moved / "policy", whole / "policy")


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

    assert run(tree / "benchmarks" / "gpu_day.py", "--help", **paths).returncode == 0
    workers = [path.name for path in SCRIPTS.parent.glob("gpu_*_worker.py")]
    assert workers
    assert all((tree / "benchmarks" / name).is_file() for name in workers)

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
