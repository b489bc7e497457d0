"""Work on a Ray cluster: items become results, in the order of the items.

Ray is an optional dependency. Each node, or each GPU, gets one worker process (an actor). Workers get chunks of items
as they finish earlier ones. The chunk of a worker that died is done again by another one. Between processes cross bytes
of JSON and names of functions, no pickled objects.

A Ray cluster trusts its network: whoever reaches its ports can execute code on its nodes. Nothing here changes that.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from securecoderl_edge import __version__
from securecoderl_edge.errors import SceError, UsageError, first_line, needs

LOCAL = "local"
_START_SECONDS = 120.0  # imports on a slow disk; a cluster without free cores never starts a worker
_CONNECT_SECONDS = 10.0
_AGAIN_SECONDS = 5.0
_WAITING = 8  # finished chunks per running one that may wait for an earlier one
_MOST_LOSSES = 3  # of workers with the same chunk
_SAME_SCE = "Is the same sce installed on all nodes?"

T = TypeVar("T")
R = TypeVar("R")
# From a chunk of jobs, JSON objects, to as many answers, JSON values.
Run = Callable[[list[dict[str, Any]]], list[Any]]


@dataclass(frozen=True)
class Work(Generic[T, R]):
    """A kind of work, from items to results.

    Attributes:
        opened: a function of a module, called in each worker with ``settings`` and its number of cores. Leaving its
            context, in another thread, ends what still runs.
        settings: a JSON object.
        job_of: the JSON object of an item.
        result_of: the result in the answer to an item; another answer is a ValueError, TypeError or KeyError.
        chunk: items of one call.
        ahead: chunks of a worker at a time. With 2, none waits for its next one, and two threads run.
        per_gpu: one worker for each GPU where there are any, instead of one for each node.
    """

    opened: Callable[[dict[str, Any], int], AbstractContextManager[Run]]
    settings: Mapping[str, Any]
    job_of: Callable[[T], Mapping[str, Any]]
    result_of: Callable[[T, Any], R]
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


def map_on_cluster(engine: str, work: Work[T, R], items: Iterable[T]) -> Iterator[list[R]]:
    """The results of items, chunk by chunk, in the order of the items, which are read as workers need them.

    The workers end with the iterator, also with one that is not read to its end.

    Raises:
        UsageError: no cluster answers.
        SceError: no worker starts, one refuses the work or answers something else, all are lost, or a chunk loses
            several; or see `needs`.
    """
    with _connected(engine) as ray:
        workers = _start(ray, work)
        try:
            yield from _pulled(ray, workers, work, iter(items))
        finally:
            with suppress(Exception):  # a lost cluster must not hide why the work ended
                ray.get([worker.close.remote() for worker in workers], timeout=5)
            for worker in workers:
                with suppress(Exception):
                    ray.kill(worker)


class ClusterWorker:
    """What an actor runs. Answers are JSON: ``{"answers": ...}``, or ``{"error": ...}`` with a message for users."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._run: Run = lambda jobs: []

    def greet(self) -> None:
        """Show that the process runs; what it then prepares may take long."""

    def start(self, request: bytes) -> bytes:
        """Prepare for the work of a request."""
        return self._answered(lambda: self._open(**json.loads(request)))

    def run(self, jobs: bytes) -> bytes:
        """The answers to one chunk."""
        return self._answered(lambda: self._run(json.loads(jobs)))

    def close(self) -> None:
        """End child processes."""
        self._stack.close()

    def _open(self, version: str, module: str, name: str, settings: dict[str, Any], cores: int) -> list[Any]:
        if version != __version__:
            raise SceError(f"sce {__version__}, but {version} here. Install one version.")
        self._run = self._stack.enter_context(getattr(import_module(module), name)(settings, cores))
        return []

    def _answered(self, answers: Callable[[], list[Any]]) -> bytes:
        try:
            return _encoded({"answers": answers()})
        except SceError as error:
            return _encoded({"error": f"worker on {socket.gethostname()}: {error}"})


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode("ascii")


