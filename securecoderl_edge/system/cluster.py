"""Work on a Ray cluster: jobs that are JSON objects become results that are JSON objects, in the order of the jobs.

Ray is an optional dependency. Each node, or each GPU, gets one worker process (an actor). Workers get chunks of jobs as
they finish earlier ones. The chunk of a worker that died is done again by another one. Between processes cross bytes of
JSON and the name of the class below, no pickled objects.

A Ray cluster trusts its network: whoever reaches its ports can execute code on its nodes. Nothing here changes that.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from securecoderl_edge import __version__
from securecoderl_edge.errors import SceError, UsageError, first_line, needs

LOCAL = "local"
_START_SECONDS = 120.0  # imports on a slow disk; a cluster without free cores never starts a worker
_CONNECT_SECONDS = 10.0
_AGAIN_SECONDS = 5.0
_WAITING = 8  # finished chunks per running one that may wait for an earlier one
_MOST_LOSSES = 3  # of workers with the same chunk


@dataclass(frozen=True)
class Work:
    """A kind of work.

    Attributes:
        maker: ``module:Class``. A worker makes one object of ``settings`` and its number of cores. The object has
            ``run(jobs)``, from a list of JSON objects to as many results, and ``close()``.
        settings: a JSON object.
        chunk: jobs of one call.
        ahead: chunks of a worker at a time. With 2, none waits for its next one, and two threads call ``run``.
        per_gpu: one worker for each GPU where there are any, instead of one for each node.
    """

    maker: str
    settings: Mapping[str, Any]
    chunk: int = 1
    ahead: int = 1
    per_gpu: bool = False


def is_ray(engine: str) -> bool:
    """Whether an engine is a Ray cluster, not this machine.

    Raises:
        UsageError: it is neither.
    """
    if engine != LOCAL and engine != "ray" and not engine.startswith("ray://"):
        raise UsageError(f"--engine {engine}: choose local, ray or ray://HOST:PORT")
    return engine != LOCAL


def run_jobs(engine: str, work: Work, jobs: Iterable[Mapping[str, Any]]) -> Iterator[list[Any]]:
    """The results of jobs, chunk by chunk, in the order of the jobs, which are read as workers need them.

    The workers end with the iterator, also with one that is not read to its end.

    Raises:
        UsageError: no cluster answers.
        SceError: no worker starts, one refuses the work, all are lost, or a chunk loses several; or see `needs`.
    """
    with _connected(engine) as ray:
        workers = _start(ray, work)
        try:
            yield from _pulled(ray, workers, work.ahead, _chunks(jobs, work.chunk))
        finally:
            with suppress(Exception):  # a lost cluster must not hide why the work ended
                ray.get([worker.close.remote() for worker in workers], timeout=5)
            for worker in workers:
                with suppress(Exception):
                    ray.kill(worker)


class Worker:
    """What an actor runs. Answers are JSON: ``{"results": ...}``, or ``{"error": ...}`` with a message for users."""

    def __init__(self) -> None:
        self._maker: Any = None

    def greet(self) -> None:
        """Show that the process runs; what it then prepares may take long."""

    def start(self, request: bytes) -> bytes:
        """Prepare for the work of a request."""
        asked = json.loads(request)
        where = f"worker on {socket.gethostname()}"
        if asked["version"] != __version__:
            return _encoded(error=f"{where}: sce {__version__}, but {asked['version']} here. Install one version.")
        module, _, name = asked["maker"].partition(":")
        try:
            self._maker = getattr(import_module(module), name)(asked["settings"], asked["cpus"])
        except SceError as error:
            return _encoded(error=f"{where}: {error}")
        return _encoded(results=[])

    def run(self, request: bytes) -> bytes:
        """The results of one chunk."""
        try:
            return _encoded(results=self._maker.run(json.loads(request)))
        except SceError as error:
            return _encoded(error=f"worker on {socket.gethostname()}: {error}")

    def close(self) -> None:
        """End child processes."""
        if self._maker is not None:
            self._maker.close()


def _encoded(**answer: Any) -> bytes:
    return json.dumps(answer).encode("ascii")


def _decoded(answer: bytes) -> list[Any]:
    found = json.loads(answer)
    if "error" in found:
        raise SceError(found["error"])
    results: list[Any] = found["results"]
    return results


@contextmanager
def _connected(engine: str) -> Iterator[Any]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with needs("ray", "ray"):
        import ray
    _demand_answer(engine)
    address = "auto" if engine == "ray" else engine
    try:
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError:
            # A busy head node does not always start the process for a new client in time.
            ray.shutdown()
            time.sleep(_AGAIN_SECONDS)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises many kinds, also for other versions of Ray or Python
        hint = "Start one with ray start --head, or give --engine ray://HOST:PORT." if engine == "ray" else ""
        raise UsageError(f"--engine {engine}: no Ray cluster answers ({first_line(error)}). {hint}".rstrip()) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _demand_answer(engine: str) -> None:
    """Find out at once what takes Ray half a minute: that nobody listens."""
    address = os.environ.get("RAY_ADDRESS", "") if engine == "ray" else engine
    if ":" not in address:
        return  # Ray knows its cluster of this machine from a file
    place = urlsplit(address if "//" in address else f"//{address}")
    try:
        port = place.port or 10001
        socket.create_connection((place.hostname or "", port), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise UsageError(f"--engine {engine}: nobody answers ({error}). Is the cluster running?") from None


def _start(ray: Any, work: Work) -> list[Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actor, request = ray.remote(Worker), {"version": __version__, "maker": work.maker, "settings": dict(work.settings)}
    cores_of = {}
    for node in ray.nodes():
        cpus, gpus = (int(node["Resources"].get(name, 0)) for name in ("CPU", "GPU"))
        if not node["Alive"] or not cpus:
            continue
        count = max(1, gpus) if work.per_gpu else 1
        for _ in range(count):
            worker = actor.options(
                num_cpus=max(1, cpus // count),
                num_gpus=int(work.per_gpu and gpus > 0),
                max_restarts=0,
                max_concurrency=work.ahead + 1,  # and `close`
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            ).remote()
            cores_of[worker] = max(1, cpus // count)
    greeted = {worker.greet.remote(): worker for worker in cores_of}
    ready, late = ray.wait(list(greeted), num_returns=len(greeted), timeout=_START_SECONDS) if greeted else ([], [])
    for each in late:
        ray.kill(greeted[each])
    if not ready:
        raise SceError(f"no worker started within {_START_SECONDS:g} s. Has the cluster free cores? See ray status.")
    workers = [greeted[each] for each in ready]
    try:
        ray.get(ready)
        requests = [json.dumps({**request, "cpus": cores_of[worker]}).encode("ascii") for worker in workers]
        answers = ray.get([worker.start.remote(each) for worker, each in zip(workers, requests, strict=True)])
    except Exception as error:  # the package is missing there, or too old to have this module
        raise SceError(
            f"a worker does not start: {first_line(error)}. Is the same sce installed on all nodes?"
        ) from None
    for answer in answers:
        _decoded(answer)
    return workers


def _chunks(jobs: Iterable[Mapping[str, Any]], size: int) -> Iterator[list[Mapping[str, Any]]]:
    left = iter(jobs)
    while chunk := list(islice(left, size)):
        yield chunk


def _pulled(ray: Any, workers: list[Any], ahead: int, chunks: Iterator[list[Mapping[str, Any]]]) -> Iterator[list[Any]]:
    numbered = enumerate(chunks)
    again: deque[tuple[int, Any]] = deque()
    losses: dict[int, int] = {}
    running: dict[Any, tuple[Any, int, Any]] = {}
    finished: dict[int, list[Any]] = {}
    alive, given = list(workers), 0
    while True:
        # A slow worker must not let results pile up behind its chunk without bound.
        room = _WAITING * ahead * len(alive) - len(finished)
        for worker in alive * ahead:
            if sum(each is worker for each, _, _ in running.values()) >= ahead or room <= len(running) > 0:
                continue
            task = again.popleft() if again else next(islice(numbered, 1), None)
            if task is None:
                break
            running[worker.run.remote(json.dumps(task[1]).encode("ascii"))] = (worker, *task)
        if not running:
            return
        for each in ray.wait(list(running), num_returns=1)[0]:
            worker, number, chunk = running.pop(each)
            try:
                finished[number] = _decoded(ray.get(each))
            except ray.exceptions.RayActorError:
                alive = [other for other in alive if other is not worker]
                losses[number] = losses.get(number, 0) + 1
                if not alive or losses[number] >= _MOST_LOSSES:
                    raise SceError("the cluster loses its workers. Is their memory enough? See ray status.") from None
                again.append((number, chunk))
                again = deque(sorted(again, key=lambda task: task[0]))
        while given in finished:
            yield finished.pop(given)
            given += 1
