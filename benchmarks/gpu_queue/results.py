"""What a call brings back: files of each job, what matters most first, as much as fits into the transfer."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable
from pathlib import Path

from jobs import Job
from pieces import write_pieces

_BYTES_PER_ENTRY = 2048  # of a tar archive, besides the content


def log_of(work: Path, job: Job) -> Path:
    """What the commands of a job wrote to standard error."""
    return work / f"{job.name}.log"


def results(ran: list[Job], cut: list[Job], work: Path, states: Path) -> list[tuple[str, Path | bytes]]:
    """Names in the archive, and contents: states, curves and rows; adapters; then the runs that were cut.

    Args:
        ran: the jobs that were started.
        cut: those whose whole runs are to come along.
        work: the folder of the runs.
        states: the folder with the states of jobs.
    """
    found: list[tuple[str, Path | bytes]] = [("jobs.json", states / "jobs.json")]
    for job in ran:
        run = work / job.name
        found.append((f"{job.name}/log.txt", log_of(work, job)))
        found += [(f"{job.name}/{name}", run / name) for name in ("config.toml", "environment.json")]
        found += [(f"{job.name}/{file.name}", file) for file in sorted(run.glob("bench/*.json"))]
        tables = {f"{file.parents[1].name}-rows": file for file in sorted(run.glob("bench/*/*/rows.jsonl"))}
        tables["metrics"] = run / "metrics.jsonl"
        found += [
            (f"{job.name}/{name}.jsonl.gz", gzip.compress(file.read_bytes(), mtime=0))
            for name, file in tables.items()
            if file.is_file()
        ]
    for job in ran:
        snapshots = sorted((work / job.name).glob("phases/*/snapshots/step-*"), reverse=True)
        folder = next((folder for folder in (work / job.name / "policy", *snapshots) if folder.is_dir()), None)
        if folder is not None:
            weights = halved(folder / "adapter_model.safetensors", work / f"{job.name}.safetensors")
            found.append((f"{job.name}/adapter/adapter_model.safetensors", weights))
            found.append((f"{job.name}/adapter/adapter_config.json", folder / "adapter_config.json"))
    for job in cut:
        run = work / job.name
        files = [path for path in sorted(run.rglob("*")) if path.is_file() and "snapshots" not in path.parts]
        found += [(f"{job.name}/run/{path.relative_to(run)}", path) for path in files]
    return [(name, content) for name, content in found if isinstance(content, bytes) or content.is_file()]


def halved(weights: Path, out: Path) -> Path:
    """A file of weights in float16, half as large."""
    from safetensors.torch import load_file, save_file

    save_file({name: tensor.half() for name, tensor in load_file(weights).items()}, out, {"format": "pt"})
    return out


def write_results(
    found: Iterable[tuple[str, Path | bytes]], temporary: Path, out: Path, files: int, mib: float
) -> list[str]:
    """Write what fits into so many pieces of so many MiB, in order; a sentence for each file that does not."""
    room, kept, said = int(files * mib * 2**20) - 10 * 1024, [], []
    for name, content in found:
        size = (len(content) if isinstance(content, bytes) else content.stat().st_size) + _BYTES_PER_ENTRY
        if size <= room:
            room -= size
            kept.append((name, content))
        else:
            said.append(f"{name}: left out, its {size / 2**20:.1f} MiB do not fit into the results")
    pieces = write_pieces(kept, temporary, mib)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("pack-*"):
        if old.name not in {piece.path.name for piece in pieces}:
            old.unlink()
    for piece in pieces:
        shutil.copyfile(piece.path, out / piece.path.name)
    return said
