"""Run the next jobs of the queue for a number of minutes, some side by side, if the memory of the device holds them.

    python benchmarks/gpu_queue/run.py --minutes 14

Where the queue came in pieces, PYTHONPATH is FOLDER/tree:FOLDER/tree/site.

Each job trains a policy and evaluates it; a job without a recipe evaluates a base model. What does not end in time is
cut: the next call in this folder goes on where it stopped. Minutes in the queue are planned for three jobs at once
(--jobs): as many as fit into the memory of a large card would all take longer, and all be cut.

After every job the results are written to --out, in few files of limited size (`unpack.py` reads them): states, curves
and rows first, then adapters in float16, then with --checkpoints the runs that were cut. What does not fit is named.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from jobs import CUT, DONE, QUEUE, RESULTS, ROOT, Job, Queue, read_queue, read_states, write_states
from pieces import piece_size
from results import log_of, results, write_results

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.files import base_folder
from securecoderl_edge.system.machine import available_memory_bytes
from securecoderl_edge.training.plan import make_plan
from securecoderl_edge.training.recipe import resolve

FAILED = "failed"
TIME_IS_UP = 75  # the exit code of sce train --max-minutes
# For the checkpoint of a training that is cut, and for the last results.
_SECONDS_TO_WRITE = 20.0
# Where this process finds packages, for commands in another folder.
PATHS = os.pathsep.join(os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)


def main() -> None:
    """Run jobs until the time is over or none is left."""
    arguments = parse()
    if (ROOT / "cache").is_dir():
        os.environ["XDG_CACHE_HOME"] = str(ROOT / "cache")
    if arguments.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise SceError("torch sees no GPU here; --device cpu rehearses without one")
    for folder in (arguments.work, arguments.out, arguments.results):
        folder.mkdir(parents=True, exist_ok=True)
    day = Day(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, day.stop)
    day.run()
    if day.stopped:
        sys.exit(128 + day.stopped)
    sys.exit(any(day.states[name]["state"] == FAILED for name in day.ran))


def minutes_of(text: str) -> float:
    """Minutes on the command line, enough for more than writing the results; `ValueError` if not."""
    minutes = float(text)
    if not math.isfinite(minutes) or 60 * minutes <= _SECONDS_TO_WRITE:
        raise ValueError
    return minutes


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=minutes_of, required=True, help="end within this time")
    parser.add_argument("--queue", type=Path, default=QUEUE, help="file of jobs")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--jobs", type=int, choices=range(1, 100), metavar="N", default=3, help="at once, at most")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "queue", help="folder of the runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder with the states of jobs")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "queue-out", help="folder of the results in pieces")
    parser.add_argument("--files", type=int, choices=range(1, 1000), metavar="N", default=8, help="pieces, at most")
    parser.add_argument("--mib", type=piece_size, default=16.0, help="largest piece")
    parser.add_argument("--checkpoints", action="store_true", help="bring the runs that were cut along, too")
    return parser.parse_args()


class Day:
    """One call: the jobs that run, what is known of them, and the time that is left."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.deadline: float = time.monotonic() + 60 * arguments.minutes - _SECONDS_TO_WRITE
        self.queue: Queue = read_queue(arguments.queue)
        self.states = read_states(arguments.results)
        self.device_name = name_of(arguments.device)
        # Absolute, because commands run in the folder of the queue.
        self.work: Path = arguments.work.resolve()
        # Names of the jobs that ended in this call, the processes that run, and the signal that ended it.
        self.ran: list[str] = []
        self.running: set[subprocess.Popen[bytes]] = set()
        self.stopped = 0

    def left(self) -> float:
        """Seconds."""
        return self.deadline - time.monotonic()

    def stop(self, number: int, _: object) -> None:
        """End what runs, as if the time were over; what was trained is saved."""
        self.stopped, self.deadline = self.stopped or number, time.monotonic()
        for process in list(self.running):
            process.terminate()

    def need(self, job: Job) -> float | None:
        """GiB of a job; None if it cannot be planned, which is noted."""
        try:
            return memory_of(job, self.queue, self.arguments.device)
        except SceError as error:
            self.note(job, {"state": FAILED, "why": str(error)})
            return None

    def run(self) -> None:
        """Start each job when there is memory and time for it, in the order of the queue."""
        left = [job for job in self.queue.jobs if self.states.get(job.name, {}).get("state") != DONE]
        if not left:
            click.echo("all jobs are done")
        needs = {job.name: need for job in left if (need := self.need(job)) is not None}
        waiting = [job for job in left if job.name in needs]
        room, running = memory_of_device(self.arguments.device), dict[Future[dict[str, Any]], Job]()
        count = len(waiting)
        with ThreadPoolExecutor(max_workers=max(1, len(waiting))) as pool:
            while True:
                for job in list(waiting):
                    # The first job of a call starts in any case, though it may be cut.
                    has_time = (60 * job.minutes <= self.left() or len(waiting) == count) and not self.stopped
                    if needs[job.name] <= room and len(running) < self.arguments.jobs and has_time:
                        waiting.remove(job)
                        room -= needs[job.name]
                        click.echo(f"{job.name}: started with {needs[job.name]:.1f} GiB, {self.left():.0f} s are left")
                        running[pool.submit(self.attempt, job, needs[job.name])] = job
                if not running:
                    break
                # In short turns, between which signals are handled.
                for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                    job = running.pop(future)
                    room += needs[job.name]
                    self.note(job, future.result())
        for job in waiting:
            takes = (
                f"{self.arguments.jobs} run at once, and it takes {job.minutes:g} minutes and {needs[job.name]:.1f} GiB"
            )
            click.echo(f"{job.name}: not started: {takes}; {max(0, self.left()):.0f} s and {room:.1f} GiB are left")
        self.write()

    def attempt(self, job: Job, memory_gib: float) -> dict[str, Any]:
        """`do`, for which an error is a state, too."""
        try:
            return self.do(job, memory_gib)
        except (SceError, OSError) as error:
            return {"state": FAILED, "why": str(error)}

    def do(self, job: Job, memory_gib: float) -> dict[str, Any]:
        """Train and evaluate; the job's state."""
        started = time.monotonic()
        model = self.work / job.name
        if job.recipe:
            minutes = (self.left() - 60 * job.evaluation_minutes) / 60
            # A run that is cut may go on in another folder: its files have the names that they have in the queue.
            words = ["--recipe", job.recipe, "--model", job.model, "--seed", str(job.seed)]
            words += ["--problems", job.problems] if job.problems else []
            words += ["--max-steps", str(job.max_steps)] if job.max_steps else []
            words += [word for setting in job.settings for word in ("--set", setting)]
            words += ["--device", self.arguments.device, "--memory-gib", f"{memory_gib:.2f}", "--out", str(model)]
            words += ["--max-minutes", f"{max(minutes, 0.01):.3f}"]
            code, said = self.sce(job, self.work / f"{job.name}.out", "train", *words)
            if code in (None, TIME_IS_UP):
                return {"state": CUT, "why": said}
            if code != 0:
                return {"state": FAILED, "why": said}
        else:
            model = base_folder(self.queue.path_of(job.model))
        for name in job.evaluations:
            given = self.queue.evaluations[name].items()
            options = [word for key, value in given for word in (f"--{key.replace('_', '-')}", str(value))]
            out = self.work / job.name / "bench" / name
            words = [str(model), "--device", self.arguments.device, *options, "--out", str(out), "--json"]
            code, said = self.sce(job, out.with_suffix(".json"), "bench", *words)
            if code is None:
                return {"state": CUT, "why": f"the time was over in evaluation {name}"}
            if code != 0:
                return {"state": FAILED, "why": f"evaluation {name}: {said}"}
        return {"state": DONE, "seconds": round(time.monotonic() - started, 1)}

    def sce(self, job: Job, output: Path, *words: str) -> tuple[int | None, str]:
        """Run a command in the folder of the queue until the deadline.

        Returns:
            its exit code, None if it was ended, and the last line that it wrote.
        """
        log = log_of(self.work, job)
        output.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as errors, output.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "securecoderl_edge", *words],
                cwd=self.queue.file.parent,
                env={**os.environ, "PYTHONPATH": PATHS},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
            )
            self.running.add(process)
            try:
                # A training ends itself; this is for one that hangs, and for evaluations.
                code: int | None = process.wait(max(1.0, self.left()))
            except subprocess.TimeoutExpired:
                code = None
                process.terminate()
                try:
                    process.wait(_SECONDS_TO_WRITE / 2)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self.running.discard(process)
        if self.stopped:
            code = None
        lines = log.read_text(errors="replace").split("\n")
        return code, next((line for line in reversed(lines) if line.strip()), "")

    def note(self, job: Job, state: dict[str, Any]) -> None:
        """Write a job's state, and the results so far."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.ran.append(job.name)
        self.states[job.name] = {**state, "ended": now, "device": self.device_name}
        click.echo(f"{job.name}: {state['state']}{'  ' + state['why'] if 'why' in state else ''}")
        write_states(self.arguments.results, self.states)
        self.write()

    def write(self) -> None:
        """Write the results so far in pieces."""
        arguments, ran = self.arguments, [job for job in self.queue.jobs if log_of(self.work, job).is_file()]
        cut = [job for job in ran if self.states.get(job.name, {}).get("state") == CUT and arguments.checkpoints]
        found = results(ran, cut, self.work, arguments.results)
        for line in write_results(found, self.work / "out", arguments.out, arguments.files, arguments.mib):
            click.echo(line)


def memory_of(job: Job, queue: Queue, device: str) -> float:
    """GiB of a job: what the plan of its training says and a tenth, or what its evaluation takes."""
    if not job.recipe:
        return job.memory_gib
    flags: dict[str, Any] = {"model": queue.path_of(job.model), "seed": job.seed, "device": device}
    if job.problems:
        flags["problems"] = queue.path_of(job.problems)
    plan = make_plan(resolve(queue.path_of(job.recipe), job.settings, flags))
    return max(job.memory_gib, 1.1 * max(phase.memory.peak for phase in plan.phases) / 2**30)


def memory_of_device(device: str) -> float:
    """GiB that are free."""
    if device == "cuda":
        import torch

        return float(torch.cuda.mem_get_info()[0]) / 2**30
    return available_memory_bytes() / 2**30


def name_of(device: str) -> str:
    """Of the GPU, or ``cpu``."""
    if device == "cuda":
        import torch

        return str(torch.cuda.get_device_name())
    return device


if __name__ == "__main__":
    try:
        main()
    except (SceError, OSError) as error:
        sys.exit(str(error))
