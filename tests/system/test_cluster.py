"""Work on a Ray cluster of two nodes: results are those of this machine, whatever happens to a worker.

The tests of all commands that use a cluster are here, since it takes a quarter of a minute to start one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cli_runs import run_sce
from ray_cluster import Cluster, doubling, free_ports, two_nodes, wait_until
from study_engine.cluster_seeds import await_lock

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.evaluation.measure import model_of_node
from securecoderl_edge.problems.problem import with_few_tests
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.scoring.cluster_scorer import ClusterScorer, scorer_of_node
from securecoderl_edge.system.cluster import Work, is_ray, map_on_cluster
from securecoderl_edge.system.files import locked

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),  # Ray's own
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray", reason="needs the ray extra")
    with two_nodes() as found:
        yield found


def double_jobs(settings: dict[str, Any]) -> Work[dict[str, Any], dict[str, Any]]:
    """Work on jobs of `doubling`, three of them in a chunk."""
    return Work(doubling, settings, lambda job: job, lambda job, answer: answer, 3)


def results(cluster: Cluster, jobs: list[dict[str, Any]], **settings: Any) -> list[dict[str, Any]]:
    chunks = map_on_cluster(cluster.engine, double_jobs(settings), jobs)
    return [result for chunk in chunks for result in chunk]


def test_results_have_the_order_of_the_jobs_and_every_node_works(cluster: Cluster) -> None:
    # The first chunk is the slowest.
    found = results(cluster, [{"number": number, "seconds": 0.3 * (number < 3)} for number in range(40)])
    assert [each["double"] for each in found] == [2 * number for number in range(40)]
    assert len({each["worker"] for each in found}) == 2
    wait_until(lambda: not cluster.workers(), "the end of the workers")


def test_jobs_are_read_as_they_are_needed(cluster: Cluster) -> None:
    read = []

    def jobs() -> Iterator[dict[str, Any]]:
        for number in range(10_000):
            read.append(number)
            yield {"number": number}

    chunks = map_on_cluster(cluster.engine, double_jobs({}), jobs())
    assert [each["double"] for each in next(chunks)] == [0, 2, 4]
    assert len(read) < 500
    chunks.close()
    wait_until(lambda: not cluster.workers(), "the end of the workers")


def test_the_chunk_of_a_killed_worker_is_done_again_elsewhere(cluster: Cluster, tmp_path: Path) -> None:
    jobs: list[dict[str, Any]] = [{"number": number} for number in range(30)]
    jobs[7]["dies"] = str(tmp_path / "died")
    found = results(cluster, jobs)
    assert (tmp_path / "died").exists()
    assert [each["double"] for each in found] == [2 * number for number in range(30)]


def test_a_job_that_ends_every_worker_is_an_error(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(SceError, match="the cluster loses its workers"):
        results(cluster, [{"number": 1, "dies": str(tmp_path / "died"), "always dies": True}])


def test_an_error_of_a_job_names_its_worker(cluster: Cluster) -> None:
    with pytest.raises(SceError, match=r"worker on .*: it went wrong"):
        results(cluster, [{"number": 1, "fails": "it went wrong"}])


def test_a_worker_that_refuses_the_work_ends_it(cluster: Cluster) -> None:
    with pytest.raises(SceError, match=r"worker on .*: this kernel has no Landlock"):
        results(cluster, [{"number": 1}], refuse="this kernel has no Landlock")


def test_a_worker_with_another_version_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securecoderl_edge.system.cluster.__version__", "9.9")
    with pytest.raises(SceError, match=r"worker on .*: sce .*, but 9\.9 here\. Install one version"):
        results(cluster, [{"number": 1}])


def test_an_address_that_does_not_answer_is_said_at_once() -> None:
    pytest.importorskip("ray", reason="needs the ray extra")
    (port,) = free_ports(1)
    for engine in (f"ray://127.0.0.1:{port}", "ray://127.0.0.1:port"):
        with pytest.raises(UsageError, match=f"--engine {engine}: nobody answers"):
            list(map_on_cluster(engine, double_jobs({}), []))


def test_an_engine_is_local_or_ray() -> None:
    assert [is_ray(engine) for engine in ("local", "ray", "ray://head:10001")] == [False, True, True]
    with pytest.raises(UsageError, match="choose local, ray or ray://HOST:PORT"):
        is_ray("slurm")


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SceError, match=r"ray is not installed; run: .*\[ray\]"):
        next(map_on_cluster("ray", double_jobs({}), []))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments for ``sce score``: right and wrong programs for 40 problems."""
    monkeypatch.chdir(tmp_path)
    return write_files(40, 3)


