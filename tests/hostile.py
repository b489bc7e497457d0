"""Programs in the sandbox for tests; as a script, a list of them in a process that may be another user's.

    python hostile.py LEVEL LANGUAGE < jobs.json > runs.json

``jobs`` are ``[program, stdin]`` pairs, with an upper bound of seconds as a third part where that of the language is
more than a program needs; each run is ``[parses, stdout, stderr, returncode, stopped_by]``, with the compiler's
complaint as standard error of a program that does not parse. The last line of the environment is a secret
that no program may see. Imports nothing but the sandbox.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from securecoderl_edge.sandbox import Execution, Limits, ProgramRun, SandboxJob, SandboxPool


def execute(sandbox: SandboxPool, program: str, stdin: str = "", limits: Limits | None = None) -> Execution:
    """The one run of a program that must parse."""
    run = sandbox.run(textwrap.dedent(program), [stdin], limits)
    assert run.parses, run.error
    return run.executions[0]


def descendants(pid: int) -> list[int]:
    """Processes below a process, whichever thread of it started them, but for the notary of a zygote."""
    lists = []
    with suppress(OSError):  # it has ended meanwhile
        lists = [path.read_text() for path in sorted(Path(f"/proc/{pid}/task").glob("*/children"))]
    children = [int(child) for text in lists for child in text.split() if not _is_notary(child)]
    return children + [each for child in children for each in descendants(child)]


def _is_notary(pid: str) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text() == "notary\n"
    return False


def run_all(
    pool: SandboxPool, jobs: Sequence[SandboxJob], limits: Sequence[Limits | None] | None = None
) -> list[ProgramRun]:
    """Run jobs from as many threads as the pool has workers; results are in the order of the jobs."""

    def run(job: SandboxJob, own: Limits | None) -> ProgramRun:
        return pool.run(job.program, job.stdins, own, calls=job.calls, language=job.language)

    with ThreadPoolExecutor(pool.workers) as threads:
        return list(threads.map(run, jobs, limits or [None] * len(jobs)))


def main() -> None:
    """Run all programs with two workers and tell what is left of them."""
    given = json.load(sys.stdin)
    jobs = [SandboxJob(program, [stdin], language=sys.argv[2]) for program, stdin, *_ in given]
    runs: list[list[Any]] = []
    # Sanitized programs start slowly on a busy machine, and fill memory slowly.
    limits = Limits(2, 4) if sys.argv[2] == "python" else Limits(2, 12, memory_mib=256)
    with SandboxPool(2, limits, sys.argv[1], has_analyzers=True) as pool:
        own = [replace(limits, wall_seconds=wall[0]) if wall else None for _, _, *wall in given]
        for run in run_all(pool, jobs, own):
            last = run.executions[0] if run.parses else None
            ending = (last.stdout, last.stderr, last.returncode, last.stopped_by) if last else ("", run.error, 0, "")
            runs.append([run.parses, *ending])
        workers = [worker for slot in pool._idle.queue for worker in slot.values()]
        report = {
            "level": pool.level,
            "runs": runs,
            "served": sum(worker.programs for worker in workers),
            "left": [pid for worker in workers for pid in descendants(worker.pid)],
        }
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
