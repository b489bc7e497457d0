"""How fast is `sce scan` compared with the `bandit` command, and does it find the same? On files of real packages.

    python benchmarks/scan_speed.py --json benchmarks/results/scan-speed.json

Speed: 10,000 files of the standard library and of installed packages, copied to a temporary folder; the two commands
take turns. Agreement: on these files, and on source distributions from PyPI, findings (path, id, line, severity), at
every severity; additions of `sce`, which it marks, are counted apart. A file that Bandit skips with an error has to be
one that `sce` calls not scanned.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from record import publish

from securecoderl_edge.sandbox.file_scan import ADDED, BANDIT, NOT_SCANNED

FILES, QUICK_FILES = 10_000, 60
# Source distributions with at least 50 files in Python.
PACKAGES = ("paramiko==3.5.1", "celery==5.4.0", "Flask-AppBuilder==4.5.2")
COMMANDS = {
    "sce": ("-m", "securecoderl_edge", "scan", ".", "--isolated", "--format", "json", "--language", "python"),
    "bandit": ("-m", "bandit", "-q", "-r", ".", "--ignore-nosec", "-f", "json"),
}
_Findings = Counter[tuple[str, str, int, str]]


def main() -> None:
    """Measure speed and agreement, and print where the commands differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--files", type=int, default=FILES, help="number of files")
    parser.add_argument("--largest", type=int, default=1 << 30, help="bytes of the largest file")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each command")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_FILES} files, one round, no packages")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.files, arguments.rounds = QUICK_FILES, 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "files"
        size = copy_files(folder, arguments.files, arguments.largest)
        rounds = [{command: run(command, folder) for command in COMMANDS} for _ in range(arguments.rounds)]
        same = agreement(rounds[0]["sce"]["report"], rounds[0]["bandit"]["report"])
        packages = {} if arguments.quick else {each: of_package(each, Path(name) / each) for each in PACKAGES}
    ratios = {
        what: round(median(each["bandit"][what] / each["sce"][what] for each in rounds), 2)
        for what in ("wall_seconds", "cpu_seconds")
    }
    for each in rounds:
        for command in COMMANDS:
            del each[command]["report"]
    sys.stdout.write(f"{arguments.files} files, {size >> 20} MiB: {ratios}\n")
    for what, found in {"files": same, **packages}.items():
        sys.stdout.write(f"{what}: {found}\n")
    publish(
        {
            "files": arguments.files,
            "largest": arguments.largest,
            "bytes": size,
            "cores": len(os.sched_getaffinity(0)),
            "bandit": version("bandit"),
            "times_as_fast": ratios,
            "rounds": rounds,
            "agreement": same,
            "packages": packages,
        },
        arguments.json,
    )


def copy_files(folder: Path, number: int, largest: int) -> int:
    """Copy files of the standard library and the installed packages; their total size in bytes."""
    size = copied = 0
    for what in ("stdlib", "purelib"):
        root = Path(sysconfig.get_path(what))
        for path in sorted(root.rglob("*.py")):
            if copied >= number:
                return size
            if (what == "stdlib" and "site-packages" in path.parts) or path.stat().st_size > largest:
                continue
            target = folder / what / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            size, copied = size + path.stat().st_size, copied + 1
    raise SystemExit(f"only {copied} files are installed")


def run(command: str, folder: Path) -> dict[str, Any]:
    """One turn: seconds, memory of the largest of its processes, and the report."""
    safe = {"PYTHONSAFEPATH": "1"}  # nothing is imported from the files
    environment = {**os.environ, **safe, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *COMMANDS[command]], cwd=folder, stdout=out, stderr=errors, env=environment
        )
        _, status, used = os.wait4(process.pid, 0)
        wall, process.returncode = time.perf_counter() - started, os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):
            errors.seek(0)
            raise SystemExit(f"{command}: {errors.read()}")
        out.seek(0)
        report = json.load(out)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss >> 10
    return {"wall_seconds": round(wall, 2), "cpu_seconds": round(cpu, 2), "peak_process_mib": peak, "report": report}


def agreement(ours: dict[str, Any], stock: dict[str, Any]) -> dict[str, Any]:
    """How many findings both have, and those that one has alone."""
    mine: _Findings = Counter(
        (each["path"], each["id"], each["line"], each["severity"])
        for each in ours["findings"]
        if each["tool"] == BANDIT
    )
    theirs: _Findings = Counter(
        (os.path.normpath(each["filename"]), each["test_id"], each["line_number"], each["issue_severity"].lower())
        for each in stock["results"]
    )
    unread = {each["path"] for each in ours["findings"] if each["id"] == NOT_SCANNED}
    skipped = {os.path.normpath(each["filename"]) for each in stock["errors"]}
    return {
        "findings": mine.total(),
        "by_severity": dict(sorted(Counter(key[3] for key in mine.elements()).items())),
        "additions": sum(each["tool"] == ADDED for each in ours["findings"]),
        "not_scanned": len(unread),
        "only_sce": sorted(map(str, (mine - theirs).elements())),
        "only_bandit": sorted(map(str, (theirs - mine).elements())),
        "unread_by_one": sorted(unread ^ skipped),
    }


def of_package(package: str, folder: Path) -> dict[str, Any]:
    """The agreement on the source distribution of a package."""
    folder.mkdir()
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
    subprocess.run([*pip, package, "-d", str(folder)], check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "source", filter="data")
    found = agreement(run("sce", folder / "source")["report"], run("bandit", folder / "source")["report"])
    return {"files": len(list((folder / "source").rglob("*.py"))), **found}


if __name__ == "__main__":
    main()