def write_files(count: int, samples: int, most_tests: int = 5) -> list[str]:
    problems = [with_few_tests(problem, most_tests) for problem in load_problems("starter:eval")[:count]]
    write_problems(Path("problems.jsonl"), problems)
    with Path("completions.jsonl").open("w") as out:
        for sample in range(samples):
            for place, problem in enumerate(problems):
                text = problems[(place + sample) % len(problems)].solutions[0]
                out.write(json.dumps({"id": problem.id, "sample": sample, "completion": text[: 400 - sample]}) + "\n")
    return ["--problems", "problems.jsonl", "--completions", "completions.jsonl"]


def rows(file: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in Path(file).read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in found]


def start_score(*args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "securecoderl_edge", "score", *args], stderr=subprocess.PIPE)


def test_scores_are_those_of_this_machine_row_for_row(cluster: Cluster, files: list[str]) -> None:
    for engine, out in (("local", "here.jsonl"), (cluster.engine, "there.jsonl")):
        code, _, err = run_sce("score", *files, "--engine", engine, "--out", out)
        assert code == 0, err
    assert len(rows("here.jsonl")) == 120
    assert rows("there.jsonl") == rows("here.jsonl")


def test_scores_are_the_same_after_a_worker_was_killed(cluster: Cluster, files: list[str]) -> None:
    files = write_files(100, 4)
    assert run_sce("score", *files, "--out", "here.jsonl")[0] == 0
    process = start_score(*files, "--engine", cluster.engine, "--out", "there.jsonl")
    wait_until(lambda: Path("there.jsonl").exists() and Path("there.jsonl").stat().st_size, "rows")
    os.kill(cluster.workers()[0], signal.SIGKILL)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert rows("there.jsonl") == rows("here.jsonl")


def test_ctrl_c_keeps_finished_scores_and_ends_the_workers(cluster: Cluster, files: list[str]) -> None:
    files = write_files(100, 4)
    process = start_score(*files, "--engine", cluster.engine, "--out", "there.jsonl")
    wait_until(lambda: Path("there.jsonl").exists() and Path("there.jsonl").stat().st_size, "rows")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert 0 < len(rows("there.jsonl")) < 400
    wait_until(lambda: not cluster.workers(), "workers")
    code, _, told = run_sce("score", *files, "--engine", cluster.engine, "--out", "there.jsonl")
    assert (code, "completions are already scored" in told) == (0, True)
    assert [(row["id"], row["sample"]) for row in rows("there.jsonl")] == [
        (each["id"], each["sample"]) for each in map(json.loads, Path("completions.jsonl").read_text().splitlines())
    ]


def test_a_node_without_the_level_that_is_asked_for_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with ClusterScorer("ray", 1, sandbox="full") as scorer:
        settings = scorer.node_settings()
    assert settings["sandbox"] == "full"
    monkeypatch.setattr("securecoderl_edge.sandbox.levels.landlock_abi", lambda: 0)
    with pytest.raises(SceError, match="--sandbox full: this kernel has no Landlock"), scorer_of_node(settings, 1):
        pass


def test_references_are_checked_as_on_this_machine(cluster: Cluster, files: list[str]) -> None:
    found = []
    for engine in ("local", cluster.engine):
        code, out, err = run_sce("data", "check", "problems.jsonl", "--engine", engine, "--json")
        assert code == 0, err
        found.append({name: value for name, value in json.loads(out).items() if name != "cpu_seconds"})
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_programs_have_the_scores_of_this_machine_though_a_worker_is_killed(
    cluster: Cluster, files: list[str]
) -> None:
    files, there = write_files(200, 50, most_tests=1), Path("there.jsonl")
    assert run_sce("score", *files, "--out", "here.jsonl")[0] == 0
    process = start_score(*files, "--engine", cluster.engine, "--out", str(there))
    wait_until(lambda: there.exists() and there.read_bytes().count(b"\n") >= 3000, "the middle", 800)
    os.kill(cluster.workers()[0], signal.SIGKILL)
    done = there.read_bytes().count(b"\n")
    _, err = process.communicate(timeout=800)
    assert process.returncode == 0, err
    assert done < len(rows("here.jsonl")) == 10_000
    assert rows(str(there)) == rows("here.jsonl")


