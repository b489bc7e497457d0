"""Does our scanner find what Bandit finds? On Bandit's own examples, against its command line.

    python benchmarks/bandit_agreement.py --json benchmarks/results/bandit-agreement.json

The examples are in Bandit's source distribution, which pip downloads unless ``--examples`` names a folder; stock
Bandit runs with ``--ignore-nosec``, as nothing in a program silences ours. A file agrees when both give the same
findings (check, CWE, severity, confidence, line), or both cannot read it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from importlib.metadata import version
from pathlib import Path

from record import publish

from securecoderl_edge.sandbox.security import Finding, SecurityScanner

QUICK_FILES = 20


def main() -> None:
    """Scan every example both ways and name the files that differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--examples", type=Path, help="folder with example programs")
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK_FILES} files")
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, SecurityScanner() as scanner:
        examples = arguments.examples or download_examples(Path(folder))
        files = sorted(examples.rglob("*.py"))[: QUICK_FILES if arguments.quick else None]
        stock = stock_findings(files)
        differing, count, unreadable = [], 0, 0
        for path in files:
            scan = scanner.scan(text_of(path))
            ours = None if scan.failed else sorted(map(as_key, scan.findings))
            count += len(ours or ())
            unreadable += ours is None
            if ours != stock[path]:
                differing.append(path.name)
    sys.stdout.write(f"{len(files)} files, {count} findings, {unreadable} that neither can read\n")
    for name in differing:
        sys.stdout.write(f"  differs: {name}\n")
    measured = {
        "files": len(files),
        "agreeing": len(files) - len(differing),
        "findings": count,
        "unreadable": unreadable,
    }
    publish({**measured, "bandit": version("bandit"), "differing": differing}, arguments.json)


def download_examples(folder: Path) -> Path:
    """Bandit's source distribution, of the version that is installed."""
    name = f"bandit=={version('bandit')}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":all:",
        name,
        "-d",
        str(folder),
    ]
    subprocess.run(command, check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.glob("bandit-*/examples"))


def text_of(path: Path) -> str:
    """A file as Python reads it: what a model writes is text, without an encoding."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (SyntaxError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8", errors="surrogateescape")


def stock_findings(files: list[Path]) -> dict[Path, list[tuple[str, int, str, str, int]] | None]:
    """Bandit's own report; None for a file that it skipped with an error."""
    command = [sys.executable, "-m", "bandit", "-q", "--ignore-nosec", "-f", "json", *map(str, files)]
    report = json.loads(subprocess.run(command, capture_output=True).stdout)
    failed = {error["filename"] for error in report["errors"]}
    found: dict[Path, list[tuple[str, int, str, str, int]] | None] = {
        path: None if str(path) in failed else [] for path in files
    }
    for each in report["results"]:
        cwe = each["issue_cwe"].get("id", 0)
        finding = Finding(each["test_id"], cwe, each["issue_severity"], each["issue_confidence"], each["line_number"])
        rows = found[Path(each["filename"])]
        assert rows is not None
        rows.append(as_key(finding))
    return {path: None if rows is None else sorted(rows) for path, rows in found.items()}


def as_key(finding: Finding) -> tuple[str, int, str, str, int]:
    """The identity of a finding."""
    return finding.test_id, finding.cwe, finding.severity, finding.confidence, finding.line


if __name__ == "__main__":
    main()
