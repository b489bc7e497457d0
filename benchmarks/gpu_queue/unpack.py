"""Check the results of a call and store them: results in benchmarks/results, adapters and runs that were cut in runs/.

    python benchmarks/gpu_queue/unpack.py FOLDER

Jobs that are done are not packed again; one that was cut goes on from its checkpoint if it came along, else it begins
again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from jobs import CUT, DONE, RESULTS, ROOT, read_states, write_states
from pieces import Damaged, pieces_in, unpack

from securecoderl_edge.errors import SceError


def main() -> None:
    """Store what came back."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the pieces are")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "queue", help="folder of adapters and runs")
    arguments = parser.parse_args()
    pieces = pieces_in(arguments.folder)
    if not pieces:
        raise SystemExit(f"{arguments.folder}: no pieces")
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary)
        unpack(pieces, tree)
        for line in store(tree, arguments.results, arguments.runs):
            sys.stdout.write(line + "\n")


def store(tree: Path, results: Path, runs: Path) -> list[str]:
    """Store the files of each job; a line for each.

    A job that is done here stays so, whatever came back.
    """
    states, said = read_states(results), []
    for name, state in read_states(tree).items():
        came = tree / name
        if states.get(name, {}).get("state") == DONE or not came.is_dir():
            continue
        for part in ("adapter", "run"):
            if (came / part).is_dir():
                target = runs / name if part == "run" else runs / name / part
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(came / part, target, dirs_exist_ok=True)
                shutil.rmtree(came / part)
        shutil.copytree(came, results / name, dirs_exist_ok=True)
        states[name] = state
        resumes = ", its checkpoint came along" if state["state"] == CUT and (runs / name / "phases").is_dir() else ""
        said.append(f"{name}: {state['state']}{resumes}")
    write_states(results, states)
    return said


if __name__ == "__main__":
    try:
        main()
    except (Damaged, SceError, OSError) as error:
        sys.exit(str(error))
