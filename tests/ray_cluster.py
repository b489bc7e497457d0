"""A Ray cluster of two nodes on this machine, and work for its workers."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from places import ROOT

from securecoderl_edge.errors import SceError
from securecoderl_edge.system.cluster import Run

_MARK = "SCE_TEST_CLUSTER"


@dataclass(frozen=True)
class Cluster:
    """A running cluster: its address for ``--engine``, and a mark in the environment of all its processes."""

    engine: str
    mark: str

    def workers(self) -> list[int]:
        """Process ids of the workers of `map_on_cluster`."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                is_ours = f"{_MARK}={self.mark}".encode() in (folder / "environ").read_bytes()
                if is_ours and (folder / "cmdline").read_bytes().startswith(b"ray::ClusterWorker"):
                    found.append(int(folder.name))
        return found


@contextmanager
def two_nodes() -> Iterator[Cluster]:
    """Start a cluster of two nodes with one core each, and end it."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # short: Ray makes names of sockets of it
    mark, (port, client) = secrets.token_hex(8), free_ports(2)
    ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block"]
    each = [*ray, "--disable-usage-stats", "--num-cpus=1", "--object-store-memory=80000000"]
    head = [f"--port={port}", f"--ray-client-server-port={client}", f"--temp-dir={folder}/s"]
    nodes = [[*each, "--head", "--include-dashboard=false", *head], [*each, f"--address=127.0.0.1:{port}"]]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, _MARK: mark, "PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0"}
    environment["RAY_worker_niceness"] = "0"  # by default 15: on busy cores, workers would wait for all other processes
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(nodes):
            log = folder / f"{number}.log"
            with log.open("wb") as out:
                started.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            wait_until(lambda log=log: b"Ray runtime started" in log.read_bytes(), log)  # type: ignore[misc]
        yield Cluster(f"ray://127.0.0.1:{client}", mark)
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
        for left in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if int(left.name) != os.getpid() and f"{_MARK}={mark}".encode() in (left / "environ").read_bytes():
                    os.kill(int(left.name), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_until(is_true: Any, what: object, seconds: float = 90) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: it does not come true.
    """
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: {what.read_text() if isinstance(what, Path) else ''}")
        time.sleep(0.05)


@contextmanager
def doubling(settings: dict[str, Any], cores: int) -> Iterator[Run]:
    """Doubles numbers. A job can ask for a pause, or for the end of its worker."""
    if "refuse" in settings:
        raise SceError(settings["refuse"])

    def run(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for job in jobs:
            time.sleep(job.get("seconds", 0))
            marker = Path(job.get("dies", "/"))
            if not marker.exists() or "always dies" in job:
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if "fails" in job:
                raise SceError(job["fails"])
        return [{"double": 2 * job["number"], "worker": os.getpid()} for job in jobs]

    yield run