def test_one_program_is_explained_on_this_machine_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(1)")
    code, _, err = run_sce("score", str(tmp_path / "a.py"), "--expect", "1", "--engine", "ray")
    assert (code, "--engine cannot be combined with FILE" in err) == (2, True)


def generations(folder: str) -> list[dict[str, Any]]:
    """All rows below a folder, without times."""
    times = ("seconds", "first_token_seconds", "generation_seconds", "between_tokens_ms")
    (file,) = Path(folder).glob("*/rows.jsonl")
    return [{name: value for name, value in row.items() if name not in times} for row in rows(str(file))]


def test_an_evaluation_has_the_rows_of_this_machine(
    cluster: Cluster, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    monkeypatch.setattr("securecoderl_edge.sandbox.calibration._seconds", lambda: 0.0)  # two measurements may differ
    args = ("nano", "--problems", "problems.jsonl", "--limit", "6", "--samples", "16", "--max-tokens", "16")
    args = (*args, "--threads", "1", "--base-precision", "fp32")
    for engine, out in (("local", "here"), (cluster.engine, "there"), (cluster.engine, "there")):
        code, _, err = run_sce("bench", *args, "--engine", engine, "--out", out, "--json")
        assert code == 0, err
    assert "nano: 0 programs" in err
    assert len(generations("here")) == 96
    assert generations("there") == generations("here")
    here, there = (json.loads(Path(out, "bench.json").read_text())["models"][0] for out in ("here", "there"))
    assert {name: here[name] for name in ("reward", "prompt_style", "log")} == {
        name: there[name] for name in ("reward", "prompt_style", "log")
    }


def test_another_model_on_a_node_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("GGUF")
    spec = {"label": "m", "kind": "gguf", "source": str(tmp_path / "model.gguf"), "adapter": None, "prompt_style": None}
    with pytest.raises(SceError, match="is another model there"), model_of_node({"spec": spec, "sha256": "0"}, 1):
        pass


RECIPE = """
model = {model}
[lora]
rank = 4
[sft]
steps = 1
batch_size = 2
[selection]
problems = 0
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_seeds_are_trained_on_all_nodes_into_one_record(
    cluster: Cluster, files: list[str], tmp_path: Path, tiny_model: Path
) -> None:
    problems = load_problems("starter:eval")
    write_problems(tmp_path / "train.jsonl", problems[:6])
    write_problems(tmp_path / "eval.jsonl", problems[6:8])
    (tmp_path / "tiny.toml").write_text(RECIPE.format(model=json.dumps(str(tiny_model))))
    args = ("table3", "--recipe", "tiny.toml", "--train", "train.jsonl", "--eval", "eval.jsonl", "--variants", "sft")
    args = (*args, "--seeds", "2", "--samples", "1", "--updates", "2", "--quant", "", "--device", "cpu")
    code, out, err = run_sce("reproduce", *args, "--engine", cluster.engine, "--json")
    assert code == 0, err
    record = json.loads(out)
    assert (record["steps_done"], record["arms"][0]["seeds"]) == (record["steps"], [42, 43])
    assert "[2/2] seed 43" in err
    assert run_sce("reproduce", *args, "--engine", cluster.engine)[0] == 0  # nothing is left to do
    assert json.loads(run_sce("reproduce", *args, "--json")[1])["arms"] == record["arms"]


def test_a_seed_waits_for_the_training_of_a_worker_that_died(tmp_path: Path) -> None:
    held = ExitStack()
    held.enter_context(locked(tmp_path))
    releasing = threading.Timer(0.5, held.close)
    releasing.start()
    await_lock(tmp_path, 60)
    assert releasing.finished.is_set()
    with locked(tmp_path):
        pass
