"""A study on a Ray cluster: each node, or each GPU, trains and evaluates whole seeds with ``sce reproduce``."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.shards import Shard
from securecoderl_edge.evaluation.study.arms import Study
from securecoderl_edge.evaluation.study.run_log import STEPS, RunLog
from securecoderl_edge.evaluation.study.steps import arm_chain, check_study, take_finished
from securecoderl_edge.system.cluster import Work, run_jobs
from securecoderl_edge.system.files import open_lock, take_lock, temporary_beside
from securecoderl_edge.system.processes import describe_end, module_command

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
        UsageError, SceError: see `check_study` and `run_jobs`; or a seed failed.
    """
    check_study(study)
    run_log = RunLog(study.folder)
    missing = [
        place
        for place, seed in enumerate(study.seeds)
        if not all(arm_chain(study, arm, seed).figures(run_log) for arm in study.arms)
    ]
    done = len(study.seeds) - len(missing)
    asked = {"words": list(words), "folder": str(study.folder.absolute()), "from": str(Path.cwd())}
    work = Work("securecoderl_edge.evaluation.study.cluster:SeedWorker", asked, per_gpu=study.device != "cpu")
    parts = [Shard(place + 1, len(study.seeds)) for place in missing]
    answers = run_jobs(engine, work, ({"shard": str(part)} for part in parts)) if parts else iter(())
    for part, (files,) in zip(parts, answers, strict=True):
        folder = _folder(study.folder, str(part))
        for name, content in files.items():
            if not name.endswith((".json.gz", STEPS)) or ".." in Path(name).parts or Path(name).is_absolute():
                raise SceError(f"a worker sent a file that is not a result: {name}")
            with temporary_beside(folder / name) as temporary:
                temporary.write_bytes(base64.b64decode(content))
        take_finished(study, [folder], jobs)
        done += 1
        yield done, study.seeds[part.index - 1]


class SeedWorker:
    """The process of one node or GPU that trains."""

    def __init__(self, asked: Mapping[str, Any], cores: int) -> None:
        self._asked = asked
        self._process: subprocess.Popen[bytes] | None = None
        if not Path(asked["from"]).is_dir():
            raise SceError(f"{asked['from']} is missing there. Start from a folder that all nodes have.")

    def run(self, jobs: list[dict[str, Any]]) -> list[dict[str, str]]:
        """The files of results of each seed, in Base64, by their path in its folder."""
        return [self._files(str(job["shard"])) for job in jobs]

    def close(self) -> None:
        """End a training as by Ctrl-C: it saves its progress."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    def _files(self, shard: str) -> dict[str, str]:
        folder = _folder(Path(self._asked["folder"]), shard)
        _await_lock(folder)
        command = [*module_command("securecoderl_edge"), "reproduce", "table3", *self._asked["words"]]
        if sys.platform == "linux":
            command = [sys.executable, "-c", _WITH_PARENT, *command]
        self._process = subprocess.Popen(
            [*command, "--shard", shard, "--out", str(folder)],
            cwd=self._asked["from"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        _, told = self._process.communicate()
        if self._process.returncode:
            lines = told.decode("utf-8", "replace").strip().splitlines()
            reason = next((line for line in lines if line.startswith("sce: ")), describe_end(self._process.returncode))
            raise SceError(f"part {shard} of the study failed: {reason.removeprefix('sce: ')}")
        found = [*folder.rglob("*.json.gz"), folder / STEPS]
        return {str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode("ascii") for path in found}


def _await_lock(folder: Path, seconds: float = 600) -> None:
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
