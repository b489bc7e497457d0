"""A study on a Ray cluster: each node, or each GPU, trains and evaluates whole seeds with ``sce reproduce``."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from securecoderl_edge.commands import reproduce
from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.shards import Shard
from securecoderl_edge.system.cluster import Run, Work, map_on_cluster
from securecoderl_edge.system.files import open_lock, take_lock, temporary_beside
from securecoderl_edge.system.processes import describe_end, module_command
from study_engine.arms import Study
from study_engine.run_log import STEPS, RunLog
from study_engine.steps import arm_chain, check_study, take_finished

_PARTS = "parts"
# A training must not survive its worker, since another node does its seed again: with the worker, it gets SIGINT.
_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 2); os.execv(sys.argv[1], sys.argv[1:])"


def train_seeds(engine: str, study: Study, words: Sequence[str], jobs: int) -> Iterator[tuple[int, int]]:
    """Run the seeds that are not finished yet; yields the number of finished ones, and the seed, after each.

    A node works in the folder ``parts/`` of the study, under the same path as here. There a seed resumes, if the node
    is the same or the disk is shared. Its results come back as JSON.

    Args:
        words: of ``sce reproduce table3`` that describe the study, without its folder.

    Raises:
        UsageError, SceError: see `check_study` and `map_on_cluster`; or a seed failed.
    """
    check_study(study)
    run_log = RunLog(study.folder)
    parts = [
        Shard(index, len(study.seeds))
        for index, seed in enumerate(study.seeds, 1)
        if not all(arm_chain(study, arm, seed).figures(run_log) for arm in study.arms)
    ]

    def written(part: Shard, files: dict[str, str]) -> Shard:
        folder = _folder(study.folder, str(part))
        for name, content in files.items():
            if not name.endswith((".json.gz", STEPS)) or ".." in Path(name).parts or Path(name).is_absolute():
                raise ValueError(f"{name} is not a file of results")
            with temporary_beside(folder / name) as temporary:
                temporary.write_bytes(base64.b64decode(content))
        take_finished(study, [folder], jobs)
        return part

    node = {"words": list(words), "folder": str(study.folder.absolute()), "from": str(Path.cwd())}
    opened, per_gpu = reproduce.trainer_of_node, study.device != "cpu"
    work = Work(opened, node, lambda part: {"shard": str(part)}, written, per_gpu=per_gpu)
    results = map_on_cluster(engine, work, parts) if parts else iter(())
    for done, (part,) in enumerate(results, len(study.seeds) - len(parts) + 1):
        yield done, study.seeds[part.index - 1]


@contextmanager
def trainer_of_node(node: dict[str, Any], cores: int) -> Iterator[Run]:
    """What a node or GPU runs, see `Work.opened`: the files of results of each seed, in Base64, by their path.

    Raises:
        SceError: the folder to start from is missing; in a run: the training failed.
    """
    if not Path(node["from"]).is_dir():
        raise SceError(f"{node['from']} is missing there. Start from a folder that all nodes have.")
    processes: list[subprocess.Popen[bytes]] = []

    def files(shard: str) -> dict[str, str]:
        folder = _folder(Path(node["folder"]), shard)
        await_lock(folder)
        command = [*module_command("securecoderl_edge"), "reproduce", "table3", *node["words"]]
        if sys.platform == "linux":
            command = [sys.executable, "-c", _WITH_PARENT, *command]
        command += ["--shard", shard, "--out", str(folder)]
        null = subprocess.DEVNULL
        process = subprocess.Popen(command, cwd=node["from"], stdin=null, stdout=null, stderr=subprocess.PIPE)
        processes.append(process)
        _, told = process.communicate()
        if process.returncode:
            lines = told.decode("utf-8", "replace").strip().splitlines()
            reason = next((line for line in lines if line.startswith("sce: ")), describe_end(process.returncode))
            raise SceError(f"part {shard} of the study failed: {reason.removeprefix('sce: ')}")
        paths = [*folder.rglob("*.json.gz"), folder / STEPS]
        return {str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode("ascii") for path in paths}

    try:
        yield lambda jobs: [files(str(job["shard"])) for job in jobs]
    finally:
        for process in processes:  # as by Ctrl-C: a training saves its progress
            process.send_signal(signal.SIGINT)


def await_lock(folder: Path, seconds: float = 600) -> None:
    """Wait until the training of a worker that died has saved its progress; it may be on the same disk."""
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with open_lock(folder) as lock:
            if take_lock(lock):
                return
        time.sleep(1)


def _folder(study: Path, shard: str) -> Path:
    return study / _PARTS / shard.replace("/", "-of-")