def _decoded(message: bytes) -> list[Any]:
    decoded = json.loads(message)
    if "error" in decoded:
        raise SceError(decoded["error"])
    answers: list[Any] = decoded["answers"]
    return answers


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
    url = urlsplit(address if "//" in address else f"//{address}")
    try:
        socket.create_connection((url.hostname or "", url.port or 10001), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise UsageError(f"--engine {engine}: nobody answers ({error}). Is the cluster running?") from None


def _start(ray: Any, work: Work[T, R]) -> list[Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actor, cores_of = ray.remote(ClusterWorker), {}
    for node in ray.nodes():
        cpus, gpus = (int(node["Resources"].get(name, 0)) for name in ("CPU", "GPU"))
        count = max(1, gpus) if work.per_gpu else 1
        cores = max(1, cpus // count)
        for _ in range(count if node["Alive"] and cpus else 0):
            worker = actor.options(
                num_cpus=cores,
                num_gpus=int(work.per_gpu and gpus > 0),
                max_restarts=0,
                max_concurrency=work.ahead + 1,  # and `close`
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            ).remote()
            cores_of[worker] = cores
    greeted = {worker.greet.remote(): worker for worker in cores_of}
    ready, late = ray.wait(list(greeted), num_returns=len(greeted), timeout=_START_SECONDS) if greeted else ([], [])
    for each in late:
        ray.kill(greeted[each])
    if not ready:
        raise SceError(f"no worker started within {_START_SECONDS:g} s. Has the cluster free cores? See ray status.")
    workers = [greeted[each] for each in ready]
    named = {"version": __version__, "module": work.opened.__module__, "name": work.opened.__name__}
    requests = [_encoded({**named, "settings": dict(work.settings), "cores": cores_of[each]}) for each in workers]
    try:
        ray.get(ready)
        answers = ray.get([each.start.remote(request) for each, request in zip(workers, requests, strict=True)])
    except Exception as error:  # the package is missing there, or too old to have this module
        raise SceError(f"a worker does not start: {first_line(error)}. {_SAME_SCE}") from None
    for answer in answers:
        _decoded(answer)
    return workers


def _pulled(ray: Any, workers: list[Any], work: Work[T, R], items: Iterator[T]) -> Iterator[list[R]]:
    lost: dict[int, list[T]] = {}  # chunks of workers that died, by number
    losses: Counter[int] = Counter()
    running: dict[Any, tuple[Any, int, list[T]]] = {}
    finished: dict[int, list[R]] = {}
    begun = yielded = 0
    while True:
        # A slow worker must not let results pile up behind its chunk without bound.
        room = _WAITING * work.ahead * len(workers) - len(finished)
        for worker in workers * work.ahead:
            if sum(each is worker for each, _, _ in running.values()) >= work.ahead or room <= len(running) > 0:
                continue
            number = min(lost, default=begun)
            chunk = lost.pop(number, None) or list(islice(items, work.chunk))
            if not chunk:
                break
            begun = max(begun, number + 1)
            running[worker.run.remote(_encoded([dict(work.job_of(item)) for item in chunk]))] = worker, number, chunk
        if not running:
            return
        for each in ray.wait(list(running), num_returns=1)[0]:
            worker, number, chunk = running.pop(each)
            try:
                answers = _decoded(ray.get(each))
            except ray.exceptions.RayActorError:
                workers = [other for other in workers if other is not worker]
                losses[number] += 1
                if not workers or losses[number] >= _MOST_LOSSES:
                    raise SceError("the cluster loses its workers. Is their memory enough? See ray status.") from None
                lost[number] = chunk
                continue
            try:
                finished[number] = [work.result_of(*pair) for pair in zip(chunk, answers, strict=True)]
            except (ValueError, TypeError, KeyError) as error:
                raise SceError(f"a worker's answer is not a result ({error}). {_SAME_SCE}") from None
        while yielded in finished:
            yield finished.pop(yielded)
            yielded += 1
