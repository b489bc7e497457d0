"""Results of a benchmark: a record with command, commit and machine, in a file and as the last line.

python benchmarks/record.py FILE sce bench MODEL --json       runs the command and writes what it prints to FILE
python benchmarks/record.py --add FILE sce data check ...     adds it to what FILE has from earlier commands
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from securecoderl_edge.system.files import write_atomically
from securecoderl_edge.system.machine import describe_machine

WORKER_SECONDS = 3600
ROOT = Path(__file__).resolve().parents[1]


def publish(
    results: dict[str, Any], file: Path | None, *, keep_earlier: bool = False, shown: dict[str, Any] | None = None
) -> None:
    """Write the results to ``file``, if there is one, and print them as the ``RESULT`` line.

    With ``keep_earlier`` the file is a list that grows by one record a call. ``shown`` is what the line says where the
    results are too many for one. A command, commit or machine among the results is theirs.
    """
    record = {"machine": describe_machine(), "commit": commit(), "command": command(), **results}
    if file:
        content: Any = record
        if keep_earlier:
            content = [*(json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []), record]
        with write_atomically(file) as out:
            out.write(json.dumps(content, indent=1) + "\n")
    sys.stdout.write(f"RESULT {json.dumps(shown or record)}\n")


def command() -> str:
    """The command of this process, without the folders of whole paths: where they lie says nothing to others."""
    given = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    script = Path(sys.argv[0]).resolve()
    name = script.relative_to(ROOT) if script.is_relative_to(ROOT) else f"benchmarks/{script.name}"
    return " ".join(["python", str(name), *given])


def commit(checkout: Path = ROOT) -> str:
    """The commit of a checkout, by default this one, with ``+`` if tracked files other than results are changed.

    ``unknown`` outside of a checkout.
    """

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=checkout, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + "+" * bool(
            git("status", "--porcelain", "-uno", ".", ":!benchmarks/results")
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def worker(script: str | Path, *words: object, **environment: str) -> dict[str, Any]:
    """One measurement, in a process of its own: the last line that a script prints, as JSON; nothing if it is silent.

    Raises:
        SystemExit: the script failed; with what it wrote to standard error.
    """
    command = [sys.executable, str(script), *map(str, words)]
    # Threads that wait and spin would count as work.
    offline = {"HF_HUB_OFFLINE": "1", "GOMP_SPINCOUNT": "1000", "TOKENIZERS_PARALLELISM": "false"}
    environment = {**os.environ, **offline, **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WORKER_SECONDS)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{done.stderr}")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    return measured


def main() -> None:
    """Run a command that prints a JSON object, and write that with the command, commit and machine.

    Its exit code decides nothing: that of ``sce data check`` is 1 if a problem fails. Without an object it is an error.
    """
    words = sys.argv[1:]
    if is_added := words[0] == "--add":
        del words[0]
    file, *words = words
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    publish(
        {**json.loads(done.stdout), "command": " ".join(words)}, Path(file), keep_earlier=is_added, shown={"file": file}
    )


if __name__ == "__main__":
    main()
