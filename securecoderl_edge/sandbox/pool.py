"""Workers that run programs, used from any thread and replaced when they die."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.sandbox.jobs import BoxLost, Execution, FunctionCall, ProgramRun, SandboxJob, WorkerLost
from securecoderl_edge.sandbox.levels import choose_level
from securecoderl_edge.sandbox.limits import Limits
from securecoderl_edge.sandbox.worker import CANCELLED, SandboxWorker
from securecoderl_edge.system.machine import available_memory_bytes, cpu_count
from securecoderl_edge.system.processes import allow_files

# Descriptors: of a process that computes, and of a worker with the memory files of a program's tests.
_FILES, _FILES_OF_WORKER = 256, 64

PROGRAMS_PER_WORKER = 2000


class SandboxPool:
    """Runs programs in parallel, each in separate processes below a worker.

    Workers are started when first needed, by executing a fresh interpreter (never by forking this process,
    which may hold secrets, expected outputs and a GPU). All methods may be called from several threads.

    Args:
        has_analyzers: whether programs in C are read by the static analyzers of this machine.

    Raises:
        SceError: this system cannot isolate programs as ``level`` demands.
    """

    def __init__(
        self,
        workers: int | None = None,
        limits: Limits | None = None,
        level: str = "auto",
        has_analyzers: bool = False,
    ) -> None:
        self.level = choose_level(level)
        self._has_analyzers = has_analyzers
        self.limits = limits or Limits()
        self.workers = workers or default_workers(self.limits)
        allow_files(_FILES + _FILES_OF_WORKER * self.workers)
        # As many as programs may run at once; each holds the workers that it has had so far, by language.
        self._idle: queue.LifoQueue[dict[str, SandboxWorker]] = queue.LifoQueue()
        for _ in range(self.workers):
            self._idle.put({})
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._running: set[SandboxWorker] = set()

    def run(
        self,
        program: str,
        stdins: Sequence[str] = (),
        limits: Limits | None = None,
        calls: Sequence[FunctionCall] = (),
        is_cancelled: Callable[[], bool] = lambda: False,
        language: str = PYTHON.name,
        driver: str = "",
        entry_point: str = "",
        is_part: bool = False,
    ) -> ProgramRun:
        """Compile ``program`` once and run it on each stdin, then once for each call.

        A run is repeated once if a process of the sandbox was killed, or a test by anybody but its supervisor. If the
        program was the cause, this happens again.

        Args:
            is_cancelled: asked before and during the run; it then ends at once, with its worker.
            language, driver, entry_point, is_part: as in `SandboxJob`.

        Raises:
            SceError: the pool is closed, the run was cancelled, this machine cannot compile the language, or workers
                die for reasons that have nothing to do with the program.
        """
        if is_cancelled():
            raise SceError(CANCELLED)
        job = SandboxJob(program, stdins, calls, is_cancelled, language, driver, entry_point, is_part)
        by_program = by_others = 0
        lost: WorkerLost | BoxLost | None = None
        while by_program < 2 and by_others < 2:
            try:
                with self._worker(language) as worker:
                    run = worker.run(job, limits or self.limits)
            except WorkerLost as error:
                by_others, lost = by_others + 1, error  # such as the system, for want of memory
            except BoxLost as error:
                by_program, lost = by_program + 1, error
            else:
                if by_program or not any(map(_was_killed, run.executions)):
                    return run
                by_program += 1
        if isinstance(lost, BoxLost):
            # Twice with this program and a fresh worker the second time: the program did it.
            if not lost.parses:
                return ProgramRun(False, f"the compiler was killed twice ({lost})")
            died = Execution(-signal.SIGKILL, "", "", f"the program killed its supervisor ({lost})", 0.0)
            return ProgramRun(True, "", (died,) * (len(stdins) + len(calls)))
        raise SceError(f"sandbox workers keep dying ({lost}); free some memory or use fewer workers")

    def prepare(self, language: str) -> None:
        """Start a worker for a language, unless the next one to be used is there.

        Raises:
            SceError: this machine cannot compile the language, or the pool is closed.
        """
        with self._worker(language):
            pass

    def idle_pids(self) -> list[int]:
        """Process ids of the zygotes that wait for work."""
        return [worker.pid for slot in list(self._idle.queue) for worker in slot.values()]

    def close(self) -> None:
        """End all workers; programs that still run are stopped, and their `run` raises SceError."""
        with self._lock:
            already, running = self._closed.is_set(), list(self._running)
            self._closed.set()
        if already:
            return
        for busy in running:
            busy.kill()
        for slot in [self._idle.get() for _ in range(self.workers)]:
            for worker in slot.values():
                worker.close()
            self._idle.put({})  # later callers find the sandbox closed

    @contextmanager
    def _worker(self, language: str) -> Iterator[SandboxWorker]:
        """Lend out a worker, started if need be; one that failed or has served long is ended, not reused."""
        slot = self._idle.get()
        worker = slot.pop(language, None)
        keep = False
        try:
            if worker is None and not self._closed.is_set():
                worker = SandboxWorker(self.level, language, self._has_analyzers)
            with self._lock:
                if worker is None or self._closed.is_set():
                    raise SceError("the sandbox is closed")
                self._running.add(worker)
            yield worker
            keep = worker.programs < PROGRAMS_PER_WORKER
        finally:
            if worker is not None:
                with self._lock:
                    self._running.discard(worker)
                if keep:
                    slot[language] = worker
                else:
                    worker.kill()
                    worker.close()
            self._idle.put(slot)

    def __enter__(self) -> SandboxPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _was_killed(execution: Execution) -> bool:
    """Whether the program itself, a person or the kernel (out of memory) killed it, not its supervisor."""
    return execution.returncode == -signal.SIGKILL and not execution.stopped_by


def default_workers(limits: Limits) -> int:
    """One worker per usable core, but no more than fit into memory if all reach their memory limit."""
    return max(1, min(cpu_count(), available_memory_bytes() // (limits.memory_mib << 20)))
