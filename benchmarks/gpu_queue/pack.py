"""Pack the queue for a machine without a network: numbered pieces with everything that its next jobs need.

    python benchmarks/gpu_queue/pack.py                          pieces of at most 60 MiB in packed/
    python3 benchmarks/gpu_queue/pieces.py collect packed FOLDER     there: after each transfer, or once
    python3 FOLDER/tree/benchmarks/gpu_queue/run.py --minutes 14     there: the next jobs

In the pieces: the package with links followed, what says its version, wheels in pure Python that a machine with torch
may lack, the queue with its problem files, the models that it names, runs that were cut and can be resumed, and
`gpu_day.py`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from jobs import CUT, DONE, QUEUE, RESULTS, ROOT, Queue, read_queue, read_states
from pieces import piece_size, write_pieces

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.files import BUILT_IN, gguf_file

PACKAGE = ROOT / "securecoderl_edge"
# In pure Python, and newer than what a machine with torch has, or missing there.
WHEELS = ("bandit", "stevedore", "gguf", "transformers", "peft", "platformdirs")
WEIGHTS = (".gguf", ".safetensors")
GPU_DAY = ("gpu_day*.py", "gpu_*_worker.py", "random_model.py", "record.py")


def main() -> None:
    """Write the pieces."""
    arguments = parse()
    queue = read_queue(arguments.queue)
    if missing := queue.missing():
        raise SceError(f"{queue.file}: {missing[0]} is missing; see README.md for how problem files are made")
    with tempfile.TemporaryDirectory() as temporary:
        wheels = Path(temporary)
        if arguments.wheels:
            download(wheels, arguments.wheels, arguments.python)
        files = dict(content(queue, arguments.runs, wheels, arguments.results))
        pieces = write_pieces(files.items(), arguments.out, arguments.mib)
    size = sum(piece.path.stat().st_size for piece in pieces)
    sys.stdout.write(f"{len(files)} files, {size / 2**20:.0f} MiB in {len(pieces)} pieces in {arguments.out}\n")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--queue", type=Path, default=QUEUE, help="file of jobs")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("packed"), help="folder of the pieces")
    parser.add_argument("--mib", type=piece_size, default=60.0, help="largest piece")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "queue", help="folder of runs that were cut")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder with the states of jobs")
    parser.add_argument("--python", default="3.12", help="version of Python there")
    parser.add_argument(
        "--wheels",
        nargs="*",
        default=WHEELS,
        metavar="NAME",
        help=f"packages to bring along (default: {' '.join(WHEELS)})",
    )
    return parser.parse_args()


def download(folder: Path, names: list[str], python: str) -> None:
    """Download wheels in pure Python, in the versions of the constraints.

    Raises:
        subprocess.CalledProcessError: pip failed, whose message was printed.
    """
    constraints = ROOT / "constraints.txt"
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", constraints.read_text(), re.MULTILINE))
    words = [f"{name}=={pinned[name]}" if name in pinned else name for name in names]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*pip, "--python-version", python, "--dest", str(folder), *words], check=True)


def content(queue: Queue, runs: Path, wheels: Path, results: Path) -> Iterator[tuple[str, Path | bytes]]:
    """The files of the archive, with their names in it."""
    states = read_states(results)
    waiting = [job for job in queue.jobs if states.get(job.name, {}).get("state") != DONE]
    models = {job.model for job in waiting}
    packaged = [str(BUILT_IN[name].relative_to(PACKAGE)) for name in models & BUILT_IN.keys()]
    for path in files_below(PACKAGE):
        name = str(path.relative_to(PACKAGE))
        if path.suffix not in WEIGHTS or any(name.startswith(folder) for folder in packaged):
            yield f"securecoderl_edge/{name}", path
    installed = distribution("securecoderl-edge")
    version, metadata = installed.version, installed.read_text("METADATA") or ""
    yield f"securecoderl_edge-{version}.dist-info/METADATA", metadata.encode()
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    yield f"site/{entry.filename}", archive.read(entry)
    here = Path(__file__).parent
    for path in [*here.glob("*.py"), *files_below(here / "recipes")]:
        yield f"benchmarks/gpu_queue/{path.relative_to(here)}", path
    for path in (path for name in GPU_DAY for path in here.parent.glob(name)):
        yield f"benchmarks/{path.name}", path
    yield f"benchmarks/gpu_queue/{QUEUE.name}", queue.file
    for path in queue.files():
        yield f"benchmarks/gpu_queue/{path.relative_to(queue.file.parent)}", path
    if (results / "jobs.json").is_file():
        yield f"{RESULTS.relative_to(ROOT)}/jobs.json", results / "jobs.json"
    for name in sorted(models - BUILT_IN.keys()):
        file = gguf_file(name)
        if file is None:
            raise SystemExit(f"{name}: only built-in models and GGUF files can be packed")
        yield f"cache/securecoderl-edge/models/{name}.gguf", file
    for job in waiting:
        if states.get(job.name, {}).get("state") == CUT:
            for path in files_below(runs / job.name):
                yield f"runs/queue/{path.relative_to(runs)}", path


def files_below(folder: Path) -> Iterator[Path]:
    """All files below a folder, links followed, without what Python compiled."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and path.name != "__pycache__":
            yield from files_below(path)
        elif path.is_file():
            yield path


if __name__ == "__main__":
    try:
        main()
    except (SceError, OSError) as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError:
        sys.exit("pip could not download the wheels; --wheels without names leaves them out")
