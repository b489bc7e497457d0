"""Cost of an installation: time and disk of an environment for each set of extras, and of building llama-cpp-python.

    python benchmarks/install_cost.py --json benchmarks/results/install-cost.json

Packages come from the package index that pip is set to, and none from pip's cache. Files of the clone do not count.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from record import publish

ROOT = Path(__file__).parents[1]
EXTRAS = ("", "all")  # what `sce score` needs, and what `make demo` sets up
BUILT = "llama-cpp-python"
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "--quiet")


def seconds_of(*words: str) -> float:
    """Wall time of a command.

    Raises:
        CalledProcessError: it failed.
    """
    started = time.monotonic()
    subprocess.run(words, check=True, cwd=ROOT)
    return round(time.monotonic() - started, 1)


def megabytes(folder: Path) -> int:
    """Disk space of the files below a folder."""
    blocks = sum(path.lstat().st_blocks for path in folder.rglob("*"))
    return round(512 * blocks / 1e6)


def main() -> None:
    """Install into empty environments and build the package, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only the base install")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    result = {}
    for extra in EXTRAS[: 1 if arguments.quick else None]:
        with tempfile.TemporaryDirectory() as folder:
            venv.create(folder, with_pip=True)
            source = f".[{extra}]" if extra else "."
            seconds = seconds_of(f"{folder}/bin/python", *PIP, "install", "-c", "constraints.txt", "-e", source)
            result[source] = {"wall_seconds": seconds, "megabytes": megabytes(Path(folder))}
    if not arguments.quick:
        with tempfile.TemporaryDirectory() as folder:
            words = ("wheel", "--no-deps", "--no-binary", BUILT, "-c", "constraints.txt", BUILT, "-w", folder)
            result[BUILT] = {"wall_seconds": seconds_of(sys.executable, *PIP, *words)}
    publish(result, arguments.json)


if __name__ == "__main__":
    main()
